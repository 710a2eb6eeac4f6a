/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* Workers are started anew again and again: for each epoch, or each batch. */
int pt_judge_loader_restart(struct pt_an *an, const struct pt_facts *f,
			    struct pt_r_verdict *v)
{
	const struct pt_steady *s = &f->steady;
	double starting;

	if (!f->t->respawned || s->firsts < 2 || s->n < PT_MIN_STEPS ||
	    s->first_share < f->th->starved_info)
		return 0;
	starting = an->r->data_wait.restart / f->wall_s;
	if (pt_evidence_start(an, v))
		return -ENOMEM;
	pt_evidence_add(v, "loader.starts", (double)s->firsts, "count", NAN,
			PT_MEASURED);
	pt_evidence_add(v, "steps.first_ms", s->first_ms, "ms", NAN,
			PT_MEASURED);
	pt_evidence_add(v, "steps.first_share", s->first_share, "share",
			f->th->starved_info, PT_MEASURED);
	pt_evidence_add(v, "data_wait.restart_share", starting, "share", NAN,
			PT_MEASURED);
	*f->lost = s->first_share;
	v->severity = pt_severity_of(f, s->first_share);
	v->certainty = PT_CONF_HIGH;
	v->subject_pid = f->t->main->tgid;
	v->title = pt_arena_printf(an->a,
		"The loader's workers are started anew %zu times in %.0f s; behind each start the first batch takes %.0f ms, %.0f %% of the time in all (%.0f %% for starting them alone).",
		s->firsts, f->wall_s, s->first_ms, 100 * s->first_share,
		100 * starting);
	v->advice = "Keep the workers between epochs (persistent_workers=True), or make epochs longer.";
	pt_speedup_share(s->first_share, &v->expected_speedup);
	return v->title ? 1 : -ENOMEM;
}
