/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

static int quota_words(struct pt_an *an, const struct pt_facts *f,
		       struct pt_r_verdict *v, double share)
{
	v->title = pt_arena_printf(an->a,
		"A CPU quota holds the workers back: %.0f %% of their loading time they wait for a CPU, most of it for the quota's next period.",
		100 * share);
	v->advice = "Raise or remove the CPU limit of the container or control group (cpu.max, cpu.cfs_quota_us), or make __getitem__ cheaper.";
	pt_speedup_bound(f, &v->expected_speedup);
	return v->title ? 1 : -ENOMEM;
}

/* Workers have work but no core: they wait on the run queue. */
int pt_judge_cpu_oversubscribed(struct pt_an *an, const struct pt_facts *f,
				struct pt_r_verdict *v)
{
	double cpu = f->group[PT_GROUP_CPU], runq;

	if (f->largest != PT_GROUP_CPU || cpu < f->th->root_share)
		return 0;
	runq = (f->cause[PT_CAUSE_RUN_QUEUE] + f->cause[PT_CAUSE_THROTTLE]) /
	       cpu;
	if (runq < f->th->run_queue_share)
		return 0;
	if (pt_evidence_starved(an, f, v, 4))
		return -ENOMEM;
	pt_evidence_add(v, "data_wait.run_queue_share",
			f->cause[PT_CAUSE_RUN_QUEUE], "share", f->th->run_queue_share,
			PT_MEASURED);
	if (f->cause[PT_CAUSE_THROTTLE] > 0)
		pt_evidence_add(v, "data_wait.throttle_share",
				f->cause[PT_CAUSE_THROTTLE], "share",
				f->th->run_queue_share, PT_MEASURED);
	pt_evidence_add(v, "loader.workers", (double)f->t->concurrent, "count",
			NAN, PT_MEASURED);
	if (f->cores)
		pt_evidence_add(v, "host.cores", (double)f->cores, "count", NAN,
				PT_MEASURED);
	if (f->cause[PT_CAUSE_THROTTLE] > f->cause[PT_CAUSE_RUN_QUEUE])
		return quota_words(an, f, v, runq);
	v->title = pt_arena_printf(an->a,
		"The workers lack cores: %.0f %% of their loading time they wait for a CPU.",
		100 * runq);
	v->advice = f->cores && f->t->concurrent >= (size_t)f->cores ?
		pt_arena_printf(an->a,
			"More workers cannot help: num_workers is %zu today on %lld cores. Give the job more cores, make __getitem__ cheaper, or lower num_workers to the cores that are free.",
			f->t->concurrent, (long long)f->cores) :
		pt_arena_printf(an->a,
			"Something else uses the cores (num_workers is %zu today). Check threads per worker (OMP_NUM_THREADS), other jobs on this host, and the CPU quota.",
			f->t->concurrent);
	pt_speedup_bound(f, &v->expected_speedup);
	return v->title && v->advice ? 1 : -ENOMEM;
}
