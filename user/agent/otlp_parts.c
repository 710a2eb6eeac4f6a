/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/otlp_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

char *pt_otlp_text(struct pt_arena *a, const char *s, size_t most)
{
	char *clean = pt_str_utf8(s ? s : "", NULL), *kept;
	size_t len = 0, n;
	uint32_t cp;

	if (!clean)
		return NULL;
	if (strlen(clean) <= most) {
		len = strlen(clean);
	} else {
		while ((n = pt_utf8_decode(clean + len, strlen(clean + len), &cp)) &&
		       len + n <= most)
			len += n;
	}
	kept = pt_arena_strndup(a, clean, len);
	free(clean);
	return kept;
}

Otlp__AnyValue *pt_otlp_any(struct pt_arena *a, const char *s, size_t most)
{
	Otlp__AnyValue *v = PT_OTLP_NEW(a, any_value, AnyValue);

	if (v)
		v->string_value = pt_otlp_text(a, s, most);
	return v && v->string_value ? v : NULL;
}

Otlp__AnyValue *pt_otlp_any_int(struct pt_arena *a, uint64_t x)
{
	Otlp__AnyValue *v = PT_OTLP_NEW(a, any_value, AnyValue);

	if (v) {
		v->has_int_value = 1;
		v->int_value = (int64_t)x;
	}
	return v;
}

Otlp__KeyValue *pt_otlp_pair(struct pt_arena *a, const char *key, Otlp__AnyValue *value)
{
	Otlp__KeyValue *kv = value ? PT_OTLP_NEW(a, key_value, KeyValue) : NULL;

	if (kv) {
		kv->key = (char *)key;
		kv->value = value;
	}
	return kv;
}

int pt_otlp_resource(struct pt_arena *a, const struct pt_otlp_who *who,
		    Otlp__Resource *r, Otlp__Scope *scope)
{
	const char *const key[] = { "host.name", "service.name", "service.version" };
	const char *const value[] = { who->host, "pipetrace", who->version };
	size_t i;

	otlp__resource__init(r);
	otlp__scope__init(scope);
	scope->name = (char *)"pipetrace";
	scope->version = pt_otlp_text(a, who->version, PT_PROM_LABEL);
	r->attributes = pt_arena_calloc(a, 3, sizeof(*r->attributes));
	if (!r->attributes || !scope->version)
		return -ENOMEM;
	for (i = 0; i < 3; i++) {
		if (!value[i] || !*value[i])
			continue;
		r->attributes[r->n_attributes] =
			pt_otlp_pair(a, key[i], pt_otlp_any(a, value[i], 4 * PT_PROM_LABEL));
		if (!r->attributes[r->n_attributes++])
			return -ENOMEM;
	}
	return 0;
}

uint64_t pt_otlp_rejected(const uint8_t *answer, size_t len)
{
	Otlp__Response *r = len ? otlp__response__unpack(NULL, len, answer) : NULL;
	uint64_t n = 0;

	if (!r)
		return 0;
	if (r->partial_success && r->partial_success->has_rejected &&
	    r->partial_success->rejected > 0)
		n = (uint64_t)r->partial_success->rejected;
	otlp__response__free_unpacked(r, NULL);
	return n;
}
