/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Can what workers wait for happen at the same time? Told by when they were in
 * it, while both had work; nothing is assumed of what it is. Times are
 * milliseconds.
 */
#ifndef PT_WHATIF_PLACES_H
#define PT_WHATIF_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

struct pt_wi_visit { /* one stay in a place; of a worker, by begin */
	double begin, end;
	uint32_t worker;
	double own; /* of it, as if it had been served in turn; filled in */
};
typedef PT_VEC(struct pt_wi_visit) pt_wi_visits;

struct pt_wi_work { /* a worker had work */
	double begin, end;
	uint32_t worker;
};
typedef PT_VEC(struct pt_wi_work) pt_wi_works;

enum pt_wi_place_class {
	PT_WI_UNKNOWN,	   /* too little was seen */
	PT_WI_INDEPENDENT, /* together, and none the slower for it */
	PT_WI_SERIAL,	   /* never together, though chance says often */
	PT_WI_IN_TURN,	   /* they wait together, and are served one by one */
};

struct pt_wi_verdict {
	enum pt_wi_place_class what;
	double together, chance; /* pairs of workers inside at once, ms */
	double taken;	 /* time in which anybody was inside, of that of all */
	double slope, error;	 /* how far a stay follows those before it */
	bool even;	 /* they end evenly, one behind another ... */
	bool regular;	 /* ... and that is no chance */
	size_t followed; /* stays that began while another was inside */
	size_t at_once;	 /* ... and ended as that did */
};

/*
 * `v` in order of begin, overlapping only between workers; `w` in any order.
 * `timer`: it can only be held back by a lock, not be served in turn. Fills `own` of
 * the visits. 0 or -ENOMEM.
 */
int pt_wi_judge_place(struct pt_wi_visit *v, size_t n, const struct pt_wi_work *w,
		      size_t n_work, bool timer, struct pt_wi_verdict *out);

#endif
