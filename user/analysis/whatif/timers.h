/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When each of a few tasks is done, and who is first: a tournament, of which only the matches
 * between a task that changes and the root are played again.
 */
#ifndef PT_WHATIF_TIMERS_H
#define PT_WHATIF_TIMERS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define PT_WI_TIMERS 64 /* tasks at most; a power of two */

struct pt_wi_timers {
	size_t n; /* a power of two */
	double at[PT_WI_TIMERS]; /* any unit; INFINITY: never */
	uint8_t first[2 * PT_WI_TIMERS]; /* who wins at a node: 1 is the root, leaves are from
					  * n on */
};

static inline void pt_wi_timers_init(struct pt_wi_timers *t, size_t tasks)
{
	size_t i;

	for (t->n = 1; t->n < tasks;)
		t->n *= 2;
	for (i = 0; i < t->n; i++) {
		t->at[i] = INFINITY;
		t->first[t->n + i] = (uint8_t)i;
	}
	for (i = t->n; i-- > 1;)
		t->first[i] = t->first[2 * i];
}

static inline void pt_wi_set_timer(struct pt_wi_timers *t, size_t task, double at)
{
	size_t i;

	t->at[task] = at;
	for (i = (t->n + task) / 2; i; i /= 2) {
		uint8_t a = t->first[2 * i], b = t->first[2 * i + 1], was = t->first[i];

		t->first[i] = t->at[a] <= t->at[b] ? a : b;
		if (t->first[i] == was && was != task)
			return; /* nothing changes above it */
	}
}

static inline size_t pt_wi_first(const struct pt_wi_timers *t)
{
	return t->first[1];
}

static inline double pt_wi_soonest(const struct pt_wi_timers *t)
{
	return t->at[t->first[1]];
}

#endif
