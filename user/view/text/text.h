/* SPDX-License-Identifier: BSD-2-Clause */
/* The report as text that an engineer reads in 20 seconds. */
#ifndef PT_VIEW_TEXT_H
#define PT_VIEW_TEXT_H

#include <stdbool.h>
#include <stdio.h>

#include "report/report.h"

struct pt_text_opts {
	bool color;	 /* ANSI colours */
	bool unicode;	 /* the terminal shows UTF-8; else ASCII only */
	int width;	 /* columns, 60 to 200; 0: 80 */
	int print_steps; /* the first so many steps as a table; 0: none */
	bool quiet;	 /* the verdicts' sentences and nothing else */
	bool verbose;	 /* every worker and limit, epochs, files, operations */
	bool operations; /* the operations even when not verbose */
	bool files;	 /* likewise */
	int top; /* so many of them, and of the workers; 0: as many as usual;
		  * below 0: all */
	enum pt_op_sort sort; /* the order that they are in, for the heading */
};

/*
 * Write the diagnosis. Unknown figures show as a dash or "unknown", never as
 * 0; strings from outside are made safe for a terminal. `o` may be NULL.
 * 0, -ENOMEM, or -EIO when `out` did not take it.
 */
int pt_report_text(const struct pt_report *r, FILE *out,
		   const struct pt_text_opts *o);

/* The same in a few lines of Markdown: verdict, device, data wait, worst worker and line,
 * limits that matter. As above. */
int pt_report_summary(const struct pt_report *r, FILE *out, bool unicode);

/* A comparison; of `o` colour, unicode, width and verbose count. As above. */
struct pt_diff;
int pt_diff_text(const struct pt_diff *d, FILE *out, const struct pt_text_opts *o);

#endif
