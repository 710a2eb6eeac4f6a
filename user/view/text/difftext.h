/* SPDX-License-Identifier: BSD-2-Clause */
/* A comparison as text. */
#ifndef PT_VIEW_DIFFTEXT_H
#define PT_VIEW_DIFFTEXT_H

#include "report/diff.h"
#include "view/text/text.h"

/* Write it for a reader; of `o` (may be NULL) colour, unicode, width and
 * verbose count. 0, -ENOMEM, or -EIO when `out` did not take it. */
int pt_diff_text(const struct pt_diff *d, FILE *out,
		 const struct pt_text_opts *o);

#endif
