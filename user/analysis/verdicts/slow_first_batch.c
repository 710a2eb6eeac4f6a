/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/verdicts/verdict.h"

/* The first batch behind each start of the loader takes several times as
 * long as the others. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_steady *s = &f->steady;

	if (!s->firsts || s->n < PT_MIN_STEPS ||
	    !(s->first_ratio >= f->th->first_ratio))
		return 0;
	pt_evidence_against(v, "steps.first_over_p50", s->first_ratio, "ratio",
			    f->th->first_ratio);
	pt_evidence(v, "steps.first_ms", s->first_ms, "ms");
	pt_evidence_against(v, "steps.first_share", s->first_share, "share",
			    f->th->starved_info);
	pt_verdict_costs(f, v, f->first_lost);
	/* One start says nothing of how often the job will start. */
	if (s->firsts == 1)
		v->severity = PT_INFO;
	v->certainty = s->firsts > 1 ? PT_CONF_HIGH : PT_CONF_MEDIUM;
	v->title = s->firsts == 1 ?
		pt_sentence(an,
			"The first batch took %.1f times as long as the later ones (%.0f ms).",
			s->first_ratio, s->first_ms) :
		pt_sentence(an,
			"The first batch after each of %zu loader starts takes %.1f times as "
			"long as the later ones, %.0f %% of the time in total.",
			s->firsts, s->first_ratio, 100 * s->first_share);
	v->advice = f->t->respawned && s->firsts > 1 ?
		"Keep the workers (persistent_workers=True): they are restarted for each "
		"epoch. Longer epochs help too." :
		"Warm up before measuring; keep the workers between epochs "
		"(persistent_workers=True).";
	return 1;
}

static int judge_root(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	return f->mostly_first ? judge(an, f, v) : 0;
}

const struct pt_verdict pt_verdict_slow_first_batch = {
	.asked = { { PT_V_WHERE, judge_root }, { PT_V_BESIDE, judge } }
};
