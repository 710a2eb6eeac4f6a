/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* The trainer writes files while the device has nothing to do. */
int pt_judge_checkpoint_stall(struct pt_an *an, const struct pt_facts *f,
			      struct pt_r_verdict *v)
{
	double lost = f->checkpoint;

	if (lost < f->th->starved_info)
		return 0;
	if (pt_evidence_start(an, v, 2))
		return -ENOMEM;
	pt_evidence_add(v, "gpu.idle_checkpoint_share", lost, "share",
			f->th->starved_info,
			f->t->gpu_known ? PT_ESTIMATED : PT_BOUNDED);
	pt_evidence_add(v, "breakdown.checkpoint.share", f->writing, "share",
			NAN, PT_MEASURED);
	*f->lost = lost;
	v->severity = pt_severity_of(f, lost);
	v->certainty = f->t->gpu_known ? PT_CONF_HIGH : PT_CONF_LOW;
	v->subject_pid = f->t->main->tgid;
	v->title = pt_arena_printf(an->a,
		"The training thread writes files %.0f %% of the time, and the GPU idles meanwhile.",
		100 * f->writing);
	v->advice = "Write checkpoints less often, to a faster disk or into memory first, from another thread or process; do not flush (fsync) on the training thread.";
	pt_speedup_share(lost, &v->expected_speedup);
	return v->title ? 1 : -ENOMEM;
}
