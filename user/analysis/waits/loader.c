/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/loader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* Who has less of the way back from the consumer's sleeps is no worker, unless it
 * ends them itself. */
#define MAKER_SHARE 0.05
/* A thread that hands on is on the way back for less than this of what lies
 * behind it. */
#define RELAY_SHARE 0.5

/* The worker of a thread of the trainer, or of another process: its number. */
struct known {
	const void *who;
	size_t worker;
	UT_hash_handle hh;
};

/* A thread that ended sleeps of the trainer's own threads, for so long. */
struct sender {
	const struct pt_thread *th;
	uint64_t ns;
	UT_hash_handle hh;
};

/* Processes of one parent and one name: what they sent, and made of what is waited
 * for. The trainer is by itself in its own eyes. */
struct kin {
	struct {
		uint32_t ppid, self;
		char comm[PT_COMM_LEN];
	} key;
	uint64_t sent, made;
	UT_hash_handle hh;
};

struct finder {
	struct pt_an *an;
	struct pt_trainer *t;
	const struct pt_givers *g;
	uint64_t made_ns;    /* by all makers */
	struct known *known; /* uthash each, in the order in which they were met */
	struct sender *sent;
	struct kin *kin;
};

/* ---- workers ---------------------------------------------------------------------- */

static struct pt_worker *worker_of(const struct finder *k, const struct pt_proc *p,
				   const struct pt_thread *th)
{
	const void *who = p == k->t->proc ? (const void *)th : p;
	struct known *x;

	HASH_FIND(hh, k->known, &who, sizeof(who), x);
	return x ? &k->t->workers.v[x->worker] : NULL;
}

static struct pt_worker *worker_make(struct finder *k, struct pt_proc *p,
				     struct pt_thread *th)
{
	struct pt_trainer *t = k->t;
	const void *who = p == t->proc ? (const void *)th : p;
	struct pt_worker w = { .proc = p, .main = th, .feeder = th,
			       .role = p == t->proc ? PT_ROLE_THREAD :
				       p->outside   ? PT_ROLE_OUTSIDE :
						      PT_ROLE_LOADER };
	struct known *x = pt_hash_make(k->known, who, &who);

	if (!x || pt_vec_push(&t->workers, w))
		return NULL;
	x->worker = t->workers.n - 1;
	return &t->workers.v[x->worker];
}

/* Of the thread, where it is one of the trainer's, else of the process. Who makes in
 * that is looked for once: it takes a look at all that its threads did. */
static struct pt_worker *worker_for(struct finder *k, struct pt_proc *p,
				    const struct pt_thread *th)
{
	struct pt_worker *old = worker_of(k, p, th);

	return old ? old : worker_make(k, p, p == k->t->proc ? (struct pt_thread *)th :
							       pt_maker_in(k->an, k->g, p));
}

bool pt_is_relay(const struct pt_trainer *t, const struct pt_thread *th)
{
	size_t i;

	for (i = 0; i < t->relays.n; i++)
		if (t->relays.v[i] == th)
			return true;
	return false;
}

static int add_sender(struct finder *k, const struct pt_thread *th, uint64_t ns)
{
	struct sender *x = pt_hash_make(k->sent, th, &th);

	if (!x)
		return -ENOMEM;
	x->ns += ns;
	return 0;
}

static int take_givers(struct finder *k)
{
	const struct pt_givers *g = k->g;
	struct pt_trainer *t = k->t;
	const struct pt_giver *x;
	uint64_t all = 0;

	for (x = g->all; x; x = x->hh.next)
		all += x->role == PT_GIVER_SUPPLIER ? x->ns : 0;
	for (x = g->all; x; x = x->hh.next) {
		double behind = (double)(x->made_ns + x->helped_ns);
		struct pt_proc *p = pt_model_proc(k->an->m, x->tgid);
		struct pt_worker *w;

		if (x->role != PT_GIVER_SUPPLIER || !x->th || !p)
			continue;
		/* a lock that its own threads share now and then */
		if (p == t->proc && (double)x->ns < MAKER_SHARE * (double)all)
			continue;
		if (p == t->proc && (double)pt_made_by(g, x->th) < RELAY_SHARE * behind) {
			/* it hands on what others make */
			if (!pt_is_relay(t, x->th) && pt_vec_push(&t->relays, x->th))
				return -ENOMEM;
			continue;
		}
		w = worker_for(k, p, x->th);
		if (!w || add_sender(k, x->th, x->ns))
			return -ENOMEM;
	}
	return 0;
}

/* Does a thread of the trainer that ends a relay's sleeps make what that hands on? */
static bool makes_inside(const struct finder *k, const struct pt_thread *th)
{
	return !pt_is_relay(k->t, th) && !pt_is_driver_thread(th) && th != k->t->main &&
	       (double)pt_made_by(k->g, th) >= MAKER_SHARE * (double)k->made_ns;
}

/* Who ends the sleeps of a relay delivers as if to the consumer. */
static int take_relayed(struct finder *k, const struct pt_thread *th)
{
	const struct pt_trainer *t = k->t;
	const struct pt_an *an = k->an;
	const struct pt_thread *who;

	pt_each_iv(iv, th, an->t0, an->t1) {
		struct pt_proc *p;

		if (!iv->valid_wake || pt_waits_for_client(an, th, iv))
			continue;
		who = pt_model_thread(an->m, iv->waker_tid);
		p = who ? pt_model_proc(an->m, iv->waker_tgid) : NULL;
		if (!p || pt_is_lock(k->g->paths, th, iv) ||
		    (p == t->proc && !makes_inside(k, who)))
			continue;
		if (!worker_for(k, p, who) ||
		    add_sender(k, who, iv->ready - iv->begin))
			return -ENOMEM;
	}
	return 0;
}

/* The way came to the process from a thread of the trainer's that only hands on:
 * however many of those there are, it delivers. */
static bool delivers(const struct finder *k, const struct pt_proc *p)
{
	const struct pt_maker *x;
	size_t i;

	for (i = 0; i < p->threads.n; i++) {
		HASH_FIND(hh, k->g->makers, &p->threads.v[i], sizeof(x->th), x);
		if (x && x->via && !worker_of(k, k->t->proc, x->via) &&
		    (double)pt_made_by(k->g, x->via) < RELAY_SHARE * (double)x->ns)
			return true;
	}
	return false;
}

/* Met on the way back; where somebody else delivers, makers for makers. */
static int take_makers(struct finder *k)
{
	const struct pt_givers *g = k->g;
	struct pt_trainer *t = k->t;
	const struct pt_maker *x;
	uint64_t inside = 0;

	for (x = g->makers; x; x = x->hh.next)
		inside += x->th->proc == t->proc ? x->ns : 0;
	for (x = g->makers; x; x = x->hh.next) {
		struct pt_proc *p = x->th->proc;
		struct pt_worker *w;

		/* a pool of threads, through a relay and another */
		if (p == t->proc && inside * 2 > k->made_ns && t->relays.n &&
		    makes_inside(k, x->th) && !worker_for(k, p, x->th))
			return -ENOMEM;

		/* a thread of the trainer that does not end its sleeps passes
		 * its wishes on */
		if (p == t->proc || worker_of(k, p, x->th) ||
		    (double)x->ns < MAKER_SHARE * (double)k->made_ns)
			continue;
		w = worker_make(k, p, pt_maker_in(k->an, g, p));
		if (!w)
			return -ENOMEM;
		if (!p->outside && !delivers(k, p))
			w->role = PT_ROLE_HELPER;
	}
	return 0;
}

static struct kin *kin_of(struct finder *k, const struct pt_proc *p, bool self)
{
	struct kin x = { .key = { .self = self } };

	if (!self) {
		x.key.ppid = p->ppid;
		memcpy(x.key.comm, p->comm, strnlen(p->comm, sizeof(p->comm)));
	}
	return pt_hash_make(k->kin, key, &x.key);
}

static int add_kin(struct finder *k, const struct pt_proc *p, uint64_t sent,
		   uint64_t made)
{
	int self;

	for (self = 0; self <= (p == k->t->proc); self++) {
		struct kin *x = kin_of(k, p, self);

		if (!x)
			return -ENOMEM;
		x->sent += sent;
		x->made += made;
	}
	return 0;
}

/* PyTorch's, for memory that processes share as files: where batches are seldom waited for
 * it ends as many sleeps as they do. */
static bool is_memory_manager(const struct pt_proc *p)
{
	return !strncmp(p->comm, "torch_shm_manager", PT_COMM_LEN - 1);
}

/* Who makes or sends next to nothing of what is waited for, and all of its kind, manages
 * something for the others. A service outside that sends nothing to the trainer is asked
 * by the loader: its work is the loader's. */
static int find_managers(struct finder *k)
{
	struct pt_trainer *t = k->t;
	const struct pt_maker *m;
	const struct sender *s;
	uint64_t made = 0, sent = 0;
	size_t i;

	for (s = k->sent; s; s = s->hh.next) {
		sent += s->ns;
		if (add_kin(k, s->th->proc, s->ns, 0))
			return -ENOMEM;
	}
	for (m = k->g->makers; m; m = m->hh.next)
		if (add_kin(k, m->th->proc, 0, m->ns))
			return -ENOMEM;
	for (m = k->g->makers; m; m = m->hh.next) {
		const struct pt_proc *p = m->th->proc;
		const struct kin *x = kin_of(k, p, p == t->proc);

		made += !p->outside || (x && x->sent) ? m->ns : 0;
	}
	for (i = 0; i < t->workers.n; i++) {
		const struct pt_proc *p = t->workers.v[i].proc;
		const struct kin *x = kin_of(k, p, p == t->proc);

		if (!x)
			return -ENOMEM;
		if (!p->outside && (is_memory_manager(p) ||
				    (double)x->made < MAKER_SHARE * (double)made ||
				    (x->sent && (double)x->sent <
							MAKER_SHARE * (double)sent)))
			t->workers.v[i].role = PT_ROLE_HELPER;
	}
	return 0;
}

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

static bool is_like(const struct finder *k, const struct pt_thread *th, size_t asked)
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
static bool is_asked(const struct finder *k, const struct pt_thread *th, bool pool)
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
static int take_like_threads(struct finder *k)
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
			    worker_of(k, t->proc, th) || !is_asked(k, th, false))
				continue;
			if (!worker_make(k, t->proc, th))
				return -ENOMEM;
		}
	}
	return 0;
}

static int take_asked(struct finder *k)
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
		    pt_model_proc(an->m, p->tgid) != p || worker_of(k, p, NULL) ||
		    pt_feeds_device(an, p) || !is_asked(k, th, pool) ||
		    is_beside(an, k->g, p))
			continue;
		w = worker_make(k, p, th);
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
static int take_newborn(struct finder *k)
{
	uint64_t last = last_step_call(k->an, k->t->proc);
	size_t i;

	for (i = 0; i < k->an->m->all_procs.n; i++) {
		struct pt_proc *p = k->an->m->all_procs.v[i];
		struct pt_thread *th = p->threads.n ? p->threads.v[0] : NULL;

		if (!th || !is_child(k->an->m, p, k->t->proc) || !p->born || th->exited ||
		    th->first < last || worker_of(k, p, NULL) || !is_respawned(k->t, p))
			continue;
		if (!worker_make(k, p, th))
			return -ENOMEM;
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
		    iv->wake != PT_WAKE_ROOM && iv->wait != PT_WAIT_FUTEX &&
		    iv->wait != PT_WAIT_SEM)
			return true;
	}
	return false;
}

/* Of the threads of a worker's process the one that ended most of the time that the
 * trainer's own threads slept for it. */
static int find_senders(struct finder *k)
{
	struct pt_trainer *t = k->t;
	uint64_t *most = calloc(t->workers.n + 1, sizeof(*most));
	const struct sender *s;
	size_t i;
	int err = most ? 0 : -ENOMEM;

	for (i = 0; i < t->workers.n; i++)
		t->workers.v[i].feeder = t->workers.v[i].main;
	for (s = k->sent; s && !err; s = s->hh.next) {
		struct pt_worker *w = s->th->proc == t->proc ? NULL :
					      worker_of(k, s->th->proc, NULL);

		if (!w || s->ns <= most[w - t->workers.v] || s->th == w->main ||
		    (!w->proc->outside && answers(k->an, t, s->th)))
			continue;
		most[w - t->workers.v] = s->ns;
		w->feeder = (struct pt_thread *)s->th;
	}
	for (i = 0; i < t->workers.n && !err; i++)
		if (t->workers.v[i].proc != t->proc && !most[i])
			err = guess_sender(k->an, k->g, &t->workers.v[i]);
	free(most);
	return err;
}

/* `start` is in microseconds, of which the upper half is not kept. */
PT_ORDER(by_age, struct pt_worker,
	 pt_cmp(x->main->first, y->main->first) ?:
	 pt_cmp((int32_t)(x->main->start - y->main->start), 0) ?:
	 pt_cmp(x->proc->tgid, y->proc->tgid) ?: pt_cmp(x->main->tid, y->main->tid))

/* Nobody sets how many there are outside. */
static bool is_set(const struct pt_worker *w)
{
	return w->role != PT_ROLE_HELPER && w->role != PT_ROLE_OUTSIDE;
}

/* The most that lived at once: the loader's num_workers. */
static int count_concurrent(const struct pt_an *an, struct pt_trainer *t)
{
	pt_times began = { 0 }, ended = { 0 };
	const struct pt_worker *w, *end = t->workers.v + t->workers.n;
	size_t n;
	int err = 0;

	for (w = t->workers.v; w < end && !err; w++)
		if (is_set(w) && pt_thread_end(an, w->main) > w->main->first)
			err = pt_vec_push(&began, w->main->first) ||
			      pt_vec_push(&ended, pt_thread_end(an, w->main)) ?
				      -ENOMEM : 0;
	pt_sort_times(&began);
	pt_sort_times(&ended);
	for (w = t->workers.v; w < end && !err; w++) {
		t->handoffs |= w->role == PT_ROLE_OUTSIDE;
		if (!is_set(w))
			continue;
		n = pt_times_until(&began, w->main->first) -
		    pt_times_until(&ended, w->main->first);
		if (n > t->concurrent)
			t->concurrent = n;
		t->handoffs |= w->proc != t->proc;
		t->thread_loader |= w->proc == t->proc;
		t->respawned |= w->proc != t->proc && w->proc->born > 0;
	}
	t->thread_loader &= !t->handoffs;
	pt_vec_free(&began);
	pt_vec_free(&ended);
	return err;
}

int pt_find_loader(struct pt_an *an, struct pt_trainer *t,
		   const struct pt_givers *g)
{
	struct finder k = { .an = an, .t = t, .g = g };
	const struct pt_maker *m;
	size_t i;
	int err;

	for (m = g->makers; m; m = m->hh.next)
		k.made_ns += m->ns;
	err = take_givers(&k);
	for (i = 0; i < t->relays.n && !err; i++)
		err = take_relayed(&k, t->relays.v[i]);
	err = err ?: take_makers(&k);
	err = err ?: find_managers(&k);
	err = err ?: take_like_threads(&k);
	err = err ?: take_asked(&k);
	err = err ?: take_newborn(&k);
	err = err ?: find_senders(&k);
	pt_hash_free(k.known);
	pt_hash_free(k.sent);
	pt_hash_free(k.kin);
	if (err)
		return err;
	pt_vec_sort(&t->workers, by_age);
	err = count_concurrent(an, t);
	return err ? err : pt_index_workers(t);
}
