/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* All workers have their hands full and cores are left: more would help.
 * Waiting takes no core; computing takes as much as it takes today. */
int pt_judge_too_few_workers(struct pt_an *an, const struct pt_facts *f,
			     struct pt_r_verdict *v)
{
	int64_t better;
	double left = (double)f->cores - f->pool.cores_used;
	bool waits = f->largest == PT_GROUP_UNKNOWN &&
		     f->worker_waits >= PT_ROOT_SHARE;
	bool computes = f->largest == PT_GROUP_CPU &&
			f->group[PT_GROUP_CPU] >= PT_ROOT_SHARE &&
			f->cores && left >= PT_CORE_FREE;

	if (!f->t->handoffs || !(f->pool.busy >= PT_POOL_BUSY) ||
	    f->pool.run_queue > PT_POOL_RUNQ || !(waits || computes))
		return 0;
	if (pt_evidence_starved(an, f, v, 5))
		return -ENOMEM;
	pt_evidence_add(v, "workers.busy_share", f->pool.busy, "share",
			PT_POOL_BUSY, PT_MEASURED);
	pt_evidence_add(v, "workers.run_queue_share", f->pool.run_queue,
			"share", PT_POOL_RUNQ, PT_MEASURED);
	pt_evidence_add(v, "workers.cpu_share", f->pool.cpu, "share", NAN,
			PT_MEASURED);
	pt_evidence_add(v, "loader.workers", (double)f->t->concurrent, "count",
			NAN, PT_MEASURED);
	if (f->cores)
		pt_evidence_add(v, "host.cores_not_used_by_job", left, "count",
				PT_CORE_FREE, PT_MEASURED);
	v->title = pt_arena_printf(an->a, waits ?
		"Too few workers: num_workers is %zu, all are busy, and most of that is waiting for something that takes no core." :
		"Too few workers: num_workers is %zu, all are busy computing, and cores are left.",
		f->t->concurrent);
	better = pt_better_workers(an, f);
	v->advice = better ?
		pt_arena_printf(an->a, "Raise num_workers from %zu to %lld.",
				f->t->concurrent, (long long)better) :
		pt_arena_printf(an->a,
			"Raise num_workers from %zu to about %d, as far as there are cores for them.",
			f->t->concurrent, pt_workers_needed(f));
	pt_expected_speedup(an, f, "workers", &v->expected_speedup);
	return v->title && v->advice ? 1 : -ENOMEM;
}
