/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of the model: each piece is counted in one of the sums of struct pt_held when it
 * is had, grows or goes, as the allocator takes it. */
#ifndef PT_BUDGET_H
#define PT_BUDGET_H

#include "base/vec.h"

/* A size in front, in steps of 16 bytes, 32 at least. */
static inline uint64_t pt_chunk(size_t size)
{
	return !size ? 0 : size <= 24 ? 32 : ((uint64_t)size + 8 + 15) & ~15ull;
}

/* Zeroed; NULL: out of memory. */
static inline void *pt_held_new(uint64_t *sum, size_t size)
{
	void *p = calloc(1, size);

	*sum += p ? pt_chunk(size) : 0;
	return p;
}

static inline void pt_held_drop(uint64_t *sum, void *p, size_t size)
{
	*sum -= p ? pt_chunk(size) : 0;
	free(p);
}

static inline int pt_held_grow(uint64_t *sum, void **v, size_t n, size_t *cap,
			       size_t size)
{
	size_t was = *cap;
	int err;

	if (n < was)
		return 0;
	err = pt_vec_grow(v, n, cap, size);
	*sum += pt_chunk(*cap * size) - pt_chunk(was * size);
	return err;
}

/* pt_vec_push() into a vector that `sum` has. */
#define pt_held_push(sum, vec, item)                                           \
	(pt_held_grow(sum, (void **)&(vec)->v, (vec)->n, &(vec)->cap,          \
		      sizeof(*(vec)->v)) ?                                     \
		 -ENOMEM :                                                     \
		 ((vec)->v[(vec)->n++] = (item), 0))

/* Without its first `drop` elements; what it does not need is given back. */
void pt_held_tail(uint64_t *sum, void **v, size_t *n, size_t *cap, size_t drop,
		  size_t size);
#define pt_held_cut(sum, vec, drop)                                            \
	pt_held_tail(sum, (void **)&(vec)->v, &(vec)->n, &(vec)->cap, drop,    \
		     sizeof(*(vec)->v))

#endif
