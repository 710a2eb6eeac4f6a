/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who ends the target's waits from outside of its tree? Counted from the records,
 * pair by pair: the process that was woken, and the one that woke it. A pair of
 * which both are followed counts as well, and whoever is told of it knows.
 */
#ifndef PT_OUTSIDE_H
#define PT_OUTSIDE_H

#include <stdbool.h>
#include <stdint.h>

/* What was seen of a pair. */
struct pt_outside_seen {
	uint32_t waker, waiter; /* processes */
	uint32_t wakes;		/* that ended waits */
	uint64_t slept_ns;	/* in these waits */
	uint64_t over_ns;	/* from the begin of the first one to the last one's
				 * end */
};

/* Is that one who supplies the target, so that it is worth following? */
bool pt_outside_supplies(const struct pt_outside_seen *s);
/* Is it even if it is a shell, a logger, or anything that a job may have to do
 * with and that is hardly ever its supplier? */
bool pt_outside_surely(const struct pt_outside_seen *s);

#define PT_OUTSIDE_SETS 64
#define PT_OUTSIDE_WAYS 8
struct pt_outside { /* all zero at first */
	struct pt_outside_pair {
		struct pt_outside_seen seen;
		uint64_t first, last;
		uint32_t told; /* of so many wakes; 0: never */
	} pair[PT_OUTSIDE_SETS][PT_OUTSIDE_WAYS];
};

/*
 * A record. True: it makes a supplier of its waker, as *s says; said once, and
 * again when there are twice as many, so that a refusal may be thought over.
 */
bool pt_outside_see(struct pt_outside *o, const void *rec,
		    struct pt_outside_seen *s);

#endif
