/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* The first batch behind each start of the loader takes several times as
 * long as the others. */
int pt_judge_slow_first_batch(struct pt_an *an, const struct pt_facts *f,
			      struct pt_r_verdict *v)
{
	const struct pt_steady *s = &f->steady;

	if (!s->firsts || s->n < PT_MIN_STEPS ||
	    !(s->first_ratio >= f->th->first_ratio))
		return 0;
	if (pt_evidence_start(an, v))
		return -ENOMEM;
	pt_evidence_add(v, "steps.first_over_p50", s->first_ratio, "ratio",
			f->th->first_ratio, PT_MEASURED);
	pt_evidence_add(v, "steps.first_ms", s->first_ms, "ms", NAN,
			PT_MEASURED);
	pt_evidence_add(v, "steps.first_share", s->first_share, "share",
			f->th->starved_info, PT_MEASURED);
	*f->lost = s->first_share;
	/* One start says nothing of how often the job will start. */
	v->severity = s->firsts > 1 ? pt_severity_of(f, s->first_share) : PT_INFO;
	v->certainty = s->firsts > 1 ? PT_CONF_HIGH : PT_CONF_MEDIUM;
	v->title = s->firsts == 1 ?
		pt_arena_printf(an->a,
			"The first batch took %.1f times as long as the later ones (%.0f ms).",
			s->first_ratio, s->first_ms) :
		pt_arena_printf(an->a,
			"The first batch behind each of %zu starts of the loader takes %.1f times as long as the later ones, %.0f %% of the time in all.",
			s->firsts, s->first_ratio, 100 * s->first_share);
	v->advice = f->t->respawned && s->firsts > 1 ?
		"Keep the workers (persistent_workers=True): they are started anew for each epoch. Longer epochs help too." :
		"Warm up before the clock matters; keep the workers between epochs (persistent_workers=True).";
	pt_speedup_share(s->first_share, &v->expected_speedup);
	return v->title ? 1 : -ENOMEM;
}
