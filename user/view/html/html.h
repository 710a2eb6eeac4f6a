/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One HTML page, for a browser and nothing else: no file beside it, no network.
 * Both return 0, -ENOMEM, or the -errno with which the output failed.
 */
#ifndef PT_VIEW_HTML_H
#define PT_VIEW_HTML_H

#include "report/diff.h"
#include "view/export.h"

/* A capture: verdicts, timeline, plots, tables. */
int pt_export_html(const struct pt_export *x, FILE *out);
/* A comparison. */
int pt_diff_html(const struct pt_diff *d, FILE *out);

#endif
