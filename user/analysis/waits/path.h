/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The way back from a moment: what a thread did before it and, where it was
 * asleep, what the thread that ended the sleep did before that. The backward
 * walk of a critical path (Yang and Miller, ICDCS 1988), over scheduler records:
 * no transport, no loader and no role is known here.
 *
 * A walk over [begin,end) gives legs, the latest first, which cover it exactly.
 */
#ifndef PT_WAITS_PATH_H
#define PT_WAITS_PATH_H

#include "analysis/waits/locks.h"

enum pt_leg_kind {
	PT_LEG_RUN,	/* on a CPU */
	PT_LEG_QUEUE,	/* runnable, without a CPU */
	PT_LEG_BLOCKED, /* asleep; no thread is known to have ended it */
	PT_LEG_LOCK,	/* asleep for what `who` had */
	PT_LEG_GIVEN,	/* asleep until `who` acted, who is not followed */
	PT_LEG_UNSEEN,	/* there is no record of the thread */
};

struct pt_leg {
	enum pt_leg_kind kind;
	uint64_t begin, end;	    /* CLOCK_MONOTONIC ns */
	const struct pt_thread *th; /* on whose timeline it lies */
	const struct pt_iv *iv;	    /* NULL: RUN, UNSEEN */
	const struct pt_thread *who; /* NULL: not traced */
};

/* What a sleep that another thread ended is taken for. */
enum pt_link {
	PT_LINK_STOP,	/* a leg GIVEN; the walk stays on the sleeper */
	PT_LINK_BEGIN,	/* ... down to the walk's begin: nothing that came before had a part in it */
	PT_LINK_LOCK,	/* a leg LOCK; likewise */
	PT_LINK_FOLLOW, /* the walk goes on with who ended it */
};

struct pt_walk_opts {
	/* `th` slept in `iv` before `at`. *who ended that; NULL: nobody that is
	 * traced, or known. It may be changed to whom the sleep was for. */
	enum pt_link (*link)(void *ctx, const struct pt_thread *th,
			     const struct pt_iv *iv, uint64_t at,
			     const struct pt_thread **who);
	/* Not 0 ends the walk, and is what it returns. */
	int (*leg)(void *ctx, const struct pt_leg *leg);
	void *link_ctx, *leg_ctx;
};

/* Walk back from `th` at `end` to `begin`. 0, -ENOMEM, or what leg() returned. */
int pt_walk_back(struct pt_paths *p, const struct pt_thread *th, uint64_t begin,
		 uint64_t end, const struct pt_walk_opts *o);

#endif
