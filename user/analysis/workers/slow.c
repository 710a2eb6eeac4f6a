/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether one worker is slower than its peers, by how long their batches took. */
#include <errno.h>
#include <math.h>

#include "analysis/health.h"
#include "analysis/internal.h"
#include "analysis/verdicts/thresholds.h"
#include "analysis/waits/look.h"
#include "analysis/workers/code.h"

/*
 * Workers are born anew at each epoch unless they are persistent. One that begins when
 * another has ended takes its place, which a framework gives the same share of the
 * work: the lowest that is free, as workers are made in order.
 */
static int find_slots(const struct pt_an *an, struct pt_trainer *t, uint8_t role)
{
	pt_times ends = { 0 }; /* when each slot was last left */
	pt_times had = { 0 };  /* ... and by how many it was had */
	size_t k;
	int err = 0;

	pt_each_ok(struct pt_worker, w, &t->workers, err) {
		if (w->role != role)
			continue;
		for (k = 0; k < ends.n && ends.v[k] > w->main->first; k++)
			;
		if (k == ends.n)
			err = pt_vec_push(&ends, 0) || pt_vec_push(&had, 0) ?
				      -ENOMEM : 0;
		if (err)
			break;
		ends.v[k] = pt_thread_end(an, w->main);
		w->slot = (uint32_t)k;
		w->respawn = (uint32_t)had.v[k]++;
	}
	pt_vec_free(&ends);
	pt_vec_free(&had);
	return err;
}

struct peers {
	pt_doubles own, medians, service_ms;
};

/* Do both make the same, as far as is seen? The loop asks for something else elsewhere. */
static bool makes_alike(const struct pt_worker *w, const struct pt_worker *o)
{
	return o->role == w->role &&
	       (!o->asked_at || !w->asked_at || o->asked_at == w->asked_at);
}

/* The times of all that had the slot of `w`, and those of other slots. */
static int find_peers(const struct pt_trainer *t, const struct pt_worker *w,
		      struct peers *p)
{
	int err = 0;

	p->own.n = p->medians.n = p->service_ms.n = 0;
	pt_each_ok(const struct pt_worker, o, &t->workers, err) {
		if (!makes_alike(w, o))
			continue;
		if (o->slot == w->slot)
			err = pt_doubles_append(&p->own, &o->service_ms);
		if (o->slot == w->slot || o->service_ms.n < PT_SLOW_BATCHES)
			continue;
		err = pt_vec_push(&p->medians, o->median_ms);
		err = err ?: pt_doubles_append(&p->service_ms, &o->service_ms);
	}
	return err;
}

/* Do all peers run other code, as far as is known? */
static bool is_unlike(const struct pt_an *an, const struct pt_trainer *t,
		      const struct pt_worker *w)
{
	pt_each(const struct pt_worker, o, &t->workers)
		if (o->slot != w->slot && makes_alike(w, o) &&
		    o->service_ms.n >= PT_SLOW_BATCHES &&
		    !pt_run_other_code(an->m, w->main, o->main))
			return false;
	return true;
}

/* A worker that is slow half of the time (in every other epoch) has no median
 * to speak of, one with a few hard batches has: what 40 % of its batches take
 * at least tells them apart. */
static double upper_middle(const pt_doubles *sorted) /* by pt_median() */
{
	return sorted->v[(size_t)(0.6 * (double)(sorted->n - 1))];
}

/* A few slow batches make a worker slow where they come one behind the other and next
 * to none are its peers': it was slow for a while. Single ones are slow items. */
static bool slow_for_a_while(const struct pt_trainer *t, struct pt_worker *w,
			     const struct peers *p, double others)
{
	double limit = PT_TAIL_FACTOR * others, slow = 0, behind = 0, ms = 0;
	double peers = 0;
	size_t i, k;

	for (i = 0; i < p->service_ms.n; i++)
		peers += p->service_ms.v[i] > limit;
	pt_each(const struct pt_worker, o, &t->workers) {
		if (o->role != w->role || o->slot != w->slot)
			continue;
		for (k = 0; k < o->unsorted_ms.n; k++) {
			if (o->unsorted_ms.v[k] <= limit)
				continue;
			slow++;
			ms += o->unsorted_ms.v[k];
			behind += k && o->unsorted_ms.v[k - 1] > limit;
		}
	}
	if (slow < PT_SLOW_BATCHES || behind < PT_SLOW_BEHIND * slow ||
	    peers > PT_SLOW_PEERS * slow)
		return false;
	w->slowdown = ms / slow / others;
	/* that all but the first fall to the same one */
	w->slow_chance = pow(1.0 / (double)(p->medians.n + 1), slow - 1);
	return true;
}

static double mean_of(const pt_doubles *d)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < d->n; i++)
		sum += d->v[i];
	return sum / (double)d->n;
}

bool pt_shows_all(const struct pt_trainer *t, const struct pt_worker *w)
{
	size_t i;

	if (w->feeder != w->main && w->done.n)
		return true;
	for (i = 0; i < t->steps.n; i++)
		if (t->steps.v[i].worker < 0)
			return false;
	return true;
}

/* Each of its batches takes many times as long as any of its peers': of three batches no order
 * is rarer than one in some 80, so more may be chance. */
static double chance_left(const struct pt_an *an, const struct pt_trainer *t,
			  const struct pt_worker *w, const struct peers *p)
{
	double most = 0;
	size_t i;

	for (i = 0; i < p->service_ms.n; i++)
		most = fmax(most, p->service_ms.v[i]);
	return p->own.v[0] >= PT_TAIL_FACTOR * most ? PT_SLOW_FEW_CHANCE :
	       an->th->slow_chance * (pt_shows_all(t, w) ? 1 : PT_SLOW_SOME_SHOWN);
}

/* Of two peers one may be as slow, so it is the upper median: a worker is slow against most. */
static double upper_median(pt_doubles *d)
{
	pt_median(d->v, d->n); /* sorts */
	return d->v[d->n / 2];
}

/*
 * Which part of its time against its peers' is sure. Where steps came that no worker was seen to
 * make, the batches that it has less than its peers may be its own, and one of its times is then
 * that of several. Where more were seen than there are steps, those that its peers have more may
 * be parts. One that is slow where each takes what comes next has fewer, and all of them are seen.
 */
static double part_sure(const struct pt_trainer *t, const struct pt_worker *w,
			const struct peers *p)
{
	double own = (double)p->own.n, seen = 0, taken = 0, each = 0, peers = 0, less, sure;

	if (t->respawned || w->role == PT_ROLE_HELPER)
		return 1;
	pt_each(const struct pt_worker, o, &t->workers) {
		if (!makes_alike(w, o))
			continue;
		seen += (double)o->service_ms.n;
		if (o == w || o->service_ms.n < PT_SLOW_BATCHES)
			continue;
		each += (double)o->service_ms.n;
		peers++;
	}
	pt_each(const struct pt_step, s, &t->steps)
		taken += s->batches;
	each /= fmax(peers, 1);
	less = fmin(fabs(taken - seen), each - own);
	if (less <= 0 || seen >= 2 * taken) /* a step takes several */
		return 1;
	sure = seen < taken ? own / (own + less) : (each - less) / each;
	return sure < PT_SLOW_SURE ? sure : 1;
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
	double others, ratio, sure;
	size_t n;
	int err;

	w->slowdown = w->slow_chance = NAN;
	w->slow = w->in_parts = w->unlike = false;
	err = find_peers(t, w, p);
	if (err || p->own.n < PT_SLOW_BATCHES)
		return err;
	n = p->medians.n;
	if (!n)
		return 0;
	others = upper_median(&p->medians);
	if (!(others > 0))
		return 0;
	sure = part_sure(t, w, p);
	w->in_parts = sure < 1;
	ratio = pt_median(p->own.v, p->own.n) / others;
	if (sure < 1) /* of times of several, and of parts, no median tells */
		ratio = fmin(ratio, sure * mean_of(&p->own) / mean_of(&p->service_ms));
	w->slowdown = sure < 1 && ratio < an->th->slow_factor ? NAN : ratio;
	if (ratio < an->th->slow_factor && sure < 1)
		return 0;
	if (ratio < an->th->slow_factor) {
		ratio = upper_middle(&p->own) / others;
		if (ratio < PT_SLOW_HUMPS * an->th->slow_factor) {
			w->slow = slow_for_a_while(t, w, p, others) &&
				  w->slow_chance <= an->th->slow_chance;
			return 0;
		}
	}
	err = pt_rank_sum_chance(p->own.v, p->own.n, p->service_ms.v,
				 p->service_ms.n, &w->slow_chance);
	w->slow_chance = fmin(1, w->slow_chance * (double)(n + 1));
	w->slow = !err && w->slow_chance <= chance_left(an, t, w, p) &&
		  mean_of(&p->own) >= PT_SLOW_MEAN * mean_of(&p->service_ms);
	w->unlike = w->slow && is_unlike(an, t, w);
	if (w->slow)
		w->slowdown = ratio;
	return err;
}

/* All that had one slot are one in this: as the first of them. */
static void share_slot(struct pt_trainer *t, const struct pt_worker *first)
{
	struct pt_worker *w;

	for (w = t->workers.v; w < t->workers.v + t->workers.n; w++) {
		if (w->role != first->role || w->slot != first->slot)
			continue;
		w->slow = first->slow;
		w->in_parts = first->in_parts;
		w->unlike = first->unlike;
		w->slowdown = first->slowdown;
		w->slow_chance = first->slow_chance;
	}
}

int pt_compare_workers(const struct pt_an *an, struct pt_trainer *t)
{
	struct peers p = { 0 };
	size_t i;
	uint8_t role;
	int err = 0;

	for (role = 0; role <= PT_ROLE_OUTSIDE && !err; role++)
		err = find_slots(an, t, role);
	for (i = 0; i < t->workers.n && !err; i++) {
		if (t->workers.v[i].respawn)
			continue;
		err = compare_one(an, t, &t->workers.v[i], &p);
		share_slot(t, &t->workers.v[i]);
	}
	pt_vec_free(&p.own);
	pt_vec_free(&p.medians);
	pt_vec_free(&p.service_ms);
	return err;
}
