/* SPDX-License-Identifier: BSD-2-Clause */
/* Where in a gap between two GPU calls the obtaining of a batch begins and ends. */
#ifndef PT_WAITS_BOUNDS_H
#define PT_WAITS_BOUNDS_H

#include "analysis/waits/look.h"

#define PT_FETCH_PLACES 4

/* What all gaps of the loop show of one. The first four are the caller's. */
struct pt_bounds {
	const struct pt_an *an;
	const struct pt_trainer *t;
	const struct pt_host *h;
	const struct pt_period *p;
	/* Own CPU time in the gaps where most steps begin, medians: before the first evidence,
	 * behind the last, and in gaps without any; 0 none. */
	struct {
		uint64_t lead, behind, ready;
	} usual;
	bool sleeps_first; /* what it reads by itself makes it sleep before it computes */
	bool unseen; /* sleeps of the consumer are missing */
	struct pt_place_at bare; /* looks of all gaps without evidence where batches come */
	/* Where the loop obtains batches. */
	struct pt_loop_place at[PT_FETCH_PLACES];
	size_t n_at;
	/* Of its CPU time before what a gap shows of the loader, behind it, and in gaps that show
	 * nothing, what lies there; NAN: not known. */
	struct {
		double lead, behind, ready;
	} fetching;
	double taken; /* of that behind, at least: in Python's own queues */
};

/* 0 or -ENOMEM. */
int pt_learn_bounds(struct pt_bounds *o);
/* fetching.c: fills at, n_at, fetching and taken. 0 or -ENOMEM. */
int pt_learn_fetching(struct pt_bounds *o);
/* When the gap shows the loader first (0: never), and last; and from when on the consumer did
 * nothing that is certainly not for it. */
uint64_t pt_gap_first(const struct pt_bounds *o, const struct pt_host_gap *g);
uint64_t pt_gap_last_seen(const struct pt_host_gap *g);
uint64_t pt_gap_free(const struct pt_bounds *o, const struct pt_host_gap *g);
/* Of a gap in which data is obtained. */
void pt_bound_gap(const struct pt_bounds *o, const struct pt_host_gap *g, struct pt_span *w);
/* ... if only the thread's Python tells; false: it does not. */
bool pt_bound_named(const struct pt_bounds *o, const struct pt_host_gap *g, struct pt_span *w);
/* Is the piece work that is certainly not for the loader? */
bool pt_is_else(const struct pt_host_gap *g, const struct pt_host_piece *x);
/* Does a consumer whom others supply lack a core in it, and no batch: behind a call of the device's,
 * or while one is there? */
bool pt_lacks_core(const struct pt_bounds *o, const struct pt_host_gap *g,
		   const struct pt_host_piece *x);

#endif
