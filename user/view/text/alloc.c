/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>

#include "view/text/blocks.h"

void pt_tx_alloc_failures(struct pt_tx *t, const struct pt_r_gpu *g)
{
	size_t i;

	for (i = 0; i < g->n_alloc_failures; i++) {
		const struct pt_r_alloc_failure *f = &g->alloc_failures[i];
		struct pt_line l = { .n = 0 };
		char name[32];

		snprintf(name, sizeof(name), "error %lld", (long long)f->code);
		pt_line_item(t, &l, "%s" NB "allocations failed (%s)",
			     pt_tx_int(t, f->count), f->name ? f->name : name);
		if (f->smallest_bytes == f->largest_bytes)
			pt_line_item(t, &l, "of %s",
				     pt_tx_bytes(t, (double)f->largest_bytes));
		else
			pt_line_item(t, &l, "of %s to %s",
				     pt_tx_bytes(t, (double)f->smallest_bytes),
				     pt_tx_bytes(t, (double)f->largest_bytes));
		if (f->recovered)
			pt_line_item(t, &l, "%s granted when asked again",
				     pt_tx_int(t, f->recovered));
		if (f->held_bytes != PT_NULL)
			pt_line_item(t, &l, "%s held then, as far as was seen",
				     pt_tx_bytes(t, (double)f->held_bytes));
		if (f->free_bytes != PT_NULL)
			pt_line_item(t, &l, "%s free by the driver",
				     pt_tx_bytes(t, (double)f->free_bytes));
		pt_tx_printf(t, "%*s", PT_TX_LABEL, "");
		pt_tx_wrap(t, PT_TX_LABEL, l.s);
	}
}
