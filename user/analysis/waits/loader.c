/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/callers.h"
#include "analysis/waits/loader_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A thread that hands on is on the way back for less than this of what lies
 * behind it. */
#define RELAY_SHARE 0.75

/* ---- workers ---------------------------------------------------------------------- */

struct pt_worker *pt_worker_of(const struct pt_loader_finder *k, const struct pt_proc *p,
				   const struct pt_thread *th)
{
	const void *who = p == k->t->proc ? (const void *)th : p;
	struct pt_known_worker *x;

	HASH_FIND(hh, k->known, &who, sizeof(who), x);
	return x ? &k->t->workers.v[x->worker] : NULL;
}

struct pt_worker *pt_worker_make(struct pt_loader_finder *k, struct pt_proc *p,
				     struct pt_thread *th)
{
	struct pt_trainer *t = k->t;
	const void *who = p == t->proc ? (const void *)th : p;
	struct pt_worker w = { .proc = p, .main = th, .feeder = th,
			       .role = p == t->proc ? PT_ROLE_THREAD :
				       p->outside   ? PT_ROLE_OUTSIDE :
						      PT_ROLE_LOADER };
	struct pt_known_worker *x = pt_hash_make(k->known, who, &who);

	if (!x || pt_vec_push(&t->workers, w))
		return NULL;
	x->worker = t->workers.n - 1;
	return &t->workers.v[x->worker];
}

/* Of the thread, where it is one of the trainer's, else of the process. Who makes in
 * that is looked for once: it takes a look at all that its threads did. */
static struct pt_worker *worker_for(struct pt_loader_finder *k, struct pt_proc *p,
				    const struct pt_thread *th)
{
	struct pt_worker *old = pt_worker_of(k, p, th);

	return old ? old : pt_worker_make(k, p, p == k->t->proc ? (struct pt_thread *)th :
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

static int add_relay(struct pt_trainer *t, const struct pt_thread *th)
{
	return pt_is_relay(t, th) ? 0 : pt_vec_push(&t->relays, th);
}

static int add_sender(struct pt_loader_finder *k, const struct pt_thread *th, uint64_t ns)
{
	struct pt_sender *x = pt_hash_make(k->sent, th, &th);

	if (!x)
		return -ENOMEM;
	x->ns += ns;
	return 0;
}

/* A thread of the trainer that makes next to nothing of what it hands on fetches that, or is a
 * relay from now on. 1, 0 or -ENOMEM. */
static int fetches_or_relays(struct pt_loader_finder *k, const struct pt_thread *th)
{
	int fetches = pt_fetches(k, th);

	return fetches ? fetches : add_relay(k->t, th);
}

static int take_givers(struct pt_loader_finder *k)
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
		if (p == t->proc && (double)x->ns < PT_MAKER_SHARE * (double)all)
			continue;
		if (p == t->proc && (double)pt_made_by(g, x->th) < RELAY_SHARE * behind) {
			int fetches = fetches_or_relays(k, x->th);

			if (fetches < 0)
				return fetches;
			if (!fetches)
				continue;
		}
		w = worker_for(k, p, x->th);
		if (!w || add_sender(k, x->th, x->ns))
			return -ENOMEM;
	}
	return 0;
}

/* What a program does that was started meanwhile, maybe by a shell that was, is the work of who
 * started it. NULL: that is not known. */
static const struct pt_proc *started_by(const struct pt_loader_finder *k, const struct pt_proc *p)
{
	int depth;

	for (depth = 0; p && p->born && depth < 8; depth++)
		p = pt_model_proc(k->an->m, p->ppid);
	return p;
}

/* Does a thread of the trainer that ends a relay's sleeps make what that hands on? */
static bool makes_inside(const struct pt_loader_finder *k, const struct pt_thread *th)
{
	return !pt_is_relay(k->t, th) && !pt_is_driver_thread(th) && th != k->t->main &&
	       (double)pt_made_by(k->g, th) >= PT_MAKER_SHARE * (double)k->made_ns;
}

/* ... or is it a further relay, of what other processes make (an executor's, that takes the
 * results of its pool)? */
static bool passes_on(const struct pt_loader_finder *k, const struct pt_thread *th)
{
	const struct pt_maker *x;
	uint64_t behind = 0;

	for (x = k->g->makers; x; x = x->hh.next)
		behind += x->via == th ? x->ns : 0;
	return (double)pt_made_by(k->g, th) < RELAY_SHARE * (double)behind;
}

/* Of a relay's sleeps, those that one thread ended are fewer than this part by chance; so many
 * threads are told apart. */
#define FEEDS_SHARE 0.125
#define FEEDERS_MAX 64

struct relay_feeders {
	struct {
		const struct pt_thread *th;
		uint64_t ns;
	} v[FEEDERS_MAX];
	size_t n;
	uint64_t all;
};

/* Which of the trainer's other threads ended its sleeps, locks aside. */
static void find_feeders(const struct pt_loader_finder *k, const struct pt_thread *th,
			 struct relay_feeders *out)
{
	const struct pt_an *an = k->an;
	size_t i;

	*out = (struct relay_feeders){ 0 };
	pt_each_iv(iv, th, an->t0, an->t1) {
		const struct pt_thread *who = iv->valid_wake && iv->waker_tgid == th->tgid ?
						      pt_model_thread(an->m, iv->waker_tid) : NULL;

		if (!who || pt_is_lock(k->g->paths, th, iv))
			continue;
		out->all += iv->ready - iv->begin;
		for (i = 0; i < out->n && out->v[i].th != who; i++)
			;
		if (i == FEEDERS_MAX)
			continue;
		out->v[i].th = who;
		out->v[i].ns += iv->ready - iv->begin;
		out->n = pt_max64(out->n, i + 1);
	}
}

/* Threads that feed a relay and make nothing by themselves fetch, or are relays, too. */
static int take_feeders(struct pt_loader_finder *k, const struct pt_thread *th)
{
	struct pt_trainer *t = k->t;
	struct relay_feeders f;
	size_t i;

	find_feeders(k, th, &f);
	for (i = 0; i < f.n; i++) {
		const struct pt_thread *who = f.v[i].th;
		int fetches;

		if ((double)f.v[i].ns < FEEDS_SHARE * (double)f.all || who == t->main ||
		    pt_is_relay(t, who) || pt_is_driver_thread(who) ||
		    pt_worker_of(k, t->proc, who) || makes_inside(k, who))
			continue;
		fetches = fetches_or_relays(k, who);
		if (fetches < 0)
			return fetches;
		if (fetches && (!worker_for(k, t->proc, who) || add_sender(k, who, f.v[i].ns)))
			return -ENOMEM;
	}
	return 0;
}

/* Who ends the sleeps of a relay delivers as if to the consumer. */
static int take_relayed(struct pt_loader_finder *k, const struct pt_thread *th)
{
	struct pt_trainer *t = k->t;
	const struct pt_an *an = k->an;
	const struct pt_thread *who;

	if (take_feeders(k, th))
		return -ENOMEM;
	pt_each_iv(iv, th, an->t0, an->t1) {
		struct pt_proc *p;

		if (!iv->valid_wake || pt_waits_for_client(an, th, iv))
			continue;
		who = pt_model_thread(an->m, iv->waker_tid);
		p = who ? pt_model_proc(an->m, iv->waker_tgid) : NULL;
		if (!p || pt_is_lock(k->g->paths, th, iv) ||
		    (p == t->proc && !makes_inside(k, who)))
			continue;
		if (p == t->proc && !pt_worker_of(k, p, who) && passes_on(k, who)) {
			int fetches = fetches_or_relays(k, who);

			if (fetches < 0)
				return fetches;
			if (!fetches)
				continue;
		}
		if (!worker_for(k, p, who) ||
		    add_sender(k, who, iv->ready - iv->begin))
			return -ENOMEM;
	}
	return 0;
}

/* Met on the way back; where somebody else delivers, makers for makers. */
static int take_makers(struct pt_loader_finder *k)
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
		    makes_inside(k, x->th) && !passes_on(k, x->th) && !worker_for(k, p, x->th))
			return -ENOMEM;

		/* a thread of the trainer that does not end its sleeps passes
		 * its wishes on */
		if (p == t->proc || pt_worker_of(k, p, x->th) ||
		    (double)x->ns < PT_MAKER_SHARE * (double)k->made_ns)
			continue;
		w = pt_worker_make(k, p, pt_maker_in(k->an, g, p));
		if (!w)
			return -ENOMEM;
		if (!p->outside)
			w->role = PT_ROLE_HELPER;
	}
	return 0;
}

static struct pt_sent_kin *kin_of(struct pt_loader_finder *k, const struct pt_proc *p, bool self)
{
	struct pt_sent_kin x = { .key = { .self = self } };

	if (!self) {
		x.key.ppid = p->ppid;
		memcpy(x.key.comm, p->comm, strnlen(p->comm, sizeof(p->comm)));
	}
	return pt_hash_make(k->kin, key, &x.key);
}

static int add_kin(struct pt_loader_finder *k, const struct pt_proc *p, uint64_t sent,
		   uint64_t made)
{
	int self;

	for (self = 0; self <= (p == k->t->proc); self++) {
		struct pt_sent_kin *x = kin_of(k, p, self);

		if (!x)
			return -ENOMEM;
		x->sent += sent;
		x->made += made;
	}
	return 0;
}

/* Who makes or sends next to nothing of what is waited for, and all of its kind, manages
 * something for the others. A service outside that sends nothing to the trainer is asked
 * by the loader: its work is the loader's. */
static int find_managers(struct pt_loader_finder *k)
{
	struct pt_trainer *t = k->t;
	const struct pt_maker *m;
	const struct pt_sender *s;
	uint64_t made = 0, sent = 0;
	size_t i;

	for (s = k->sent; s; s = s->hh.next) {
		sent += s->ns;
		if (add_kin(k, s->th->proc, s->ns, 0))
			return -ENOMEM;
	}
	for (m = k->g->makers; m; m = m->hh.next) {
		const struct pt_proc *p = m->th->proc, *by = started_by(k, p);

		if (add_kin(k, p, 0, m->ns) ||
		    (by && by != p && by != t->proc && add_kin(k, by, 0, m->ns)))
			return -ENOMEM;
	}
	for (m = k->g->makers; m; m = m->hh.next) {
		const struct pt_proc *p = m->th->proc;
		const struct pt_sent_kin *x = kin_of(k, p, p == t->proc);

		made += !p->outside || (x && x->sent) ? m->ns : 0;
	}
	for (i = 0; i < t->workers.n; i++) {
		const struct pt_proc *p = t->workers.v[i].proc;
		const struct pt_sent_kin *x = kin_of(k, p, p == t->proc);
		int fetches = p == t->proc ? pt_fetches(k, t->workers.v[i].main) : 0;

		if (!x || fetches < 0)
			return -ENOMEM;
		if (fetches)
			continue;
		if (!p->outside && ((double)x->made < PT_MAKER_SHARE * (double)made ||
				    (x->sent && (double)x->sent <
							PT_MAKER_SHARE * (double)sent)))
			t->workers.v[i].role = PT_ROLE_HELPER;
	}
	return 0;
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

/* Whom a maker runs for an item is no start of the loader, nor is a program. */
bool pt_is_started(const struct pt_trainer *t, const struct pt_worker *w)
{
	return w->role != PT_ROLE_HELPER ||
	       (w->main->parent == t->main &&
		!strncmp(w->proc->comm, t->proc->comm, sizeof(w->proc->comm)));
}

/* The most that lived at once: the loader's num_workers. */
static int count_concurrent(const struct pt_an *an, struct pt_trainer *t)
{
	pt_times began = { 0 }, ended = { 0 };
	const struct pt_worker *w, *end = t->workers.v + t->workers.n;
	bool processes = false;
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
		t->respawned |= w->role != PT_ROLE_OUTSIDE && w->proc != t->proc &&
				w->proc->born && pt_is_started(t, w);
		if (!is_set(w))
			continue;
		n = pt_times_until(&began, w->main->first) -
		    pt_times_until(&ended, w->main->first);
		if (n > t->concurrent)
			t->concurrent = n;
		processes |= w->proc != t->proc;
		t->thread_loader |= w->proc == t->proc;
	}
	t->handoffs |= processes;
	/* who is outside serves the job's own workers, where there are some */
	t->thread_loader &= !processes;
	pt_vec_free(&began);
	pt_vec_free(&ended);
	return err;
}

int pt_find_loader(struct pt_an *an, struct pt_trainer *t,
		   const struct pt_givers *g)
{
	struct pt_loader_finder k = { .an = an, .t = t, .g = g };
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
	err = err ?: pt_take_unwaited(&k);
	err = err ?: pt_find_senders(&k);
	pt_hash_free(k.known);
	pt_hash_free(k.sent);
	pt_hash_free(k.kin);
	if (err)
		return err;
	pt_vec_sort(&t->workers, by_age);
	err = count_concurrent(an, t);
	return err ? err : pt_index_workers(t);
}
