/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* Of what loading and receiving compute, or would like to, the part that lacks a core. */
static double lack_of_cores(const struct pt_facts *f)
{
	double queued = f->cause[PT_CAUSE_RUN_QUEUE];

	return (queued + f->cause[PT_CAUSE_THROTTLE]) /
	       (f->group[PT_GROUP_CPU] + queued - f->queue);
}

/* How many workers the cores suffice for, where there are fewer workers than cores and part of a core
 * is left for another one; else 0. */
static int64_t cores_for(const struct pt_facts *f)
{
	double left = (double)f->cores - f->pool.cores_used;
	int64_t n = (int64_t)f->t->concurrent;

	return n && n < f->cores && left >= PT_CORE_PART ?
		       (int64_t)fmin((double)f->cores, (double)n + ceil(left)) : 0;
}

/* Workers compute all the time and still do not keep up. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_worker *helper = pt_lone_helper(f);
	int64_t better;
	int need;

	if (f->largest != PT_GROUP_CPU || f->group[PT_GROUP_CPU] < f->th->root_share)
		return 0;
	pt_evidence_starved(f, v);
	pt_evidence_against(v, "data_wait.cpu_share", f->cause[PT_CAUSE_CPU], "share",
			    f->th->root_share);
	pt_evidence_against(v, "loading.core_wait_share",
			    (f->queue + f->cause[PT_CAUSE_THROTTLE]) / f->group[PT_GROUP_CPU],
			    "share", f->th->run_queue_share);
	pt_evidence(v, "loader.workers", (double)f->t->concurrent, "count");
	v->title = helper ?
		pt_sentence(an,
			"Loading is CPU-bound: %.0f %% of the data wait is computing, most of it in "
			"process %u, and %.0f %% is waiting for a core.",
			100 * f->cause[PT_CAUSE_CPU], pt_real_id(helper->proc->tgid), 100 * f->queue) :
		pt_sentence(an,
			"Loading is CPU-bound: %.0f %% of the data wait is workers computing, and "
			"%.0f %% is workers waiting for a core.",
			100 * f->cause[PT_CAUSE_CPU], 100 * f->queue);
	better = helper ? 0 : pt_better_workers(an, f);
	need = pt_workers_needed(f);
	v->advice = !f->t->concurrent ?
		"Make the computation for each batch cheaper, or spread it over more "
		"processes." :
		better ?
		pt_sentence(an,
			"Raise num_workers from %zu to %lld, or make __getitem__ cheaper.",
			f->t->concurrent, (long long)better) :
		pt_gains_nothing(an, "workers") ?
		pt_sentence(an,
			"Make __getitem__ cheaper or move decoding to the GPU: more workers "
			"would gain nothing (num_workers is %zu today).", f->t->concurrent) :
		f->cores && need <= f->cores ?
		pt_sentence(an,
			"Raise num_workers from %zu to about %d (this host has %lld cores), "
			"or make __getitem__ cheaper.",
			f->t->concurrent, need, (long long)f->cores) :
		cores_for(f) ?
		pt_sentence(an,
			"Raise num_workers from %zu to %lld, as far as cores are left, and make "
			"__getitem__ cheaper or move decoding to the GPU: keeping up would take "
			"about %d workers like these.",
			f->t->concurrent, (long long)cores_for(f), need) :
		pt_sentence(an,
			"Make __getitem__ cheaper or move decoding to the GPU: keeping up "
			"would take about %d workers like these (num_workers is %zu today), "
			"more than this host has cores for.",
			need, f->t->concurrent);
	if (better)
		pt_replayed_speedup(an, "workers", v);
	/* Cores are left: whether threads of one interpreter would use them, or more programs
	 * that a thread starts, is not known. Or there are fewer workers than cores, and more are
	 * advised: one that spins gives way. Too few of them may be as right. */
	if (f->cores && !helper &&
	    ((!f->t->handoffs && (double)f->cores - f->pool.cores_used >= f->th->core_free) ||
	     (f->t->concurrent && (int64_t)f->t->concurrent < f->cores &&
	      (better || ((need <= f->cores || cores_for(f)) &&
			  !pt_gains_nothing(an, "workers"))))))
		pt_at_most(&v->certainty, PT_CONF_MEDIUM);
	if (helper)
		pt_blame_helper(an, f, helper, v);
	/* whoever receives the batches lacks one, too */
	if (lack_of_cores(f) >= f->th->run_queue_share)
		pt_at_most(&v->certainty, PT_CONF_MEDIUM);
	return 1;
}

const struct pt_verdict pt_verdict_cpu_bound = { .asked = { { PT_V_WHAT, judge } },
	.lines = { PT_LINES_WORKERS, 1u << PT_CAUSE_CPU,
		   "the workers' computing" },
};
