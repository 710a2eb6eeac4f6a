/* SPDX-License-Identifier: BSD-2-Clause */
/* Columns into the fields of records. */
#ifndef PT_STORE_COLUMNS_FILL_H
#define PT_STORE_COLUMNS_FILL_H

#include "store/columns.h"
#include "store/columns_int.h"

struct pt_col_planes { /* a column, as it lies in the data */
	const unsigned char *p;
	size_t n; /* numbers */
	unsigned width;
};

struct pt_col_place { /* of a record: offsets */
	uint32_t at;
	uint32_t prev; /* of the thread's last record of its form */
};
#define PT_COL_NO_PREV UINT32_MAX

/* Records of one form, in their order, and a number for each. */
struct pt_col_run {
	unsigned char *base;
	const struct pt_col_place *at;
	size_t n;
	uint64_t *v;
};

/* Numbers [from, from + n) of a column, all of which are there, into v. */
void pt_col_unpack(const struct pt_col_planes *c, size_t from, size_t n,
		   uint64_t *v);
/* Field `f` of each record, told by its number and by what came before. */
void pt_col_fill(const struct pt_col_run *r, const struct pt_col_field *f);
/* ... by values[its number], which is there. */
void pt_col_fill_of(const struct pt_col_run *r, const struct pt_col_field *f,
		    const uint64_t *values);

#endif
