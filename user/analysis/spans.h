/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of spans of time. All but tidy() and append() want them tidy: in order, disjoint,
 * none empty. */
#ifndef PT_SPANS_H
#define PT_SPANS_H

#include <stdint.h>

#include "base/vec.h"

struct pt_span {
	uint64_t begin, end;
};
typedef PT_VEC(struct pt_span) pt_spans;

/* Sort, clip to [t0,t1) and join what touches. Their sum, ns. */
uint64_t pt_spans_tidy(pt_spans *s, uint64_t t0, uint64_t t1);
/* What of [b,e) lies behind the last one, as a span of its own. 0 or -ENOMEM. */
int pt_spans_add(pt_spans *s, uint64_t b, uint64_t e);
/* All of `s` behind what is there. 0 or -ENOMEM, as all below that return int. */
int pt_spans_append(pt_spans *to, const pt_spans *s);
uint64_t pt_spans_sum(const pt_spans *s);
/* How much of [b,e) they cover, ns; how much of another list. */
uint64_t pt_spans_in(const pt_spans *s, uint64_t b, uint64_t e);
uint64_t pt_spans_overlap(const pt_spans *a, const pt_spans *b);
/* Index of the first that ends behind `ts`. */
size_t pt_spans_after(const pt_spans *s, uint64_t ts);
/* Behind what is in `out`: the pieces of a that are not in b; [t0,t1) without a. */
int pt_spans_subtract(const pt_spans *a, const pt_spans *b, pt_spans *out);
int pt_spans_invert(const pt_spans *a, uint64_t t0, uint64_t t1, pt_spans *out);
/* a := a without b; what is in both. */
int pt_spans_remove(pt_spans *a, const pt_spans *b);
int pt_spans_meet(pt_spans *a, const pt_spans *b);

#endif
