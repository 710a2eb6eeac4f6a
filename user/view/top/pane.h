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

#endif
