/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/verdicts/verdict.h"

/* The host is blocked in copies while the device computes nothing. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	double lost = f->transfer;

	if (lost < f->th->starved_info)
		return 0;
	pt_evidence_add(v, "breakdown.transfer.share", lost, "share", f->th->starved_info,
			PT_ESTIMATED);
	pt_evidence(v, "gpu.copies.bytes", (double)f->t->counts.copy_bytes, "bytes");
	pt_evidence(v, "gpu.copies.count",
		    (double)(f->t->counts.h2d + f->t->counts.d2h + f->t->counts.other_copies),
		    "count");
	pt_verdict_costs(f, v, lost);
	v->certainty = PT_CONF_MEDIUM;
	v->title = pt_sentence(an,
		"Copies to and from the GPU block the training thread %.0f %% of the time while nothing else runs there.",
		100 * lost);
	v->advice = f->t->relays.n ?
		"Copy with non_blocking=True (the loader pins memory already), copy the next batch while this one computes, and keep results on the device." :
		"Pin the loader's memory (pin_memory=True) and copy with non_blocking=True, copy the next batch while this one computes, and keep results on the device.";
	pt_replayed_speedup(an, "transfers_overlapped", v);
	return 1;
}

const struct pt_verdict pt_verdict_transfer_bound = { .asked = { { PT_V_IDLE, judge } } };
