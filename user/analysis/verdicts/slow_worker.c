/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* Batches are delivered in order, so one slow worker holds all others up. */
int pt_judge_slow_worker(struct pt_an *an, const struct pt_facts *f,
			 struct pt_r_verdict *v)
{
	const struct pt_worker *w = f->slow;

	if (!w)
		return 0;
	if (pt_evidence_starved(an, f, v))
		return -ENOMEM;
	pt_evidence_add(v, "worker.slowdown", w->slowdown, "ratio",
			f->th->slow_factor, PT_MEASURED);
	pt_evidence_add(v, "worker.slowdown_chance", w->slow_chance, "share",
			f->th->slow_chance, PT_MEASURED);
	pt_evidence_add(v, "worker.batch_ms.p50", w->median_ms, "ms", NAN,
			PT_MEASURED);
	pt_evidence_add(v, "data_wait.charged_to_worker", f->slow_charge,
			"share", f->th->slow_share, PT_MEASURED);
	v->subject_pid = w->proc->tgid;
	v->title = w->respawn ?
		pt_arena_printf(an->a,
			"Worker %u and the %u before it in its place take %.1f times as long as their peers and hold up %.0f %% of the waiting for batches.",
			pt_real_id(w->proc->tgid), w->respawn, w->slowdown,
			100 * f->slow_charge) :
		pt_arena_printf(an->a,
			"Worker %u takes %.1f times as long as its peers and holds up %.0f %% of the waiting for batches.",
			pt_real_id(w->proc->tgid), w->slowdown,
			100 * f->slow_charge);
	v->advice = "Look at what this worker does differently: its files, its node's disk or its core; batches come in order, so the others wait for it.";
	pt_expected_speedup(an, f, "slow_worker_fixed", &v->expected_speedup);
	return v->title ? 1 : -ENOMEM;
}
