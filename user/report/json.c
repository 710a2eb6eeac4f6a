/* SPDX-License-Identifier: BSD-2-Clause */
/* The document: every field of report.def by its class, and what has no class. */
#include "report/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "report/fields.h"
#include "report/json_build.h"

struct writer {
	struct pt_jb b;
	const struct pt_report *r;
	size_t steps; /* of lists that are given on demand */
};

/* ---- what has no class -------------------------------------------------------- */

/* Settings are text in the report; those that are numbers or truths become
 * such in JSON. `kind` and the like stay text because no name is numeric. */
static json_t *setting_value(struct pt_jb *b, const char *s)
{
	size_t n = strspn(s, "0123456789");
	json_t *v;

	if (n && !s[n] && n <= 15 && (n == 1 || s[0] != '0'))
		return json_integer(strtoll(s, NULL, 10));
	if (!strcmp(s, "true"))
		return json_true();
	if (!strcmp(s, "false"))
		return json_false();
	v = pt_j_string(s);
	if (!v)
		b->failed = true;
	return v;
}

static json_t *setting(struct pt_jb *b, const struct pt_sourced *s)
{
	json_t *v = json_object();

	pt_j_put(b, v, "value",
		 s->value ? setting_value(b, s->value) : json_null());
	pt_j_text(b, v, "source", s->source);
	return v;
}

/* Keyed text, e.g. need -> door. One need with several doors (libraries that
 * were mapped later) lists them all. */
static void keyed(struct pt_jb *b, json_t *o, const char *key, const char *text)
{
	char *k = pt_str_utf8(key, NULL), *t = pt_str_utf8(text, NULL);
	const char *old;

	if (!k || !t) {
		b->failed = true;
		goto out;
	}
	old = json_string_value(json_object_get(o, k));
	if (!old)
		pt_j_put(b, o, k, json_string(t));
	else if (strcmp(old, t))
		pt_j_put(b, o, k, json_sprintf("%s, %s", old, t));
out:
	free(k);
	free(t);
}

static json_t *hooks(struct pt_jb *b, const struct pt_r_capture *c, bool notes)
{
	static const char *const always[] = { "reads", "sched", "gpu",
					      "faults" };
	json_t *o = json_object();
	size_t i;

	for (i = 0; i < sizeof(always) / sizeof(always[0]) && !notes; i++)
		pt_j_put(b, o, always[i], json_null());
	for (i = 0; i < c->n_hooks; i++) {
		const struct pt_r_hook *h = &c->hooks[i];
		const char *text = notes ? h->note : h->door;

		if (h->need && text && (*text || !notes))
			keyed(b, o, h->need, text);
	}
	return o;
}

static json_t *lost_by_cause(struct pt_jb *b, const struct pt_r_capture *c)
{
	json_t *by = json_object();

	for (size_t i = 0; i < c->n_lost; i++) {
		char *cause = pt_str_utf8(
			c->lost[i].cause ? c->lost[i].cause : "unknown", NULL);

		if (cause)
			pt_j_put(b, by, cause, pt_j_int(c->lost[i].count));
		else
			b->failed = true;
		free(cause);
	}
	return by;
}

/* A key is always null; a report that was read says it already. */
static void own_limit(struct pt_jb *b, json_t *a, const struct pt_r_capture *c,
		      const char *what, const char *reason)
{
	json_t *o;

	for (size_t i = 0; i < c->n_limits; i++)
		if (!strcmp(c->limits[i].what, what) &&
		    !strcmp(c->limits[i].reason, reason))
			return;
	o = json_object();
	pt_j_text(b, o, "what", what);
	pt_j_text(b, o, "reason", reason);
	pt_j_add(b, a, o);
}

static void own_limits(struct pt_jb *b, json_t *a, const struct pt_report *r)
{
	const struct pt_r_capture *c = &r->capture;

	if (!r->n_phases)
		own_limit(b, a, c, "phases", "no whole step was seen");
	if (r->n_workers) {
		own_limit(b, a, c, "workers.item_ms",
			  "this version does not tell single items apart");
		if (!r->n_lines)
			own_limit(b, a, c, "workers.lines",
				  "no line of Python was seen");
	}
}

static json_t *periods(struct pt_jb *b, const struct pt_report *r)
{
	size_t n = pt_report_periods(r, NULL), i;
	double *v = n && n <= PT_PERIODS_MAX ? malloc(n * sizeof(*v)) : NULL;
	json_t *a;

	if (!n || n > PT_PERIODS_MAX)
		return json_null();
	a = json_array();
	b->failed |= !v;
	if (v)
		pt_report_periods(r, v);
	for (i = 0; v && i < n; i++)
		pt_j_add(b, a, pt_j_num(v[i], PT_J_FINE));
	free(v);
	return a;
}

static json_t *special(struct writer *w, enum pt_special which)
{
	switch (which) {
	case PT_S_hooks:
	case PT_S_hook_notes:
		return hooks(&w->b, &w->r->capture, which == PT_S_hook_notes);
	case PT_S_by_cause:
		return lost_by_cause(&w->b, &w->r->capture);
	case PT_S_periods_ms:
		return periods(&w->b, w->r);
	case PT_S_labels:
		break;
	}
	return pt_j_labels(&w->b, w->r);
}

/* ---- what has one ------------------------------------------------------------- */

static json_t *counts(struct pt_jb *b, const int64_t v[2])
{
	json_t *a;

	if (v[0] == PT_NULL && v[1] == PT_NULL)
		return json_null();
	a = json_array();
	pt_j_add(b, a, pt_j_int(v[0]));
	pt_j_add(b, a, pt_j_int(v[1]));
	return a;
}

static json_t *two(struct pt_jb *b, const char *k1, json_t *v1, const char *k2,
		   json_t *v2)
{
	json_t *o = json_object();

	pt_j_put(b, o, k1, v1);
	pt_j_put(b, o, k2, v2);
	return o;
}

static json_t *quantiles(struct pt_jb *b, const struct pt_dist *d)
{
	return !d->n ? json_null() :
		       two(b, "p50", pt_j_num(d->p50, PT_J_FINE), "p95",
			   pt_j_num(d->p95, PT_J_FINE));
}

static json_t *part(struct pt_jb *b, const struct pt_r_part *p, bool unknown)
{
	return two(b, "seconds", pt_j_num(unknown ? NAN : p->seconds, PT_J_STD),
		   "share", pt_j_num(unknown ? NAN : p->share, PT_J_STD));
}

static json_t *names(struct pt_jb *b, const char *const *v, size_t n)
{
	json_t *a = json_array();

	for (size_t i = 0; i < n; i++)
		if (v[i])
			pt_j_add(b, a, pt_j_name(v[i]));
	return a;
}

static json_t *integer(const struct pt_field *f, int64_t v)
{
	bool clock = !strcmp(f->measure->schema, "decimal_or_null");

	return clock && v != PT_NULL ? pt_j_u64((uint64_t)v) : pt_j_int(v);
}

static json_t *truth(const struct pt_field *f, bool v)
{
	return f->names ? pt_j_name(pt_enum_name(f->names, v)) : json_boolean(v);
}

/* One value that is no row; `unknown`: its row knows nothing. */
static json_t *value(struct pt_jb *b, const struct pt_field *f, const void *m,
		     bool unknown)
{
	switch (f->cls) {
	case PT_FIELD_REAL:
		return pt_j_num(unknown ? NAN : *(const double *)m,
				(enum pt_jdec)f->measure->decimals);
	case PT_FIELD_INT:
		return integer(f, unknown ? PT_NULL : *(const int64_t *)m);
	case PT_FIELD_NUMBER32:
		return json_integer(*(const uint32_t *)m);
	case PT_FIELD_NUMBER64:
		return pt_j_u64(*(const uint64_t *)m);
	case PT_FIELD_BOOL:
		return truth(f, *(const bool *)m);
	case PT_FIELD_TRI:
		return *(const int64_t *)m == PT_NULL ?
			       json_null() : json_boolean(*(const int64_t *)m);
	case PT_FIELD_ENUM:
		return pt_j_name(pt_enum_name(f->names, *(const unsigned *)m));
	case PT_FIELD_SHARES:
		return pt_j_pair(m, PT_J_STD);
	case PT_FIELD_COUNTS:
		return counts(b, m);
	case PT_FIELD_DIST:
		return pt_j_dist(m);
	case PT_FIELD_QUANTILES:
		return quantiles(b, m);
	case PT_FIELD_RANGE:
		return pt_j_range(m);
	case PT_FIELD_PART:
		return part(b, m, unknown);
	case PT_FIELD_SETTING:
		return setting(b, m);
	default:
		return json_null();
	}
}

static const struct pt_field *put_fields(struct writer *w, json_t *o,
					 const struct pt_field *f,
					 const char *row, bool unknown);

static json_t *object(struct writer *w, const struct pt_row *r, const void *row)
{
	json_t *o = json_object();

	put_fields(w, o, r->fields, row, false);
	return o;
}

static json_t *rows(struct writer *w, const struct pt_field *f, const char *row,
		    size_t n)
{
	const char *v = *(const char *const *)(row + f->off);
	const struct pt_row *r = f->row();
	json_t *a;

	if (!n && f->empty_null)
		return json_null();
	a = json_array();
	for (size_t i = 0; i < n; i++)
		pt_j_add(&w->b, a, object(w, r, v + i * r->size));
	return a;
}

static void put_array(struct writer *w, json_t *o, const struct pt_field *f,
		      const char *row, bool unknown)
{
	size_t n = *(const size_t *)(row + f->off_n);
	const void *m = row + f->off;

	if (f->on_demand && !w->steps)
		return;
	if (f->on_demand && n > w->steps)
		n = w->steps;
	if (f->cls == PT_FIELD_ROWS)
		pt_j_put(&w->b, o, f->key, rows(w, f, row, n));
	else if (unknown)
		pt_j_put(&w->b, o, f->key, json_null());
	else
		pt_j_put(&w->b, o, f->key,
			 names(&w->b, f->cls == PT_FIELD_NAMES_IN ?
					      m : *(const char *const *const *)m, n));
}

/* A group of keys; the field behind it. */
static const struct pt_field *put_group(struct writer *w, json_t *o,
					const struct pt_field *f,
					const char *row, bool unknown)
{
	const struct pt_field *next;
	json_t *group;

	if (f->first && pt_field_is_null(f + 1, row)) {
		pt_j_put(&w->b, o, f->key, json_null());
		return pt_field_behind(f);
	}
	group = json_object();
	next = put_fields(w, group, f + 1, row, unknown);
	pt_j_put(&w->b, o, f->key, group);
	return next;
}

/* Put the row's fields up to the end, or of a group; the field behind that. */
static const struct pt_field *put_fields(struct writer *w, json_t *o,
					 const struct pt_field *f,
					 const char *row, bool unknown)
{
	const struct pt_field *next;

	for (; f->cls != PT_FIELD_END && f->cls != PT_FIELD_CLOSE; f = next) {
		const void *m = row + f->off;

		next = f + 1;
		if (f->hidden)
			continue;
		switch (f->cls) {
		case PT_FIELD_KNOWN:
			unknown = !*(const bool *)m;
			break;
		case PT_FIELD_OPEN:
			next = put_group(w, o, f, row, unknown);
			break;
		case PT_FIELD_TEXT:
			pt_j_text(&w->b, o, f->key,
				  unknown ? NULL : *(const char *const *)m);
			break;
		case PT_FIELD_FLAT:
			put_fields(w, o, f->row()->fields, m, false);
			break;
		case PT_FIELD_OBJ:
			pt_j_put(&w->b, o, f->key,
				 f->first && pt_field_is_null(f->row()->fields, m) ?
					 json_null() : object(w, f->row(), m));
			break;
		case PT_FIELD_ROWS:
		case PT_FIELD_NAMES:
		case PT_FIELD_NAMES_IN:
			put_array(w, o, f, row, unknown);
			break;
		case PT_FIELD_SPECIAL:
			pt_j_put(&w->b, o, f->key, special(w, f->special));
			break;
		default:
			pt_j_put(&w->b, o, f->key,
				 value(&w->b, f, m, unknown));
			break;
		}
	}
	return f + 1;
}

int pt_report_json(const struct pt_report *r, FILE *out,
		   const struct pt_json_opts *o)
{
	struct writer w = { .r = r, .steps = o ? o->steps : 0 };
	json_t *d = json_object();

	pt_j_put(&w.b, d, "schema", json_string(PT_REPORT_SCHEMA));
	pt_j_put(&w.b, d, "tool", json_string("pipetrace"));
	put_fields(&w, d, pt_row_report()->fields, (const char *)r, false);
	own_limits(&w.b, json_object_get(json_object_get(d, "capture"), "limits"),
		   r);
	return pt_j_write(&w.b, d, out, o ? o->indent : 0);
}

char *pt_report_evidence_json(const struct pt_r_verdict *v)
{
	struct writer w = { .r = NULL };
	const struct pt_field *f = pt_row_find("verdict")->fields;
	json_t *o = json_object();
	char *text = NULL;

	while (f->off_n != offsetof(struct pt_r_verdict, n_evidence))
		f++;
	put_array(&w, o, f, (const char *)v, false);
	if (!w.b.failed)
		text = json_dumps(o, JSON_COMPACT |
				     JSON_REAL_PRECISION(PT_J_DIGITS));
	json_decref(o);
	return text;
}
