/* SPDX-License-Identifier: BSD-2-Clause */
#include "report/json_build.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/str.h"

void pt_j_put(struct pt_jb *b, json_t *o, const char *key, json_t *v)
{
	/* frees v and fails where o or v is NULL */
	if (json_object_set_new(o, key, v))
		b->failed = true;
}

void pt_j_add(struct pt_jb *b, json_t *array, json_t *v)
{
	if (json_array_append_new(array, v))
		b->failed = true;
}

json_t *pt_j_num(double v, enum pt_jdec decimals)
{
	double scale = 1;

	if (!isfinite(v))
		return json_null();
	for (int i = 0; i < (int)decimals; i++)
		scale *= 10;
	/* beyond 2^53 / scale there is nothing left to round */
	if (fabs(v) < 9e15 / scale)
		v = round(v * scale) / scale;
	if (v == 0)
		v = 0; /* no "-0.0" */
	return json_real(v);
}

void pt_j_std(struct pt_jb *b, json_t *o, const char *key, double v)
{
	pt_j_put(b, o, key, pt_j_num(v, PT_J_STD));
}

int pt_j_write(const struct pt_jb *b, json_t *o, FILE *out, unsigned indent)
{
	size_t flags = JSON_REAL_PRECISION(PT_J_DIGITS);
	int err = 0;

	flags |= indent ? JSON_INDENT(indent > 8 ? 8 : indent) : JSON_COMPACT;
	if (b->failed || !o)
		err = -ENOMEM;
	else if (json_dumpf(o, out, flags) || fputc('\n', out) == EOF || fflush(out))
		err = -EIO;
	json_decref(o);
	return err;
}

json_t *pt_j_int(int64_t v)
{
	return v == PT_NULL ? json_null() : json_integer(v);
}

json_t *pt_j_u64(uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
	return json_string(text);
}

json_t *pt_j_name(const char *s)
{
	return s ? json_string(s) : json_null();
}

json_t *pt_j_pair(const double v[2], enum pt_jdec decimals)
{
	struct pt_jb b = { 0 };
	json_t *a;

	if (!isfinite(v[0]) && !isfinite(v[1]))
		return json_null();
	a = json_array();
	pt_j_add(&b, a, pt_j_num(v[0], decimals));
	pt_j_add(&b, a, pt_j_num(v[1], decimals));
	if (!b.failed)
		return a;
	json_decref(a);
	return NULL;
}

json_t *pt_j_range(const struct pt_range *r)
{
	struct pt_jb b = { 0 };
	json_t *o = json_object();

	pt_j_put(&b, o, "value", pt_j_num(r->value, PT_J_STD));
	pt_j_put(&b, o, "low", pt_j_num(r->low, PT_J_STD));
	pt_j_put(&b, o, "high", pt_j_num(r->high, PT_J_STD));
	if (!b.failed)
		return o;
	json_decref(o);
	return NULL;
}

json_t *pt_j_dist(const struct pt_dist *d)
{
	struct pt_jb b = { 0 };
	json_t *o;

	if (!d->n)
		return json_null();
	o = json_object();
	pt_j_put(&b, o, "mean", pt_j_num(d->mean, PT_J_FINE));
	pt_j_put(&b, o, "std", pt_j_num(d->std, PT_J_FINE));
	pt_j_put(&b, o, "min", pt_j_num(d->min, PT_J_FINE));
	pt_j_put(&b, o, "p50", pt_j_num(d->p50, PT_J_FINE));
	pt_j_put(&b, o, "p95", pt_j_num(d->p95, PT_J_FINE));
	pt_j_put(&b, o, "p99", pt_j_num(d->p99, PT_J_FINE));
	pt_j_put(&b, o, "max", pt_j_num(d->max, PT_J_FINE));
	pt_j_put(&b, o, "count", json_integer((json_int_t)d->n));
	if (!b.failed)
		return o;
	json_decref(o);
	return NULL;
}

json_t *pt_j_string(const char *s)
{
	char *clean = pt_str_utf8(s, NULL);
	json_t *v = clean ? json_string(clean) : NULL;

	free(clean);
	return v;
}

void pt_j_text(struct pt_jb *b, json_t *o, const char *key, const char *s)
{
	char flag[64];
	bool escaped;
	char *clean;

	if (!s) {
		pt_j_put(b, o, key, json_null());
		return;
	}
	clean = pt_str_utf8(s, &escaped);
	if (!clean) {
		b->failed = true;
		return;
	}
	pt_j_put(b, o, key, json_string(clean));
	free(clean);
	if (!escaped)
		return;
	snprintf(flag, sizeof(flag), "%s_escaped", key);
	pt_j_put(b, o, flag, json_true());
}

json_t *pt_j_labels(struct pt_jb *b, const struct pt_report *r)
{
	json_t *o = json_object();

	for (size_t i = 0; i < r->n_labels; i++) {
		char *k = pt_str_utf8(r->labels[i].key, NULL);

		if (k)
			pt_j_put(b, o, k, pt_j_string(r->labels[i].value));
		else
			b->failed = true;
		free(k);
	}
	return o;
}
