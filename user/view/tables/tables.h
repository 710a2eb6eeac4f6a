/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A capture as tables, for CSV and SQLite: the report's own, and the model's
 * timelines row by row. docs/export.md describes every column; a name's end is
 * its unit, as in the report.
 */
#ifndef PT_VIEW_TABLES_H
#define PT_VIEW_TABLES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "view/export.h"

enum pt_col_type {
	PT_COL_INT,
	PT_COL_ID, /* unsigned, 64 bits: inodes, addresses, handles */
	PT_COL_REAL,
	PT_COL_TEXT, /* raw bytes from outside */
};

struct pt_col {
	char name[32];
	enum pt_col_type type;
};

struct pt_cell {
	bool null;
	union {
		int64_t i;
		uint64_t id;
		double d;
		const char *s;
	};
};

#define PT_COLS_MAX 32
struct pt_rows;
struct pt_table {
	const char *name;
	const struct pt_col *cols; /* NULL: those of the report's row */
	size_t n_cols;
	/* Hand every row to `to`. 0 or -errno. */
	int (*rows)(const struct pt_export *x, struct pt_rows *to);
	/* Of a table of the report: the row of report.def, where the report has the
	 * array and its size (0: it is the row), and a column that is no field. */
	const char *row;
	size_t off, off_n;
	struct pt_col more;
	unsigned more_place; /* from 1 on; 0: none */
};

/* Takes a row of the table that is being written; 0 or -errno. */
struct pt_rows {
	int (*row)(struct pt_rows *r, const struct pt_cell *cells, size_t n);
	const struct pt_table *table;
	struct pt_col cols[PT_COLS_MAX];
	size_t n_cols;
};
/* Makes ready for the table's rows: its columns. */
void pt_rows_begin(struct pt_rows *to, const struct pt_table *t);

extern const struct pt_table pt_report_tables[]; /* tables_report.c */
extern const size_t pt_report_table_count;
extern const struct pt_table pt_model_tables[]; /* tables_model.c */
extern const size_t pt_model_table_count;
/* The i-th of both; NULL behind the last. */
const struct pt_table *pt_table_at(size_t i);

static inline struct pt_cell pt_cell_int(int64_t v) /* PT_NULL: null */
{
	return (struct pt_cell){ .null = v == PT_NULL, .i = v };
}
static inline struct pt_cell pt_cell_id(uint64_t v)
{
	return (struct pt_cell){ .id = v };
}
static inline struct pt_cell pt_cell_real(double v)
{
	return (struct pt_cell){ .null = !isfinite(v), .d = v };
}
static inline struct pt_cell pt_cell_text(const char *s)
{
	return (struct pt_cell){ .null = !s, .s = s };
}
static inline struct pt_cell pt_cell_null(void)
{
	return (struct pt_cell){ .null = true };
}

#define PT_ROW(to, ...)                                                        \
	(to)->row(to, (const struct pt_cell[]){ __VA_ARGS__ },                 \
		  sizeof((const struct pt_cell[]){ __VA_ARGS__ }) /            \
			  sizeof(struct pt_cell))

#endif
