/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who works for the trainer though it never waited for them: their batches have always
 * been there. They are known by one like them, by being asked, or by having been started in
 * the place of another.
 */
#include "analysis/waits/loader_int.h"

#include <errno.h>
#include <string.h>

/* Who computes less of the time manages something for the loader. */
#define ASKED_CPU 0.002

/* Started by it, or forked by a process that does that for it (a fork server): no program of
 * its own. */
static bool is_child(const struct pt_model *m, const struct pt_proc *p,
		     const struct pt_proc *of)
{
	const struct pt_proc *by = pt_model_proc(m, p->ppid);

	return p->ppid == of->tgid || (by && by->ppid == of->tgid && !by->died &&
				       !strncmp(by->comm, p->comm, sizeof(p->comm)));
}

/* ... but for one that sleeps for its items: a worker with its name and its parent is known, which
 * is asked as often and writes as much, but for this part; and that may be batches. */
#define LIKE_PART 0.5

static bool is_like(const struct pt_loader_finder *k, const struct pt_thread *th, size_t asked)
{
	const struct pt_an *an = k->an;
	const struct pt_trainer *t = k->t;
	uint64_t bytes = pt_written_between(th, an->t0, an->t1);
	double written = (double)bytes;
	size_t i;

	for (i = 0; i < t->workers.n && !pt_feeds_too_little(&k->g->feed, bytes); i++) {
		const struct pt_worker *w = &t->workers.v[i];

		if (w->role == PT_ROLE_LOADER && w->proc->ppid == th->proc->ppid &&
		    !strncmp(w->proc->comm, th->proc->comm, sizeof(th->proc->comm)) &&
		    written >= LIKE_PART * (double)pt_written_between(w->main, an->t0, an->t1) &&
		    (double)asked >= LIKE_PART * (double)pt_times_asked(an, t->proc, w->main))
			return true;
	}
	return false;
}

/* A child, or one of a pool, that sleeps until the trainer asks it for something, and has
 * something to send back, works for it though nobody has waited for it. */
static bool is_asked(const struct pt_loader_finder *k, const struct pt_thread *th, bool pool)
{
	const struct pt_an *an = k->an;
	size_t asked = pt_times_asked(an, k->t->proc, th);

	return asked && (pool ||
			 (double)pt_run_ns(an, th) >= ASKED_CPU * (double)(an->t1 - an->t0) ||
			 is_like(k, th, asked));
}

/* One of a pool outside of the job of which the trainer waits for another. */
static bool is_of_pool(const struct pt_trainer *t, const struct pt_proc *p)
{
	size_t i;

	for (i = 0; p->outside && p->ppid && i < t->workers.n; i++)
		if (t->workers.v[i].role == PT_ROLE_OUTSIDE &&
		    t->workers.v[i].proc->ppid == p->ppid &&
		    !strncmp(t->workers.v[i].proc->comm, p->comm, sizeof(p->comm)))
			return true;
	return false;
}

static bool ends_sleeps_of(const struct pt_an *an, const struct pt_proc *p,
			   const struct pt_thread *th)
{
	pt_each_iv(iv, th, an->t0, an->t1)
		if (iv->valid_wake && iv->waker_tgid == p->tgid)
			return true;
	return false;
}

/* It was waited for, and not for data: by the trainer itself, or by a thread of it that
 * manages a pool. */
static bool is_beside(const struct pt_an *an, const struct pt_givers *g,
		      const struct pt_proc *p)
{
	const struct pt_giver *x;

	for (x = g->all; x; x = x->hh.next)
		if (x->role == PT_GIVER_PEER &&
		    (x->tgid == p->tgid ||
		     (x->tgid == g->own->tgid && x->th && ends_sleeps_of(an, p, x->th))))
			return true;
	return false;
}

/* Threads of the trainer that have the name of one that supplies, which is not the
 * process's own, and that it makes room for: their batches have always been there. */
static int take_like_threads(struct pt_loader_finder *k)
{
	struct pt_trainer *t = k->t;
	const struct pt_proc *p = t->proc;
	size_t i, j, n = t->workers.n;

	for (i = 0; i < n; i++) {
		const struct pt_thread *like = t->workers.v[i].main;

		if (t->workers.v[i].proc != p || !strncmp(like->comm, p->comm, PT_COMM_LEN))
			continue;
		for (j = 0; j < p->threads.n; j++) {
			struct pt_thread *th = p->threads.v[j];

			if (strncmp(th->comm, like->comm, PT_COMM_LEN) || pt_is_relay(t, th) ||
			    pt_worker_of(k, t->proc, th) || !is_asked(k, th, false))
				continue;
			if (!pt_worker_make(k, t->proc, th))
				return -ENOMEM;
		}
	}
	return 0;
}

static int take_asked(struct pt_loader_finder *k)
{
	struct pt_trainer *t = k->t;
	struct pt_an *an = k->an;
	size_t i;

	for (i = 0; i < an->m->all_procs.n; i++) {
		struct pt_proc *p = an->m->all_procs.v[i];
		struct pt_thread *th = pt_model_thread(an->m, p->tgid);
		bool pool = is_of_pool(t, p);
		struct pt_worker *w;

		if (p == t->proc || (!pool && !is_child(an->m, p, t->proc)) || !th ||
		    pt_model_proc(an->m, p->tgid) != p || pt_worker_of(k, p, NULL) ||
		    pt_feeds_device(an, p) || !is_asked(k, th, pool) ||
		    is_beside(an, k->g, p))
			continue;
		w = pt_worker_make(k, p, th);
		if (!w)
			return -ENOMEM;
		w->main = pt_maker_in(an, k->g, p);
	}
	return 0;
}

/* Has a worker of this name, and with this parent, been started meanwhile? */
static bool is_respawned(const struct pt_trainer *t, const struct pt_proc *p)
{
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		const struct pt_worker *w = &t->workers.v[i];

		if (w->role == PT_ROLE_LOADER && w->proc->born && w->proc->ppid == p->ppid &&
		    !strncmp(w->proc->comm, p->comm, sizeof(p->comm)))
			return true;
	}
	return false;
}

static uint64_t last_step_call(const struct pt_an *an, const struct pt_proc *p)
{
	size_t i = pt_gpu_after(p, an->t1);

	while (i && !pt_call_is_step(&p->gpu.v[i - 1]))
		i--;
	return i ? p->gpu.v[i - 1].begin : an->t1;
}

/* The capture ends while the loader starts anew: nobody has had a batch of these. */
static int take_newborn(struct pt_loader_finder *k)
{
	uint64_t last = last_step_call(k->an, k->t->proc);
	size_t i;

	for (i = 0; i < k->an->m->all_procs.n; i++) {
		struct pt_proc *p = k->an->m->all_procs.v[i];
		struct pt_thread *th = p->threads.n ? p->threads.v[0] : NULL;

		if (!th || !is_child(k->an->m, p, k->t->proc) || !p->born || th->exited ||
		    th->first < last || pt_worker_of(k, p, NULL) || !is_respawned(k->t, p))
			continue;
		if (!pt_worker_make(k, p, th))
			return -ENOMEM;
	}
	return 0;
}

int pt_take_unwaited(struct pt_loader_finder *k)
{
	int err = take_like_threads(k);

	err = err ?: take_asked(k);
	return err ?: take_newborn(k);
}
