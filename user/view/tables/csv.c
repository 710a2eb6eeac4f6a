// SPDX-License-Identifier: BSD-2-Clause
/*
 * CSV (RFC 4180, lines end with a line feed). Texts are always quoted, numbers
 * never, null is nothing at all. A text that a spreadsheet would take for a
 * formula gets an apostrophe in front, and so does one that begins with an
 * apostrophe, so that the text can be had back.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "view/tables/tables.h"

struct csv {
	struct pt_rows rows;
	FILE *out;
};

static int put_text(FILE *f, const char *raw)
{
	char *text = pt_str_utf8(raw, NULL), *c;

	if (!text)
		return -ENOMEM;
	putc_unlocked('"', f);
	/* fullwidth = + - @ too: some programs read them alike */
	if ((*text && strchr("=+-@'\t\r\n", *text)) ||
	    !strncmp(text, "\xef\xbc\x9d", 3) ||
	    !strncmp(text, "\xef\xbc\x8b", 3) ||
	    !strncmp(text, "\xef\xbc\x8d", 3) ||
	    !strncmp(text, "\xef\xbc\xa0", 3))
		putc_unlocked('\'', f);
	for (c = text; *c; c++) {
		if (*c == '"')
			putc_unlocked('"', f);
		putc_unlocked(*c, f);
	}
	putc_unlocked('"', f);
	free(text);
	return 0;
}

static int put_cell(FILE *f, enum pt_col_type type, const struct pt_cell *c)
{
	if (c->null)
		return 0;
	switch (type) {
	case PT_COL_INT:
		fprintf(f, "%" PRId64, c->i);
		return 0;
	case PT_COL_ID:
		fprintf(f, "%" PRIu64, c->id);
		return 0;
	case PT_COL_REAL:
		fprintf(f, "%.15g", c->d);
		return 0;
	default:
		return put_text(f, c->s);
	}
}

static int put_row(struct pt_rows *r, const struct pt_cell *cells, size_t n)
{
	struct csv *c = (struct csv *)r;
	size_t i;
	int err = n == r->n_cols ? 0 : -EINVAL;

	for (i = 0; i < n && !err; i++) {
		if (i)
			putc_unlocked(',', c->out);
		err = put_cell(c->out, r->cols[i].type, &cells[i]);
	}
	putc_unlocked('\n', c->out);
	return err ?: pt_err_written(c->out);
}

const char *pt_export_csv_name(size_t i)
{
	const struct pt_table *t = pt_table_at(i);

	return t ? t->name : NULL;
}

int pt_export_csv(const struct pt_export *x, size_t table, FILE *out)
{
	const struct pt_table *t = pt_table_at(table);
	struct csv c = { .rows = { .row = put_row }, .out = out };
	size_t i;

	errno = 0;
	pt_rows_begin(&c.rows, t);
	for (i = 0; i < c.rows.n_cols; i++)
		fprintf(out, "%s%s", i ? "," : "", c.rows.cols[i].name);
	putc('\n', out);
	return t->rows(x, &c.rows);
}
