/* SPDX-License-Identifier: BSD-2-Clause */
#include "report/fields.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

const char *pt_certainty_name(enum pt_certainty c)
{
	return pt_enum_name(&pt_enum_certainty, c);
}

const char *pt_confidence_name(enum pt_confidence c)
{
	return pt_enum_name(&pt_enum_confidence, c);
}

const char *pt_severity_name(enum pt_severity s)
{
	return pt_enum_name(&pt_enum_severity, s);
}

const char *pt_cause_name(enum pt_cause c)
{
	return pt_enum_name(&pt_enum_cause, c);
}

const char *pt_worker_state_name(enum pt_worker_state s)
{
	return pt_enum_name(&pt_enum_worker_state, s);
}

struct pt_report *pt_report_new(void)
{
	struct pt_arena *arena = pt_arena_new();
	struct pt_report *r = arena ? pt_report_new_in(arena) : NULL;

	if (!r)
		pt_arena_free(arena);
	return r;
}

struct pt_report *pt_report_new_in(struct pt_arena *arena)
{
	struct pt_report *r = pt_arena_alloc(arena, sizeof(*r));

	if (!r)
		return NULL;
	pt_row_null(pt_row_report(), r);
	r->arena = arena;
	return r;
}

void pt_report_free(struct pt_report *r)
{
	if (r)
		pt_arena_free(r->arena); /* the report lies in it */
}

static bool same_limit(const struct pt_r_limit *l, const char *what,
		       const char *reason)
{
	return !strcmp(l->what, what) && !strcmp(l->reason, reason);
}

int pt_report_limit(struct pt_report *r, const char *what, const char *fmt, ...)
{
	struct pt_r_capture *c = &r->capture;
	struct pt_r_limit *grown;
	char *reason, *id;
	size_t cap;
	va_list ap;

	va_start(ap, fmt);
	reason = pt_arena_vprintf(r->arena, fmt, ap);
	va_end(ap);
	if (!reason)
		return -ENOMEM;
	for (size_t i = 0; i < c->n_limits; i++)
		if (same_limit(&c->limits[i], what, reason))
			return 0;
	id = pt_arena_strdup(r->arena, what);
	if (!id)
		return -ENOMEM;
	if (c->n_limits >= c->cap_limits) {
		cap = c->cap_limits ? 2 * c->cap_limits : 8;
		grown = pt_arena_calloc(r->arena, cap, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		if (c->n_limits)
			memcpy(grown, c->limits, c->n_limits * sizeof(*grown));
		c->limits = grown;
		c->cap_limits = cap;
	}
	c->limits[c->n_limits].what = id;
	c->limits[c->n_limits++].reason = reason;
	return 0;
}

int pt_report_label(struct pt_report *r, const char *key, const char *value)
{
	char *v = pt_arena_strdup(r->arena, value), *k;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_labels; i++) {
		if (strcmp(r->labels[i].key, key))
			continue;
		r->labels[i].value = v;
		return 0;
	}
	if (r->n_labels == PT_LABELS_MAX)
		return -ENOSPC;
	if (!r->labels)
		r->labels = pt_arena_calloc(r->arena, PT_LABELS_MAX,
					    sizeof(*r->labels));
	k = pt_arena_strdup(r->arena, key);
	if (!r->labels || !k)
		return -ENOMEM;
	r->labels[r->n_labels].key = k;
	r->labels[r->n_labels++].value = v;
	return 0;
}

int pt_report_severity(const struct pt_report *r)
{
	int worst = -1;

	for (size_t i = 0; i < r->n_verdicts; i++)
		if ((int)r->verdicts[i].severity > worst)
			worst = (int)r->verdicts[i].severity;
	return worst;
}

size_t pt_report_periods(const struct pt_report *r, double *out)
{
	const struct pt_r_steps *s = &r->steps;
	const struct pt_r_capture *c = &r->capture;
	size_t i, n = 0;

	if (s->n_periods) {
		if (out)
			memcpy(out, s->periods_ms, s->n_periods * sizeof(*out));
		return s->n_periods;
	}
	if (s->count != PT_NULL && (uint64_t)s->count > s->n_list)
		return 0;
	for (i = 0; i < s->n_list; i++) {
		const struct pt_r_step *x = &s->list[i];

		if (x->begin_ns <= c->begin_ns || x->end_ns >= c->end_ns ||
		    !isfinite(x->period_ms))
			continue;
		if (out)
			out[n] = x->period_ms;
		n++;
	}
	return n;
}
