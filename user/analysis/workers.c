/* SPDX-License-Identifier: BSD-2-Clause */
/* What each worker did with its time, how long its batches took, and whether
 * one is slower than its peers. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "analysis/health.h"
#include "analysis/internal.h"
#include "analysis/verdicts/thresholds.h"

/* Fewer batches tell nothing of a worker. */
#define SLOW_MIN_BATCHES 3

struct tally {
	const struct pt_an *an;
	const struct pt_worker *w;
	uint64_t idle_ns;
};

static int idle_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		      bool queued)
{
	struct tally *k = ctx;

	if (iv && !queued &&
	    pt_piece_cause(k->an, k->w, iv) == PT_CAUSE_WORKER_IDLE)
		k->idle_ns += e - b;
	return 0;
}

/* Busy time between two batches made: what the second one took. */
static int service_times(struct pt_an *an, struct pt_worker *w)
{
	size_t i;

	for (i = 1; i < w->done.n; i++) {
		struct tally k = { an, w, 0 };
		uint64_t b = w->done.v[i - 1], e = w->done.v[i];
		double ms;

		pt_walk(w->main, b, e, idle_piece, &k);
		ms = (double)(e - b - k.idle_ns) / NS_PER_MS;
		if (pt_vec_push(&w->service_ms, ms))
			return -ENOMEM;
	}
	w->median_ms = pt_median(w->service_ms.v, w->service_ms.n);
	return 0;
}

/* Workers are respawned at each epoch unless they are persistent: those of
 * another epoch are no peers. */
static bool alive_together(const struct pt_an *an, const struct pt_worker *a,
			   const struct pt_worker *b)
{
	return pt_overlap(a->main->first, pt_thread_end(an, a->main),
			  b->main->first, pt_thread_end(an, b->main)) > 0;
}

struct peers {
	pt_doubles medians, service_ms;
};

static int find_peers(const struct pt_an *an, const struct pt_trainer *t,
		      const struct pt_worker *w, struct peers *p)
{
	size_t i, k;

	p->medians.n = p->service_ms.n = 0;
	for (i = 0; i < t->workers.n; i++) {
		const struct pt_worker *o = &t->workers.v[i];

		if (o == w || o->service_ms.n < SLOW_MIN_BATCHES ||
		    !alive_together(an, w, o))
			continue;
		if (pt_vec_push(&p->medians, o->median_ms))
			return -ENOMEM;
		for (k = 0; k < o->service_ms.n; k++)
			if (pt_vec_push(&p->service_ms, o->service_ms.v[k]))
				return -ENOMEM;
	}
	return 0;
}

/* A worker that is slow half of the time (in every other epoch) has no median
 * to speak of, one with a few hard batches has: what 40 % of its batches take
 * at least tells them apart. */
static double upper_middle(const pt_doubles *sorted) /* by pt_median() */
{
	return sorted->v[(size_t)(0.6 * (double)(sorted->n - 1))];
}

/*
 * Against the median of its peers' medians. And not by chance: the ranks of
 * its batches say whether they are slower as a whole. A worker is looked at
 * because it is the slowest of several, so the chance is theirs together
 * (Bonferroni).
 */
static int compare_one(const struct pt_an *an, const struct pt_trainer *t,
		       struct pt_worker *w, struct peers *p)
{
	double others, ratio;
	size_t n;
	int err;

	w->slowdown = w->slow_chance = NAN;
	w->slow = false;
	if (w->service_ms.n < SLOW_MIN_BATCHES)
		return 0;
	err = find_peers(an, t, w, p);
	n = p->medians.n;
	others = err ? NAN : pt_median(p->medians.v, n);
	if (err || !(others > 0))
		return err;
	ratio = w->slowdown = w->median_ms / others;
	if (ratio < an->th->slow_factor) {
		/* twice as much: two humps, not one wide one */
		ratio = upper_middle(&w->service_ms) / others;
		if (ratio < 2 * an->th->slow_factor)
			return 0;
	}
	err = pt_rank_sum_chance(w->service_ms.v, w->service_ms.n,
				 p->service_ms.v, p->service_ms.n,
				 &w->slow_chance);
	w->slow_chance = fmin(1, w->slow_chance * (double)(n + 1));
	w->slow = !err && w->slow_chance <= an->th->slow_chance;
	if (w->slow)
		w->slowdown = ratio;
	return err;
}

int pt_compare_workers(const struct pt_an *an, struct pt_trainer *t)
{
	struct peers p = { 0 };
	size_t i;
	int err = 0;

	for (i = 0; i < t->workers.n && !err; i++)
		err = compare_one(an, t, &t->workers.v[i], &p);
	pt_vec_free(&p.medians);
	pt_vec_free(&p.service_ms);
	return err;
}

int pt_measure_workers(struct pt_an *an, struct pt_trainer *t)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->workers.n && !err; i++)
		err = service_times(an, &t->workers.v[i]);
	return err ? err : pt_compare_workers(an, t);
}
