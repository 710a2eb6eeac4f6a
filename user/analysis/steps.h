/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between steps.c, which finds the gaps in which batches are obtained,
 * step_bounds.c, which says where in such a gap the obtaining begins and ends,
 * and step_join.c. Times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef PT_STEPS_H
#define PT_STEPS_H

#include "analysis/internal.h"

/* The host's time between two GPU calls of the main thread. */
struct gap {
	uint64_t begin, end;
	uint64_t prev, next; /* call sites around it */
	uint64_t key;	     /* of the two */
	uint64_t started; /* a loader was started in it: until then; 0: none */
	uint64_t blocked; /* asleep for a batch */
	uint64_t first_evidence, last_evidence; /* 0: none */
	uint64_t last_mark;
	uint64_t from; /* no sooner was the next batch asked for */
	uint64_t lead; /* own CPU time from there to the first evidence */
	int mark_source;
	uint32_t marks;
	uint32_t marks_after; /* ... since the first evidence of waiting */
	bool data;
	bool cut; /* by the capture's begin or end: one call is missing */
};

struct gap_kind {
	uint64_t key, prev, next;
	uint64_t n, evident, ns, big_ns;
	bool chosen;
	UT_hash_handle hh;
};

struct gap_set {
	PT_VEC(struct gap) gaps;
	struct gap_kind *kinds;
	uint64_t usual_lead, usual_ready; /* see pt_learn_leads() */
};

/* Index of the gap that holds `ts`, or -1. */
long pt_gap_at(const struct gap_set *s, uint64_t ts);

/* Sets `started` of the gaps in which a loader was started. Before evidence
 * and refills are sought: what comes sooner is the start's. */
void pt_find_starts(const struct pt_an *an, const struct pt_trainer *t,
		    struct gap_set *s);

/*
 * For the gaps with `data` set: `from` and `lead`; and over all of them the
 * medians usual_lead (own CPU time until the first evidence) and usual_ready
 * (own CPU time in gaps without any); 0 where there are none. 0 or -ENOMEM.
 */
int pt_learn_leads(const struct pt_trainer *t, struct gap_set *s);

/* Where in a gap the obtaining begins and ends: wait_begin, wait_end and
 * end_seen of `out`. Both ends are estimates where nothing marks them. */
void pt_bound_wait(const struct pt_trainer *t, const struct gap_set *s,
		   const struct gap *g, struct pt_step *out);

/* Obtainings that together feed one update become one step (step_join.c).
 * 0 or -ENOMEM. */
int pt_join_steps(struct pt_trainer *t);

#endif
