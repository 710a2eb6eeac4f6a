/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/verdicts/verdict.h"

/* A copy back that blocks waits for the kernels before it, too, and what it takes by itself is not
 * seen. But so many bytes take a fast slot that long, and the costs that fit all of the steps have
 * the device do nothing else meanwhile. */
static int judge_bytes(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	double bytes = (double)f->t->counts.copy_bytes;
	double lost = bytes / PT_COPY_BYTES_S / f->wall_s;

	if (f->is_starved || lost < f->th->starved_info || f->copying < lost)
		return 0;
	pt_evidence_add(v, "gpu.copies.least_share", lost, "share", f->th->starved_info,
			PT_ESTIMATED);
	pt_evidence(v, "gpu.copies.bytes", bytes, "bytes");
	pt_verdict_costs(f, v, lost);
	v->severity = PT_INFO;
	v->certainty = PT_CONF_LOW;
	v->title = pt_sentence(an,
		"%.1f GiB a second are copied to and from the GPU. Even a fast slot needs %.0f %% of "
		"the time for that, and the GPU seems to do nothing else meanwhile.",
		bytes / f->wall_s / (double)(1 << 30), 100 * lost);
	v->advice = "Trace with --cupti, which measures copies. If they take that long, keep "
		    "results on the device, copy back only what is used there, and copy the next "
		    "batch while this one computes (non_blocking=True from pinned memory).";
	return 1;
}

/* The host is blocked in copies while the device computes nothing. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	double lost = f->transfer;

	if (lost < f->th->starved_info)
		return judge_bytes(an, f, v);
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
