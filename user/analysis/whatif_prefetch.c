/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What-if: how many batches each worker may have in flight. A loader hands out
 * an index for each batch that is taken, so a worker that waits for one has its
 * limit of batches made and not taken. How many that are is counted from the
 * waits that began before their batch was made: then it had none.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/whatif.h"

/* Shorter waits for an index are the hand-out's. */
#define IDLE_NS NS_PER_MS
#define MOST 64
#define MIN_SEEN 8
/* So many of the waits must agree. */
#define AGREED 0.8

struct votes {
	long base; /* the count that the first vote is relative to */
	size_t n[2 * MOST + 1], all;
};

static void vote(struct votes *v, long x)
{
	if (!v->all)
		v->base = x;
	v->all++;
	if (x - v->base >= -MOST && x - v->base <= MOST)
		v->n[x - v->base + MOST]++;
}

/* What nearly all say, in *x. */
static bool agreed(const struct votes *v, long *x)
{
	size_t i, best = 0;

	for (i = 0; i <= 2 * MOST; i++)
		if (v->n[i] > v->n[best])
			best = i;
	*x = v->base + (long)best - MOST;
	return v->all >= MIN_SEEN &&
	       (double)v->n[best] >= AGREED * (double)v->all;
}

/* Made less taken, counted from the capture's begin, when a wait ended for a
 * batch that was made in it: none is left but this one. */
static bool find_zero(const struct pt_trainer *t, int i, const pt_times *taken,
		      long *zero)
{
	const struct pt_worker *w = &t->workers.v[i];
	struct votes v = { 0 };
	size_t k;

	for (k = 0; k < t->steps.n; k++) {
		const struct pt_step *s = &t->steps.v[k];
		uint64_t made;

		if (s->worker != i || s->partial || !s->blocked_ns)
			continue;
		made = s->n_waits ? t->waits.v[s->wait0 + s->n_waits - 1].made :
				    UINT64_MAX;
		if (made == UINT64_MAX || made <= s->wait_begin)
			continue;
		vote(&v, (long)pt_times_until(&w->done, made) - 1 -
			 (long)(pt_times_until(taken, s->wait_end) - 1));
	}
	return agreed(&v, zero);
}

static bool find_limit(const struct pt_an *an, const struct pt_trainer *t,
		       const struct pt_worker *w,
		       const pt_times *taken, long zero, long *limit)
{
	const struct pt_thread *th = w->main;
	struct votes v = { 0 };
	size_t i;

	for (i = pt_iv_after(th, an->t0); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];

		if (iv->begin >= an->t1)
			break;
		if (iv->begin < an->t0 || iv->ready - iv->begin < IDLE_NS ||
		    !pt_rests(t, w, iv))
			continue;
		/* at its end: an index has just been handed out for a batch
		 * that was taken */
		vote(&v, (long)pt_times_until(&w->done, iv->begin) -
			 (long)pt_times_until(taken, iv->begin) - zero);
	}
	return agreed(&v, limit);
}

int pt_wi_observe_prefetch(const struct pt_an *an, const struct pt_trainer *t,
			   struct pt_wi_obs *o)
{
	pt_times taken = { 0 };
	long zero, limit, found = 0;
	size_t i, k;
	int err = 0;

	for (i = 0; i < t->workers.n && !err && !t->respawned; i++) {
		const struct pt_worker *w = &t->workers.v[i];

		taken.n = 0;
		for (k = 0; k < t->steps.n && !err; k++) {
			if (t->steps.v[k].batches > 1)
				goto out; /* which worker's is not known */
			if (t->steps.v[k].worker == (int)i &&
			    !t->steps.v[k].cut_end)
				err = pt_vec_push(&taken,
						  t->steps.v[k].wait_end);
		}
		if (err || w->feeder == w->main ||
		    !find_zero(t, (int)i, &taken, &zero) ||
		    !find_limit(an, t, w, &taken, zero, &limit) || limit < 1)
			continue;
		if (found && limit != found)
			goto out; /* they do not agree: one is miscounted */
		found = limit;
	}
	if (!err && found <= MOST)
		o->prefetch = (unsigned)found;
out:
	pt_vec_free(&taken);
	return err;
}
