/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread's time by stack of Python. The records tell how long it ran and slept, looks where:
 * a sleep that a look met is that stack's, all of it, and those for the same that none met are
 * shared out alike; what it ran is shared out by the looks that found it running.
 */
#ifndef PT_VIEW_STACKS_H
#define PT_VIEW_STACKS_H

#include <stdint.h>

#include "base/hash.h"
#include "model/past.h"

struct pt_stack_key {
	uint32_t stack; /* pt_model_stack() */
	uint32_t function; /* of the library that it ends in: pt_model_line(); 0: none is told */
	uint32_t state; /* PT_PAST_RUNNING: on a core, or ready for one; else a pt_wait */
};

struct pt_stack_time {
	struct pt_stack_key key;
	uint64_t ns, looks; /* looks: that found it running */
	UT_hash_handle hh;
};

struct pt_stack_times {
	struct pt_stack_time *all; /* uthash, in the order in which they were met */
	uint64_t ran_ns, slept_ns; /* in all, and ... */
	uint64_t ran_unseen_ns, slept_unseen_ns; /* ... of which no look tells anything */
};

/* Adds what the model has of the thread in [begin, end). 0 or -ENOMEM. */
int pt_stacks_add(struct pt_stack_times *to, const struct pt_model *m,
		  const struct pt_thread *th, uint64_t begin, uint64_t end);
void pt_stacks_free(struct pt_stack_times *t);

#endif
