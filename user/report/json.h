/* SPDX-License-Identifier: BSD-2-Clause */
/* The report as JSON: the contract "pipetrace.report/1", whose schema is
 * docs/report.schema.json. */
#ifndef PT_REPORT_JSON_H
#define PT_REPORT_JSON_H

#include <stddef.h>
#include <stdio.h>

#include "report/report.h"

struct pt_json_opts {
	size_t steps;	 /* steps.list: at most so many steps; 0: no list */
	unsigned indent; /* spaces per level, up to 8; 0: one compact line */
};

/* Write one document and a newline; `o` may be NULL (compact, no list).
 * 0, -ENOMEM, or -EIO when `out` did not take it. */
int pt_report_json(const struct pt_report *r, FILE *out,
		   const struct pt_json_opts *o);
/* {"evidence": [...]} of a verdict; the caller frees it. NULL: no memory. */
char *pt_report_evidence_json(const struct pt_r_verdict *v);

/* A comparison, "pipetrace.diff/1" (docs/diff.schema.json): one document,
 * indented by `indent` (0: compact), and a newline. As above. */
struct pt_diff;
int pt_diff_json(const struct pt_diff *d, FILE *out, unsigned indent);

#endif
