/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/lines/lines.h"
#include "analysis/verdicts/verdict.h"

/* Nothing is seen of a training thread that is blocked: say in what. */
static int tell_blocked(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_thread *th = f->t ? f->t->main : an->m->host_known ?
		pt_model_thread(an->m, an->m->host.target_pid) : NULL;
	double seconds;
	uint64_t since;

	if (!th)
		return 0;
	since = pt_same_line_since(an->m, th);
	if (since >= an->t1)
		return 0;
	seconds = pt_sec(an->t1 - pt_max64(since, an->t0));
	if (seconds < f->th->hung_s)
		return 0;
	return pt_tell_stack(an, th, NULL, seconds,
			     pt_sentence(an, "for %.0f s its main thread has been inside",
					 seconds), v);
}

/* Says what is missing, rather than guess. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	if (!f->insufficient)
		return 0;
	v->severity = PT_INFO;
	v->certainty = PT_CONF_HIGH;
	v->title = pt_sentence(an, "Not enough was seen for a diagnosis: %s.",
				   f->insufficient);
	v->advice = f->t ? "Trace for longer, while the job is in its training loop." :
			   "Trace the process that launches the GPU work, while it trains; pipetrace without arguments lists the GPU jobs.";
	return tell_blocked(an, f, v) ?: 1;
}

/* Nothing was found, and yet the device idles: that is not balanced. */
static int judge_idle(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	double other = f->idle_hard - f->starved_lo;

	if (f->is_starved || other < f->th->idle_bad)
		return 0;
	v->severity = PT_INFO;
	v->certainty = PT_CONF_HIGH;
	pt_evidence_calm(f, v);
	v->title = pt_sentence(an,
		"Data is not the problem, yet the GPU is idle at least %.0f %% of the time "
		"for reasons that pipetrace did not find.",
		100 * other);
	v->advice = "Look at what the training thread does between its GPU calls (the breakdown's sync, transfer and other shares).";
	return 1;
}

const struct pt_verdict pt_verdict_insufficient_data = {
	.asked = { { PT_V_FRONT, judge }, { PT_V_CALM, judge_idle } }
};
