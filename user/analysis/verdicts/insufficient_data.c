/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "analysis/verdicts/verdict.h"

/* Says what is missing, rather than guess. */
int pt_judge_insufficient_data(struct pt_an *an, const struct pt_facts *f,
			       struct pt_r_verdict *v)
{
	if (!f->insufficient)
		return 0;
	v->severity = PT_INFO;
	v->certainty = PT_CONF_HIGH;
	v->title = pt_arena_printf(an->a, "Not enough was seen for a diagnosis: %s.",
				   f->insufficient);
	v->advice = f->t ? "Trace for longer, while the job is in its training loop." :
			   "Trace the process that launches the GPU work, while it trains; pipetrace without arguments lists the GPU jobs.";
	return v->title ? 1 : -ENOMEM;
}
