/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* Device memory is allocated all along and not given back. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	if (!(f->gpu_growth > 0))
		return 0;
	pt_evidence_add(v, "gpu.memory.growth_per_min", f->gpu_growth, "bytes", NAN,
			PT_ESTIMATED);
	pt_evidence(v, "gpu.allocations", (double)f->gpu_balance.allocs, "count");
	pt_evidence(v, "gpu.frees", (double)f->gpu_balance.frees, "count");
	pt_evidence(v, "gpu.failed_allocations", (double)f->t->counts.failed_allocs,
		    "count");
	v->severity = f->t->counts.failed_allocs ? PT_CRITICAL : PT_WARNING;
	v->certainty = f->gpu_balance.frees ? PT_CONF_LOW : PT_CONF_MEDIUM;
	v->subject_pid = f->t->proc->tgid;
	v->title = pt_sentence(an,
		"GPU memory grows steadily, by about %.0f MiB per minute: %llu allocations, "
		"%llu frees.",
		f->gpu_growth / (1 << 20), (unsigned long long)f->gpu_balance.allocs,
		(unsigned long long)f->gpu_balance.frees);
	v->advice = "Do not keep tensors of past steps (append loss.item(), not the loss; "
		    "detach what you store), and limit the number of different input sizes, "
		    "so that the allocator can reuse its memory.";
	return 1;
}

const struct pt_verdict pt_verdict_gpu_memory_growth = { .asked = { { PT_V_BESIDE, judge } } };
