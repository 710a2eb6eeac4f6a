// SPDX-License-Identifier: BSD-2-Clause
#include <stdlib.h>

#include "report/rowsort.h"
#include "view/top/pane.h"

enum { BY_TOTAL, BY_CALLS, BY_MEAN, BY_P99, BY_NAME, SORTS };
static const char *const sorts[SORTS] = { "total", "calls", "mean", "p99",
					  "name" };

typedef struct pt_r_operation row_t;
static const struct pt_tx_col cols[] = {
	PT_TX_COL("kind", -7, TEXT, kind),
	PT_TX_COL("calls", 10, INT, calls, .sort = 1 + BY_CALLS),
	PT_TX_COL("total", 10, SEC, total_s, .sort = 1 + BY_TOTAL),
	PT_TX_COL("mean us", 10, MS, mean_us, .sort = 1 + BY_MEAN),
	PT_TX_COL("p99 us", 10, MS, p99_us, .sort = 1 + BY_P99),
	PT_TX_COL("share", 8, PCT, share),
	PT_TX_TITLE("   name", 0, .sort = 1 + BY_NAME),
};

static int cmp(const struct pt_report *r, size_t sort, size_t x, size_t y)
{
	const struct pt_r_operation *a = &r->operations[x];
	const struct pt_r_operation *b = &r->operations[y];

	switch (sort) {
	case BY_CALLS:
		return pt_larger((double)a->calls, (double)b->calls);
	case BY_MEAN:
		return pt_larger(a->mean_us, b->mean_us);
	case BY_P99:
		return pt_larger(a->p99_us, b->p99_us);
	case BY_NAME:
		return pt_top_by_text(a->name, b->name);
	default:
		return pt_larger(a->total_s, b->total_s);
	}
}

static size_t draw(struct pt_tx *t, const struct pt_top *v)
{
	const struct pt_report *r = v->report;
	const struct pt_r_operation *p;
	size_t *order;

	if (!r->n_operations) {
		pt_tx_put(t, "No GPU call was seen in this window.\n");
		return 0;
	}
	pt_top_titles(t, v, PT_TOP_OPERATIONS, PT_TX_COLS(cols));
	order = pt_top_order(v, PT_TOP_OPERATIONS, r->n_operations, cmp);
	for (size_t i = 0; i < r->n_operations; i++) {
		p = &r->operations[order ? order[i] : i];
		pt_tx_cells(t, PT_TX_COLS(cols), p);
		pt_tx_printf(t, " %c %s\n",
			     isfinite(p->total_s) && p->certainty != PT_MEASURED ? '~' : ' ',
			     pt_tx_middle(t, p->name, (size_t)t->width - 58));
	}
	free(order);
	pt_tx_put(t, "times of the host in api and nvtx, of the device in other "
		     "rows; ~: estimated\n");
	return 1;
}

const struct pt_pane pt_pane_operations = { "Operations", draw, sorts, SORTS,
					    false };
