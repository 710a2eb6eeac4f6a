/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* The host is blocked in copies while the device computes nothing. */
int pt_judge_transfer_bound(struct pt_an *an, const struct pt_facts *f,
			    struct pt_r_verdict *v)
{
	double lost = f->transfer;

	if (lost < f->th->starved_info)
		return 0;
	if (pt_evidence_start(an, v))
		return -ENOMEM;
	pt_evidence_add(v, "breakdown.transfer.share", lost, "share",
			f->th->starved_info, PT_ESTIMATED);
	pt_evidence_add(v, "gpu.copies.bytes", (double)f->t->counts.copy_bytes,
			"bytes", NAN, PT_MEASURED);
	pt_evidence_add(v, "gpu.copies.count",
			(double)(f->t->counts.h2d + f->t->counts.d2h +
				 f->t->counts.other_copies),
			"count", NAN, PT_MEASURED);
	*f->lost = lost;
	v->severity = pt_severity_of(f, lost);
	v->certainty = PT_CONF_MEDIUM;
	v->title = pt_arena_printf(an->a,
		"Copies to and from the GPU block the training thread %.0f %% of the time while nothing else runs there.",
		100 * lost);
	v->advice = f->t->relays.n ?
		"Copy with non_blocking=True (the loader pins memory already), copy the next batch while this one computes, and keep results on the device." :
		"Pin the loader's memory (pin_memory=True) and copy with non_blocking=True, copy the next batch while this one computes, and keep results on the device.";
	if (!pt_expected_speedup(an, f, "transfers_overlapped", &v->expected_speedup))
		pt_speedup_share(lost, &v->expected_speedup);
	return v->title ? 1 : -ENOMEM;
}
