/* SPDX-License-Identifier: BSD-2-Clause */
/* What each worker did with its time, how long its batches took, and whether
 * one is slower than its peers. */
#include <errno.h>
#include <math.h>
#include <string.h>

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

static double quantile_sorted(const pt_doubles *v, double q)
{
	return v->v[(size_t)(q * (double)(v->n - 1))];
}

/* Workers are respawned at each epoch unless they are persistent: those of
 * another epoch are no peers. */
static bool alive_together(const struct pt_an *an, const struct pt_worker *a,
			   const struct pt_worker *b)
{
	return pt_overlap(a->main->first, pt_thread_end(an, a->main),
			  b->main->first, pt_thread_end(an, b->main)) > 0;
}

/* Against the median of its peers' medians; slow only where its faster half
 * lies above its peers' slower half, so that a few hard batches do not make
 * a slow worker. */
static int compare(const struct pt_an *an, struct pt_trainer *t)
{
	double *med = malloc((t->workers.n + 1) * sizeof(*med));
	size_t i, j;

	if (!med)
		return -ENOMEM;
	for (i = 0; i < t->workers.n; i++) {
		struct pt_worker *w = &t->workers.v[i];
		double peers, p75 = 0;
		size_t n = 0;

		w->slowdown = NAN;
		if (w->service_ms.n < SLOW_MIN_BATCHES)
			continue;
		for (j = 0; j < t->workers.n; j++) {
			const struct pt_worker *o = &t->workers.v[j];

			if (j == i || o->service_ms.n < SLOW_MIN_BATCHES ||
			    !alive_together(an, w, o))
				continue;
			med[n++] = o->median_ms;
			p75 = fmax(p75, quantile_sorted(&o->service_ms, 0.75));
		}
		if (!n)
			continue;
		peers = pt_median(med, n);
		if (peers <= 0)
			continue;
		w->slowdown = w->median_ms / peers;
		w->slow = w->slowdown >= PT_SLOW_FACTOR && n >= 1 &&
			  quantile_sorted(&w->service_ms, 0.25) > p75;
	}
	free(med);
	return 0;
}

int pt_measure_workers(struct pt_an *an, struct pt_trainer *t)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->workers.n && !err; i++)
		err = service_times(an, &t->workers.v[i]);
	return err ? err : compare(an, t);
}
