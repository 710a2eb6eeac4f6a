/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_MINMAX_H
#define PT_MINMAX_H

#include <stdint.h>

static inline uint64_t pt_max64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline uint64_t pt_min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* For qsort(): the smaller one first. Keys that come after it: "?: pt_cmp(...)". */
#define pt_cmp(a, b) (((a) > (b)) - ((a) < (b)))
/* A function for qsort() of elements of type T: `order` of two of them, *x and *y. */
#define PT_ORDER(name, T, order)                                               \
	static int name(const void *a_, const void *b_)                        \
	{                                                                      \
		const __typeof__(T) *x = a_, *y = b_;                          \
                                                                               \
		return order;                                                  \
	}

/* Length of [a,b) inside [c,d). */
static inline uint64_t pt_overlap(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	uint64_t lo = pt_max64(a, c), hi = pt_min64(b, d);

	return hi > lo ? hi - lo : 0;
}

#endif
