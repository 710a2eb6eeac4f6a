/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* Memory of the target's processes grows, and has not stopped to. */
int pt_judge_host_memory_growth(struct pt_an *an, const struct pt_facts *f,
				struct pt_r_verdict *v)
{
	const struct pt_growth *g = &f->growth;
	double share = g->total / g->level;

	if (g->points < PT_GROWTH_MIN_POINTS ||
	    g->deviate < PT_GROWTH_DEVIATE ||
	    g->half_deviate < PT_GROWTH_HALF_DEVIATE ||
	    g->half_per_min < PT_GROWTH_HALF_PACE * g->per_min ||
	    !(share >= PT_GROWTH_SHARE))
		return 0;
	if (pt_evidence_start(an, v, 4))
		return -ENOMEM;
	pt_evidence_add(v, "memory.growth_per_min", g->per_min, "bytes", NAN,
			PT_ESTIMATED);
	pt_evidence_add(v, "memory.growth_share", share, "share",
			PT_GROWTH_SHARE, PT_ESTIMATED);
	pt_evidence_add(v, "memory.trend_deviate", g->deviate, "ratio",
			PT_GROWTH_DEVIATE, PT_MEASURED);
	pt_evidence_add(v, "memory.trend_deviate_second_half", g->half_deviate,
			"ratio", PT_GROWTH_HALF_DEVIATE, PT_MEASURED);
	v->severity = share >= PT_GROWTH_WARNING ? PT_WARNING : PT_INFO;
	v->certainty = PT_CONF_MEDIUM;
	v->title = pt_arena_printf(an->a,
		"The job's memory grows steadily, by about %.0f MiB a minute.",
		g->per_min / (1 << 20));
	v->advice = "Keep no batches, losses or graphs in lists (append loss.item(), not the loss), close file handles; where workers grow, start them anew (persistent_workers=False) and keep Python objects out of the data set.";
	return v->title ? 1 : -ENOMEM;
}
