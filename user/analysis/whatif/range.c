/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What-if: one question, asked of every way of running the model that fits the
 * trace, with the samples drawn again and again in blocks; the range spans all of
 * it. Too wide a range is no answer, and says why.
 */
#include <math.h>

#include "analysis/whatif/study.h"

/* What the best model leaves out: cache effects, memory, and that no two runs
 * are the same (pairs of equal runs differed by 1 to 9 %, measured). */
#define MARGIN 0.075
/* ... and the more the further it is from what was seen: of the logarithm. */
#define FAR 0.03
/* A batch that is there costs less to take than one that was slept for: the caches are warm,
 * and nobody has to be woken (0.55 to 0.75 of it, measured on PyTorch's). How far a job goes
 * from one to the other is not known: both ends are asked. */
#define WARM 0.6
/* Standard deviations of sampling on each side: 90 %. */
#define DEVIATIONS 1.64
/* DESIGN: a wider range is reported as "cannot tell". */
#define WIDEST 1.25

/* Answers no further apart than this differ by an error among others. */
#define CLOSE 0.08

/* Does this variant say something else than the first one? */
static bool is_far(const double *mid, size_t i)
{
	return fabs(mid[0] - mid[i]) >= log(WIDEST) / 2;
}

static const char *why_wide(const struct pt_wi_study *s, const double *mid, bool none,
			    double warmer)
{
	size_t i;

	for (i = 1; i < s->n_variants; i++) {
		if (!is_far(mid, i))
			continue;
		return s->v[i].unknown_in_turn != s->v[0].unknown_in_turn ?
			"it depends on whether what the workers wait for can be done in "
			"parallel, which this run does not show" :
		       s->v[i].others != s->v[0].others ?
			"it depends on who else uses the cores" :
			"the device's own speed is not known: the job never waits for it";
	}
	return warmer >= log(WIDEST) / 4 ?
		"it depends on what a batch costs to take that need not be waited for" :
	       none ? "it depends on whether the limit above the disk leaves room, which this "
		      "run does not show" :
		      "the batches vary too much for so short a trace";
}

struct spread { /* logarithms of what is won */
	double low, high, sum, var;
	double warmer; /* won by batches that are there */
	size_t n;
};

/* One way of making the change, with every seed: mean and variance of the logarithm of what
 * is won over today's job with the same draws. *ready: batches that are slept for today, and
 * would be there; other than 0 before, they cost less to take. */
static int ask_way(struct pt_wi_study *s, const struct pt_wi_change *c, int way,
		   const struct pt_wi_variant *v, size_t *ready, double *mean, double *var)
{
	double x[PT_WI_SEEDS];
	size_t found = 0;
	int k, err;

	*mean = *var = 0;
	for (k = 0; k < PT_WI_SEEDS; k++) {
		struct pt_wi_run r = pt_wi_base_run(s, v, (uint64_t)k + 1);

		pt_wi_apply(s, &r, c, way);
		r.warm = *ready ? WARM : 1;
		r.ready = &found;
		r.waited = &s->waited;
		x[k] = log(v->base[k] / pt_wi_simulate(&r, &err));
		if (err)
			return err;
		*mean += x[k] / PT_WI_SEEDS;
	}
	for (k = 0; k < PT_WI_SEEDS; k++)
		*var += pow(x[k] - *mean, 2) / (PT_WI_SEEDS - 1);
	*ready = found;
	return 0;
}

static void add_answer(struct spread *x, double mean, double var)
{
	x->low = fmin(x->low, mean);
	x->high = fmax(x->high, mean);
	x->var = fmax(x->var, var);
	x->sum += mean;
	x->n++;
}

static int ask_variant(struct pt_wi_study *s, const struct pt_wi_change *c,
		       const struct pt_wi_variant *v, struct spread *out)
{
	double mean, var, cold;
	int way, err;

	*out = (struct spread){ .low = INFINITY, .high = -INFINITY };
	for (way = 0; way < c->ways; way++) {
		size_t ready = 0;

		err = ask_way(s, c, way, v, &ready, &mean, &var);
		if (err)
			return err;
		if (!isfinite(mean)) {
			out->n = 0;
			return 0;
		}
		add_answer(out, mean, var);
		cold = mean; /* and the same once more, where none is there: ways weigh alike */
		err = ready ? ask_way(s, c, way, v, &ready, &mean, &var) : 0;
		if (err)
			return err;
		add_answer(out, mean, var);
		out->warmer = fmax(out->warmer, mean - cold);
	}
	return 0;
}

/* What one variant's answer may be off by: what two equal runs differ by, what the
 * model misses of today's step, and what the samples' spread gives. */
static double error_of(const struct pt_wi_variant *v, const struct spread *x)
{
	double mid = x->sum / (double)x->n;

	return sqrt(MARGIN * MARGIN + v->miss * v->miss + FAR * FAR * mid * mid +
		    DEVIATIONS * DEVIATIONS * x->var);
}

/* No change takes kernels away: the device needs as long for them as today. */
static double most_won(const struct pt_wi_study *s)
{
	return s->o.kernels > 0 ? fmax(1, s->o.mean_ms / s->o.kernels) : INFINITY;
}

/* All variants' answers, and as independent errors do, in squares, what they may be
 * off by; where they are far apart, one of them is the truth. */
static void set_range(struct pt_wi_study *s, struct pt_r_whatif *row,
		      const struct spread *x, double mean, double e)
{
	double half = (x->high - x->low) / 2, mid = (x->high + x->low) / 2;
	double most = most_won(s);

	half = half < CLOSE ? sqrt(half * half + e * e) : half + e;
	if (2 * half > log(WIDEST))
		return;
	row->note = NULL;
	row->speedup.value = fmin(most, exp(mean));
	row->speedup.low = fmin(most, exp(mid - half));
	row->speedup.high = fmin(most, exp(mid + half));
	row->step_ms = s->o.mean_ms / row->speedup.value;
}

int pt_wi_ask(struct pt_wi_study *s, struct pt_r_whatif *row,
	      const struct pt_wi_change *c)
{
	struct spread all = { .low = INFINITY, .high = -INFINITY }, x;
	double mid[PT_WI_MAX_VARIANTS] = { 0 }, sum = 0, e = 0, warmer = 0;
	size_t i;
	int err;

	row->step_ms = NAN;
	row->speedup = (struct pt_range){ NAN, NAN, NAN };
	row->note = "the replay did not finish";
	s->waited = 0;
	for (i = 0; i < s->n_variants; i++) {
		err = ask_variant(s, c, &s->v[i], &x);
		if (err || !x.n) {
			s->waited++; /* as far as is known */
			return err;
		}
		all.low = fmin(all.low, x.low);
		all.high = fmax(all.high, x.high);
		mid[i] = x.sum / (double)x.n;
		sum += mid[i];
		e = fmax(e, error_of(&s->v[i], &x));
		warmer = fmax(warmer, x.warmer);
		if (all.high - all.low > log(WIDEST) && is_far(mid, i))
			break; /* too wide, whatever the others say, and that is why */
	}
	if (c->may_be_none) {
		all.low = fmin(all.low, 0);
		all.high = fmax(all.high, 0);
	}
	row->note = why_wide(s, mid, c->may_be_none, warmer);
	set_range(s, row, &all, sum / (double)(s->n_variants + c->may_be_none), e);
	return 0;
}
