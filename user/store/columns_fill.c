// SPDX-License-Identifier: BSD-2-Clause
/*
 * The fields of a stretch of records out of their columns. Most of what reading
 * a file takes is spent here, so there is a loop for each width and each coding
 * that is common.
 */
#include "store/columns_fill.h"

static const unsigned char nothing[PT_REC_MAX];

void pt_col_unpack(const struct pt_col_planes *c, size_t from, size_t n,
		   uint64_t *v)
{
	const unsigned char *p = c->p + from;
	unsigned w;
	size_t i;

	switch (c->width) {
	case 0:
		memset(v, 0, n * sizeof(*v));
		return;
	case 1:
		for (i = 0; i < n; i++)
			v[i] = p[i];
		return;
	case 2:
		for (i = 0; i < n; i++)
			v[i] = p[i] | (uint64_t)p[c->n + i] << 8;
		return;
	}
	for (i = 0; i < n; i++)
		v[i] = p[i] | (uint64_t)p[c->n + i] << 8 |
		       (uint64_t)p[2 * c->n + i] << 16;
	for (w = 3; w < c->width; w++)
		for (i = 0; i < n; i++)
			v[i] |= (uint64_t)p[w * c->n + i] << (8 * w);
}

/* `width` and `mode` are known where it is called. */
static inline __attribute__((always_inline)) void
each(const struct pt_col_run *r, unsigned off, unsigned width, unsigned mode)
{
	const struct pt_col_field f = { .off = (uint16_t)off,
					.width = (uint8_t)width,
					.mode = (uint8_t)mode };
	size_t i;

	for (i = 0; i < r->n; i++) {
		unsigned char *p = r->base + r->at[i].at;
		const unsigned char *prev =
			r->at[i].prev == PT_COL_NO_PREV ? nothing :
							  r->base + r->at[i].prev;

		pt_col_set(p + off, width, pt_col_value(&f, r->v[i], p, prev));
	}
}

static void fill_last(const struct pt_col_run *r, const struct pt_col_field *f)
{
	switch (f->width) {
	case 8:
		each(r, f->off, 8, PT_COL_LAST);
		break;
	case 4:
		each(r, f->off, 4, PT_COL_LAST);
		break;
	case 2:
		each(r, f->off, 2, PT_COL_LAST);
		break;
	default:
		each(r, f->off, 1, PT_COL_LAST);
	}
}

void pt_col_fill(const struct pt_col_run *r, const struct pt_col_field *f)
{
	if (f->mode == PT_COL_LAST)
		fill_last(r, f);
	else if (f->mode == PT_COL_SEQ && f->width == 4)
		each(r, f->off, 4, PT_COL_SEQ);
	else if (f->mode == PT_COL_TIME && f->width == 8)
		each(r, f->off, 8, PT_COL_TIME);
	else if (f->mode == PT_COL_RUN && f->width == 8)
		each(r, f->off, 8, PT_COL_RUN);
	else if (f->mode == PT_COL_RUNQ && f->width == 8)
		each(r, f->off, 8, PT_COL_RUNQ);
	else if (f->mode == PT_COL_IOWAIT && f->width == 8)
		each(r, f->off, 8, PT_COL_IOWAIT);
	else if (f->mode == PT_COL_BLOCK && f->width == 8)
		each(r, f->off, 8, PT_COL_BLOCK);
	else
		each(r, f->off, f->width, f->mode);
}

static inline __attribute__((always_inline)) void
each_of(const struct pt_col_run *r, unsigned off, unsigned width,
	const uint64_t *values)
{
	size_t i;

	for (i = 0; i < r->n; i++)
		pt_col_set(r->base + r->at[i].at + off, width, values[r->v[i]]);
}

void pt_col_fill_of(const struct pt_col_run *r, const struct pt_col_field *f,
		    const uint64_t *values)
{
	switch (f->width) {
	case 8:
		each_of(r, f->off, 8, values);
		break;
	case 4:
		each_of(r, f->off, 4, values);
		break;
	case 2:
		each_of(r, f->off, 2, values);
		break;
	default:
		each_of(r, f->off, 1, values);
	}
}
