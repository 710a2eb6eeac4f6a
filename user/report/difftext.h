/* SPDX-License-Identifier: BSD-2-Clause */
/* A comparison as text, and as JSON ("pipetrace.diff/1"). */
#ifndef PT_REPORT_DIFFTEXT_H
#define PT_REPORT_DIFFTEXT_H

#include "report/diff.h"
#include "report/text.h"

/* Write it for a reader; of `o` (may be NULL) colour, unicode, width and
 * verbose count. 0, -ENOMEM, or -EIO when `out` did not take it. */
int pt_diff_text(const struct pt_diff *d, FILE *out,
		 const struct pt_text_opts *o);

/* Write one document, indented by `indent` (0: compact), and a newline.
 * 0, -ENOMEM, or -EIO when `out` did not take it. */
int pt_diff_json(const struct pt_diff *d, FILE *out, unsigned indent);

#endif
