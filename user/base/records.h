/* SPDX-License-Identifier: BSD-2-Clause */
/* The kinds of records (bpf/records.def) as data: sizes, members, what they are. */
#ifndef PT_BASE_RECORDS_H
#define PT_BASE_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "abi.h"

/* How long what a record says holds. */
enum pt_rec_life {
	PT_LIFE_EVENT = 1, /* it is of its time */
	PT_LIFE_TREE,	/* who is there: processes and threads come and go */
	PT_LIFE_FACT,	/* said once, holds for the whole capture */
	PT_LIFE_STATUS, /* said again and again: the last one holds */
	PT_LIFE_SAMPLE, /* measured about once a second */
	PT_LIFE_FRAME,	/* from when until when was watched */
};

/* How a recording holds a member (user/store/columns.h). */
enum pt_col_mode {
	PT_COL_LAST,  /* against the thread's last record of this form */
	PT_COL_SEQ,   /* ... plus one */
	PT_COL_TIME,  /* a time before the record's own; 0 is common */
	PT_COL_DICT,  /* one of a few values: handles, addresses, ids */
	PT_COL_DICT2, /* one of a few together with the field before it */
	PT_COL_RUN,   /* struct pt_totals of an off-CPU record, by its times */
	PT_COL_RUNQ,
	PT_COL_IOWAIT,
	PT_COL_BLOCK,
};

enum pt_rec_says { PT_SAYS_MEMBER, PT_SAYS_TEXT, PT_SAYS_KEY, PT_SAYS_CODE };

/* A line of a record's block. */
struct pt_rec_line {
	enum pt_rec_says says;
	const char *name; /* of the member */
	uint16_t off;
	uint16_t width; /* bytes: 1, 2, 4 or 8; TEXT: of all */
	uint16_t n;	/* so many of them */
	bool is_signed;
	enum pt_col_mode mode; /* CODE */
};

struct pt_rec_kind {
	const char *name;
	uint16_t number, oldest, size, longest; /* as PT_RECORD has them, bytes */
	enum pt_rec_life life;
	const struct pt_rec_line *(*lines)(unsigned *n); /* in their order */
};

#define PT_REC_KINDS 128 /* no number is as large */
extern const struct pt_rec_kind pt_rec_kinds[PT_REC_KINDS]; /* by number; gaps: life 0 */

/* A record of ours of `size` bytes, zero but for its header. `tgid`: of whom it is; 0. */
static inline void pt_rec_begin(void *rec, size_t size, uint16_t kind, uint64_t ts,
				uint32_t tgid)
{
	struct pt_hdr h = { .size = (uint16_t)size, .kind = kind, .ts = ts, .tid = tgid,
			    .tgid = tgid };

	memset(rec, 0, size);
	memcpy(rec, &h, sizeof(h));
}

/* NULL: a kind of a later version. */
static inline const struct pt_rec_kind *pt_rec_kind(uint16_t number)
{
	return number < PT_REC_KINDS && pt_rec_kinds[number].life ?
		       &pt_rec_kinds[number] : NULL;
}

/* The header of the record at `rec`, of which `len` bytes are there. False: they are no
 * whole record, of any kind or version. */
static inline bool pt_rec_head(const void *rec, size_t len, struct pt_hdr *h)
{
	if (len < sizeof(*h))
		return false;
	memcpy(h, rec, sizeof(*h));
	return h->size >= sizeof(*h) && h->size <= len && h->size <= PT_REC_MAX;
}

/* Room for a record of any kind. */
union pt_rec_any {
	struct pt_hdr hdr;
#define PT_RECORD(name, oldest, size, longest) struct pt_rec_##name name;
#include "records.def"
	unsigned char bytes[PT_REC_MAX];
};

#endif
