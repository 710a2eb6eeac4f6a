/* SPDX-License-Identifier: BSD-2-Clause */
#include "view/timeline/trace_clip.h"

static int track(struct pt_trace_writer *w, const struct pt_trace_track *t)
{
	struct pt_trace_clip *c = (struct pt_trace_clip *)w;

	return c->to->track(c->to, t);
}

static int slice(struct pt_trace_writer *w, const struct pt_trace_event *e)
{
	struct pt_trace_clip *c = (struct pt_trace_clip *)w;
	struct pt_trace_event x = *e;

	if (x.begin < c->begin)
		x.begin = c->begin;
	if (x.end > c->end)
		x.end = c->end;
	return x.end > x.begin ? c->to->slice(c->to, &x) : 0;
}

static int instant(struct pt_trace_writer *w, const struct pt_trace_event *e)
{
	struct pt_trace_clip *c = (struct pt_trace_clip *)w;

	return e->begin >= c->begin && e->begin < c->end ?
		       c->to->instant(c->to, e) : 0;
}

static int value(struct pt_trace_writer *w, const struct pt_trace_track *t,
		 uint64_t ts, double v)
{
	struct pt_trace_clip *c = (struct pt_trace_clip *)w;

	return ts >= c->begin && ts < c->end ? c->to->value(c->to, t, ts, v) : 0;
}

void pt_trace_clip(struct pt_trace_clip *c, const struct pt_report *r,
		   struct pt_trace_writer *to)
{
	*c = (struct pt_trace_clip){
		.w = { .track = track, .slice = slice, .instant = instant,
		       .value = value },
		.to = to,
		.begin = (uint64_t)r->capture.begin_ns,
		.end = (uint64_t)r->capture.end_ns,
	};
}
