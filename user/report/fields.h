/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lines of report.def as data. Whatever treats the report field by field (JSON
 * and its reader, tables, schema) walks these and knows no field by name.
 */
#ifndef PT_REPORT_FIELDS_H
#define PT_REPORT_FIELDS_H

#include "report/report.h"

enum pt_field_class { /* report.def says what each is */
	PT_FIELD_END = 0,
	PT_FIELD_CLOSE,
	PT_FIELD_OPEN,
	PT_FIELD_KNOWN,
	PT_FIELD_REAL,
	PT_FIELD_INT,
	PT_FIELD_NUMBER32,
	PT_FIELD_NUMBER64,
	PT_FIELD_BOOL,
	PT_FIELD_TRI,
	PT_FIELD_TEXT,
	PT_FIELD_ENUM,
	PT_FIELD_SHARES,
	PT_FIELD_COUNTS,
	PT_FIELD_DIST,
	PT_FIELD_QUANTILES,
	PT_FIELD_RANGE,
	PT_FIELD_PART,
	PT_FIELD_SETTING,
	PT_FIELD_OBJ,
	PT_FIELD_FLAT,
	PT_FIELD_ROWS,
	PT_FIELD_NAMES,
	PT_FIELD_NAMES_IN,
	PT_FIELD_NONE,
	PT_FIELD_SPECIAL,
};

/* How a figure is written and what a reader takes for possible. */
struct pt_measure {
	const char *schema; /* its name among the schema's $defs */
	int decimals;	    /* what was measured, without noise */
	double min, max;    /* of REAL; min of INT, too */
};

struct pt_enum {
	const char *const *name; /* NULL: no name, null */
	int n, null;
	bool open; /* a reader takes a name of a later version for `null`, which says no more
		    * than that nobody knows */
};
extern const struct pt_enum pt_enum_certainty, pt_enum_confidence,
	pt_enum_severity, pt_enum_cause, pt_enum_worker_state;
/* A value out of range has the name of `null`. */
const char *pt_enum_name(const struct pt_enum *e, unsigned value);
/* The value of that name; -1: none has it. */
int pt_enum_find(const struct pt_enum *e, const char *name);

enum pt_special { /* keys with functions of their own, in json.c and readjson.c */
	PT_S_hooks,
	PT_S_hook_notes,
	PT_S_by_cause,
	PT_S_labels,
	PT_S_periods_ms,
};

/* Columns that a DIST gives, in this order. */
enum { PT_STAT_MEAN = 1, PT_STAT_P50 = 2, PT_STAT_P95 = 4, PT_STAT_P99 = 8,
       PT_STAT_MAX = 16 };

enum pt_row_join { /* of two parts of a capture; report.def says what each is */
	PT_ROW_JOIN_UNSAID = 0,
	PT_ROW_JOIN_SAME,
	PT_ROW_JOIN_SUM,
	PT_ROW_JOIN_SUM_KNOWN,
	PT_ROW_JOIN_MEAN,
	PT_ROW_JOIN_MEAN_2,
	PT_ROW_JOIN_MEAN_3,
	PT_ROW_JOIN_LEAST,
	PT_ROW_JOIN_MOST,
	PT_ROW_JOIN_LAST,
	PT_ROW_JOIN_ANEW,
};

struct pt_row;
struct pt_field {
	const char *member;    /* NULL: none */
	const char *key, *doc; /* key NULL: END, CLOSE, KNOWN, FLAT */
	enum pt_field_class cls;
	size_t off, off_n;
	const struct pt_row *(*row)(void);
	const struct pt_measure *measure;
	const struct pt_enum *names;
	const char *const *set;	 /* NULL-terminated; NULL: any */
	const char *schema;	 /* of NONE */
	enum pt_special special;
	size_t max;		 /* elements that a reader takes */
	bool later, first, empty_null, on_demand, table, needed, kept, hidden;
	const char *col, *col_2; /* col_2: how the second of SHARES ends */
	unsigned place, stats;
	enum pt_row_join join;
};

struct pt_row {
	const char *name;
	size_t size;
	const struct pt_field *fields; /* up to END */
};
const struct pt_row *pt_row_report(void);
/* The row of that name, which is in the report; NULL: none is. */
const struct pt_row *pt_row_find(const char *name);

/* The fields behind a group that `open` opens. */
const struct pt_field *pt_field_behind(const struct pt_field *open);
/* Whether the member is null (REAL, INT, TEXT; others never are). */
bool pt_field_is_null(const struct pt_field *f, const void *row);
/* Makes every member of a row null: rows that lie in it, too. */
void pt_row_null(const struct pt_row *r, void *row);

#endif
