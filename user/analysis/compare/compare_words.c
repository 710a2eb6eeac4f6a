/* SPDX-License-Identifier: BSD-2-Clause */
/* The part of a comparison that is text: names, settings, caveats. */
#include <errno.h>
#include <string.h>

#include "analysis/compare/compare_int.h"

/* ---- names ---------------------------------------------------------------- */

static const char *file_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static const char *label_name(struct pt_arena *a, const struct pt_report *r)
{
	const char *name = NULL;
	size_t i;

	for (i = 0; i < r->n_labels; i++) {
		name = pt_arena_printf(a, "%s%s%s=%s", name ? name : "",
				       name ? " " : "", r->labels[i].key,
				       r->labels[i].value);
		if (!name)
			return NULL;
	}
	return name;
}

static bool is_unique(const struct pt_diff *d, size_t which)
{
	size_t i;

	for (i = 0; i < d->n_inputs; i++)
		if (i != which && !strcmp(d->inputs[i].name,
					  d->inputs[which].name))
			return false;
	return true;
}

int pt_d_name_inputs(struct pt_diff *d, struct pt_d_input *in)
{
	bool same[PT_D_INPUTS_MAX] = { false };
	size_t i;

	for (i = 0; i < d->n_inputs; i++) {
		in[i].name = in[i].r->n_labels ?
				     label_name(d->arena, in[i].r) :
				     file_part(in[i].path);
		if (!in[i].name)
			return -ENOMEM;
	}
	for (i = 0; i < d->n_inputs; i++)
		same[i] = !is_unique(d, i);
	for (i = 0; i < d->n_inputs; i++) {
		if (!same[i])
			continue;
		in[i].name = in[i].r->n_labels ?
				     pt_arena_printf(d->arena, "%s (%s)",
						     in[i].name, in[i].path) :
				     in[i].path;
		if (!in[i].name)
			return -ENOMEM;
	}
	return 0;
}

/* ---- settings ------------------------------------------------------------- */

#define FIXED_SETTINGS 20

struct settings {
	struct pt_d_setting *v;
	size_t n;
};

static void differ(struct settings *s, const char *name, const char *base,
		   const char *other)
{
	if (base && other && strcmp(base, other))
		s->v[s->n++] = (struct pt_d_setting){ name, base, other };
}

static int differ_int(struct pt_arena *a, struct settings *s, const char *name,
		      int64_t base, int64_t other)
{
	const char *b, *o;

	if (base == PT_NULL || other == PT_NULL || base == other)
		return 0;
	b = pt_arena_printf(a, "%lld", (long long)base);
	o = pt_arena_printf(a, "%lld", (long long)other);
	if (!b || !o)
		return -ENOMEM;
	differ(s, name, b, o);
	return 0;
}

static const char *label_of(const struct pt_report *r, const char *key)
{
	size_t i;

	for (i = 0; i < r->n_labels; i++)
		if (!strcmp(r->labels[i].key, key))
			return r->labels[i].value;
	return NULL;
}

static int differ_label(struct pt_arena *a, struct settings *s, const char *key,
			const char *base, const char *other)
{
	const char *name;

	if (base && other && !strcmp(base, other))
		return 0;
	name = pt_arena_printf(a, "label %s", key);
	if (!name)
		return -ENOMEM;
	s->v[s->n++] = (struct pt_d_setting){ name, base, other };
	return 0;
}

static int differ_labels(struct pt_arena *a, struct settings *s,
			 const struct pt_report *base,
			 const struct pt_report *other)
{
	size_t i;
	int err = 0;

	for (i = 0; i < base->n_labels && !err; i++)
		err = differ_label(a, s, base->labels[i].key,
				   base->labels[i].value,
				   label_of(other, base->labels[i].key));
	for (i = 0; i < other->n_labels && !err; i++)
		if (!label_of(base, other->labels[i].key))
			err = differ_label(a, s, other->labels[i].key, NULL,
					   other->labels[i].value);
	return err;
}

int pt_d_compare_settings(struct pt_diff *d, struct pt_d_pair *p)
{
	const struct pt_d_input *x = &d->inputs[p->base];
	const struct pt_d_input *y = &d->inputs[p->other];
	const struct pt_report *a = x->r, *b = y->r;
	struct settings s = { .n = 0 };
	int err;

	s.v = pt_arena_calloc(d->arena,
			      FIXED_SETTINGS + a->n_labels + b->n_labels,
			      sizeof(*s.v));
	if (!s.v)
		return -ENOMEM;
	err = differ_labels(d->arena, &s, a, b);
#define LOADER(field)                                                          \
	differ(&s, "loader." #field, a->loader.field.value,                    \
	       b->loader.field.value)
	LOADER(kind);
	LOADER(workers);
	LOADER(prefetch);
	LOADER(pinned);
	LOADER(persistent);
	LOADER(start_method);
	LOADER(sharing);
#undef LOADER
	err = err ?: differ_int(d->arena, &s, "batch size", x->batch_size, y->batch_size);
	err = err ?: differ_int(d->arena, &s, "host.cores", a->host.cores, b->host.cores);
	differ(&s, "host.hostname", a->host.hostname, b->host.hostname);
	differ(&s, "host.kernel", a->host.kernel, b->host.kernel);
	differ(&s, "host.driver", a->host.driver, b->host.driver);
	differ(&s, "command", a->target.cmdline, b->target.cmdline);
	differ(&s, "pipetrace", a->host.version, b->host.version);
	p->settings = s.v;
	p->n_settings = s.n;
	return err;
}

/* ---- caveats -------------------------------------------------------------- */

#define NOTES_PER_INPUT 4

static int note(struct pt_diff *d, const char **notes, const char *text)
{
	if (!text)
		return -ENOMEM;
	notes[d->n_notes++] = text;
	return 0;
}

static int note_input(struct pt_diff *d, const char **notes,
		      const struct pt_d_input *in)
{
	const struct pt_r_capture *c = &in->r->capture;
	int err = 0;

	if (!in->r->steps.period_ms.n)
		err = note(d, notes, pt_arena_printf(d->arena, "%s: no whole "
						     "step was seen", in->name));
	else if (in->r->steps.certainty == PT_CONF_LOW)
		err = note(d, notes,
			   pt_arena_printf(d->arena, "%s: its steps were found with low "
					   "confidence", in->name));
	if (!err && !c->complete)
		err = note(d, notes, pt_arena_printf(d->arena, "%s: the capture "
						     "broke off", in->name));
	if (!err && c->lost_total != PT_NULL && c->lost_total > 0)
		err = note(d, notes,
			   pt_arena_printf(d->arena, "%s: %lld events were lost",
					   in->name, (long long)c->lost_total));
	return err;
}

static bool mixed_batch_sizes(const struct pt_diff *d)
{
	size_t i, known = 0;

	for (i = 0; i < d->n_inputs; i++)
		known += d->inputs[i].batch_size != PT_NULL;
	return known && known < d->n_inputs;
}

static bool mixed_steps(const struct pt_diff *d)
{
	size_t i;

	for (i = 1; d->by == PT_D_BY_STEPS && i < d->n_inputs; i++)
		if (d->inputs[i].batches_per_step !=
		    d->inputs[0].batches_per_step)
			return true;
	return false;
}

int pt_d_notes(struct pt_diff *d)
{
	const char **notes = pt_arena_calloc(
		d->arena, NOTES_PER_INPUT * d->n_inputs + 2, sizeof(*notes));
	size_t i;
	int err = 0;

	if (!notes)
		return -ENOMEM;
	d->notes = notes;
	if (mixed_batch_sizes(d))
		err = note(d, notes, "not every batch size is known: steps are "
				     "compared, which may hold different "
				     "numbers of samples");
	if (!err && mixed_steps(d))
		err = note(d, notes, "steps are compared that hold different "
				     "numbers of batches: --batch-size compares "
				     "samples");
	for (i = 0; i < d->n_inputs && !err; i++)
		err = note_input(d, notes, &d->inputs[i]);
	return err;
}
