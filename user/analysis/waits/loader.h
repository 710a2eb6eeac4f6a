/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who makes the batches, from what the ways back from the consumer's sleeps met:
 * processes and threads that work for it, threads that only hand on (a pin
 * thread, a sender), and the moments at which the consumer asked for more.
 */
#ifndef PT_WAITS_LOADER_H
#define PT_WAITS_LOADER_H

#include "analysis/waits/givers.h"

/* Fills workers, relays, handoffs, thread_loader, concurrent and respawned of
 * `t`, whose proc and main are known. 0 or -ENOMEM. */
int pt_find_loader(struct pt_an *an, struct pt_trainer *t,
		   const struct pt_givers *g);

/* Is it a part of the loader's own, that starts with it? */
bool pt_is_started(const struct pt_trainer *t, const struct pt_worker *w);

/* unwaited.c: fills taken_beside of `t`, whose workers are known. */
void pt_count_taken(const struct pt_an *an, struct pt_trainer *t, const struct pt_actor *a,
		    struct pt_paths *paths);

/* within.c: of all ways back, ns for this thread. */
uint64_t pt_made_by(const struct pt_givers *g, const struct pt_thread *th);
/* ... the thread of `p` that makes; NULL: it has none. */
struct pt_thread *pt_maker_in(const struct pt_an *an, const struct pt_givers *g,
			      struct pt_proc *p);

/* The consumer woke somebody who works for it. */
struct pt_ask {
	uint64_t ts;
	uint32_t source; /* who: a number of its own */
	int worker;	 /* index; -1: who passes the wish on */
	bool thread;	 /* ... of the trainer itself */
	bool item; /* it was given something to do; else it hands over what it
		    * has made (a worker's thread that answers for memory) */
	bool room; /* ... or something was taken of it, and there is room for more */
};
typedef PT_VEC(struct pt_ask) pt_asks;

/* refill.c: the worker, or one of the helpers too, whose message the consumer, or who hands
 * on to it, was woken for in [b,e) last; -1: there was none. */
int pt_last_deliverer(const struct pt_trainer *t, const struct pt_model *m,
		      const struct pt_thread *consumer, uint64_t b, uint64_t e, bool helpers);
/* In order of time. 0 or -ENOMEM; the caller frees `out`. */
int pt_find_asks(const struct pt_an *an, const struct pt_trainer *t,
		 const struct pt_actor *a, struct pt_paths *paths, pt_asks *out);

#endif
