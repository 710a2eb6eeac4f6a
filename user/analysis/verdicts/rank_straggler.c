/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* Ranks in lock step of which one waits for its own loader: the others spend
 * that time in a collective, which looks like GPU work from outside. */
int pt_judge_rank_straggler(struct pt_an *an, const struct pt_facts *f,
			    struct pt_r_verdict *v)
{
	double own = f->wait_share, others = 0, wall = f->wall_s * NS_PER_S;
	size_t i;

	if (!f->is_starved || an->trainers.n < 2)
		return 0;
	for (i = 0; i < an->trainers.n; i++) {
		const struct pt_trainer *t = &an->trainers.v[i];
		double n = (double)t->steps.n, mine = (double)f->t->steps.n;

		if (t == f->t)
			continue;
		if (n < PT_MIN_STEPS || fabs(n - mine) > 1 + f->th->rank_period * mine)
			return 0; /* not in lock step: jobs of their own */
		others = fmax(others, (double)t->data_wait_ns / wall);
	}
	if (own - others < f->th->rank_excess)
		return 0;
	if (pt_evidence_start(an, v, 2))
		return -ENOMEM;
	pt_evidence_add(v, "rank.data_wait_share", own, "share", NAN,
			PT_MEASURED);
	pt_evidence_add(v, "rank.data_wait_excess", own - others, "share",
			f->th->rank_excess, PT_MEASURED);
	/* Before that rank's own reason; but behind what all ranks suffer from,
	 * where that is more. */
	*f->lost = own - others >= others ? 1 : own - others;
	v->severity = pt_severity_of(f, own - others);
	v->certainty = PT_CONF_MEDIUM; /* the lock step may be an accident */
	v->subject_pid = f->t->proc->tgid;
	v->title = pt_arena_printf(an->a,
		"One rank holds the others up: process %u waits for data %.0f %% of the time, the others at most %.0f %%, and all make the same steps.",
		pt_real_id(f->t->proc->tgid), 100 * own, 100 * others);
	v->advice = "Fix this rank's loading: its shard of the data, its node's disk or its cores.";
	return v->title ? 1 : -ENOMEM;
}
