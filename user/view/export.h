/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A capture in other programs' formats. Everything is written as it is read
 * from the model: nothing but tables of names and one process' calls at a
 * time is held beside it.
 *
 * All take the finished model, the report and the lanes of one pt_analyze(),
 * which stay the caller's, and return 0, -ENOMEM, or the -errno with which the
 * output failed. Names in the model come from other people: each format
 * escapes them by its own rules, see docs/export.md.
 */
#ifndef PT_EXPORT_H
#define PT_EXPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "model/timeline.h"
#include "report/lanes.h"
#include "report/report.h"

struct pt_diff;
struct pt_export {
	const struct pt_model *m;
	const struct pt_report *r;
	const struct pt_lanes *lanes;
	bool part; /* timelines are of the report's part of the capture alone */
};

/* One HTML page, for a browser and nothing else: no file beside it, no network. A
 * capture: verdicts, timeline, plots, tables; and a comparison. */
int pt_export_html(const struct pt_export *x, FILE *out);
int pt_diff_html(const struct pt_diff *d, FILE *out);
/* Perfetto's protobuf format (user/view/timeline/perfetto.proto). */
int pt_export_perfetto(const struct pt_export *x, FILE *out);
/* Chrome's trace event format, as JSON, with torch.profiler's categories. */
int pt_export_chrome(const struct pt_export *x, FILE *out);
/* Off-CPU time as folded stacks: process;thread;state;file microseconds. */
int pt_export_folded(const struct pt_export *x, FILE *out);
/* Time on and off the CPU by stack of Python, folded; nothing where none was seen. */
int pt_export_stacks(const struct pt_export *x, FILE *out);
/* Stacks of Python for speedscope; no profile where none was seen. */
int pt_export_speedscope(const struct pt_export *x, FILE *out);
/* The i-th table as CSV, with a head line; and its name, NULL behind the
 * last. */
int pt_export_csv(const struct pt_export *x, size_t i, FILE *out);
const char *pt_export_csv_name(size_t i);
/* All tables and views into the empty file `fd`, which may have no name. */
int pt_export_sqlite(const struct pt_export *x, int fd);

#endif
