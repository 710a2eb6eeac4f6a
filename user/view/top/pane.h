/* SPDX-License-Identifier: BSD-2-Clause */
/* The panes of the live view, private to it. Each writes its body as lines. */
#ifndef PT_TOP_PANE_H
#define PT_TOP_PANE_H

#include "view/text/blocks.h"
#include "view/top/top.h"

struct pt_pane {
	const char *name;
	/* Write the body; returns how many of its first lines stay when the
	 * others scroll. Without a report only where `bare`. */
	size_t (*draw)(struct pt_tx *t, const struct pt_top *v);
	const char *const *sorts;
	size_t n_sorts;
	bool bare;
};

extern const struct pt_pane pt_pane_overview, pt_pane_verdicts,
	pt_pane_workers, pt_pane_files, pt_pane_operations, pt_pane_jobs;

void pt_top_help(struct pt_tx *t);

/*
 * The order of `n` rows: indices, by `cmp` of two rows for a sort key, the
 * pane's direction applied; equal rows stay in the report's order. The caller
 * frees it; NULL: no memory, or no rows.
 */
typedef int (*pt_row_cmp)(const struct pt_report *r, size_t sort, size_t a,
			  size_t b);
size_t *pt_top_order(const struct pt_top *v, enum pt_top_pane pane, size_t n,
		     pt_row_cmp cmp);

/* From A to Z, unknown last. */
int pt_top_by_text(const char *a, const char *b);

/* The line of titles, the one sorted by marked. */
void pt_top_titles(struct pt_tx *t, const struct pt_top *v,
		   enum pt_top_pane pane, const struct pt_tx_col *c, size_t n);

#endif
