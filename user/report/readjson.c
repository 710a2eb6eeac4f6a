/* SPDX-License-Identifier: BSD-2-Clause */
#include "report/readjson.h"

#include <errno.h>
#include <string.h>

#include "report/fields.h"
#include "report/readjson_get.h"

#define KEYED_MAX 256 /* hooks, causes of losses */
#define KEY_MAX 1024  /* bytes */

/* ---- what has no class -------------------------------------------------------- */

/* Text again, whatever JSON type the writer gave it. */
static void read_setting(const struct pt_rd_at *loader, const char *key,
			 struct pt_sourced *s)
{
	struct pt_rd_at at = pt_rd_object(loader, key, false);
	const json_t *v = at.o ? json_object_get(at.o, "value") : NULL;

	s->source = pt_rd_text(&at, "source");
	if (json_is_integer(v))
		s->value = pt_arena_printf(at.d->r->arena, "%lld",
					   (long long)json_integer_value(v));
	else if (json_is_boolean(v))
		s->value = json_is_true(v) ? "true" : "false";
	else
		s->value = pt_rd_text(&at, "value");
	if (json_is_integer(v) && !s->value)
		at.d->err = -ENOMEM;
}

static void read_labels(const struct pt_rd_at *top)
{
	struct pt_rd *d = top->d;
	struct pt_rd_at at;
	const char *key, *value;
	json_t *v;
	int err;

	at = pt_rd_object(top, "labels", false);
	if (!at.o)
		return;
	json_object_foreach((json_t *)at.o, key, v) {
		value = strlen(key) > KEY_MAX ? NULL : json_string_value(v);
		if (!value || strlen(value) > KEY_MAX) {
			pt_rd_fail(d, "a label is not a text of at most %d "
				      "bytes", KEY_MAX);
			return;
		}
		err = pt_report_label(d->r, key, value);
		if (err == -ENOSPC)
			pt_rd_fail(d, "there are more than %d labels",
				   PT_LABELS_MAX);
		else if (err)
			d->err = err;
		if (d->err)
			return;
	}
}

static const char *kept(struct pt_rd *d, const char *s)
{
	char *copy = d->err ? NULL : pt_arena_strdup(d->r->arena, s);

	if (!copy && !d->err)
		d->err = -ENOMEM;
	return copy;
}

/* An object of keys that are not ours: its size; 0 after an error. */
static size_t keyed(const struct pt_rd_at *at, const char *key,
		    struct pt_rd_at *to)
{
	const char *k;
	json_t *v;

	*to = pt_rd_object(at, key, false);
	if (!to->o)
		return 0;
	if (json_object_size(to->o) > KEYED_MAX)
		pt_rd_fail(at->d, "%s%s has more than %d keys", at->path, key,
			   KEYED_MAX);
	json_object_foreach((json_t *)to->o, k, v)
		if (strlen(k) > KEY_MAX)
			pt_rd_fail(at->d, "%s%s has a key of more than %d bytes",
				   at->path, key, KEY_MAX);
	return at->d->err ? 0 : json_object_size(to->o);
}

static void read_hooks(const struct pt_rd_at *capture)
{
	struct pt_r_capture *c = &capture->d->r->capture;
	struct pt_rd_at at;
	struct pt_r_hook *h = pt_rd_room(capture->d,
					 keyed(capture, "hooks", &at), sizeof(*h));
	const char *key;
	json_t *v;

	if (!h)
		return;
	c->hooks = h;
	json_object_foreach((json_t *)at.o, key, v) {
		if (json_is_null(v))
			continue;
		h->need = kept(at.d, key);
		h->door = pt_rd_text(&at, key);
		h++;
		c->n_hooks++;
	}
}

/* Behind the hooks that they are of. */
static void read_hook_notes(const struct pt_rd_at *capture)
{
	struct pt_r_capture *c = &capture->d->r->capture;
	struct pt_rd_at at;
	size_t i;

	if (!keyed(capture, "hook_notes", &at))
		return;
	for (i = 0; i < c->n_hooks && !at.d->err; i++)
		if (json_object_get(at.o, c->hooks[i].need))
			((struct pt_r_hook *)c->hooks)[i].note =
				pt_rd_text(&at, c->hooks[i].need);
}

static void read_losses(const struct pt_rd_at *lost)
{
	struct pt_r_capture *c = &lost->d->r->capture;
	struct pt_rd_at at;
	struct pt_r_loss *l = pt_rd_room(lost->d, keyed(lost, "by_cause", &at),
					 sizeof(*l));
	const char *key;
	json_t *v;

	if (!l)
		return;
	c->lost = l;
	json_object_foreach((json_t *)at.o, key, v) {
		l->cause = kept(at.d, key);
		l->count = pt_rd_int(&at, key, 0);
		l++;
		c->n_lost++;
	}
}

static void read_periods(const struct pt_rd_at *at)
{
	struct pt_r_steps *s = &at->d->r->steps;
	const json_t *a, *v;
	double *out;
	size_t n, i;

	a = pt_rd_array(at, "periods_ms", PT_PERIODS_MAX, &n);
	out = a ? pt_rd_room(at->d, n, sizeof(*out)) : NULL;
	for (i = 0; out && i < n && !at->d->err; i++) {
		v = json_array_get(a, i);
		out[i] = json_number_value(v);
		if (!json_is_number(v) || !(out[i] >= 0 && out[i] <= PT_RD_FIGURE))
			pt_rd_fail(at->d, "steps.periods_ms[%zu] is no period", i);
	}
	s->periods_ms = out;
	s->n_periods = out ? n : 0;
}

static void read_special(const struct pt_rd_at *at, enum pt_special which)
{
	switch (which) {
	case PT_S_hooks:
		read_hooks(at);
		break;
	case PT_S_hook_notes:
		read_hook_notes(at);
		break;
	case PT_S_by_cause:
		read_losses(at);
		break;
	case PT_S_labels:
		read_labels(at);
		break;
	case PT_S_periods_ms:
		read_periods(at);
		break;
	}
}

/* ---- what has one ------------------------------------------------------------- */

#define FACTOR_MAX 1e15 /* of a speed-up */

static void read_dist(const struct pt_rd_at *o, const struct pt_field *f,
		      struct pt_dist *d)
{
	struct pt_rd_at at = pt_rd_object(o, f->key, true);
	bool all = f->cls == PT_FIELD_DIST;
	int64_t n;

	if (!at.o)
		return;
	n = all ? pt_rd_int(&at, "count", 1) : 1;
	d->mean = pt_rd_num(&at, "mean", 0, PT_RD_FIGURE);
	d->std = pt_rd_num(&at, "std", 0, PT_RD_FIGURE);
	d->min = pt_rd_num(&at, "min", 0, PT_RD_FIGURE);
	d->p50 = pt_rd_num(&at, "p50", 0, PT_RD_FIGURE);
	d->p95 = pt_rd_num(&at, "p95", 0, PT_RD_FIGURE);
	d->p99 = pt_rd_num(&at, "p99", 0, PT_RD_FIGURE);
	d->max = pt_rd_num(&at, "max", 0, PT_RD_FIGURE);
	if (n == PT_NULL || (all && isnan(d->mean)))
		pt_rd_fail(o->d, "%s%s has no count or no mean", o->path, f->key);
	else
		d->n = (uint64_t)n;
}

static void read_range(const struct pt_rd_at *o, const char *key,
		       struct pt_range *r)
{
	struct pt_rd_at at = pt_rd_object(o, key, false);

	r->value = pt_rd_num(&at, "value", 0, FACTOR_MAX);
	r->low = pt_rd_num(&at, "low", 0, FACTOR_MAX);
	r->high = pt_rd_num(&at, "high", 0, FACTOR_MAX);
}

static void read_part(const struct pt_rd_at *o, const char *key,
		      struct pt_r_part *p)
{
	struct pt_rd_at at = pt_rd_object(o, key, false);

	p->seconds = pt_rd_num(&at, "seconds", 0, PT_RD_FIGURE);
	p->share = pt_rd_share(&at, "share");
}

static double read_real(const struct pt_rd_at *at, const struct pt_field *f)
{
	const struct pt_measure *m = f->measure;

	return !strcmp(m->schema, "share") ?
		       pt_rd_share(at, f->key) :
		       pt_rd_num(at, f->key, m->min, m->max);
}

static int64_t read_int(const struct pt_rd_at *at, const struct pt_field *f)
{
	uint64_t v;

	if (strcmp(f->measure->schema, "decimal_or_null"))
		return pt_rd_int(at, f->key, (int64_t)f->measure->min);
	return pt_rd_decimal(at, f->key, INT64_MAX, &v) ? (int64_t)v : PT_NULL;
}

static bool read_bool(const struct pt_rd_at *at, const struct pt_field *f)
{
	return f->names ? pt_rd_name(at, f->key, f->names) : pt_rd_bool(at, f->key);
}

/* One value that is no row. */
static void read_value(const struct pt_rd_at *at, const struct pt_field *f,
		       void *m)
{
	uint64_t number = 0;

	switch (f->cls) {
	case PT_FIELD_REAL:
		*(double *)m = read_real(at, f);
		break;
	case PT_FIELD_INT:
		*(int64_t *)m = read_int(at, f);
		break;
	case PT_FIELD_NUMBER32:
		pt_rd_number(at, f->key, UINT32_MAX, &number);
		*(uint32_t *)m = (uint32_t)number;
		break;
	case PT_FIELD_NUMBER64:
		pt_rd_decimal(at, f->key, UINT64_MAX, m);
		break;
	case PT_FIELD_BOOL:
		*(bool *)m = read_bool(at, f);
		break;
	case PT_FIELD_TRI:
		*(int64_t *)m = pt_rd_tri(at, f->key);
		break;
	case PT_FIELD_TEXT:
		*(const char **)m = pt_rd_text(at, f->key);
		break;
	case PT_FIELD_ENUM:
		*(unsigned *)m = (unsigned)pt_rd_name(at, f->key, f->names);
		break;
	case PT_FIELD_SHARES:
		pt_rd_shares(at, f->key, m);
		break;
	case PT_FIELD_COUNTS:
		pt_rd_counts(at, f->key, m);
		break;
	case PT_FIELD_DIST:
	case PT_FIELD_QUANTILES:
		read_dist(at, f, m);
		break;
	case PT_FIELD_RANGE:
		read_range(at, f->key, m);
		break;
	case PT_FIELD_PART:
		read_part(at, f->key, m);
		break;
	case PT_FIELD_SETTING:
		read_setting(at, f->key, m);
		break;
	default:
		break;
	}
}

static void read_names(const struct pt_rd_at *at, const struct pt_field *f,
		       char *row)
{
	size_t n, i;
	const json_t *a = pt_rd_array(at, f->key, f->max, &n);
	const char **v = f->cls == PT_FIELD_NAMES_IN ?
				 (const char **)(void *)(row + f->off) :
				 pt_rd_room(at->d, n, sizeof(*v));

	if (a)
		at->d->values++;
	for (i = 0; v && i < n && !at->d->err; i++) {
		const char *s = json_string_value(json_array_get(a, i));

		if (!s || strlen(s) > KEY_MAX)
			pt_rd_fail(at->d, "%s%s has what is no name", at->path,
				   f->key);
		else
			v[i] = kept(at->d, s);
	}
	if (f->cls == PT_FIELD_NAMES)
		*(const char *const **)(row + f->off) = v;
	*(size_t *)(row + f->off_n) = v ? n : 0;
}

static const struct pt_field *read_fields(const struct pt_rd_at *at,
					  const struct pt_field *f, char *row);

static void read_rows(const struct pt_rd_at *at, const struct pt_field *f,
		      char *row)
{
	const struct pt_row *r = f->row();
	size_t n, i;
	const json_t *a = pt_rd_array(at, f->key, f->max, &n);
	char *v = pt_rd_room(at->d, n, r->size);

	for (i = 0; v && i < n && !at->d->err; i++) {
		struct pt_rd_at one = pt_rd_element(at, f->key, a, i);

		pt_row_null(r, v + i * r->size);
		read_fields(&one, r->fields, v + i * r->size);
	}
	*(void **)(row + f->off) = v;
	*(size_t *)(row + f->off_n) = v ? n : 0;
}

/* Fields up to the end, or of a group; the field behind that. The row is null. */
static const struct pt_field *read_fields(const struct pt_rd_at *at,
					  const struct pt_field *f, char *row)
{
	const struct pt_field *next;
	size_t before = at->d->values;
	struct pt_rd_at sub;
	bool *known = NULL;
	const json_t *v;

	for (; f->cls != PT_FIELD_END && f->cls != PT_FIELD_CLOSE; f = next) {
		next = f + 1;
		if (at->d->err || f->hidden)
			continue;
		v = f->needed ? json_object_get(at->o, f->key) : NULL;
		if (f->needed && at->o && (!v || json_is_null(v)))
			pt_rd_fail(at->d, "%s%s is missing", at->path, f->key);
		switch (f->cls) {
		case PT_FIELD_KNOWN:
			known = (bool *)(row + f->off);
			break;
		case PT_FIELD_OPEN:
			sub = pt_rd_object(at, f->key, f->first);
			next = read_fields(&sub, f + 1, row);
			break;
		case PT_FIELD_FLAT:
			read_fields(at, f->row()->fields, row + f->off);
			break;
		case PT_FIELD_OBJ:
			sub = pt_rd_object(at, f->key, f->first);
			read_fields(&sub, f->row()->fields, row + f->off);
			break;
		case PT_FIELD_ROWS:
			read_rows(at, f, row);
			break;
		case PT_FIELD_NAMES:
		case PT_FIELD_NAMES_IN:
			read_names(at, f, row);
			break;
		case PT_FIELD_SPECIAL:
			read_special(at, f->special);
			break;
		default:
			read_value(at, f, row + f->off);
			break;
		}
	}
	if (known)
		*known = at->d->values > before;
	return f + 1;
}

/* ---- what must hold between values --------------------------------------------- */

static void check_steps(struct pt_rd *d, const struct pt_r_steps *s)
{
	size_t i;

	for (i = 0; i < s->n_list; i++) {
		const struct pt_r_step *x = &s->list[i];

		if (x->begin_ns == PT_NULL || x->end_ns == PT_NULL ||
		    x->begin_ns > x->end_ns)
			pt_rd_fail(d, "steps.list[%zu] ends before it begins", i);
		else if (i && x->begin_ns < x[-1].begin_ns)
			pt_rd_fail(d, "steps.list is not in order");
	}
}

static void check_breakdown(struct pt_rd *d, const struct pt_r_breakdown *b)
{
	double sum = b->data_wait.seconds + b->gpu_wait.seconds +
		     b->transfer.seconds + b->sync.seconds + b->launch.seconds +
		     b->collective.seconds + b->checkpoint.seconds +
		     b->other.seconds;

	if (b->known && !isfinite(sum))
		pt_rd_fail(d, "breakdown knows only some of its parts");
}

static void check_idle(struct pt_rd *d, const struct pt_r_gpu *g)
{
	if (g->idle_hard[0] > g->idle_hard[1] + PT_RD_ROUNDING ||
	    g->idle_likely[0] > g->idle_likely[1] + PT_RD_ROUNDING)
		pt_rd_fail(d, "gpu.idle has its bounds the wrong way round");
}

static void check(struct pt_rd *d)
{
	const struct pt_report *r = d->r;
	size_t i;

	if (r->capture.begin_ns > r->capture.end_ns &&
	    r->capture.end_ns != PT_NULL)
		pt_rd_fail(d, "the capture ends before it begins");
	check_steps(d, &r->steps);
	check_breakdown(d, &r->breakdown);
	for (i = 0; i < r->n_gpu; i++)
		check_idle(d, &r->gpu[i]);
}

/* ---- the document --------------------------------------------------------- */

static void check_schema(const struct pt_rd_at *top)
{
	const json_t *v = json_object_get(top->o, "schema");
	const char *s = json_string_value(v);

	if (!s || strncmp(s, "pipetrace.", 10))
		pt_rd_fail(top->d, "it is JSON, but no report of pipetrace");
	else if (!strncmp(s, "pipetrace.diff/", 15))
		pt_rd_fail(top->d, "it is a comparison, not a report");
	else if (strcmp(s, PT_REPORT_SCHEMA))
		pt_rd_fail(top->d, "it is \"%.64s\", this version reads "
			   PT_REPORT_SCHEMA, s);
}

int pt_report_read_json(const char *text, size_t len, struct pt_report *r,
			struct pt_read_error *why)
{
	struct pt_rd d = { .r = r, .why = why };
	struct pt_rd_at top = { .d = &d };
	json_error_t e;
	json_t *doc;

	if (len > PT_READ_MAX) {
		pt_rd_fail(&d, "it is larger than %u MiB (a smaller "
			   "--print-steps makes a smaller one)",
			   PT_READ_MAX >> 20);
		return d.err;
	}
	doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	if (!doc) {
		if (json_error_code(&e) == json_error_out_of_memory)
			return -ENOMEM;
		pt_rd_fail(&d, "it is not JSON (line %d: %.120s)", e.line,
			   e.text);
		return d.err;
	}
	top.o = doc;
	if (json_is_object(doc))
		check_schema(&top);
	else
		pt_rd_fail(&d, "it is JSON, but no report of pipetrace");
	if (!d.err)
		read_fields(&top, pt_row_report()->fields, (char *)r);
	r->capture.cap_limits = r->capture.n_limits;
	if (!d.err)
		check(&d);
	json_decref(doc);
	return d.err;
}
