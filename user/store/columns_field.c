// SPDX-License-Identifier: BSD-2-Clause
/* Which fields the records have, and what each is likely to be. */
#include "store/columns_int.h"

#include <stdlib.h>

#define F(type, member, m)                                                     \
	{ offsetof(struct type, member),                                       \
	  sizeof(((struct type *)0)->member), PT_COL_##m }

/* In the order of coding, as PT_CODE of records.def has the rest. */
static const struct pt_col_field header[] = {
	F(pt_hdr, cpu, LAST),
	F(pt_hdr, flags, LAST),
	F(pt_hdr, seq, SEQ),
};

/* `x` as the next field, where a record of `size` bytes has it whole. */
static unsigned put(struct pt_col_field *f, unsigned n, bool *covered,
		    struct pt_col_field x, uint16_t size)
{
	if (x.off + x.width > size)
		return n;
	f[n] = x;
	memset(covered + x.off, 1, x.width);
	return n + 1;
}

static unsigned put_listed(const struct pt_rec_kind *k, uint16_t size,
			   struct pt_col_field *f, unsigned n, bool *covered)
{
	unsigned lines, i;
	const struct pt_rec_line *l = k->lines(&lines);

	for (i = 0; i < lines; i++) {
		struct pt_col_field x = { l[i].off, (uint8_t)l[i].width,
					  (uint8_t)l[i].mode };

		/* told by fields that a cut record may lack */
		if (x.mode >= PT_COL_RUN && size < k->size)
			x.mode = PT_COL_LAST;
		if (l[i].says == PT_SAYS_CODE)
			n = put(f, n, covered, x, size);
	}
	return n;
}

unsigned pt_col_fields(uint16_t kind, uint16_t size, struct pt_col_field *f)
{
	const struct pt_rec_kind *k = pt_rec_kind(kind);
	bool covered[PT_REC_MAX] = { false };
	unsigned n = 0, i, w;

	/* told by the form, the thread and the times' own column */
	memset(covered + offsetof(struct pt_hdr, size), 1, 4);
	memset(covered + offsetof(struct pt_hdr, ts), 1, 16);
	memset(covered + offsetof(struct pt_hdr, start), 1, 4);
	for (i = 0; i < sizeof(header) / sizeof(header[0]); i++)
		n = put(f, n, covered, header[i], size);
	if (k)
		n = put_listed(k, size, f, n, covered);
	for (i = 0; i < size; i += w) {
		w = 1;
		if (covered[i])
			continue;
		while (w < 8 && i + w < size && !covered[i + w])
			w++;
		w = w == 8 ? 8 : w >= 4 ? 4 : w >= 2 ? 2 : 1;
		f[n++] = (struct pt_col_field){ (uint16_t)i, (uint8_t)w,
						PT_COL_LAST };
	}
	return n;
}

/* Sign-extend a difference of `width` bytes, so that zigzag sees its sign. */
static uint64_t extend(uint64_t v, unsigned width)
{
	uint64_t top = 1ull << (8 * width - 1);

	v &= pt_col_mask(width);
	return (v ^ top) - top;
}

uint64_t pt_col_code(const struct pt_col_field *f, uint64_t value,
		     const unsigned char *r, const unsigned char *prev)
{
	if (f->mode == PT_COL_TIME)
		return pt_col_swap_zero(pt_col_zigzag(pt_col_time(r) - value), pt_col_time(r));
	return pt_col_zigzag(extend(value - pt_col_guess(f, r, prev), f->width)) &
	       pt_col_mask(f->width);
}

unsigned char *pt_bytes_extend(pt_bytes *b, size_t n)
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
