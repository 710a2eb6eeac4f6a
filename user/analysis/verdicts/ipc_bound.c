/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* Batches are made, but moving them to the trainer takes the time. */
int pt_judge_ipc_bound(struct pt_an *an, const struct pt_facts *f,
		       struct pt_r_verdict *v)
{
	double handover = (double)f->t->handover_ns /
			  (double)pt_max64(f->t->data_wait_ns, 1);

	if (f->largest != PT_GROUP_IPC || f->group[PT_GROUP_IPC] < f->th->root_share)
		return 0;
	if (pt_evidence_starved(an, f, v))
		return -ENOMEM;
	pt_evidence_add(v, "data_wait.ipc_share", f->group[PT_GROUP_IPC],
			"share", f->th->root_share, PT_MEASURED);
	pt_evidence_add(v, "workers.sending_share", f->pool.sending, "share",
			f->th->pool_sending, PT_MEASURED);
	pt_evidence_add(v, "data_wait.handover_share", handover, "share", NAN,
			PT_MEASURED);
	v->title = pt_arena_printf(an->a,
		"Handing batches over is the bottleneck: %.0f %% of the waiting for data passes between a finished batch and the trainer that has it.",
		100 * f->group[PT_GROUP_IPC]);
	v->advice = "Return tensors from the workers, not NumPy arrays, lists or other objects, which are pickled through a pipe; one large tensor rather than many small ones, and no more than the step needs.";
	pt_speedup_bound(f, &v->expected_speedup);
	return v->title && v->advice ? 1 : -ENOMEM;
}
