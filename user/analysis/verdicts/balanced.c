/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/ranks/meets.h"
#include "analysis/verdicts/verdict.h"

/* The GPU does not starve for data. */
int pt_judge_balanced(struct pt_an *an, const struct pt_facts *f,
		      struct pt_r_verdict *v)
{
	double other = f->idle_hard - f->starved_lo;

	if (f->insufficient || f->is_starved)
		return 0;
	v->severity = PT_INFO;
	if (pt_evidence_start(an, v))
		return -ENOMEM;
	pt_evidence_add(v, "gpu.starved_share", f->starved, "share",
			f->th->starved_info, PT_ESTIMATED);
	pt_evidence_add(v, "breakdown.data_wait.share", f->wait_share, "share",
			NAN, PT_MEASURED);
	pt_evidence_add(v, "gpu.idle_share", f->idle, "share", f->th->idle_bad,
			PT_ESTIMATED);
	if (other >= f->th->idle_bad) {
		v->id = "insufficient_data";
		v->certainty = PT_CONF_HIGH;
		v->title = pt_arena_printf(an->a,
			"Data is not the problem, yet the GPU idles at least %.0f %% of the time for reasons that were not found.",
			100 * other);
		v->advice = "Look at what the training thread does between its GPU calls (the breakdown's sync, transfer and other shares).";
		return v->title ? 1 : -ENOMEM;
	}
	/* a rank's GPU may be the slow one, which calls alone do not show */
	v->certainty = f->t->gpu_known && (!an->meets || !an->meets->known ||
					   an->meets->measured) ?
			       PT_CONF_HIGH : PT_CONF_MEDIUM;
	v->title = f->wait_share >= f->th->starved_info ?
		pt_arena_printf(an->a,
			"The GPU does not starve: waiting for data (%.0f %% of the time) is hidden by queued work.",
			100 * f->wait_share) :
		pt_arena_printf(an->a,
			"The GPU does not starve: the trainer waits for data %.1f %% of the time.",
			100 * f->wait_share);
	return v->title ? 1 : -ENOMEM;
}
