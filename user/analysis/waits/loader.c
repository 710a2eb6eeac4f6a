/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/loader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Who has less of the way back from the consumer's sleeps is no worker, unless it
 * ends them itself. */
#define MAKER_SHARE 0.05
/* A thread that hands on is on the way back for less than this of what lies
 * behind it. */
#define RELAY_SHARE 0.5

/* ---- workers ---------------------------------------------------------------------- */

static struct pt_worker *worker_of(struct pt_trainer *t, const struct pt_proc *p,
				   const struct pt_thread *th)
{
	size_t i;

	for (i = t->workers.n; i-- > 0;)
		if (t->workers.v[i].proc == p &&
		    (p != t->proc || t->workers.v[i].main == th))
			return &t->workers.v[i];
	return NULL;
}

static struct pt_worker *worker_make(struct pt_trainer *t, struct pt_proc *p,
				     struct pt_thread *th)
{
	struct pt_worker w = { .proc = p, .main = th, .feeder = th,
			       .role = p == t->proc ? PT_ROLE_THREAD :
				       p->outside   ? PT_ROLE_OUTSIDE :
						      PT_ROLE_LOADER };

	return pt_vec_push(&t->workers, w) ? NULL :
					     &t->workers.v[t->workers.n - 1];
}

/* Of the thread, where it is one of the trainer's, else of the process. Who makes in
 * that is looked for once: it takes a look at all that its threads did. */
static struct pt_worker *worker_for(const struct pt_an *an, struct pt_trainer *t,
				    const struct pt_givers *g, struct pt_proc *p,
				    const struct pt_thread *th)
{
	struct pt_worker *old = worker_of(t, p, th);

	return old ? old : worker_make(t, p, p == t->proc ? (struct pt_thread *)th :
							    pt_maker_in(an, g, p));
}

bool pt_is_relay(const struct pt_trainer *t, const struct pt_thread *th)
{
	size_t i;

	for (i = 0; i < t->relays.n; i++)
		if (t->relays.v[i] == th)
			return true;
	return false;
}

/* A thread of the trainer that ends the consumer's sleeps and hands on what others
 * make. */
static int add_relay(struct pt_trainer *t, const struct pt_thread *th)
{
	return pt_is_relay(t, th) ? 0 : pt_vec_push(&t->relays, th);
}

/* Of the threads of `p` the one that ended most of the time that the trainer's own
 * threads slept for it; NULL: none did. */
struct sender {
	const struct pt_proc *p;
	const struct pt_thread *th;
	uint64_t ns;
};
typedef PT_VEC(struct sender) senders;

static int add_sender(senders *v, const struct pt_thread *th, uint64_t ns)
{
	struct sender fresh = { th->proc, th, ns };
	size_t i;

	for (i = 0; i < v->n; i++)
		if (v->v[i].th == th) {
			v->v[i].ns += ns;
			return 0;
		}
	return pt_vec_push(v, fresh);
}

static int take_givers(struct pt_an *an, struct pt_trainer *t,
		       const struct pt_givers *g, senders *sent)
{
	const struct pt_giver *x;
	uint64_t all = 0;

	for (x = g->all; x; x = x->hh.next)
		all += x->role == PT_GIVER_SUPPLIER ? x->ns : 0;
	for (x = g->all; x; x = x->hh.next) {
		double behind = (double)(x->made_ns + x->helped_ns);
		struct pt_proc *p = pt_model_proc(an->m, x->tgid);
		struct pt_worker *w;

		if (x->role != PT_GIVER_SUPPLIER || !x->th || !p)
			continue;
		/* a lock that its own threads share now and then */
		if (p == t->proc && (double)x->ns < MAKER_SHARE * (double)all)
			continue;
		if (p == t->proc && (double)pt_made_by(g, x->th) < RELAY_SHARE * behind) {
			if (add_relay(t, x->th))
				return -ENOMEM;
			continue;
		}
		w = worker_for(an, t, g, p, x->th);
		if (!w || add_sender(sent, x->th, x->ns))
			return -ENOMEM;
	}
	return 0;
}

/* Does a thread of the trainer that ends a relay's sleeps make what that hands on? */
static bool makes_inside(const struct pt_trainer *t, const struct pt_givers *g,
			 const struct pt_thread *th)
{
	const struct pt_maker *x;
	uint64_t sum = 0;

	for (x = g->makers; x; x = x->hh.next)
		sum += x->ns;
	return !pt_is_relay(t, th) && !pt_is_driver_thread(th) && th != t->main &&
	       (double)pt_made_by(g, th) >= MAKER_SHARE * (double)sum;
}

/* Who ends the sleeps of a relay delivers as if to the consumer. */
static int take_relayed(struct pt_an *an, struct pt_trainer *t,
			const struct pt_givers *g, const struct pt_thread *th,
			senders *sent)
{
	const struct pt_thread *who;

	pt_each_iv(iv, th, an->t0, an->t1) {
		struct pt_proc *p;

		if (!iv->valid_wake || pt_waits_for_client(an, th, iv))
			continue;
		who = pt_model_thread(an->m, iv->waker_tid);
		p = who ? pt_model_proc(an->m, iv->waker_tgid) : NULL;
		if (!p || pt_is_lock(g->paths, th, iv) ||
		    (p == t->proc && !makes_inside(t, g, who)))
			continue;
		if (!worker_for(an, t, g, p, who) ||
		    add_sender(sent, who, iv->ready - iv->begin))
			return -ENOMEM;
	}
	return 0;
}

/* The way came to the process from a thread of the trainer's that only hands on:
 * however many of those there are, it delivers. */
static bool delivers(struct pt_trainer *t, const struct pt_givers *g,
		     const struct pt_proc *p)
{
	const struct pt_maker *x;

	for (x = g->makers; x; x = x->hh.next)
		if (x->th->proc == p && x->via &&
		    !worker_of(t, t->proc, x->via) &&
		    (double)pt_made_by(g, x->via) < RELAY_SHARE * (double)x->ns)
			return true;
	return false;
}

/* Met on the way back; where somebody else delivers, makers for makers. */
static int take_makers(const struct pt_an *an, struct pt_trainer *t,
		       const struct pt_givers *g)
{
	const struct pt_maker *x;
	uint64_t sum = 0, inside = 0;

	for (x = g->makers; x; x = x->hh.next) {
		sum += x->ns;
		inside += x->th->proc == t->proc ? x->ns : 0;
	}
	for (x = g->makers; x; x = x->hh.next) {
		struct pt_proc *p = x->th->proc;
		struct pt_worker *w;

		/* a pool of threads, through a relay and another */
		if (p == t->proc && inside * 2 > sum && t->relays.n &&
		    makes_inside(t, g, x->th) &&
		    !worker_for(an, t, g, p, x->th))
			return -ENOMEM;

		/* a thread of the trainer that does not end its sleeps passes
		 * its wishes on */
		if (p == t->proc || worker_of(t, p, x->th) ||
		    (double)x->ns < MAKER_SHARE * (double)sum)
			continue;
		w = worker_make(t, p, pt_maker_in(an, g, p));
		if (!w)
			return -ENOMEM;
		if (!p->outside && !delivers(t, g, p))
			w->role = PT_ROLE_HELPER;
	}
	return 0;
}

static bool is_kin(const struct pt_trainer *t, const struct pt_proc *p,
		   const struct pt_proc *q)
{
	return p == q || (p != t->proc && p->ppid == q->ppid &&
			  !strncmp(p->comm, q->comm, sizeof(p->comm)));
}

/* What `p` and its siblings of the same name sent; NULL: what all did. */
static uint64_t sent_by(const struct pt_trainer *t, const senders *v,
			const struct pt_proc *p)
{
	uint64_t ns = 0;
	size_t i;

	for (i = 0; i < v->n; i++)
		ns += !p || is_kin(t, p, v->v[i].p) ? v->v[i].ns : 0;
	return ns;
}

/* ... and made of what is waited for. A service outside that sends nothing to the
 * trainer is asked by the loader: its work is the loader's. */
static uint64_t made_by(const struct pt_trainer *t, const struct pt_givers *g,
			const senders *v, const struct pt_proc *p)
{
	const struct pt_maker *x;
	uint64_t ns = 0;

	for (x = g->makers; x; x = x->hh.next)
		if (p ? is_kin(t, p, x->th->proc) :
			!x->th->proc->outside || sent_by(t, v, x->th->proc))
			ns += x->ns;
	return ns;
}

/* Who makes or sends next to nothing of what is waited for, and all of its kind, manages
 * something for the others. */
static void find_managers(struct pt_trainer *t, const struct pt_givers *g,
			  const senders *v)
{
	double made = MAKER_SHARE * (double)made_by(t, g, v, NULL);
	double sent = MAKER_SHARE * (double)sent_by(t, v, NULL);
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		const struct pt_proc *p = t->workers.v[i].proc;
		uint64_t own = sent_by(t, v, p);

		if (!p->outside && ((double)made_by(t, g, v, p) < made ||
				    (own && (double)own < sent)))
			t->workers.v[i].role = PT_ROLE_HELPER;
	}
}

/* Who computes less of the time manages something for the loader. */
#define ASKED_CPU 0.002

/* A child, or one of a pool, that sleeps until the trainer asks it for something, and has
 * something to send back, works for it though nobody has waited for it. */
static bool is_asked(const struct pt_an *an, const struct pt_trainer *t,
		     const struct pt_thread *th, bool pool)
{
	bool asked = false;

	pt_each_iv(iv, th, an->t0, an->t1) {
		asked |= iv->valid_wake && iv->waker_tgid == t->proc->tgid &&
			 (iv->wake == PT_WAKE_DATA || iv->wake == PT_WAKE_FUTEX ||
			  iv->wake == PT_WAKE_ROOM) &&
			 !pt_inside_call(t->proc, iv->waker_tid, iv->ready);
	}
	return asked && (pool || (double)pt_run_ns(an, th) >=
					 ASKED_CPU * (double)(an->t1 - an->t0));
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

static int take_asked(struct pt_an *an, struct pt_trainer *t,
		      const struct pt_givers *g)
{
	size_t i, j;

	for (i = 0; i < an->m->all_procs.n; i++) {
		struct pt_proc *p = an->m->all_procs.v[i];
		bool pool = is_of_pool(t, p);

		if (p == t->proc || (p->ppid != t->proc->tgid && !pool) ||
		    pt_model_proc(an->m, p->tgid) != p || worker_of(t, p, NULL) ||
		    pt_feeds_device(an, p))
			continue;
		for (j = 0; j < p->threads.n; j++) {
			struct pt_worker *w;

			if (p->threads.v[j]->tid != p->tgid ||
			    !is_asked(an, t, p->threads.v[j], pool))
				continue;
			w = worker_make(t, p, p->threads.v[j]);
			if (!w)
				return -ENOMEM;
			w->main = pt_maker_in(an, g, p);
			break;
		}
	}
	return 0;
}

/* Nobody has waited for this worker: its sender is the thread that its maker wakes
 * for each batch, and that writes. */
static int guess_sender(struct pt_an *an, const struct pt_givers *g,
			struct pt_worker *w)
{
	pt_times items = { 0 };
	size_t j, most = 1;
	int err = 0;

	for (j = 0; w->main && j < w->proc->threads.n && !err; j++) {
		struct pt_thread *th = w->proc->threads.v[j];
		uint64_t wakes = 0;

		if (th == w->main)
			continue;
		items.n = 0;
		err = pt_rest_wakes(an, g->paths, th, w->main, &items, &wakes);
		if (err || items.n <= most || items.n * 4 < wakes)
			continue;
		most = items.n;
		w->feeder = th;
	}
	pt_vec_free(&items);
	return err;
}

/* Does the trainer wake `th`, other than by making room? Then that answers what it is
 * asked for, as the thread of a worker does that hands over descriptors of memory. */
static bool answers(const struct pt_an *an, const struct pt_trainer *t,
		    const struct pt_thread *th)
{
	pt_each_iv(iv, th, an->t0, an->t1) {
		if (iv->valid_wake && iv->waker_tgid == t->proc->tgid &&
		    iv->wait != PT_WAIT_PIPE_OUT && iv->wait != PT_WAIT_FUTEX &&
		    iv->wait != PT_WAIT_SEM)
			return true;
	}
	return false;
}

static int find_senders(struct pt_an *an, struct pt_trainer *t,
			const struct pt_givers *g, const senders *sent)
{
	size_t i, j;
	int err = 0;

	for (i = 0; i < t->workers.n && !err; i++) {
		struct pt_worker *w = &t->workers.v[i];
		uint64_t most = 0;

		w->feeder = w->main;
		if (w->proc == t->proc)
			continue;
		for (j = 0; j < sent->n; j++) {
			if (sent->v[j].p != w->proc || sent->v[j].ns <= most ||
			    sent->v[j].th == w->main ||
			    answers(an, t, sent->v[j].th))
				continue;
			most = sent->v[j].ns;
			w->feeder = (struct pt_thread *)sent->v[j].th;
		}
		if (!most)
			err = guess_sender(an, g, w);
	}
	return err;
}

static int by_age(const void *a, const void *b)
{
	const struct pt_worker *x = a, *y = b;
	/* microseconds, of which the upper half is not kept */
	int32_t later = (int32_t)(x->main->start - y->main->start);

	if (x->main->first != y->main->first)
		return x->main->first < y->main->first ? -1 : 1;
	if (later)
		return later < 0 ? -1 : 1;
	if (x->proc != y->proc)
		return x->proc->tgid < y->proc->tgid ? -1 : 1;
	return x->main->tid < y->main->tid ? -1 : 1;
}

/* The most that lived at once: the loader's num_workers. */
static void count_concurrent(const struct pt_an *an, struct pt_trainer *t)
{
	size_t i, j, n;

	for (i = 0; i < t->workers.n; i++) {
		uint64_t at = t->workers.v[i].main->first;

		t->handoffs |= t->workers.v[i].role == PT_ROLE_OUTSIDE;
		/* nobody sets how many there are outside */
		if (t->workers.v[i].role == PT_ROLE_HELPER ||
		    t->workers.v[i].role == PT_ROLE_OUTSIDE)
			continue;
		n = 0;
		for (j = 0; j < t->workers.n; j++)
			n += t->workers.v[j].role != PT_ROLE_HELPER &&
			     t->workers.v[j].role != PT_ROLE_OUTSIDE &&
			     t->workers.v[j].main->first <= at &&
			     pt_thread_end(an, t->workers.v[j].main) > at;
		if (n > t->concurrent)
			t->concurrent = n;
		t->handoffs |= t->workers.v[i].proc != t->proc;
		t->thread_loader |= t->workers.v[i].proc == t->proc;
		t->respawned |= t->workers.v[i].proc != t->proc &&
				t->workers.v[i].proc->born > 0;
	}
	t->thread_loader &= !t->handoffs;
}

int pt_find_loader(struct pt_an *an, struct pt_trainer *t,
		   const struct pt_givers *g)
{
	senders sent = { 0 };
	size_t i;
	int err = take_givers(an, t, g, &sent);

	for (i = 0; i < t->relays.n && !err; i++)
		err = take_relayed(an, t, g, t->relays.v[i], &sent);
	err = err ?: take_makers(an, t, g);
	find_managers(t, g, &sent);
	err = err ?: take_asked(an, t, g);
	err = err ?: find_senders(an, t, g, &sent);
	pt_vec_free(&sent);
	if (err)
		return err;
	pt_vec_sort(&t->workers, by_age);
	count_concurrent(an, t);
	return pt_index_workers(t);
}
