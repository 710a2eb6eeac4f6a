/* SPDX-License-Identifier: BSD-2-Clause */
/* From a finished model to steps, breakdown, workers and verdicts. Pure. */
#ifndef PT_ANALYSIS_H
#define PT_ANALYSIS_H

#include "model/model.h"
#include "report/report.h"

struct pt_thresholds; /* analysis/verdicts/thresholds.h */
struct pt_lanes;      /* analysis/lanes.h */

struct pt_analysis_opts {
	int64_t batch_size; /* 0: unknown */
	/* NULL: the defaults; others are told in the report. The caller's. */
	const struct pt_thresholds *thresholds;
	/* Where what can be drawn goes; NULL: not wanted. The caller's; what
	 * it points to is the report's. Empty after an error. */
	struct pt_lanes *lanes;
};

/*
 * Fill `r`'s loader, steps, breakdown, data_wait, gpu, workers, ranks,
 * operations, files, series, memory and verdicts, and capture's duration,
 * begin, end, events, lost and limits, from `m` (finished). host, target,
 * capture.hooks, mode and tracer_cpu_s are the caller's.
 * 0 or -ENOMEM; on error the report stays printable.
 */
int pt_analyze(const struct pt_model *m, const struct pt_analysis_opts *o,
	       struct pt_report *r);

/*
 * A provisional look at a running capture for the live line, over the last
 * `window_ns`. Any of the outputs may be unknown (-1, NAN, NULL).
 */
struct pt_provisional {
	int64_t steps;
	double data_wait_share;
	const char *verdict; /* static string */
};
void pt_analyze_live(struct pt_model *m, const struct pt_analysis_opts *o,
		     uint64_t now_ns, uint64_t window_ns,
		     struct pt_provisional *out);

#endif
