/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* An inference server that nobody asks: its waiting is not for a loader. */
int pt_judge_no_demand(struct pt_an *an, const struct pt_facts *f,
		       struct pt_r_verdict *v)
{
	if (!f->no_demand)
		return 0;
	if (pt_evidence_start(an, v))
		return -ENOMEM;
	pt_evidence_add(v, "wait.listening_share", f->demand, "share",
			f->th->demand_share, PT_MEASURED);
	pt_evidence_add(v, "breakdown.host.client.share", f->client, "share",
			f->th->starved_info, PT_MEASURED);
	v->severity = PT_INFO;
	v->certainty = PT_CONF_MEDIUM;
	v->title = pt_arena_printf(an->a,
		"The process waits to be asked %.0f %% of the time: no demand, not a slow loader.",
		100 * f->client);
	v->advice = "Nothing is wrong with the data; send it more requests at once, or let it share the GPU.";
	return v->title ? 1 : -ENOMEM;
}
