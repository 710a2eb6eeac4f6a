/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks at threads (looks.h) become shares of their time, by line of Python. */
#ifndef PT_PYTHON_SAMPLER_H
#define PT_PYTHON_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "python/looks.h"

struct pt_py_sampler;

/* A line of the job's own code where a stack has one, else the innermost. */
struct pt_py_place {
	pid_t pid, tid;
	bool running; /* on a core or ready for one */
	struct pt_py_line at;
};

/* How much of a thread's time was running is the scheduler's own count; the looks say
 * where, so that one who looks less often while the cores are busy is right all the
 * same. */
struct pt_py_share {
	struct pt_py_place place;
	uint64_t seen, looks; /* of so many looks at the thread */
	double share, low, high; /* of its time, 0..1, with a 95 % interval */
	double seconds; /* the share of the time from its first look to its last */
};

/* pt_py_sampler_free() it. NULL: no memory. */
struct pt_py_sampler *pt_py_sampler_new(void);
void pt_py_sampler_free(struct pt_py_sampler *s);

/* By which it looks: whom it watches is told to them. */
struct pt_py_looks *pt_py_sampler_looks(struct pt_py_sampler *s);

/* Look once at every thread. How many threads were seen. */
int pt_py_sampler_look(struct pt_py_sampler *s);

/* By process and thread, the most frequent first; sorted anew by each call. The rows are
 * the sampler's until it looks again. */
const struct pt_py_share *pt_py_sampler_shares(struct pt_py_sampler *s, size_t *n);

#endif
