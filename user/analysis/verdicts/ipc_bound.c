/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/verdicts/verdict.h"

/* Batches are made, but moving them to the trainer takes the time. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	double handover = (double)f->t->handover_ns /
			  (double)pt_max64(f->t->data_wait_ns, 1);
	double queued = f->cause[PT_CAUSE_RUN_QUEUE] - f->queue; /* whoever hands on, or receives */

	if (f->largest != PT_GROUP_IPC || f->group[PT_GROUP_IPC] < f->th->root_share)
		return 0;
	pt_evidence_starved(f, v);
	pt_evidence_against(v, "data_wait.ipc_share", f->group[PT_GROUP_IPC], "share",
			    f->th->root_share);
	pt_evidence_against(v, "workers.sending_share", f->pool.sending, "share",
			    f->th->pool_sending);
	pt_evidence(v, "data_wait.handover_share", handover, "share");
	v->title = pt_sentence(an,
		"Handing batches over makes the trainer wait: %.0f %% of the data wait passes "
		"after a batch is finished and before the trainer has it.",
		100 * f->group[PT_GROUP_IPC]);
	v->advice = "Send less with each batch: no more than the step needs, one large tensor rather "
		    "than many small ones, and tensors rather than NumPy arrays, lists or other "
		    "objects, which are pickled through a pipe.";
	if (2 * queued > f->group[PT_GROUP_IPC]) { /* with a core it may take next to nothing */
		pt_evidence(v, "data_wait.run_queue_share", f->cause[PT_CAUSE_RUN_QUEUE], "share");
		pt_at_most(&v->certainty, PT_CONF_MEDIUM);
		v->advice = "Give the job more cores, or let less run beside the trainer: for most of that "
			    "time a batch is there, and whoever takes it waits for a core.";
	}
	return 1;
}

const struct pt_verdict pt_verdict_ipc_bound = { .asked = { { PT_V_WHAT, judge } } };
