// SPDX-License-Identifier: BSD-2-Clause
#include "store/columns_table.h"

#include <errno.h>
#include <stdlib.h>

static const unsigned char nothing[PT_REC_MAX];

void pt_col_table_free(struct pt_col_table *t)
{
	pt_vec_free(&t->recs);
	pt_vec_free(&t->slots);
	pt_vec_free(&t->lasts);
}

int pt_col_table_add(struct pt_col_table *t, uint32_t at, unsigned shape,
		     uint32_t slot)
{
	struct pt_col_rec r = { .at = at, .slot = slot, .shape = (uint8_t)shape };
	struct pt_col_shape *s = &t->shapes[shape];
	uint32_t id = (uint32_t)t->recs.n + 1;

	while (t->lasts.n < ((size_t)slot + 1) * PT_COL_MAX_SHAPES)
		if (pt_vec_push(&t->lasts, 0))
			return -ENOMEM;
	r.prev = t->lasts.v[slot * PT_COL_MAX_SHAPES + shape];
	if (pt_vec_push(&t->recs, r))
		return -ENOMEM;
	t->lasts.v[slot * PT_COL_MAX_SHAPES + shape] = id;
	if (s->last)
		t->recs.v[s->last - 1].next = id;
	else
		s->first = id;
	s->last = id;
	s->n++;
	return 0;
}

const unsigned char *pt_col_prev(const struct pt_col_table *t, const struct pt_col_rec *r,
				    const unsigned char *base)
{
	return r->prev ? base + t->recs.v[r->prev - 1].at : nothing;
}

unsigned char *pt_col_extend(pt_bytes *b, size_t n)
{
	size_t want = b->n + n, cap = b->cap ? b->cap : 4096;
	unsigned char *p;

	if (want > b->cap) {
		while (cap < want)
			cap *= 2;
		p = realloc(b->v, cap);
		if (!p)
			return NULL;
		b->v = p;
		b->cap = cap;
	}
	p = b->v + b->n;
	b->n = want;
	return p;
}
