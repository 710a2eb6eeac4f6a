/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/compare/compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/compare/bootstrap.h"
#include "analysis/compare/compare_int.h"
#include "base/minmax.h"
#include "base/vec.h"

/* ---- one report ----------------------------------------------------------- */

/* Periods of the steps that lie wholly in the capture. */
static int take_periods(struct pt_arena *a, struct pt_d_input *in)
{
	const struct pt_r_steps *s = &in->r->steps;
	size_t n = pt_report_periods(in->r, NULL);
	double *v;

	if (!n && !s->n_list) {
		in->untested = s->period_ms.n ?
				       "it has no list of steps (write it with --print-steps "
				       "100000)" :
				       "it has no whole step";
		return 0;
	}
	if (!n && s->count != PT_NULL && (uint64_t)s->count > s->n_list) {
		in->untested = pt_arena_printf(
			a, "it lists %zu of %lld steps (write it with --print-steps %lld)", s->n_list,
			(long long)s->count, (long long)s->count);
		return in->untested ? 0 : -ENOMEM;
	}
	if (n < PT_BOOT_MIN) {
		in->untested = pt_arena_printf(
			a, "it has only %zu whole steps, %d are needed", n,
			PT_BOOT_MIN);
		return in->untested ? 0 : -ENOMEM;
	}
	v = pt_arena_calloc(a, n, sizeof(*v));
	if (!v)
		return -ENOMEM;
	pt_report_periods(in->r, v);
	in->period_ms = v;
	in->n_periods = n;
	return 0;
}

static void take_parts(struct pt_d_input *in)
{
	const struct pt_r_breakdown *b = &in->r->breakdown;
	const struct pt_r_data_wait *w = &in->r->data_wait;
	double wall = 0, part[PT_D_PART_NR] = {
#define X(id, name) [PT_D_##id] = b->name.seconds,
		PT_D_PARTS(X)
#undef X
	};
	size_t i;

	for (i = 0; i < PT_D_PART_NR; i++)
		wall += part[i];
	for (i = 0; i < PT_D_PART_NR; i++)
		in->part_ms[i] = part[i] / wall * in->step_ms;
	in->data_wait_share = part[PT_D_DATA_WAIT] / wall;
	if (!b->known || !(wall > 0)) {
		for (i = 0; i < PT_D_PART_NR; i++)
			in->part_ms[i] = NAN;
		in->data_wait_share = NAN;
		wall = NAN;
	}
	for (i = 0; i < PT_CAUSE_NR; i++)
		in->cause_ms[i] = isnan(wall) ? NAN : 0;
	for (i = 0; i < w->n_causes; i++)
		in->cause_ms[w->causes[i].cause] +=
			w->causes[i].seconds / wall * in->step_ms;
}

static void take_idle(struct pt_d_input *in)
{
	double n = (double)in->r->n_gpu;

	in->idle_share = in->idle_hard[0] = in->idle_hard[1] = n ? 0 : NAN;
	pt_each_of(const struct pt_r_gpu, g, in->r->gpu, in->r->n_gpu) {
		in->idle_share += g->idle_share / n;
		in->idle_hard[0] += g->idle_hard[0] / n;
		in->idle_hard[1] += g->idle_hard[1] / n;
	}
}

/*
 * Batches of a step: more than one where a loop fetches several before it
 * computes. The steps at the capture's ends hold part of theirs, so that a
 * ratio next to a whole number means that number.
 */
static double batches_per_step(const struct pt_r_steps *s)
{
	double ratio;

	if (s->count <= 0 || s->batches <= 0) /* PT_NULL is below 0 */
		return 1;
	ratio = (double)s->batches / (double)s->count;
	if (ratio >= 0.9 && fabs(ratio - round(ratio)) <= 0.1)
		return round(ratio);
	return ratio;
}

static int take_input(struct pt_arena *a, const struct pt_d_source *src,
		      struct pt_d_input *in)
{
	const struct pt_r_steps *s = &src->r->steps;

	in->r = src->r;
	in->path = src->path;
	in->recording = src->recording;
	in->step_ms = s->period_ms.n && s->period_ms.mean > 0 ?
			      s->period_ms.mean : NAN;
	in->per_second = 1000 / in->step_ms;
	in->batch_size = s->batch_size > 0 ? s->batch_size : PT_NULL;
	in->batches_per_step = batches_per_step(s);
	in->samples_per_second = in->batch_size == PT_NULL ?
					 NAN :
					 in->per_second * in->batches_per_step *
						 (double)in->batch_size;
	take_parts(in);
	take_idle(in);
	return take_periods(a, in);
}

/* ---- two of them ---------------------------------------------------------- */

static double pt_d_throughput(const struct pt_diff *d, const struct pt_d_input *in)
{
	return d->by == PT_D_BY_SAMPLES ? in->samples_per_second :
					  in->per_second;
}

static enum pt_d_idle compare_idle(const struct pt_d_input *a,
				   const struct pt_d_input *b)
{
	if (!isfinite(a->idle_hard[0] + a->idle_hard[1] + b->idle_hard[0] +
		      b->idle_hard[1]))
		return PT_D_IDLE_UNKNOWN;
	if (b->idle_hard[1] < a->idle_hard[0])
		return PT_D_IDLE_LOWER;
	if (b->idle_hard[0] > a->idle_hard[1])
		return PT_D_IDLE_HIGHER;
	return PT_D_IDLE_CANNOT_TELL;
}

static int why_untested(struct pt_arena *a, const struct pt_d_input *in,
			struct pt_d_pair *p)
{
	p->untested = pt_arena_printf(a, "%s: %s", in->name, in->untested);
	return p->untested ? 0 : -ENOMEM;
}

static int test_pair(struct pt_diff *d, const struct pt_d_input *a,
		     const struct pt_d_input *b, struct pt_d_pair *p)
{
	struct pt_boot boot;
	double scale = 1;
	int err;

	p->speedup.value = pt_d_throughput(d, b) / pt_d_throughput(d, a);
	p->speedup.low = p->speedup.high = p->freedom = NAN;
	p->block[0] = p->block[1] = NAN;
	if (a->untested || b->untested)
		return why_untested(d->arena, a->untested ? a : b, p);
	err = pt_boot_ratio(a->period_ms, a->n_periods, b->period_ms,
			    b->n_periods, &boot);
	if (err == -ERANGE) {
		p->untested = "the lists of steps hold no time";
		return 0;
	}
	if (err)
		return err;
	if (d->by == PT_D_BY_SAMPLES)
		scale = (double)b->batch_size * b->batches_per_step /
			((double)a->batch_size * a->batches_per_step);
	p->speedup.value = scale * boot.value;
	p->speedup.low = scale * boot.low;
	p->speedup.high = scale * boot.high;
	p->block[0] = boot.block[0];
	p->block[1] = boot.block[1];
	p->freedom = boot.freedom;
	p->significant = p->speedup.low > 1 || p->speedup.high < 1;
	p->result = PT_D_NO_DIFFERENCE;
	if (p->significant && p->speedup.value >= 1 + d->small)
		p->result = PT_D_FASTER;
	else if (p->significant && p->speedup.value <= 1 / (1 + d->small))
		p->result = PT_D_SLOWER;
	return 0;
}

static int compare_pairs(struct pt_diff *d)
{
	struct pt_d_pair *p = pt_arena_calloc(d->arena, d->n_inputs, sizeof(*p));
	size_t i;
	int err = 0;

	if (!p)
		return -ENOMEM;
	d->pairs = p;
	for (i = 1; i < d->n_inputs && !err; i++, p++) {
		p->other = i;
		p->idle = compare_idle(&d->inputs[0], &d->inputs[i]);
		err = test_pair(d, &d->inputs[0], &d->inputs[i], p);
		err = err ?: pt_d_compare_settings(d, p);
		d->n_pairs = i;
	}
	return err;
}

/* ---- all of them ---------------------------------------------------------- */

/* What is unknown comes last, in the order given. */
PT_ORDER(best_first, struct pt_d_rank,
	 !!isnan(x->value) - !!isnan(y->value) ?: pt_cmp(y->value, x->value) ?:
	 pt_cmp(x->input, y->input))

static int rank(struct pt_diff *d)
{
	struct pt_d_rank *k = pt_arena_calloc(d->arena, d->n_inputs, sizeof(*k));
	size_t i;
	int err = 0;

	if (!k)
		return -ENOMEM;
	d->ranking = k;
	for (i = 0; i < d->n_inputs; i++) {
		k[i].input = i;
		k[i].value = pt_d_throughput(d, &d->inputs[i]);
	}
	qsort(k, d->n_inputs, sizeof(*k), best_first);
	for (i = 1; i < d->n_inputs && !err; i++) {
		struct pt_d_pair p = { .base = 0 };

		err = test_pair(d, &d->inputs[k[0].input],
				&d->inputs[k[i].input], &p);
		k[i].against_best = p.result;
	}
	k[0].against_best = isnan(k[0].value) ? PT_D_UNKNOWN :
						PT_D_NO_DIFFERENCE;
	return err;
}

int pt_compare(const struct pt_d_source *src, size_t n, struct pt_diff **out)
{
	struct pt_arena *a;
	struct pt_d_input *in;
	struct pt_diff *d;
	size_t i;
	int err = -ENOMEM;

	*out = NULL;
	if (n < 2 || n > PT_D_INPUTS_MAX)
		return -EINVAL;
	a = pt_arena_new();
	d = a ? pt_arena_alloc(a, sizeof(*d)) : NULL;
	in = a ? pt_arena_calloc(a, n, sizeof(*in)) : NULL;
	if (!d || !in)
		goto out;
	*d = (struct pt_diff){ .arena = a, .level = PT_BOOT_LEVEL,
			       .small = PT_D_SMALL, .seed = PT_BOOT_SEED,
			       .replicates = PT_BOOT_REPLICATES,
			       .by = PT_D_BY_SAMPLES, .inputs = in,
			       .n_inputs = n };
	for (i = 0, err = 0; i < n && !err; i++) {
		err = take_input(a, &src[i], &in[i]);
		if (in[i].batch_size == PT_NULL)
			d->by = PT_D_BY_STEPS;
	}
	err = err ?: pt_d_name_inputs(d, in);
	err = err ?: compare_pairs(d);
	err = err ?: rank(d);
	err = err ?: pt_d_notes(d);
out:
	if (err)
		pt_arena_free(a);
	else
		*out = d;
	return err;
}
