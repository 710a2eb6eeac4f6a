/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What threads did in a part of a capture that the model does not hold any more:
 * how much of each stretch of time they spent in which state. For pictures of a
 * capture that is looked at in pieces. Pure.
 */
#ifndef PT_PAST_H
#define PT_PAST_H

#include <stdbool.h>

#include "base/vec.h"
#include "model/timeline.h"

#define PT_PAST_RUNNING PT_WAIT_NR /* a state besides those of pt_wait */
#define PT_PAST_STATES (PT_WAIT_NR + 1)
#define PT_PAST_BUCKETS 4096 /* at most; when time goes on they become longer */
#define PT_PAST_THREADS 128  /* those beyond are in the sums alone */

typedef float pt_past_row[PT_PAST_STATES]; /* ns in each state */

struct pt_past_thread {
	uint32_t tid;
	uint64_t until; /* the model has what comes behind */
	bool seen;	/* something of it was taken */
	pt_past_row *v;
};

struct pt_past {
	uint64_t begin, width; /* ns; of the first bucket, and of each */
	PT_VEC(struct pt_past_thread) threads;
	pt_past_row *sum; /* of all threads; NULL: nothing was taken yet */
};

/* Take in what `m` is about to drop: all that is over by `before`. 0 or
 * -ENOMEM. */
int pt_past_take(struct pt_past *p, const struct pt_model *m, uint64_t before);
/* NULL: all of it is in the model, or unknown. `p` may be NULL. */
const struct pt_past_thread *pt_past_of(const struct pt_past *p, uint32_t tid);
void pt_past_free(struct pt_past *p);

/* All that the model has of a thread, in order, behind what `past` (or NULL) has of
 * it; where records are missing, nothing. `state`: a pt_wait, or PT_PAST_RUNNING. */
typedef void (*pt_state_fn)(void *ctx, uint64_t begin, uint64_t end,
			    unsigned state);
void pt_thread_states(const struct pt_thread *th,
		      const struct pt_past_thread *past, pt_state_fn fn,
		      void *ctx);

#endif
