// SPDX-License-Identifier: BSD-2-Clause
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cmd/session.h"

#define WINDOW_NS 10000000000ull /* what the provisional verdict looks at */
#define PLAIN_EVERY 5		 /* seconds between lines without a terminal */

void pt_live_tick(struct pt_session *s, unsigned tick)
{
	struct pt_analysis_opts a = { .thresholds = &s->o->thresholds };
	struct pt_provisional p = { .steps = -1, .data_wait_share = NAN };
	uint64_t loss[PT_LOSS_NR] = { 0 }, lost = 0, now = pt_clock_ns();
	char steps[24] = "-", share[24] = "-", line[256];
	int i;

	if (!s->o->auto_duration && !pt_live_possible() &&
	    (tick % PLAIN_EVERY || s->o->loud == PT_QUIET))
		return;
	if (!s->o->record_only)
		pt_analyze_live(s->model, &a, now, WINDOW_NS, &p);
	if (s->o->auto_duration && p.steps >= 20)
		s->stop = PT_STOP_STEPS;
	pt_capture_loss(s->cap, loss);
	for (i = 0; i < PT_LOSS_NR; i++)
		lost += loss[i];
	if (p.steps >= 0)
		snprintf(steps, sizeof(steps), "%" PRId64, p.steps);
	if (!isnan(p.data_wait_share))
		snprintf(share, sizeof(share), "%.0f %%",
			 p.data_wait_share * 100);
	if (s->o->record_only)
		snprintf(line, sizeof(line),
			 "%.0f s, events %" PRIu64 ", lost %" PRIu64,
			 (double)(now - s->begin_ns) / 1e9,
			 pt_capture_events(s->cap), lost);
	else
		snprintf(line, sizeof(line),
		 "%.0f s, steps %s, data wait %s, %s, events %" PRIu64
		 ", lost %" PRIu64,
		 (double)(now - s->begin_ns) / 1e9, steps, share,
		 p.verdict ? p.verdict : "no verdict yet",
		 pt_capture_events(s->cap), lost);
	if (pt_live_possible())
		pt_live("%s", line);
	else if (tick % PLAIN_EVERY == 0)
		pt_note("%s", line);
}
