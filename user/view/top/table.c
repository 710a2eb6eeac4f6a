// SPDX-License-Identifier: BSD-2-Clause
/* Sorting and titles of the panes' tables. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "view/top/pane.h"

struct order {
	const struct pt_report *r;
	size_t sort;
	pt_row_cmp cmp;
	bool reverse;
};

static int by_order(const void *a, const void *b, void *ctx)
{
	const struct order *o = ctx;
	size_t x = *(const size_t *)a, y = *(const size_t *)b;
	int d = o->cmp(o->r, o->sort, x, y);

	if (d)
		return o->reverse ? -d : d;
	return x < y ? -1 : x > y;
}

size_t *pt_top_order(const struct pt_top *v, enum pt_top_pane pane, size_t n,
		     pt_row_cmp cmp)
{
	struct order o = { v->report, v->p[pane].sort, cmp, v->p[pane].reverse };
	size_t *rows = n ? calloc(n, sizeof(*rows)) : NULL;
	size_t i;

	if (!rows)
		return NULL;
	for (i = 0; i < n; i++)
		rows[i] = i;
	qsort_r(rows, n, sizeof(*rows), by_order, &o);
	return rows;
}

int pt_top_by_text(const char *a, const char *b)
{
	if (!a || !b)
		return !a - !b;
	return strcmp(a, b);
}

void pt_top_titles(struct pt_tx *t, const struct pt_top *v,
		   enum pt_top_pane pane, const struct pt_tx_col *c, size_t n)
{
	const char *down = t->o.unicode ? "\xe2\x96\xbe" : "v";
	const char *up = t->o.unicode ? "\xe2\x96\xb4" : "^";

	for (size_t i = 0; i < n; i++) {
		bool mark = c[i].sort && v->p[pane].sort + 1 == (size_t)c[i].sort;
		int blanks = abs(c[i].cols) - (int)pt_str_cols(c[i].title) - mark;

		pt_tx_cell(t, "", c[i].cols > 0 ? blanks : 0, false);
		pt_tx_styled(t, mark ? PT_ST_BOLD : PT_ST_DIM,
			     pt_tx_fmt(t, "%s%s", c[i].title,
				       !mark ? "" : v->p[pane].reverse ? up : down));
		pt_tx_cell(t, "", c[i].cols > 0 ? 0 : blanks, false);
	}
	pt_tx_put(t, "\n");
}
