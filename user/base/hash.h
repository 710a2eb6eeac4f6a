/* SPDX-License-Identifier: BSD-2-Clause */
/* uthash, told to leave an element out when memory runs out rather than to
 * end the program: check PT_HASHED(elt) after an add. */
#ifndef PT_HASH_H
#define PT_HASH_H

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(key, len, out) ((out) = pt_hash_of(key, len))
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

/* Keys are ids, addresses and pairs of them, asked for at each record: eight bytes at
 * a time, multiplied by 2^64 over the golden ratio (Knuth) and folded. */
static inline unsigned pt_hash_of(const void *key, size_t len)
{
	const char *p = key;
	uint64_t h = len, x;

	for (; len; p += sizeof(x), len -= sizeof(x)) {
		x = 0;
		if (len < sizeof(x)) {
			memcpy(&x, p, len);
			len = sizeof(x);
		} else {
			memcpy(&x, p, sizeof(x));
		}
		h = (h ^ x) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 32;
	}
	return (unsigned)h;
}

#define PT_HASHED(elt) ((elt)->hh.tbl != NULL)

/* The element of `head` whose member `field` is *(key); where there is none a new one,
 * zeroed but for that. NULL: out of memory. */
#define pt_hash_make(head, field, key)                                         \
	({                                                                     \
		__typeof__(head) elt_;                                         \
                                                                               \
		HASH_FIND(hh, head, key, sizeof(elt_->field), elt_);           \
		if (!elt_ && (elt_ = calloc(1, sizeof(*elt_)))) {              \
			memcpy(&elt_->field, key, sizeof(elt_->field));        \
			HASH_ADD(hh, head, field, sizeof(elt_->field), elt_);  \
			if (!PT_HASHED(elt_)) {                                \
				free(elt_);                                    \
				elt_ = NULL;                                   \
			}                                                      \
		}                                                              \
		elt_;                                                          \
	})

/* The elements, each from the heap by itself, and the table. */
#define pt_hash_free(head)                                                     \
	do {                                                                   \
		__typeof__(head) elt_, next_;                                  \
                                                                               \
		HASH_ITER(hh, head, elt_, next_) {                             \
			HASH_DEL(head, elt_);                                  \
			free(elt_);                                            \
		}                                                              \
	} while (0)

#endif
