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

static void crowd_evidence(const struct pt_facts *f, const struct pt_crowd *c,
			   struct pt_r_verdict *v)
{
	if (isfinite(c->threads))
		pt_evidence_add(v, "workers.computing_threads", c->threads,
				"count", PT_CROWD_THREADS, PT_MEASURED);
	if (c->omp_threads >= 0)
		pt_evidence_add(v, "workers.omp_num_threads", c->omp_threads,
				"count", NAN, PT_MEASURED);
	if (c->cpus_allowed > 0 && c->cpus_allowed < f->cores)
		pt_evidence_add(v, "workers.cpus_allowed", c->cpus_allowed,
				"count", (double)f->cores, PT_MEASURED);
	if (c->mem_nodes > 1)
		pt_evidence_add(v, "host.memory_nodes", c->mem_nodes, "count",
				NAN, PT_MEASURED);
}

/* What to do about it, the most telling first. */
static const char *crowd_advice(struct pt_an *an, const struct pt_facts *f,
				const struct pt_crowd *c)
{
	size_t n = f->t->concurrent;

	if (c->cpus_allowed > 0 && c->cpus_allowed < f->cores &&
	    (size_t)c->cpus_allowed < n + 1)
		return pt_arena_printf(an->a,
			"The workers may run on %d of this host's %lld cores only: widen their CPU affinity (taskset, numactl, OMP/KMP affinity settings, the scheduler's binding).",
			c->cpus_allowed, (long long)f->cores);
	if (c->threads >= PT_CROWD_THREADS)
		return pt_arena_printf(an->a,
			"Each worker computes in %.1f threads (num_workers is %zu today): set OMP_NUM_THREADS=1, torch.set_num_threads(1) and cv2.setNumThreads(0) in the workers.",
			c->threads, n);
	if (f->cores && n >= (size_t)f->cores)
		return pt_arena_printf(an->a,
			"More workers cannot help: num_workers is %zu today on %lld cores. Give the job more cores, make __getitem__ cheaper, or lower num_workers to the cores that are free.",
			n, (long long)f->cores);
	return pt_arena_printf(an->a,
		"Something else uses the cores (num_workers is %zu today): look at the trainer's own threads, other jobs on this host, and the CPU quota.",
		n);
}

/* Workers have work but no core: they wait on the run queue. */
int pt_judge_cpu_oversubscribed(struct pt_an *an, const struct pt_facts *f,
				struct pt_r_verdict *v)
{
	double cpu = f->group[PT_GROUP_CPU], runq;
	struct pt_crowd crowd;

	if (f->largest != PT_GROUP_CPU || cpu < f->th->root_share)
		return 0;
	runq = (f->queue + f->cause[PT_CAUSE_THROTTLE]) /
	       cpu;
	if (runq < f->th->run_queue_share)
		return 0;
	if (pt_evidence_starved(an, f, v))
		return -ENOMEM;
	pt_evidence_add(v, "data_wait.run_queue_share",
			f->queue, "share", f->th->run_queue_share,
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
	pt_measure_crowd(f->t, &crowd);
	crowd_evidence(f, &crowd, v);
	if (f->cause[PT_CAUSE_THROTTLE] > f->queue)
		return quota_words(an, f, v, runq);
	v->title = pt_arena_printf(an->a,
		"The workers lack cores: %.0f %% of their loading time they wait for a CPU.",
		100 * runq);
	v->advice = crowd_advice(an, f, &crowd);
	pt_speedup_bound(f, &v->expected_speedup);
	return v->title && v->advice ? 1 : -ENOMEM;
}
