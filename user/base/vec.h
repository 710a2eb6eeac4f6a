/* SPDX-License-Identifier: BSD-2-Clause */
/* Growable arrays: struct { T *v; size_t n, cap; }. */
#ifndef PT_VEC_H
#define PT_VEC_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define PT_VEC(T)                                                              \
	struct {                                                               \
		T *v;                                                          \
		size_t n, cap;                                                 \
	}

/* Make room for one more element of `size` bytes. 0 or -ENOMEM. */
static inline int pt_vec_grow(void **v, size_t n, size_t *cap, size_t size)
{
	size_t want, bytes;
	void *p;

	/* "&& *v" is always so; it tells who reads one function at a time */
	if (n < *cap && *v)
		return 0;
	want = *cap ? *cap * 2 : 16;
	if (want < *cap || __builtin_mul_overflow(want, size, &bytes))
		return -ENOMEM;
	p = realloc(*v, bytes);
	if (!p)
		return -ENOMEM;
	*v = p;
	*cap = want;
	return 0;
}

/* Append a copy of `item`; 0 or -ENOMEM, and then nothing has changed. */
#define pt_vec_push(vec, item)                                                 \
	(pt_vec_grow((void **)&(vec)->v, (vec)->n, &(vec)->cap,                \
		     sizeof(*(vec)->v)) ?                                      \
		 -ENOMEM :                                                     \
		 ((vec)->v[(vec)->n++] = (item), 0))

#define pt_vec_free(vec)                                                       \
	do {                                                                   \
		free((vec)->v);                                                \
		(vec)->v = NULL;                                               \
		(vec)->n = (vec)->cap = 0;                                     \
	} while (0)

/* Each element `p` of a vector, or of an array of `n`, that stays as long as it is. */
#define pt_each_of(T, p, v, n) for (T *p = (v); p < (v) + (n); p++)
#define pt_each(T, p, vec) pt_each_of(T, p, (vec)->v, (vec)->n)
/* ... as long as `err` is 0. */
#define pt_each_ok(T, p, vec, err)                                             \
	for (T *p = (vec)->v; !(err) && p < (vec)->v + (vec)->n; p++)

/* What is in order already, as most is, is left as it is. */
#define pt_vec_sort(vec, order)                                                \
	do {                                                                   \
		size_t i_ = 1;                                                 \
                                                                               \
		while (i_ < (vec)->n &&                                        \
		       order(&(vec)->v[i_ - 1], &(vec)->v[i_]) <= 0)           \
			i_++;                                                  \
		if (i_ < (vec)->n)                                             \
			qsort((vec)->v, (vec)->n, sizeof(*(vec)->v), order);   \
	} while (0)

/* How many of the first `n` indices `i` fulfil `before`, which the smaller ones do and
 * the larger ones do not: by bisection. */
#define pt_bisect(n, i, before)                                                \
	({                                                                     \
		size_t lo_ = 0, hi_ = (n);                                     \
                                                                               \
		while (lo_ < hi_) {                                            \
			size_t i = lo_ + (hi_ - lo_) / 2;                      \
                                                                               \
			if (before)                                            \
				lo_ = i + 1;                                   \
			else                                                   \
				hi_ = i;                                       \
		}                                                              \
		lo_;                                                           \
	})

/* The same, from index `near` on in growing strides, then by halves: what is asked for
 * mostly lies near to what was asked for last. */
#define pt_bisect_near(n, near, i, before)                                     \
	({                                                                     \
		size_t n_ = (n), at_ = (near) < n_ ? (near) : n_, step_ = 1;   \
		size_t a_ = at_, b_ = at_;                                     \
                                                                               \
		for (; a_; step_ *= 2) {                                       \
			size_t i = a_ - 1;                                     \
                                                                               \
			if (before)                                            \
				break;                                         \
			b_ = i;                                                \
			a_ = a_ > step_ ? a_ - step_ : 0;                      \
		}                                                              \
		for (; a_ == at_ && b_ < n_; step_ *= 2) {                     \
			size_t i = b_;                                         \
                                                                               \
			if (!(before))                                         \
				break;                                         \
			at_ = a_ = i + 1;                                      \
			b_ = n_ - b_ > step_ ? b_ + step_ : n_;                \
		}                                                              \
		while (a_ < b_) {                                              \
			size_t i = a_ + (b_ - a_) / 2;                         \
                                                                               \
			if (before)                                            \
				a_ = i + 1;                                    \
			else                                                   \
				b_ = i;                                        \
		}                                                              \
		a_;                                                            \
	})

#endif
