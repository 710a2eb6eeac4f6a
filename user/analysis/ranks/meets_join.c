/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which collective of one rank is which of another. Both lists are in order and
 * without gaps, so they differ by a shift: tracing began at different places of
 * the series. A shift holds where what is called agrees, and where no rank is told
 * that a collective is over before the other has come to it. Most jobs wait for
 * their device once a step, which leaves one shift, or
 * those within a step.
 */
#include <math.h>

#include "analysis/ranks/meets.h"

#define REACH 64   /* shifts to either side of the nearest in time */
#define SAMPLES 256 /* pairs that a shift is judged by */
/* Of the pairs, at most: two ranks' clocks are one, but a sync that belongs to
 * another stream than the model thinks may contradict. */
#define WRONG_MAX 0.02
#define CLEARLY 3 /* times as far apart is another one */

struct judged {
	size_t n, wrong;
	size_t told; /* both ranks were seen to wait for it */
	double apart; /* mean distance in time, ns */
};

static struct judged judge(const pt_meets_list *a, const pt_meets_list *b,
			   int64_t shift)
{
	size_t from = shift < 0 ? (size_t)-shift : 0, to = a->n, i, step;
	struct judged j = { 0 };
	double sum = 0;

	if (shift >= (int64_t)b->n || from >= a->n)
		return j;
	if ((int64_t)to + shift > (int64_t)b->n)
		to = (size_t)((int64_t)b->n - shift);
	if (to <= from)
		return j;
	/* odd, so that it does not beat with what a step has of them */
	step = ((to - from) / SAMPLES) | 1;
	for (i = from; i < to; i += step) {
		const struct pt_meet *x = &a->v[i];
		const struct pt_meet *y = &b->v[(int64_t)i + shift];

		j.n++;
		j.told += x->done != UINT64_MAX && y->done != UINT64_MAX;
		j.wrong += x->sig != y->sig || x->at > y->done || y->at > x->done;
		sum += x->at > y->at ? (double)(x->at - y->at) :
				       (double)(y->at - x->at);
	}
	j.apart = sum / (double)j.n;
	return j;
}

/* The shift that brings the middle of `a` next to its nearest in time. */
static int64_t nearest(const pt_meets_list *a, const pt_meets_list *b)
{
	size_t mid = a->n / 2;

	return (int64_t)pt_bisect(b->n, i, b->v[i].at < a->v[mid].at) - (int64_t)mid;
}

bool pt_meets_join(const pt_meets_list *a, const pt_meets_list *b,
		   int64_t *shift, bool *sure)
{
	size_t need = pt_min64(a->n, b->n) / 2;
	int64_t near, s;
	double best = HUGE_VAL, next = HUGE_VAL; /* how far apart, the nearest two */
	bool told = false;

	*sure = false;
	if (need < PT_MEETS_MIN / 2)
		return false;
	near = nearest(a, b);
	for (s = near - REACH; s <= near + REACH; s++) {
		int64_t from = s < 0 ? -s : 0;
		int64_t to = pt_min64(a->n, (uint64_t)((int64_t)b->n - s));
		struct judged j;

		if (s >= (int64_t)b->n || to - from < (int64_t)need)
			continue;
		j = judge(a, b, s);
		if (!j.n || (double)j.wrong > WRONG_MAX * (double)j.n)
			continue;
		if (j.apart >= best) {
			next = fmin(next, j.apart);
			continue;
		}
		next = best;
		best = j.apart;
		*shift = s;
		told = 2 * j.told >= j.n;
	}
	/* ranks that wait for their devices are no further apart than what they
	 * call between two waits: among those shifts the nearest is the one */
	*sure = best < HUGE_VAL &&
		(next == HUGE_VAL || (told && next > CLEARLY * best));
	return best < HUGE_VAL;
}
