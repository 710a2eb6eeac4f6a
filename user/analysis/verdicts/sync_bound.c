/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* The device runs dry behind syncs because the host is not back with new
 * work. Only that idle time counts, not the syncs and not the time in them. */
int pt_judge_sync_bound(struct pt_an *an, const struct pt_facts *f,
			struct pt_r_verdict *v)
{
	double lost = f->sync;

	if (lost < f->th->starved_info)
		return 0;
	if (pt_evidence_start(an, v))
		return -ENOMEM;
	pt_evidence_add(v, "gpu.idle_after_sync_share", lost, "share",
			f->th->starved_info, PT_BOUNDED);
	pt_evidence_add(v, "gpu.syncs", (double)f->t->counts.syncs, "count", NAN,
			PT_MEASURED);
	*f->lost = lost;
	v->severity = pt_severity_of(f, lost);
	v->certainty = PT_CONF_HIGH;
	v->subject_pid = f->t->main->tgid;
	v->title = pt_arena_printf(an->a,
		"After syncs the GPU idles %.0f %% of the time until the training thread is back with new work; data is not the reason.",
		100 * lost);
	v->advice = "Synchronise less often (.item(), printing a loss, .cpu()): every N steps rather than in each, and do the host's own work (metrics, logging) before the sync or while the GPU computes.";
	if (!pt_expected_speedup(an, f, "fewer_syncs", &v->expected_speedup))
		pt_speedup_share(lost, &v->expected_speedup);
	return v->title ? 1 : -ENOMEM;
}
