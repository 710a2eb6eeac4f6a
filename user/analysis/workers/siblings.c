/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether one of several that a maker asks for the same (models of an ensemble, shards of a service)
 * is slower than the others. Who is in time is met on no way back: it is found as a process with the
 * same parent and the same Python, asked as often by the same maker.
 */
#include "analysis/health.h"
#include "analysis/internal.h"
#include "analysis/verdicts/thresholds.h"
#include "analysis/workers/code.h"

/* How often the sleeps of `th` are ended by that process, and how long other processes let it sleep. */
struct told {
	uint64_t n, ns;
};

static struct told told_by(const struct pt_an *an, const struct pt_thread *th, uint32_t tgid)
{
	struct told k = { 0 };

	pt_each_iv(iv, th, an->t0, an->t1) {
		if (!iv->valid_wake || iv->waker_tgid == th->proc->tgid || iv->wait == PT_WAIT_RUNQ)
			continue;
		k.n += iv->waker_tgid == tgid;
		k.ns += pt_overlap(iv->begin, iv->ready, an->t0, an->t1);
	}
	return k;
}

/* How long it did not wait for another process, ns; and how often it was asked at least, which
 * whoever of both slept shows. */
static struct told worked(const struct pt_an *an, const struct pt_thread *th,
			  const struct pt_thread *asker)
{
	struct told asked = told_by(an, th, asker->proc->tgid);
	struct told answered = told_by(an, asker, th->proc->tgid);

	return (struct told){ pt_max64(asked.n, answered.n), an->t1 - an->t0 - asked.ns };
}

static bool is_sibling(const struct pt_model *m, const struct pt_worker *w,
		       const struct pt_thread *asker, const struct pt_thread *th)
{
	return th->proc != w->proc && !th->proc->outside && th->proc->ppid == w->proc->ppid &&
	       th->tid == th->proc->tgid && pt_run_same_code(m, w->main, th, asker);
}

/* The maker whose sleeps it ends most often. */
static const struct pt_worker *asker_of(const struct pt_an *an, const struct pt_trainer *t,
					const struct pt_worker *w)
{
	const struct pt_worker *found = NULL;
	uint64_t most = PT_SLOW_BATCHES - 1, n;

	pt_each(const struct pt_worker, o, &t->workers) {
		if (o->proc == w->proc)
			continue;
		n = told_by(an, o->main, w->proc->tgid).n;
		if (n > most)
			found = o;
		most = pt_max64(most, n);
	}
	return found;
}

static int compare_helper(const struct pt_an *an, const struct pt_trainer *t, struct pt_worker *w)
{
	const struct pt_worker *asker = asker_of(an, t, w);
	pt_doubles others = { 0 };
	struct told own, k;
	double times;
	size_t i;
	int err = 0;

	if (!asker)
		return 0;
	own = worked(an, w->main, asker->main);
	for (i = 0; i < an->m->all_procs.n && !err; i++) {
		const struct pt_proc *p = an->m->all_procs.v[i];
		const struct pt_thread *th = pt_model_thread(an->m, p->tgid);

		if (!th || !is_sibling(an->m, w, asker->main, th))
			continue;
		k = worked(an, th, asker->main);
		/* each is asked for each batch: in one go, or in several */
		if ((double)k.n >= PT_SLOW_SURE * (double)own.n)
			err = pt_vec_push(&others, (double)k.ns);
	}
	times = others.n ? (double)own.ns / pt_median(others.v, others.n) : 0;
	if (!err && times >= an->th->slow_factor) {
		w->median_ms = (double)own.ns / (double)own.n / NS_PER_MS;
		w->slowdown = times;
		w->slow = true;
		w->in_parts = true; /* what lies between two answers may be several */
	}
	pt_vec_free(&others);
	return err;
}

int pt_compare_siblings(const struct pt_an *an, struct pt_trainer *t)
{
	struct pt_worker *worst = NULL;

	/* of one that is charged with less nobody asks */
	pt_each(struct pt_worker, w, &t->workers)
		if (w->role == PT_ROLE_HELPER && w->proc != t->proc && w->charged_ns &&
		    (!worst || w->charged_ns > worst->charged_ns))
			worst = w;
	return worst && !worst->slow ? compare_helper(an, t, worst) : 0;
}
