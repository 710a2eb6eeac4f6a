/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* Memory of the target's processes grows, and has not stopped to. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_growth *g = &f->growth;
	double share = g->total / g->level;
	bool sure = g->points >= PT_GROWTH_SURE_POINTS;

	if (!pt_growth_shown(g) || !(share >= f->th->growth_share))
		return 0;
	pt_evidence_add(v, "memory.growth_per_min", g->per_min, "bytes", NAN, PT_ESTIMATED);
	pt_evidence_add(v, "memory.growth_share", share, "share", f->th->growth_share,
			PT_ESTIMATED);
	pt_evidence_against(v, "memory.trend_chance", g->chance, "share", PT_GROWTH_CHANCE);
	pt_evidence_against(v, "memory.trend_chance_second_half", g->half_chance, "share",
			    g->points < 2 * PT_GROWTH_MIN_POINTS ? NAN : PT_GROWTH_HALF_CHANCE);
	pt_evidence_against(v, "memory.samples", (double)g->points, "count",
			    PT_GROWTH_SURE_POINTS);
	v->severity = sure && share >= f->th->growth_warning ? PT_WARNING :
							       PT_INFO;
	/* a warm-up looks the same at first */
	v->certainty = sure ? PT_CONF_MEDIUM : PT_CONF_LOW;
	if (!sure)
		v->title = pt_sentence(an,
			"The job's memory grows, by about %.0f MiB per minute; the capture is "
			"too short to tell a leak from a warm-up.",
			g->per_min / (1 << 20));
	else
		v->title = pt_sentence(an,
			"The job's memory grows steadily, by about %.0f MiB per minute.",
			g->per_min / (1 << 20));
	v->advice = "Do not keep batches, losses or graphs in lists (append loss.item(), not "
		    "the loss), and close file handles; where workers grow, restart them "
		    "(persistent_workers=False) and keep Python objects out of the dataset.";
	return 1;
}

const struct pt_verdict pt_verdict_host_memory_growth = { .asked = { { PT_V_BESIDE, judge } } };
