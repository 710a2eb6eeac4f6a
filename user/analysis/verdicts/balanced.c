/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/ranks/meets.h"
#include "analysis/verdicts/verdict.h"

/* The GPU does not starve for data. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	/* a rank's GPU may be the slow one, which calls alone do not show */
	bool seen = f->t->gpu_known &&
		    (!an->meets || !an->meets->known || an->meets->measured);

	if (f->is_starved || f->idle_hard - f->starved_lo >= f->th->idle_bad)
		return 0;
	v->severity = PT_INFO;
	v->certainty = seen ? PT_CONF_HIGH : PT_CONF_MEDIUM;
	pt_evidence_calm(f, v);
	/* that queued work hides the waits is an estimate alone where less of it is certain */
	if (f->wait_share >= f->th->starved_info && f->busy_sure < f->wait_share) {
		pt_at_most(&v->certainty, PT_CONF_LOW);
		v->title = pt_sentence(an,
			"The GPU does not seem to starve for data: the trainer waits for data %.0f %% "
			"of the time, and queued work may hide it.",
			100 * f->wait_share);
		v->advice = "How long the GPU works meanwhile is an estimate here: --cupti measures it.";
		return 1;
	}
	v->title = f->wait_share >= f->th->starved_info ?
		pt_sentence(an,
			"The GPU is not starved for data: the trainer waits for data %.0f %% "
			"of the time, but queued work hides it.",
			100 * f->wait_share) :
		pt_sentence(an,
			"The GPU is not starved for data: the trainer waits for data %.1f %% "
			"of the time.",
			100 * f->wait_share);
	return 1;
}

const struct pt_verdict pt_verdict_balanced = { .asked = { { PT_V_CALM, judge } } };
