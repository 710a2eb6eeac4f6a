// SPDX-License-Identifier: BSD-2-Clause
#include <stdlib.h>

#include "report/rowsort.h"
#include "view/top/pane.h"

enum { BY_TOTAL, BY_CALLS, BY_MEAN, BY_P99, BY_NAME, SORTS };
static const char *const sorts[SORTS] = { "total", "calls", "mean", "p99",
					  "name" };

static const struct pt_col cols[] = {
	{ "kind", 7, false, -1 },	{ "calls", 10, true, BY_CALLS },
	{ "total", 10, true, BY_TOTAL }, { "mean us", 10, true, BY_MEAN },
	{ "p99 us", 10, true, BY_P99 },	{ "share", 8, true, -1 },
	{ "   name", 0, false, BY_NAME },
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

static void row(struct pt_tx *t, const struct pt_r_operation *p)
{
	bool guess = isfinite(p->total_s) && p->certainty != PT_MEASURED;

	pt_tx_cell(t, pt_tx_esc(t, p->kind ? p->kind : "?", 7), 7, false);
	pt_tx_cell(t, pt_tx_int(t, p->calls), 10, true);
	pt_tx_cell(t, pt_tx_sec(t, p->total_s), 10, true);
	pt_tx_cell(t, pt_tx_ms(t, p->mean_us), 10, true);
	pt_tx_cell(t, pt_tx_ms(t, p->p99_us), 10, true);
	pt_tx_cell(t, pt_tx_pct(t, p->share), 8, true);
	pt_tx_printf(t, " %c %s\n", guess ? '~' : ' ',
		     pt_tx_middle(t, p->name, (size_t)t->width - 58));
}

static size_t draw(struct pt_tx *t, const struct pt_top *v)
{
	const struct pt_report *r = v->report;
	size_t *order;

	if (!r->n_operations) {
		pt_tx_put(t, "No GPU call was seen in this window.\n");
		return 0;
	}
	pt_top_titles(t, v, PT_TOP_OPERATIONS, cols,
		      sizeof(cols) / sizeof(*cols));
	order = pt_top_order(v, PT_TOP_OPERATIONS, r->n_operations, cmp);
	for (size_t i = 0; i < r->n_operations; i++)
		row(t, &r->operations[order ? order[i] : i]);
	free(order);
	pt_tx_put(t, "times of the host in api and nvtx, of the device in other "
		     "rows; ~: estimated\n");
	return 1;
}

const struct pt_pane pt_pane_operations = { "Operations", draw, sorts, SORTS,
					    false };
