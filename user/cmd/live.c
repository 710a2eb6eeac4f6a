// SPDX-License-Identifier: BSD-2-Clause
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cmd/session.h"

/* -d auto: so many steps; of short ones as many as there are in so many seconds, for a
 * machine that does other things too shows another share in each second */
#define AUTO_STEPS 20
#define AUTO_MIN_S 5
#define WINDOW_NS 10000000000ull /* what the provisional verdict looks at */
#define PLAIN_EVERY 5		 /* seconds between lines without a terminal */

/* Does somebody want the number of steps? */
static bool counts(const struct pt_session *s)
{
	const struct pt_schedule_opt *o = &s->o->schedule;

	return s->o->by_steps || o->wait.steps || o->warmup.steps ||
	       o->active.steps;
}

/* What to look at; longer than usual where a step is. */
static uint64_t window(const struct pt_session *s, uint64_t now,
		       struct pt_provisional *p)
{
	uint64_t counted = s->newest_step_ns ? s->newest_step_ns : s->begin_ns;

	if (now < counted || (!counts(s) && !s->o->schedule.set))
		return WINDOW_NS;
	p->since_ns = s->newest_step_ns;
	/* of a schedule, what was watched without a gap */
	return s->o->by_steps ? now - counted + WINDOW_NS :
				now - s->sched.since + 1;
}

/* --steps A..B: step B is over once the next one has begun. */
static void count_steps(struct pt_session *s, const struct pt_provisional *p)
{
	s->steps_begun += p->steps_since;
	if (p->newest_ns)
		s->newest_step_ns = p->newest_ns;
	if (s->o->by_steps && s->steps_begun - 2 >= s->o->last_step)
		s->stop = PT_STOP_STEPS;
}

void pt_live_tick(struct pt_session *s, unsigned tick)
{
	struct pt_analysis_opts a = { .thresholds = &s->o->thresholds };
	struct pt_provisional p = { .steps = -1, .data_wait_share = NAN };
	uint64_t loss[PT_LOSS_NR] = { 0 }, lost = 0, now = pt_now_ns();
	char steps[24] = "-", share[24] = "-", line[256];
	int i;

	if (!s->o->auto_duration && !counts(s) && !pt_live_possible() &&
	    (tick % PLAIN_EVERY || s->o->loud == PT_QUIET))
		return;
	if (!s->o->record_only && !pt_schedule_quiet(s))
		pt_analyze_live(s->model, &a, now, window(s, now, &p), &p);
	count_steps(s, &p);
	if (s->o->auto_duration && p.steps >= AUTO_STEPS && tick >= AUTO_MIN_S)
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
