/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>

#include "analysis/verdicts/verdict.h"

static bool by_driver(const struct pt_trainer *t)
{
	return t->devs.n == 1 && t->devs.v[0].by_driver;
}

/* No sync shows how long kernels take; a host that waits for the device most of the time, for room
 * in its queue, has it at work. */
static bool is_throttled(const struct pt_an *an, const struct pt_trainer *t)
{
	return !t->gpu_known && 2 * t->gpu_wait_ns > an->t1 - an->t0;
}

/* Kernels are shorter than the host's pauses between their launches. Where no
 * sync ever had to wait, that is certain, but how much shorter is not seen. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	bool seen = f->launch >= f->th->starved_info;
	bool keeps_up = f->host_bound >= f->th->host_bound_share;
	double us;

	if ((!seen && !keeps_up) || is_throttled(an, f->t))
		return 0;
	us = f->t->host_bound_launches ?
		(double)f->t->host_bound_ns / 1000 /
		(double)f->t->host_bound_launches : NAN;
	pt_evidence_add(v, "gpu.idle_between_launches_share", f->launch, "share",
			f->th->starved_info, PT_ESTIMATED);
	pt_evidence_against(v, "gpu.host_bound_share", f->host_bound, "share",
			    f->th->host_bound_share);
	pt_evidence(v, "gpu.launch_interval_us", us, "us");
	pt_verdict_costs(f, v, seen ? f->launch : 0);
	/* by the driver's figure alone it could be idle for something else */
	v->certainty = seen && (f->t->gpu_known || (by_driver(f->t) && keeps_up)) ?
			       PT_CONF_MEDIUM : PT_CONF_LOW;
	v->title = seen ?
		pt_sentence(an,
			"The GPU is idle about %.0f %% of the time between short kernels, "
			"while the host launches the next one.",
			100 * f->launch) :
		pt_sentence(an,
			"The GPU keeps up with every launch: %.0f %% of the time the host's "
			"launch rate (one every %.0f us) sets the pace; how much of that time "
			"the GPU is idle cannot be seen from outside.",
			100 * f->host_bound, us);
	v->advice = "Launch fewer, larger kernels: a larger batch, fused operations, compilation or CUDA graphs.";
	if (!seen) {
		v->severity = PT_INFO;
		pt_speedup_share(f->host_bound, &v->expected_speedup);
	}
	return 1;
}

const struct pt_verdict pt_verdict_launch_bound = { .asked = { { PT_V_IDLE, judge } },
	.lines = { PT_LINES_LOOP, 1u << PT_CAUSE_CPU,
		   "the training thread's computing between data waits" },
};
