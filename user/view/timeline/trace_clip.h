/* SPDX-License-Identifier: BSD-2-Clause */
/* A writer before another one, which gets what lies in a part of the capture. */
#ifndef PT_VIEW_TRACE_CLIP_H
#define PT_VIEW_TRACE_CLIP_H

#include "view/timeline/trace.h"

struct pt_trace_clip {
	struct pt_trace_writer w; /* to be walked with */
	struct pt_trace_writer *to;
	uint64_t begin, end; /* CLOCK_MONOTONIC ns */
};

/* Slices that reach beyond the report's part are cut there. `to` stays the
 * caller's. */
void pt_trace_clip(struct pt_trace_clip *c, const struct pt_report *r,
		   struct pt_trace_writer *to);

#endif
