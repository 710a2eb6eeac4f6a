// SPDX-License-Identifier: BSD-2-Clause
#include "report/about.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report/fields.h"

/* A field of report.def that is KEPT. */
struct fact {
	char name[64]; /* OBJECT.MEMBER */
	const struct pt_field *f;
	void *member;
};
#define FACTS_MAX 64

static size_t facts_of(struct pt_report *r, struct fact all[FACTS_MAX])
{
	const struct pt_field *of = pt_row_report()->fields, *f;
	size_t n = 0;

	for (; of->cls != PT_FIELD_END; of++) {
		f = of->cls == PT_FIELD_OBJ ? of->row()->fields : NULL;
		for (; f && f->cls != PT_FIELD_END; f++) {
			if (!f->kept || n == FACTS_MAX)
				continue;
			snprintf(all[n].name, sizeof(all->name), "%s.%s", of->key,
				 f->member);
			all[n].f = f;
			all[n++].member = (char *)r + of->off + f->off;
		}
	}
	return n;
}

/* ---- writing ------------------------------------------------------------- */

static void put(FILE *f, const char *name, const char *value)
{
	fwrite(name, strlen(name) + 1, 1, f);
	fwrite(value, strlen(value) + 1, 1, f);
}

static void put_fact(FILE *f, const struct fact *x)
{
	const void *p = x->member;
	char number[64];

	if (pt_field_is_null(x->f, (const char *)p - x->f->off))
		return;
	switch (x->f->cls) {
	case PT_FIELD_TEXT:
		put(f, x->name, *(const char *const *)p);
		return;
	case PT_FIELD_INT:
		snprintf(number, sizeof(number), "%" PRId64,
			 *(const int64_t *)p);
		break;
	case PT_FIELD_REAL:
		snprintf(number, sizeof(number), "%a", *(const double *)p);
		break;
	default:
		snprintf(number, sizeof(number), "%d", *(const bool *)p);
		break;
	}
	put(f, x->name, number);
}

int pt_about_write(const struct pt_report *r, bool marked, FILE *out)
{
	const struct pt_r_capture *c = &r->capture;
	struct fact all[FACTS_MAX];
	size_t n = facts_of((struct pt_report *)r, all), i;

	for (i = 0; i < n; i++)
		put_fact(out, &all[i]);
	if (marked)
		put(out, "capture.parts", "marked");
	for (i = 0; i < c->n_hooks; i++) {
		put(out, "hook.need", c->hooks[i].need);
		put(out, "hook.door", c->hooks[i].door);
		if (c->hooks[i].note)
			put(out, "hook.note", c->hooks[i].note);
	}
	for (i = 0; i < r->n_thresholds; i++) {
		char text[160];

		snprintf(text, sizeof(text), "%.96s=%.17g",
			 r->thresholds[i].name, r->thresholds[i].value);
		put(out, "threshold", text);
	}
	for (i = 0; i < r->n_labels; i++) {
		put(out, "label.key", r->labels[i].key);
		put(out, "label.value", r->labels[i].value);
	}
	return fflush(out) || ferror(out) ? -EIO : 0;
}

/* ---- reading ------------------------------------------------------------- */

struct reading {
	struct pt_report *r;
	struct pt_r_hook *hooks; /* room for PT_ABOUT_LIST once there is one */
	struct pt_about *a;
	const char *label;	 /* a key whose value is to come */
};

static int set_text(struct pt_report *r, const char **to, const char *value)
{
	*to = pt_arena_strdup(r->arena, value);
	return *to ? 0 : -ENOMEM;
}

static int set_fact(struct pt_report *r, const struct fact *x,
		    const char *value)
{
	void *p = x->member;
	double real;
	long long n;
	char *end;

	errno = 0;
	switch (x->f->cls) {
	case PT_FIELD_TEXT:
		return set_text(r, p, value);
	case PT_FIELD_INT:
		n = strtoll(value, &end, 10);
		if (!errno && end != value && !*end)
			*(int64_t *)p = n;
		break;
	case PT_FIELD_REAL:
		real = strtod(value, &end);
		if (end != value && !*end && isfinite(real))
			*(double *)p = real;
		break;
	default:
		*(bool *)p = !strcmp(value, "1");
		break;
	}
	return 0;
}

static int add_hook(struct reading *k, const char *need)
{
	struct pt_r_capture *c = &k->r->capture;

	if (!k->hooks)
		k->hooks = pt_arena_calloc(k->r->arena, PT_ABOUT_LIST,
					   sizeof(*k->hooks));
	if (!k->hooks)
		return -ENOMEM;
	c->hooks = k->hooks;
	if (c->n_hooks == PT_ABOUT_LIST)
		return 0;
	return set_text(k->r, &k->hooks[c->n_hooks++].need, need);
}

static int add_threshold(struct reading *k, const char *text)
{
	if (k->a->n_thresholds == PT_ABOUT_THRESHOLDS)
		return 0;
	return set_text(k->r, &k->a->thresholds[k->a->n_thresholds++], text);
}

static int read_fact(struct reading *k, const char *name, const char *value)
{
	struct pt_r_capture *c = &k->r->capture;
	struct pt_r_hook *last = c->n_hooks && k->hooks ?
					 &k->hooks[c->n_hooks - 1] : NULL;
	struct fact all[FACTS_MAX];
	size_t n = facts_of(k->r, all), i;
	int err;

	for (i = 0; i < n; i++)
		if (!strcmp(name, all[i].name))
			return set_fact(k->r, &all[i], value);
	if (!strcmp(name, "capture.parts"))
		k->a->marked = !strcmp(value, "marked");
	if (!strcmp(name, "hook.need"))
		return add_hook(k, value);
	if (!strcmp(name, "hook.door") && last)
		return set_text(k->r, &last->door, value);
	if (!strcmp(name, "hook.note") && last)
		return set_text(k->r, &last->note, value);
	if (!strcmp(name, "threshold"))
		return add_threshold(k, value);
	if (!strcmp(name, "label.key")) {
		k->label = value;
	} else if (!strcmp(name, "label.value") && k->label) {
		err = pt_report_label(k->r, k->label, value);
		return err == -ENOMEM ? err : 0;
	}
	return 0;
}

/* The text at *at, which moves behind it; NULL: no whole one is left. */
static const char *next(const char **at, const char *end)
{
	size_t left = (size_t)(end - *at);
	const char *s = *at, *nul = left ? memchr(s, '\0', left) : NULL;

	if (!nul)
		return NULL;
	*at = nul + 1;
	return s;
}

int pt_about_read(struct pt_report *r, struct pt_about *a, const void *data,
		  size_t len)
{
	struct reading k = { .r = r, .a = a };
	const char *at = data, *end = at + len, *name, *value;
	size_t i;
	int err = 0;

	while (!err && (name = next(&at, end)) && (value = next(&at, end)))
		if (strlen(value) <= PT_ABOUT_TEXT)
			err = read_fact(&k, name, value);
	for (i = 0; k.hooks && i < r->capture.n_hooks && !err; i++)
		if (!k.hooks[i].door)
			err = set_text(r, &k.hooks[i].door, "unknown");
	return err;
}

/* ---- limits ---------------------------------------------------------------- */

static bool has_limit(const struct pt_r_capture *c, const char *what)
{
	size_t i;

	for (i = 0; i < c->n_limits; i++)
		if (!strcmp(c->limits[i].what, what))
			return true;
	return false;
}

int pt_about_limits(struct pt_report *r)
{
	const struct pt_r_capture *c = &r->capture;
	size_t i;
	int err = 0;

	for (i = 0; i < c->n_hooks && !err; i++) {
		const struct pt_r_hook *h = &c->hooks[i];

		if (h->note && !strcmp(h->door, "none") &&
		    !has_limit(c, h->need))
			err = pt_report_limit(r, h->need, "%s", h->note);
	}
	if (!err && c->no_gpu_library)
		err = pt_report_limit(r, "gpu", "no GPU library was mapped by "
						"the target");
	return err;
}
