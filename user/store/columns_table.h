/* SPDX-License-Identifier: BSD-2-Clause */
/* The records of one block, linked by form and by thread: the order in which
 * both encoder and decoder go through them. */
#ifndef PT_STORE_COLUMNS_TABLE_H
#define PT_STORE_COLUMNS_TABLE_H

#include "store/columns.h"
#include "store/columns_int.h"

struct pt_col_shape { /* a form of record */
	uint16_t kind, size;
	uint32_t first, last; /* records of it, linked by next; index + 1 */
	uint32_t n;
};

struct pt_col_rec {
	uint32_t at;   /* offset in the records */
	uint32_t slot; /* which thread */
	uint32_t next; /* of this form; index + 1; 0 none */
	uint32_t prev; /* of this form and thread; index + 1; 0 none */
	uint8_t shape;
};

struct pt_col_slot { /* a thread */
	uint32_t tid, tgid, start, pad;
};

struct pt_col_table {
	struct pt_col_shape shapes[PT_COL_MAX_SHAPES];
	unsigned n_shapes;
	PT_VEC(struct pt_col_rec) recs;
	PT_VEC(struct pt_col_slot) slots;
	PT_VEC(uint32_t) lasts; /* per slot and shape: index + 1 */
};

void pt_col_table_free(struct pt_col_table *t);
/* Link the record at offset `at` into its form's and its thread's rows. 0 or
 * -ENOMEM. */
int pt_col_table_add(struct pt_col_table *t, uint32_t at, unsigned shape,
		     uint32_t slot);
/* The last record of this form and thread before `r`; zeros: none. */
const unsigned char *pt_col_prev(const struct pt_col_table *t,
				 const struct pt_col_rec *r,
				 const unsigned char *base);
/* Room for `n` more bytes, to be written by the caller; NULL: none. */
unsigned char *pt_col_extend(pt_bytes *b, size_t n);

#endif
