/* SPDX-License-Identifier: BSD-2-Clause */
/* Where in its loop the training thread is, as its Python shows. */
#ifndef PT_WAITS_LOOP_H
#define PT_WAITS_LOOP_H

#include "analysis/internal.h"

#define PT_LOOP_STACKS 64 /* different ones inside of calls */

/* The innermost first. */
struct pt_loop_stack {
	uint32_t id[PT_STACK_DEPTH];
	size_t n;
	bool uploads; /* of a call: it always moved a batch to the device */
};

/* A line of the loop, and what it has called: `step(next(batches))` is two of these. */
struct pt_loop_place {
	const struct pt_code_line *line, *called; /* NULL: not known; nothing */
};

static inline bool pt_same_loop_place(const struct pt_loop_place *a,
				      const struct pt_loop_place *b)
{
	return pt_same_line(a->line, b->line) &&
	       (a->called && b->called ? pt_same_function(a->called, b->called) :
					 a->called == b->called);
}

/* What a stack tells, asked once. */
struct pt_told {
	bool known;
	bool named; /* it is inside of the data iterator */
	bool above; /* ... above all lines that call the device */
	bool takes; /* pt_takes_batch() */
	bool gives; /* pt_hands_out() */
	bool sends; /* the function of `at` calls the device for uploads alone; others call it, too */
	struct pt_loop_place at; /* where the loop calls no device */
};

struct pt_loop {
	const struct pt_model *m;
	struct pt_loop_stack calls[PT_LOOP_STACKS]; /* met inside of calls of the device */
	size_t n;
	/* by stack; NULL: its Python was not seen, or no call of the device in it */
	struct pt_told *told;
	/* looks at the running thread above those calls, with an upload next, that found it taking
	 * something out of a queue or a pipe */
	size_t takes_above;
};

/* 0 or -ENOMEM; free in any case. */
int pt_loop_learn(const struct pt_an *an, const struct pt_thread *lead, struct pt_loop *out);
void pt_loop_free(struct pt_loop *k);
/* NULL: nothing is known. */
const struct pt_told *pt_loop_tell(struct pt_loop *k, uint32_t stack);

static inline const struct pt_code_line *pt_stack_line(const struct pt_model *m, uint32_t stack)
{
	return pt_model_line(m, pt_model_stack(m, stack)->line);
}

/* Is the innermost code Python's own for handing over: a queue's, a pool's? */
bool pt_takes_batch(const struct pt_model *m, uint32_t stack);
/* ... an executor's: it waits for the result of a task? */
bool pt_awaits_result(const struct pt_model *m, uint32_t stack);
/* ... and does it wait for others to take what it hands out (put(), send())? */
bool pt_hands_out(const struct pt_model *m, uint32_t stack);
/* Is the innermost code Python's own that moves what is handed over between processes (pickling,
 * a pipe's ends), and calls nobody's functions? What computes there hands over. */
bool pt_moves_batch(const struct pt_model *m, uint32_t stack);

#endif
