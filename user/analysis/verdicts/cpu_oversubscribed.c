/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>

#include "analysis/verdicts/verdict.h"

static void crowd_evidence(const struct pt_facts *f, const struct pt_crowd *c,
			   struct pt_r_verdict *v)
{
	if (isfinite(c->threads))
		pt_evidence_against(v, "workers.computing_threads", c->threads, "count",
				    PT_CROWD_THREADS);
	if (c->omp_threads >= 0)
		pt_evidence(v, "workers.omp_num_threads", c->omp_threads, "count");
	if (c->cpus_allowed > 0 && c->cpus_allowed < f->cores)
		pt_evidence_against(v, "workers.cpus_allowed", c->cpus_allowed, "count",
				    (double)f->cores);
	if (c->mem_nodes > 1)
		pt_evidence(v, "host.memory_nodes", c->mem_nodes, "count");
}

/* What to do about it, the most telling first. */
static const char *crowd_advice(struct pt_an *an, const struct pt_facts *f,
				const struct pt_crowd *c)
{
	size_t n = f->t->concurrent;

	if (c->cpus_allowed > 0 && c->cpus_allowed < f->cores &&
	    (size_t)c->cpus_allowed < n + 1)
		return pt_sentence(an,
			"The workers may use only %d of this host's %lld cores: widen their "
			"CPU affinity (taskset, numactl, OMP/KMP affinity settings, the batch "
			"scheduler's binding).",
			c->cpus_allowed, (long long)f->cores);
	if (c->threads >= PT_CROWD_THREADS)
		return pt_sentence(an,
			"Each worker computes in %.1f threads (num_workers is %zu today): set "
			"OMP_NUM_THREADS=1, torch.set_num_threads(1) and cv2.setNumThreads(0) "
			"in the workers.",
			c->threads, n);
	if (f->cores && n > (size_t)f->cores)
		return pt_sentence(an,
			"More workers will not help: num_workers is already %zu on %lld "
			"cores. Give the job more cores, make __getitem__ cheaper, or lower "
			"num_workers to the number of free cores.",
			n, (long long)f->cores);
	if (f->cores && n == (size_t)f->cores)
		return pt_sentence(an,
			"More workers will hardly help: num_workers is already %zu on %lld "
			"cores. Give the job more cores, or make __getitem__ cheaper.",
			n, (long long)f->cores);
	return pt_sentence(an,
		"Something else uses the cores (num_workers is %zu today): check the "
		"trainer's own threads, other jobs on this host, and the CPU quota.",
		n);
}

/* Workers have work but no core: they wait on the run queue. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	double cpu = f->group[PT_GROUP_CPU], runq;
	struct pt_crowd crowd;

	if (f->largest != PT_GROUP_CPU || cpu < f->th->root_share)
		return 0;
	runq = (f->queue + f->cause[PT_CAUSE_THROTTLE]) / cpu;
	if (runq < f->th->run_queue_share)
		return 0;
	pt_evidence_starved(f, v);
	/* of computing and waiting for a core together; the shares below are of the data wait */
	pt_evidence_against(v, "loading.core_wait_share", runq, "share",
			    f->th->run_queue_share);
	pt_evidence(v, "data_wait.run_queue_share", f->queue, "share");
	if (f->cause[PT_CAUSE_THROTTLE] > 0)
		pt_evidence(v, "data_wait.throttle_share", f->cause[PT_CAUSE_THROTTLE],
			    "share");
	pt_evidence(v, "loader.workers", (double)f->t->concurrent, "count");
	if (f->cores)
		pt_evidence(v, "host.cores", (double)f->cores, "count");
	pt_measure_crowd(an, f->t, &crowd);
	crowd_evidence(f, &crowd, v);
	if (f->cause[PT_CAUSE_THROTTLE] > f->queue) {
		v->title = pt_sentence(an,
			"A CPU quota throttles the workers: they spend %.0f %% of their "
			"loading time waiting for a CPU, mostly for the quota's next period.",
			100 * runq);
		v->advice = "Raise or remove the CPU limit of the container or control group (cpu.max, cpu.cfs_quota_us), or make __getitem__ cheaper.";
		return 1;
	}
	v->title = pt_sentence(an,
		"The workers are short of cores: they spend %.0f %% of their loading time "
		"waiting for a CPU.",
		100 * runq);
	v->advice = crowd_advice(an, f, &crowd);
	return 1;
}

const struct pt_verdict pt_verdict_cpu_oversubscribed = { .asked = { { PT_V_WHAT, judge } },
	.lines = { PT_LINES_WORKERS, 1u << PT_CAUSE_CPU,
		   "the workers' computing" },
};
