/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* Workers wait for the network, and the trainer for them. */
int pt_judge_network_bound(struct pt_an *an, const struct pt_facts *f,
			   struct pt_r_verdict *v)
{
	if (f->largest != PT_GROUP_NETWORK ||
	    f->group[PT_GROUP_NETWORK] < f->th->root_share)
		return 0;
	if (pt_evidence_starved(an, f, v, 1))
		return -ENOMEM;
	pt_evidence_add(v, "data_wait.network_share",
			f->cause[PT_CAUSE_NETWORK], "share", f->th->root_share,
			PT_MEASURED);
	v->title = pt_arena_printf(an->a,
		"The GPU waits for the network: %.0f %% of the waiting for data is workers waiting for a remote side to answer.",
		100 * f->group[PT_GROUP_NETWORK]);
	v->advice = pt_arena_printf(an->a,
		"Keep more requests in flight (num_workers is %zu today; waiting costs no core), fetch larger pieces, or cache the data on a local disk.",
		f->t->concurrent);
	pt_expected_speedup(an, f, "workers", &v->expected_speedup);
	return v->title && v->advice ? 1 : -ENOMEM;
}
