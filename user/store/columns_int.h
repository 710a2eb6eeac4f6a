/* SPDX-License-Identifier: BSD-2-Clause */
/* What encoder and decoder share: the fields of a record form, and how each is
 * told from what is known already. */
#ifndef PT_STORE_COLUMNS_INT_H
#define PT_STORE_COLUMNS_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/records.h"
#include "store/columns.h"

struct pt_col_shape { /* a form of record */
	uint16_t kind, size;
	uint32_t first, last; /* records of it, linked by next; index + 1 */
	uint32_t n;
};

struct pt_col_slot { /* a thread */
	uint32_t tid, tgid, start, pad;
};

struct pt_col_field {
	uint16_t off;
	uint8_t width; /* bytes: 1, 2, 4 or 8 */
	uint8_t mode;  /* enum pt_col_mode */
};

/* Fields that share one dictionary, at most. */
#define PT_COL_TOGETHER 8

/* A record of the longest kind has fewer. */
#define PT_COL_MAX_FIELDS PT_REC_MAX

/* The fields of records of `kind` and `size`, header's identity (size, kind,
 * tid, tgid, start) and time left out; every other byte is in exactly one.
 * Returns how many. */
unsigned pt_col_fields(uint16_t kind, uint16_t size, struct pt_col_field *f);

/* Little-endian, as the records are; of 1, 2, 4 or 8 bytes. */
static inline uint64_t pt_col_get(const unsigned char *p, unsigned width)
{
	uint64_t v8;
	uint32_t v4;
	uint16_t v2;

	switch (width) {
	case 8:
		memcpy(&v8, p, 8);
		return v8;
	case 4:
		memcpy(&v4, p, 4);
		return v4;
	case 2:
		memcpy(&v2, p, 2);
		return v2;
	default:
		return *p;
	}
}

static inline void pt_col_set(unsigned char *p, unsigned width, uint64_t v)
{
	uint32_t v4 = (uint32_t)v;
	uint16_t v2 = (uint16_t)v;

	switch (width) {
	case 8:
		memcpy(p, &v, 8);
		break;
	case 4:
		memcpy(p, &v4, 4);
		break;
	case 2:
		memcpy(p, &v2, 2);
		break;
	default:
		*p = (unsigned char)v;
	}
}

static inline uint64_t pt_col_mask(unsigned width)
{
	return width == 8 ? ~0ull : (1ull << (8 * width)) - 1;
}

/* Small differences of either sign become small numbers. */
static inline uint64_t pt_col_zigzag(uint64_t v)
{
	return (v << 1) ^ (0 - (v >> 63));
}

static inline uint64_t pt_col_zagzig(uint64_t v)
{
	return (v >> 1) ^ (0 - (v & 1));
}

/* One that lacks the field before it, in a cut record, stands alone. */
static inline bool pt_col_is_dict(const struct pt_col_field *f)
{
	return f->mode == PT_COL_DICT || f->mode == PT_COL_DICT2;
}

/* How many of the fields from f[0] on share one dictionary. */
static inline unsigned pt_col_together(const struct pt_col_field *f, unsigned left)
{
	unsigned n = 1;

	while (n < left && n < PT_COL_TOGETHER && f[n].mode == PT_COL_DICT2)
		n++;
	return n;
}

/*
 * The number that stands for field `f` of record `r` (pt_col_value() gives the
 * value back), where `prev` is the thread's last record of this form, or
 * zeros. Of `r` only the time and the fields before `f` are looked at.
 */
uint64_t pt_col_code(const struct pt_col_field *f, uint64_t value,
		     const unsigned char *r, const unsigned char *prev);

/* ---- inline: decoding asks once a field of each record --------------------- */

static inline uint64_t pt_col_time(const unsigned char *r)
{
	return pt_col_get(r + offsetof(struct pt_hdr, ts), 8);
}

/*
 * What a total should be: the last one, and what this interval adds, by its
 * times: it ran from its last switch-in to this switch-out, slept until it was
 * woken, and then waited for a core.
 */
static inline uint64_t pt_col_expected(uint8_t mode, uint64_t last,
				       const unsigned char *r,
				       const unsigned char *prev)
{
	uint64_t now = pt_col_time(r), ran = pt_col_time(prev);
	uint64_t off = pt_col_get(r + offsetof(struct pt_rec_off, off_ts), 8);
	uint64_t wake = pt_col_get(r + offsetof(struct pt_rec_off, wake_ts), 8);
	uint64_t flags = pt_col_get(r + offsetof(struct pt_hdr, flags), 2);
	uint64_t state = pt_col_get(r + offsetof(struct pt_rec_off, state), 2);
	bool iowait = flags & PT_F_IOWAIT, slept = state != 0;

	if (!wake)
		wake = slept ? now : off;
	switch (mode) {
	case PT_COL_RUN:
		return last + (ran ? off - ran : 0);
	case PT_COL_RUNQ:
		return last + (now - wake);
	case PT_COL_IOWAIT:
		return last + (slept && iowait ? wake - off : 0);
	default:
		return last + (slept && !iowait ? wake - off : 0);
	}
}

static inline uint64_t pt_col_guess(const struct pt_col_field *f,
				    const unsigned char *r,
				    const unsigned char *prev)
{
	uint64_t last = pt_col_get(prev + f->off, f->width);

	if (f->mode == PT_COL_SEQ)
		return last + 1;
	if (f->mode == PT_COL_LAST)
		return last;
	return pt_col_expected(f->mode, last, r, prev);
}

/* A time is coded by its distance, and 0 (unknown) by 0: the two codes change
 * places, so that each value still has one. */
static inline uint64_t pt_col_swap_zero(uint64_t code, uint64_t now)
{
	uint64_t of_zero = pt_col_zigzag(now);

	return code == of_zero ? 0 : code == 0 ? of_zero : code;
}

static inline uint64_t pt_col_value(const struct pt_col_field *f, uint64_t code,
				    const unsigned char *r,
				    const unsigned char *prev)
{
	if (f->mode == PT_COL_TIME)
		return pt_col_time(r) -
		       pt_col_zagzig(pt_col_swap_zero(code, pt_col_time(r)));
	return (pt_col_guess(f, r, prev) + pt_col_zagzig(code)) &
	       pt_col_mask(f->width);
}

#endif
