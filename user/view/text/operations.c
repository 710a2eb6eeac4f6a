/* SPDX-License-Identifier: BSD-2-Clause */
/* The text report's table of operations. */
#include <math.h>
#include <string.h>

#include "view/text/blocks.h"

#define ROWS_SHOWN 10
#define NAME_AT 56 /* columns before the names */

static void row(struct pt_tx *t, const struct pt_r_operation *p)
{
	bool measured = p->certainty == PT_MEASURED;

	pt_tx_put(t, "  ");
	pt_tx_cell(t, pt_tx_esc(t, p->kind ? p->kind : "?", 7), 7, false);
	pt_tx_cell(t, pt_tx_int(t, p->calls), 10, true);
	pt_tx_cell(t, pt_tx_sec(t, p->total_s), 9, true);
	pt_tx_cell(t, pt_tx_ms(t, p->mean_us), 9, true);
	pt_tx_cell(t, pt_tx_ms(t, p->p99_us), 9, true);
	pt_tx_cell(t, pt_tx_pct(t, p->share), 7, true);
	/* an estimate is marked, so that nobody takes it for a measurement */
	pt_tx_put(t, isfinite(p->total_s) && !measured ? "~ " : "  ");
	pt_tx_put(t, " ");
	pt_tx_put(t, pt_tx_middle(t, p->name, (size_t)t->width - NAME_AT));
	pt_tx_put(t, "\n");
}

static void heading(struct pt_tx *t, const struct pt_report *r, size_t n)
{
	pt_tx_styled(t, PT_ST_BOLD, "Operations");
	if (n < r->n_operations)
		pt_tx_printf(t, "  the first %zu of %zu", n, r->n_operations);
	pt_tx_printf(t, "%sby %s\n", n < r->n_operations ? ", " : "  ",
		     pt_op_sort_name(t->o.sort));
	pt_tx_printf(t, "%*stimes of the host in api and nvtx, of the device "
		     "in other rows; ~: estimated\n", 2, "");
	pt_tx_put(t, "  kind        calls    total  mean us   p99 us  share"
		     "   name\n");
}

void pt_tx_operations(struct pt_tx *t, const struct pt_report *r)
{
	size_t n = pt_tx_rows(t, ROWS_SHOWN, r->n_operations);

	if (!n)
		return;
	heading(t, r, n);
	for (size_t i = 0; i < n; i++)
		row(t, &r->operations[i]);
	if (r->n_operations > n)
		pt_tx_printf(t, "  and %zu more (--top 0 lists all)\n",
			     r->n_operations - n);
}
