/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/verdicts/verdict.h"

/* An inference server that nobody asks: its waiting is not for a loader. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	if (!f->no_demand)
		return 0;
	pt_evidence_against(v, "wait.listening_share", f->demand, "share",
			    f->th->demand_share);
	pt_evidence_against(v, "breakdown.host.client.share", f->client, "share",
			    f->th->starved_info);
	v->severity = PT_INFO;
	v->certainty = PT_CONF_MEDIUM;
	v->title = pt_sentence(an,
		"The process waits for requests %.0f %% of the time: there is no demand, and "
		"the loader is not slow.",
		100 * f->client);
	v->advice = "Nothing is wrong with the data: send it more requests at once, or let it "
		    "share the GPU.";
	return 1;
}

const struct pt_verdict pt_verdict_no_demand = { .asked = { { PT_V_FRONT, judge } } };
