/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What-if: one question, asked of every way of running the model that fits the
 * trace. What the trace leaves open is replayed both ways, and the samples are
 * drawn again and again in blocks; the range spans all of it. Too wide a range
 * is no answer, and says why.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/whatif.h"

/* What the best replay leaves out: cache effects, memory, and that no two runs
 * are the same (pairs of equal runs differed by 1 to 9 %, measured). */
#define MARGIN 0.055
/* Standard deviations of sampling on each side: 90 %. */
#define DEVIATIONS 1.64
/* DESIGN: a wider range is reported as "cannot tell". */
#define WIDEST 1.25
/* Sleep in the hand-over above this share of a step matters. */
#define HANDOVER 0.10
/* Taking a batch that is there: times as long as one that was slept for.
 * Measured on PyTorch: 0.65 to 1.1; behind a pin thread, which has taken it over
 * already, 0.1 to 0.3. */
#define READY 0.6
#define READY_PINNED 0.1
#define READY_PINNED_MOST 0.4
#define HOWS 3
/* Workers that compute for so much of the time show how late they answer. */
#define BUSY_KNOWN 0.05
/* Enough to see how far apart two ways are with the same draws. */
#define FEW_SEEDS 3

static const char *why_wide(const struct pt_wi_study *s, const double *mid,
			    double taking)
{
	size_t i;

	for (i = 1; i < s->n_variants; i++) {
		double d = fabs(mid[0] - mid[i]);

		if (d < log(WIDEST) / 2)
			continue;
		return s->v[i].disk_shared != s->v[0].disk_shared ?
			"it depends on whether the storage serves more readers at the same speed each" :
		       s->v[i].lock_hold != s->v[0].lock_hold ?
			"it depends on how long the workers hold the lock that they share" :
		       s->v[i].others != s->v[0].others ?
			"it depends on who else uses the cores" :
			"the device's own speed is not known: the job never waits for it";
	}
	if (taking > log(WIDEST) / 3)
		return "it depends on how soon workers with more time hand a batch over";
	return "the batches vary too much for so short a trace";
}

/* How much of the time a worker computes: of `step` ms with so many workers. */
static double busy_share(const struct pt_wi_study *s, double step, size_t workers)
{
	const struct pt_wi_pool *p = s->peers.b.n ? &s->peers : &s->all;
	double cpu = 0;
	size_t i;

	for (i = 0; i < p->b.n; i++)
		cpu += p->b.v[i].cpu / (double)p->b.n;
	return workers ? fmin(1, cpu / (step * (double)workers)) : 0;
}

/*
 * How taking a batch may go once workers have more, or less, to do: as today;
 * quicker, where a batch that is there is taken without a sleep and the
 * wake-ups behind it (as far as it is not so today), and workers with more time
 * hold it up less; or with each answer held up by a worker that is at its next
 * batch more often than today, and answers when that lets go of the
 * interpreter. False when there is nothing to it.
 */
static bool taking(const struct pt_wi_study *s, int how, double step,
		   struct pt_wi_run *r)
{
	double today = busy_share(s, s->o.mean_ms, s->o.workers), then;

	if (!r->workers)
		return how == 0;
	then = busy_share(s, step, r->workers);
	if (r->pinned) { /* in another thread, whoever answers */
		r->ready = how ? READY_PINNED : READY_PINNED_MOST;
		return how < 2;
	}
	switch (how) {
	case 0:
		return true;
	case 1:
		r->ready = s->o.pin > 0 ? READY_PINNED : READY;
		if (!s->o.own_loading)
			r->ready = 1 - s->o.waited * (1 - r->ready);
		if (s->o.handover > HANDOVER * s->o.mean_ms)
			r->held_up = today > BUSY_KNOWN ?
				fmin(1, then / today) : 0;
		return true;
	default:
		r->add_sleep = s->o.answers * s->o.hold * (then - today);
		/* work that lets go of the interpreter shows in today's */
		if (today > BUSY_KNOWN)
			r->add_sleep = fmin(r->add_sleep, s->o.handover *
					    (then - today) / today);
		return r->add_sleep > 0;
	}
}

/* The logarithms of what a change wins, over all that is not known. */
struct spread {
	double low, high, sum, taking;
	double var; /* of one replay's, sampling alone */
	size_t n;
};

static int ask_variant(struct pt_wi_study *s, const struct pt_r_whatif *row,
		       pt_wi_change_fn change, int ways, const struct pt_wi_variant *v,
		       struct spread *out)
{
	bool same = row->value == (int64_t)s->o.workers;
	double first[PT_WI_SEEDS] = { 0 }, mean = 0, step = NAN, x;
	int how, way, k, seeds = PT_WI_SEEDS, err = 0;

	*out = (struct spread){ .low = INFINITY, .high = -INFINITY };
	for (way = 0; way < ways; way++)
		for (how = 0; how < (same ? 1 : HOWS); how++) {
			double d = 0;

			for (k = 0; k < seeds; k++) {
				struct pt_wi_run r = change(
					s, pt_wi_base_run(s, v, (uint64_t)k + 1),
					row->value, way);

				r.any_phase = true;
				if (!taking(s, how, step, &r))
					break;
				x = pt_wi_replay(&r, &err);
				if (err)
					return err;
				if (!how)
					step = x;
				x = log(v->base / x);
				if (!isfinite(x))
					return 0;
				if (!way && !how)
					first[k] = x;
				d += (x - first[k]) / seeds;
			}
			if (k < seeds)
				continue;
			if (!way && !how) { /* the rest is seen against it */
				for (k = 0; k < seeds; k++)
					mean += first[k] / seeds;
				for (k = 0; k < seeds; k++)
					out->var += pow(first[k] - mean, 2) /
						    (seeds - 1);
				seeds = FEW_SEEDS;
			}
			out->low = fmin(out->low, mean + d);
			out->high = fmax(out->high, mean + d);
			if (!way)
				out->taking = fmax(out->taking, fabs(d));
			out->sum += mean + d;
			out->n++;
		}
	return 0;
}

/*
 * Fill a row from the replay of `change` in every variant, with every seed.
 * What is not known both ways spans the range; on top come, as independent
 * errors do, in squares: what two equal runs differ by, what the replay misses
 * of today's step, and what the samples' spread gives.
 */
int pt_wi_ask(struct pt_wi_study *s, struct pt_r_whatif *row,
	      pt_wi_change_fn change, int ways)
{
	double low = INFINITY, high = -INFINITY, sum = 0, slow = 0;
	double mid[PT_WI_MAX_VARIANTS] = { 0 };
	struct spread x;
	size_t i;
	int err;

	row->step_ms = NAN;
	row->speedup = (struct pt_range){ NAN, NAN, NAN };
	for (i = 0; i < s->n_variants; i++) {
		const struct pt_wi_variant *v = &s->v[i];
		double e;

		err = ask_variant(s, row, change, ways, v, &x);
		if (err)
			return err;
		if (!x.n)
			goto unknown;
		e = sqrt(MARGIN * MARGIN + v->miss * v->miss +
			 DEVIATIONS * DEVIATIONS * x.var);
		low = fmin(low, x.low - e);
		high = fmax(high, x.high + e);
		mid[i] = x.sum / (double)x.n;
		sum += mid[i];
		slow = fmax(slow, x.taking);
	}
	if (!s->n_variants)
		goto unknown;
	if (high - low > log(WIDEST)) {
		row->note = why_wide(s, mid, slow);
		return 0;
	}
	row->speedup.value = exp(sum / (double)s->n_variants);
	row->speedup.low = exp(low);
	row->speedup.high = exp(high);
	row->step_ms = s->o.mean_ms / row->speedup.value;
	return 0;
unknown:
	row->note = s->unfit ? s->unfit : "the replay came to no end";
	return 0;
}
