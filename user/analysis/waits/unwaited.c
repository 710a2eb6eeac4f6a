/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who works for the trainer though it never waited for them: their batches have always
 * been there. They are known by one like them, by being asked, or by having been started in
 * the place of another.
 */
#include "analysis/waits/host.h"
#include "analysis/waits/loader_int.h"
#include "analysis/workers/code.h"

#include <errno.h>
#include <math.h>
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

static bool is_loader_like(const struct pt_worker *w, const struct pt_proc *p)
{
	return w->role == PT_ROLE_LOADER && w->proc->ppid == p->ppid &&
	       !strncmp(w->proc->comm, p->comm, sizeof(p->comm));
}

/* Is there a loader with this name and this parent? `born`: that has been started meanwhile. */
static bool has_loader_like(const struct pt_trainer *t, const struct pt_proc *p, bool born)
{
	pt_each(const struct pt_worker, w, &t->workers)
		if (is_loader_like(w, p) && (!born || w->proc->born))
			return true;
	return false;
}

/* ... but for one that sleeps for its items: a worker with its name and its parent is known, which
 * is asked as often and writes as much, but for this part; and that may be batches. */
#define LIKE_PART 0.5

/* ... or it writes less, and is asked as often as that worker was waited for: they take turns. */
#define TURNS_MIN 10
#define TURNS_ALIKE 0.25

static bool takes_turns(const struct pt_loader_finder *k, const struct pt_worker *w, size_t asked)
{
	const struct pt_giver *x;

	HASH_FIND(hh, k->g->all, &w->main->tid, sizeof(w->main->tid), x);
	return x && x->role == PT_GIVER_SUPPLIER && asked >= TURNS_MIN &&
	       fabs((double)x->sleeps - (double)asked) <= TURNS_ALIKE * (double)asked;
}

static bool is_like(const struct pt_loader_finder *k, const struct pt_thread *th, size_t asked)
{
	const struct pt_an *an = k->an;
	const struct pt_trainer *t = k->t;
	uint64_t bytes = pt_written_between(th, an->t0, an->t1);
	double written = (double)bytes;
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		const struct pt_worker *w = &t->workers.v[i];

		if (is_loader_like(w, th->proc) && bytes && takes_turns(k, w, asked))
			return true;
		if (is_loader_like(w, th->proc) && !pt_feeds_too_little(&k->g->feed, bytes) &&
		    written >= LIKE_PART * (double)pt_written_between(w->main, an->t0, an->t1) &&
		    (double)asked >= LIKE_PART * (double)pt_times_asked(an, t->proc, w->main))
			return true;
	}
	return false;
}

/* Others write all that goes up, and it less than this part of any of them. */
static bool adds_nothing(const struct pt_loader_finder *k, const struct pt_proc *p)
{
	double written;

	if (!k->g->fed)
		return false;
	written = (double)pt_written_by(k->an, p);
	pt_each(const struct pt_worker, w, &k->t->workers)
		if (w->role == PT_ROLE_LOADER &&
		    written >= LIKE_PART * (double)pt_written_by(k->an, w->proc))
			return false;
	return true;
}

/* A child, or one of a pool, that sleeps until the trainer asks it for something, and has
 * something to send back, works for it though nobody has waited for it. */
static bool is_asked(const struct pt_loader_finder *k, const struct pt_thread *th, bool pool)
{
	const struct pt_an *an = k->an;
	size_t asked = pt_times_asked(an, k->t->proc, th);

	if (!asked || (th->proc != k->t->proc && adds_nothing(k, th->proc)))
		return false;
	return pool || (double)pt_run_ns(an, th) >= ASKED_CPU * (double)(an->t1 - an->t0) ||
	       is_like(k, th, asked);
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

/* By its Python, or by its name, which is not the process's own. */
static bool is_like_thread(const struct pt_model *m, const struct pt_thread *th,
			   const struct pt_thread *like, const struct pt_code_line *does,
			   bool named)
{
	return (named && !strncmp(th->comm, like->comm, PT_COMM_LEN)) ||
	       (does && pt_same_function(does, pt_started_with(m, th)));
}

/* Threads of the trainer that do what one does that supplies, and that it makes room for:
 * their batches have always been there. */
static int take_like_threads(struct pt_loader_finder *k)
{
	struct pt_trainer *t = k->t;
	const struct pt_proc *p = t->proc;
	size_t i, j, n = t->workers.n;

	for (i = 0; i < n; i++) {
		const struct pt_thread *like = t->workers.v[i].main;
		const struct pt_code_line *does = pt_started_with(k->an->m, like);
		bool named = strncmp(like->comm, p->comm, PT_COMM_LEN);

		if (t->workers.v[i].proc != p || (!does && !named))
			continue;
		for (j = 0; j < p->threads.n; j++) {
			struct pt_thread *th = p->threads.v[j];

			if (pt_is_relay(t, th) || pt_worker_of(k, t->proc, th) ||
			    !is_like_thread(k->an->m, th, like, does, named) ||
			    !is_asked(k, th, false))
				continue;
			if (!pt_worker_make(k, t->proc, th))
				return -ENOMEM;
		}
	}
	return 0;
}

/* Was it met on the way back only, where another one waits for its lock, and is asked by the
 * trainer itself, as that one is? */
static bool is_no_helper(const struct pt_loader_finder *k, const struct pt_worker *w,
			 const struct pt_thread *th)
{
	return w->role == PT_ROLE_HELPER && has_loader_like(k->t, w->proc, false) &&
	       is_asked(k, th, false);
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
		struct pt_worker *w = pt_worker_of(k, p, NULL);

		if (w && th && is_no_helper(k, w, th))
			w->role = PT_ROLE_LOADER;
		if (p == t->proc || (!pool && !is_child(an->m, p, t->proc)) || !th ||
		    pt_model_proc(an->m, p->tgid) != p || w ||
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
		    th->first < last || pt_worker_of(k, p, NULL) || !has_loader_like(k->t, p, true))
			continue;
		if (!pt_worker_make(k, p, th))
			return -ENOMEM;
	}
	return 0;
}

/* Another program that a loader has started, and that writes next to nothing of what this one does,
 * manages something for it, though the trainer waits for nobody else. */
static void leave_out_programs(const struct pt_loader_finder *k)
{
	pt_each(struct pt_worker, w, &k->t->workers) {
		const struct pt_proc *by = pt_model_proc(k->an->m, w->proc->ppid);
		const struct pt_worker *loader = by ? pt_worker_of(k, by, NULL) : NULL;

		if (loader && loader->role == PT_ROLE_LOADER && w->role == PT_ROLE_LOADER &&
		    strncmp(by->comm, w->proc->comm, sizeof(by->comm)) != 0 &&
		    (double)pt_written_by(k->an, w->proc) <
			    PT_MAKER_SHARE * (double)pt_written_by(k->an, by))
			w->role = PT_ROLE_HELPER;
	}
}

int pt_take_unwaited(struct pt_loader_finder *k)
{
	int err = take_like_threads(k);

	err = err ?: take_asked(k);
	err = err ?: take_newborn(k);
	leave_out_programs(k);
	return err;
}

/* Does it sleep, mostly, until somebody takes what it hands out? */
static bool hands_out(const struct pt_model *m, const struct pt_thread *th)
{
	size_t i, n = 0, out = 0, stride = th->looks.n / PT_LOOKS_MAX + 1;

	for (i = 0; i < th->looks.n; i += stride) {
		const struct pt_code_look *l = &th->looks.v[i];

		n += !l->running;
		out += !l->running && pt_hands_out(m, l->stack);
	}
	return pt_looks_tell(out, n);
}

static uint64_t times_taken(const struct pt_an *an, const struct pt_trainer *t,
			    const struct pt_actor *a, struct pt_paths *paths,
			    const struct pt_thread *th)
{
	uint64_t n = 0;

	pt_each_iv(iv, th, an->t0, an->t1) {
		const struct pt_thread *who =
			iv->valid_wake ? pt_model_thread(an->m, iv->waker_tid) : NULL;

		n += who && pt_is_actor(a, who) && !pt_is_lock(paths, th, iv) &&
		     !pt_inside_call(t->proc, iv->waker_tid, iv->ready);
	}
	return n;
}

void pt_count_taken(const struct pt_an *an, struct pt_trainer *t, const struct pt_actor *a,
		    struct pt_paths *paths)
{
	size_t i;

	for (i = 0; i < t->proc->threads.n; i++) {
		const struct pt_thread *th = t->proc->threads.v[i];

		if (!pt_is_actor(a, th) && !pt_is_relay(t, th) && !pt_worker_index(t, th, NULL) &&
		    hands_out(an->m, th))
			t->taken_beside = pt_max64(t->taken_beside,
						   times_taken(an, t, a, paths, th));
	}
}
