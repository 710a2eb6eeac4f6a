/* SPDX-License-Identifier: BSD-2-Clause */
/* Where in a gap between two GPU calls the obtaining of a batch begins and ends. */
#ifndef PT_WAITS_BOUNDS_H
#define PT_WAITS_BOUNDS_H

#include "analysis/waits/look.h"

/* What all gaps of the loop show of one. The first four are the caller's. */
struct pt_bounds {
	const struct pt_an *an;
	const struct pt_trainer *t;
	const struct pt_host *h;
	const struct pt_period *p;
	/* Own CPU time in the gaps where most steps begin, medians: before the first evidence,
	 * and in gaps without any; 0 none. */
	struct {
		uint64_t lead, ready;
	} usual;
	bool sleeps_first; /* what it reads by itself makes it sleep before it computes */
	bool unseen; /* sleeps of the consumer are missing */
	struct pt_place_at bare; /* looks of all gaps without evidence where batches come */
	double taken; /* of its CPU time behind what a gap shows of the loader: unpickling */
};

/* 0 or -ENOMEM. */
int pt_learn_bounds(struct pt_bounds *o);
/* Of a gap in which data is obtained. */
void pt_bound_gap(const struct pt_bounds *o, const struct pt_host_gap *g, struct pt_span *w);
/* ... if only the thread's Python tells; false: it does not. */
bool pt_bound_named(const struct pt_bounds *o, const struct pt_host_gap *g, struct pt_span *w);
/* Is the piece work that is certainly not for the loader? */
bool pt_is_else(const struct pt_host_gap *g, const struct pt_host_piece *x);

#endif
