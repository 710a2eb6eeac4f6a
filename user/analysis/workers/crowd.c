/* SPDX-License-Identifier: BSD-2-Clause */
/* Why workers may lack cores though the host has some: threads of their own
 * libraries, or an affinity that leaves them only a few. */
#include <math.h>

#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"

/* Of a thread that sends nothing. */
static double made_ns(const struct pt_an *an, const struct pt_worker *w, const struct pt_thread *th)
{
	return th == w->feeder && th != w->main ? 0 : (double)pt_run_ns(an, th);
}

/* Threads of the worker that compute, beside the one that sends. A thread of the trainer is one
 * by itself: what others of its process compute for is not told. */
static size_t computing(const struct pt_an *an, const struct pt_worker *w)
{
	const struct pt_proc *p = w->proc;
	double most = 0;
	size_t i, n = 0;

	if (w->role == PT_ROLE_THREAD)
		return 1;
	for (i = 0; i < p->threads.n; i++)
		most = fmax(most, made_ns(an, w, p->threads.v[i]));
	if (most < PT_CROWD_RUNS * (double)(an->t1 - an->t0))
		return 1;
	for (i = 0; i < p->threads.n; i++)
		n += made_ns(an, w, p->threads.v[i]) >= PT_CROWD_COMPUTES * most;
	return n;
}

void pt_measure_crowd(const struct pt_an *an, const struct pt_trainer *t, struct pt_crowd *out)
{
	size_t i, sum = 0;

	*out = (struct pt_crowd){ NAN, -1, -1, -1 };
	for (i = 0; i < t->workers.n; i++) {
		const struct pt_proc *p = t->workers.v[i].proc;
		const struct pt_rec_proc *f = &p->facts;

		sum += computing(an, &t->workers.v[i]);
		if (f->omp_threads > out->omp_threads)
			out->omp_threads = f->omp_threads;
		if (f->cpus_allowed > 0 && (out->cpus_allowed < 0 ||
					    f->cpus_allowed < out->cpus_allowed))
			out->cpus_allowed = f->cpus_allowed;
		if (f->mem_nodes > out->mem_nodes)
			out->mem_nodes = f->mem_nodes;
	}
	if (t->workers.n)
		out->threads = (double)sum / (double)t->workers.n;
}
