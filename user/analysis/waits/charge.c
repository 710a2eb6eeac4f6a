/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waits to causes: the way back from the end of each wait to its begin, leg by
 * leg. Legs cover a wait exactly, so charges sum to it. What the consumer itself,
 * or whoever only hands on, does on a CPU is the hand-over's.
 */
#include "analysis/waits/callers.h"
#include "analysis/waits/charger.h"
#include "analysis/waits/look.h"

#include <math.h>
#include <string.h>

#include "model/socks.h"

#define PT_TURN_MAX 64 /* workers whose turns are looked at */
#define PT_ASKED_THROUGH 4u /* threads by way of which a maker is given work */
#define PT_GAVE_BEFORE 4096u /* sleeps before the last one of a thread that are looked at */

/* ---- whose batch it is ------------------------------------------------------------ */

bool pt_charger_receives(const struct pt_charger *k, const struct pt_thread *th)
{
	return pt_is_relay(k->t, th) || pt_is_actor(k->a, th);
}

/* At the end of the time that is looked at all others rest, and this one works; `held`:
 * who waits for a lock does not work either (idle processes of a pool take turns at their
 * queue). -1: there is none, or are several. */
static int last_at_work(const struct pt_charger *k, bool held)
{
	const struct pt_trainer *t = k->t;
	int found = -1;
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		const struct pt_worker *w = &t->workers.v[i];
		const struct pt_iv *iv = w->main->iv.n ?
			&w->main->iv.v[w->main->iv.n - 1] : NULL;

		if (w->role == PT_ROLE_HELPER || w->main->exited ||
		    (iv && iv->ready >= k->an->t1 &&
		     (held ? pt_is_idle(k->an, w, iv) : pt_rests(w, iv))))
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

/* Where batches have been taken from the workers in turn, the next in turn is waited
 * for; -1: they were not. */
static int next_in_turn(const struct pt_charger *k)
{
	size_t n = k->t->concurrent, i, seen = 0;
	int last[2 * PT_TURN_MAX];

	if (!n || n > PT_TURN_MAX)
		return -1;
	for (i = k->t->look->asks.n; i-- > 0 && seen < 2 * n;)
		if (k->t->look->asks.v[i].item)
			last[seen++] = k->t->look->asks.v[i].worker;
	if (seen < 2 * n)
		return -1;
	for (i = 0; i < n; i++)
		if (last[i] < 0 || last[i] != last[i + n])
			return -1;
	return last[n - 1];
}

/* The capture ends in the wait; -1: not known. */
static int last_waited_for(const struct pt_charger *k)
{
	int w = last_at_work(k, false);

	w = w < 0 ? last_at_work(k, true) : w;
	return w < 0 ? next_in_turn(k) : w;
}

/* At `at` the maker sleeps until `th`, or somebody whom that wakes, gives it something to do: what
 * `th` waited for until then is not its. */
static bool is_asked_later(const struct pt_charger *k, const struct pt_thread *maker,
			   const struct pt_thread *th, uint64_t at)
{
	unsigned left = PT_ASKED_THROUGH;

	while (maker && maker != th && left--) {
		size_t i = pt_iv_after(maker, at);
		const struct pt_iv *iv = i < maker->iv.n ? &maker->iv.v[i] : NULL;

		if (!iv || iv->begin > at || iv->ready <= at || !iv->valid_wake)
			return false;
		maker = pt_model_thread(k->an->m, iv->waker_tid);
	}
	return maker == th;
}

/* The walk comes to a sleep of whoever receives. Batches come in order: what
 * another worker sent in the meantime was not what was waited for. */
static const struct pt_thread *awaited(struct pt_charger *k, uint64_t at, const struct pt_thread *th,
				       const struct pt_iv *iv, const struct pt_thread *who)
{
	const pt_asks *asks = &k->t->look->asks;
	int w;

	/* before it asked for more it waited for another batch */
	while (k->ask && asks->v[k->ask - 1].ts >= at) {
		const struct pt_ask *x = &asks->v[--k->ask];

		if (x->item)
			k->deliverer = x->worker;
		else if (k->deliverer < 0 && x->worker >= 0 &&
			 k->t->workers.v[x->worker].role != PT_ROLE_HELPER)
			k->deliverer = x->worker;
	}
	if (!who && iv->open && k->deliverer < 0)
		k->deliverer = last_waited_for(k);
	/* nobody else hands anything over there: its part of a batch, or something beside that */
	if (k->deliverer < 0 || (who && pt_is_own_channel(&k->t->look->givers, iv)))
		return who;
	if (who && (!pt_worker_index(k->t, who, &w) || w == k->deliverer ||
		    k->t->workers.v[w].role == PT_ROLE_HELPER ||
		    is_asked_later(k, k->t->workers.v[k->deliverer].main, th, iv->ready)))
		return who;
	return k->t->workers.v[k->deliverer].feeder;
}

/* Two that deliver do not feed each other: what one waits for until the other acts
 * is a lock that they share. */
static bool are_peers(const struct pt_trainer *t, const struct pt_thread *a,
		      const struct pt_thread *b)
{
	int i, k;

	return b && pt_worker_index(t, a, &i) && pt_worker_index(t, b, &k) &&
	       i != k && t->workers.v[i].role == t->workers.v[k].role &&
	       t->workers.v[i].role != PT_ROLE_HELPER &&
	       t->workers.v[i].role != PT_ROLE_THREAD &&
	       t->workers.v[i].role != PT_ROLE_OUTSIDE; /* a store of theirs is one, too */
}

/* Whom a worker asks over a socket, or the consumer where it fetches by itself; within a
 * service over a network's only: its parts talk over others. */
static bool is_store(const struct pt_charger *k, const struct pt_thread *th,
		     const struct pt_iv *iv)
{
	const struct pt_giver *x = pt_giver_of(&k->t->look->givers, iv);
	const struct pt_sock *s;

	if (pt_charger_receives(k, th))
		return pt_is_actor(k->a, th) && x &&
		       (x->role == PT_GIVER_STORE || x->role == PT_GIVER_PEER);
	if (iv->wait != PT_WAIT_SOCK && iv->wait != PT_WAIT_POLL)
		return false;
	s = pt_wait_sock(k->an, iv);
	return !th->proc->outside || (s && s->ends.family != PT_AF_UNIX);
}

/* Past a maker that is fed, to whom it waits for. */
static void pass_fed(struct pt_charger *k, const struct pt_thread **who)
{
	const struct pt_thread *by;

	while ((by = pt_fed_by(&k->feds, *who))) {
		if (pt_worker_index(k->t, *who, NULL))
			k->fed = *who;
		*who = by;
	}
}

/* A thread that makes nothing, of another process that makes batches. */
static bool is_beside_maker(const struct pt_trainer *t, const struct pt_thread *th)
{
	size_t at = pt_bisect(t->index.n, i, t->index.v[i].tgid < th->tgid);
	bool beside = false;

	for (; at < t->index.n && t->index.v[at].tgid == th->tgid && th->proc != t->proc; at++) {
		const struct pt_thread *maker = t->workers.v[t->index.v[at].at].main;

		if (maker == th)
			return false;
		beside |= maker && maker->proc == th->proc;
	}
	return beside;
}

/* Who hands batches over sleeps by the clock, and for most of that the maker had nothing to
 * do: what is made waits for the sleep's end (a buffer that a timer flushes). */
static bool holds_back(const struct pt_charger *k, const struct pt_worker *w,
		       const struct pt_iv *iv)
{
	size_t i = pt_iv_after(w->main, iv->ready - 1);
	const struct pt_iv *x = i < w->main->iv.n ? &w->main->iv.v[i] : NULL;

	return iv->wait == PT_WAIT_SLEEP && w->main != w->feeder && x && x->ready >= iv->ready &&
	       x->begin < iv->begin + (iv->ready - iv->begin) / 2 &&
	       (pt_is_idle(k->an, w, x) || (x->valid_wake && x->waker_tgid == k->t->proc->tgid));
}

/* The capture ends in this sleep. Who ended all the sleeps of this kind at this place that were
 * seen before is waited for again; NULL: none, several, the consumer, who waits itself, or it is a
 * lock. */
static const struct pt_thread *gave_before(const struct pt_charger *k, const struct pt_thread *th,
					   const struct pt_iv *iv)
{
	const struct pt_iv *x, *last = NULL;
	const struct pt_thread *who;
	unsigned left = PT_GAVE_BEFORE;

	if (!iv->open)
		return NULL;
	for (x = iv; x > th->iv.v && left--;) {
		x--;
		if (x->wait != iv->wait || x->arg0 != iv->arg0 || x->object != iv->object)
			continue;
		if (!x->valid_wake || (last && x->waker_tid != last->waker_tid))
			return NULL;
		last = x;
	}
	if (!last || pt_is_lock(k->paths, th, last))
		return NULL;
	who = pt_model_thread(k->an->m, last->waker_tid);
	return who && pt_is_actor(k->a, who) ? NULL : who;
}

static enum pt_link follow(struct pt_charger *k, const struct pt_thread *th,
			   const struct pt_iv *iv, uint64_t at, const struct pt_thread **who)
{
	bool lock = *who && pt_is_lock(k->paths, th, iv);
	int w;

	if (*who && pt_is_condition(k->paths, th, iv))
		return PT_LINK_LOCK;
	if (th->proc == k->t->proc)
		k->answer = iv->sock & PT_IV_SOCK_AWAITED;
	if (pt_charger_receives(k, th) && iv->wait != PT_WAIT_SLEEP && !lock)
		*who = awaited(k, at, th, iv, *who);
	if (!*who && pt_worker_index(k->t, th, &w) && k->t->workers.v[w].feeder == th &&
	    !holds_back(k, &k->t->workers.v[w], iv)) /* at rest until there is a batch */
		*who = k->t->workers.v[w].main != th ? k->t->workers.v[w].main :
						       NULL;
	if (!*who)
		*who = gave_before(k, th, iv);
	/* who had the interpreter while a batch was taken need not have made it */
	if (*who && !lock && k->deliverer < 0 && pt_worker_index(k->t, *who, &w) &&
	    k->t->workers.v[w].role != PT_ROLE_HELPER)
		k->deliverer = w;
	if (are_peers(k->t, th, *who))
		return PT_LINK_LOCK;
	if (*who && !lock && pt_is_actor(k->a, th) && is_beside_maker(k->t, *who))
		k->server = *who;
	if (*who && (*who)->proc->outside && (*who)->proc != th->proc) {
		/* of a worker's; who serves the consumer itself is one */
		k->door = is_store(k, th, iv) ? iv : NULL;
		k->at_door = th;
	}
	/* who was asked for a batch asks in turn those who come to it with one */
	if (k->answer && *who && th->proc != k->t->proc && !pt_is_lock(k->paths, th, iv))
		return PT_LINK_FOLLOW;
	return pt_cause_link(k->an, k->paths, th, iv, *who);
}

static enum pt_link link_of(void *ctx, const struct pt_thread *th,
			    const struct pt_iv *iv, uint64_t at,
			    const struct pt_thread **who)
{
	struct pt_charger *k = ctx;
	enum pt_link link = follow(k, th, iv, at, who);

	if (link == PT_LINK_FOLLOW)
		pass_fed(k, who);
	return link;
}

/* ---- charges ---------------------------------------------------------------------- */

/* The file or the peer with more than half of the wait, if there is one: a majority
 * vote in one pass (Boyer and Moore, 1981), by time. */
static void vote(struct pt_fetch *w, const struct pt_charge *c)
{
	if (c->inode == w->inode && c->dev == w->dev && c->peer == w->peer) {
		w->on_ns += c->ns;
	} else if (c->ns <= w->on_ns) {
		w->on_ns -= c->ns;
	} else {
		w->inode = c->inode;
		w->dev = c->dev;
		w->peer = c->peer;
		w->on_ns = c->ns - w->on_ns;
	}
}

/* Whoever serves the job from outside and neither computes nor reads for it is late to
 * answer, as any store may be: that is the network's, and its address the subject. */
static const struct pt_iv *late_answer(const struct pt_charger *k, enum pt_cause cause,
				       const struct pt_leg *l)
{
	if (!l->th->proc->outside)
		return NULL;
	return cause == PT_CAUSE_SLEEP || cause == PT_CAUSE_UNKNOWN ||
	       cause == PT_CAUSE_IPC || cause == PT_CAUSE_NETWORK ? k->door : NULL;
}

/* A program that the deliverer has run for the batch: that is its work. */
static bool runs_for(const struct pt_charger *k, const struct pt_thread *th)
{
	return k->deliverer >= 0 && th->proc->born && th->proc != k->t->proc &&
	       pt_descends_from(k->an->m, th->proc, k->t->workers.v[k->deliverer].proc->tgid);
}

static bool worker_behind(const struct pt_charger *k, const struct pt_thread *th, int *i)
{
	if (runs_for(k, th)) {
		*i = k->deliverer;
		return true;
	}
	return pt_worker_index(k->t, th, i) || (k->fed && pt_worker_index(k->t, k->fed, i));
}

/* A program that a shell runs, or a script: what it does before it gives anything is its work. */
static bool is_run_by_shell(const struct pt_charger *k, const struct pt_proc *p)
{
	const struct pt_proc *by = pt_model_proc(k->an->m, p->ppid);

	return by && by != k->t->proc && strncmp(by->comm, p->comm, sizeof(p->comm));
}

static void note_worker(struct pt_charger *k, const struct pt_thread *th,
			const struct pt_leg *l)
{
	struct pt_worker *w;
	int i;

	/* a lock that it has while a batch is taken tells nothing of whose batch that is */
	if (th == k->holder || !worker_behind(k, th, &i))
		return;
	w = &k->t->workers.v[i];
	w->fed_ns += w->main == k->fed ? l->end - l->begin : 0;
	k->by_worker.v[i] += l->end - l->begin;
	w->charged_ns += l->end - l->begin;
	/* the maker at work keeps the interpreter from it */
	if (th == w->feeder && w->feeder != w->main &&
	    (l->th != w->main || l->kind == PT_LEG_LOCK))
		return;
	w->making_ns += l->end - l->begin;
	if (w->proc->born && w->done.n && !is_run_by_shell(k, w->proc))
		w->setup_ns += pt_overlap(l->begin, l->end, w->proc->born, w->done.v[0]);
	if (th == w->main && k->w->made == UINT64_MAX)
		k->w->made = l->end;
}

int pt_charge(struct pt_charger *k, enum pt_cause cause, const struct pt_leg *l,
	      const struct pt_thread *who)
{
	const struct pt_iv *door = late_answer(k, cause, l);
	struct pt_charge c = { .cause = (uint8_t)cause, .ns = l->end - l->begin,
			       .syscall = PT_SYSCALL_NONE, .pid = l->th->tgid,
			       .tid = l->th->tid };
	const struct pt_iv *iv = door ? door : l->iv;
	int w;

	if (door) {
		c.cause = cause = PT_CAUSE_NETWORK;
		c.pid = k->at_door->tgid;
		c.tid = k->at_door->tid;
	}
	k->by_cause[cause] += c.ns;
	if (cause == PT_CAUSE_CPU && pt_worker_index(k->t, l->th, &w)) {
		k->t->kernel_ns += (uint64_t)(k->kernel.v[w] * (double)c.ns);
		k->t->fetching_ns += (uint64_t)(k->fetching.v[w] * (double)c.ns);
	}
	k->t->storage_waits += l->kind == PT_LEG_BLOCKED &&
			       (cause == PT_CAUSE_DISK || cause == PT_CAUSE_PAGE_FAULT);
	k->t->naps += cause == PT_CAUSE_SLEEP && l->kind == PT_LEG_BLOCKED && pt_is_actor(k->a, l->th);
	/* who waits at the door for a store makes the batch */
	note_worker(k, door ? k->at_door : who, l);
	if (iv && (cause == PT_CAUSE_DISK || cause == PT_CAUSE_PAGE_FAULT) &&
	    iv->obj_kind == PT_OBJ_FILE) {
		c.dev = iv->dev;
		c.inode = iv->object;
	}
	if (iv && cause == PT_CAUSE_NETWORK) {
		const struct pt_sock *s = pt_wait_sock(k->an, iv);

		c.peer = s ? s->peer->index + 1 : 0;
		c.awaited = iv->sock & PT_IV_SOCK_AWAITED;
	}
	if (iv && l->kind == PT_LEG_GIVEN && !l->who && cause != PT_CAUSE_NETWORK) {
		c.pid = iv->waker_tgid;
		c.tid = iv->waker_tid;
	}
	if (iv && cause == PT_CAUSE_UNKNOWN)
		c.syscall = iv->wait == PT_WAIT_STOPPED ? PT_CHARGE_STOPPED : iv->syscall;
	vote(k->w, &c);
	return pt_add_charge(&k->t->charges, &c);
}

bool pt_only_sends(const struct pt_charger *k, const struct pt_thread *th)
{
	int w;

	return pt_worker_index(k->t, th, &w) && k->t->workers.v[w].feeder == th &&
	       k->t->workers.v[w].main != th;
}

/* It is no worker's own: whose part of the way back is the hand-over. */
static bool hands_on(const struct pt_charger *k, const struct pt_thread *th)
{
	if (pt_is_actor(k->a, th))
		return k->w->supplied && !k->t->computes_too;
	return th == k->server || pt_is_relay(k->t, th) || pt_only_sends(k, th);
}

static bool awaits_client(const struct pt_charger *k, const struct pt_leg *l)
{
	if (k->answer && l->th->proc != k->t->proc)
		return false;
	return l->kind == PT_LEG_GIVEN ? pt_waits_for_client(k->an, l->th, l->iv) :
					 pt_listens(l->th, l->iv);
}

static enum pt_cause cause_of(struct pt_charger *k, const struct pt_leg *l)
{
	enum pt_cause c;

	switch (l->kind) {
	case PT_LEG_RUN:
		return hands_on(k, l->th) ? PT_CAUSE_IPC : PT_CAUSE_CPU;
	case PT_LEG_QUEUE:
		if (pt_is_wakeup(l->iv))
			return pt_sleep_cause(k->an, l->iv);
		c = pt_queue_cause(k->t, l->th, l->iv);
		if (c == PT_CAUSE_RUN_QUEUE && hands_on(k, l->th))
			k->t->handover_queue_ns += l->end - l->begin;
		return c;
	case PT_LEG_LOCK:
		return PT_CAUSE_LOCK;
	case PT_LEG_GIVEN:
		if (awaits_client(k, l))
			return PT_CAUSE_NO_DEMAND;
		if (l->who) /* a circle */
			return PT_CAUSE_LOCK;
		c = pt_sleep_cause(k->an, l->iv);
		return c == PT_CAUSE_NETWORK || l->iv->wait == PT_WAIT_FLOCK ?
			       c : PT_CAUSE_UNKNOWN;
	case PT_LEG_BLOCKED:
		if (l->iv->wait == PT_WAIT_DISK_WRITE && pt_is_actor(k->a, l->th))
			return PT_CAUSE_CHECKPOINT; /* what is loaded is not written */
		if (awaits_client(k, l))
			return PT_CAUSE_NO_DEMAND;
		c = pt_sleep_cause(k->an, l->iv);
		/* the capture's end: who would have ended it, and when, is not known */
		if (c == PT_CAUSE_IPC && l->iv->open)
			return PT_CAUSE_UNKNOWN;
		return c == PT_CAUSE_IPC && pt_gives_up(l->th, l->iv, UINT64_MAX) ? PT_CAUSE_SLEEP : c;
	default:
		if (l->th->proc->outside)
			k->t->unadopted_ns += l->end - l->begin;
		return PT_CAUSE_UNKNOWN;
	}
}

/* A maker that computes, or wants to: what moves the batch is the hand-over's. */
static int charge_moving(struct pt_charger *k, const struct pt_leg *l, enum pt_cause c)
{
	struct pt_leg moves = *l, makes = *l;
	int w, err = 0;

	if ((l->kind == PT_LEG_RUN || l->kind == PT_LEG_QUEUE) && c != PT_CAUSE_IPC &&
	    pt_worker_index(k->t, l->th, &w) && k->t->workers.v[w].main == l->th)
		makes.end -= pt_mover_ns(&k->movers.v[w], l);
	moves.begin = makes.end;
	if (moves.end > moves.begin)
		err = pt_charge(k, PT_CAUSE_IPC, &moves, l->th);
	return err || makes.end <= makes.begin ? err : pt_charge(k, c, &makes, l->th);
}

static int take_leg(void *ctx, const struct pt_leg *l)
{
	struct pt_charger *k = ctx;

	if (l->kind == PT_LEG_LOCK ||
	    (l->kind == PT_LEG_BLOCKED && pt_is_interpreter_lock(k->paths, l->th, l->iv)))
		return pt_charge_lock(k, l);
	return charge_moving(k, l, cause_of(k, l));
}

/* The worker with most of the way back; one that delivers before a helper. */
static void name_worker(struct pt_charger *k)
{
	uint64_t most = 0;
	size_t i;

	for (i = 0; i < k->by_worker.n; i++) {
		if (k->by_worker.v[i] > most) {
			most = k->by_worker.v[i];
			k->w->worker = (int)i;
		}
		k->by_worker.v[i] = 0;
	}
}

static int charge_wait(struct pt_charger *k, struct pt_fetch *w)
{
	struct pt_walk_opts o = { link_of, take_leg, k, k };
	const pt_asks *asks = &k->t->look->asks;
	int err, c;

	k->w = w;
	k->deliverer = -1;
	k->door = NULL;
	k->fed = NULL;
	k->server = NULL;
	while (k->ask < asks->n && asks->v[k->ask].ts <= w->end)
		k->ask++;
	memset(k->by_cause, 0, sizeof(k->by_cause));
	pt_each(struct pt_mover, m, &k->movers)
		m->ran = m->moved = 0;
	err = pt_walk_back(k->paths, w->th, w->begin, w->end, &o);
	name_worker(k);
	w->cause = pt_largest_cause(k->by_cause);
	for (c = 0; c < PT_CAUSE_NR; c++)
		k->t->cause_ns[c] += k->by_cause[c];
	if (w->worker >= 0 && w->blocked_ns)
		k->t->workers.v[w->worker].delivered++;
	return err;
}

/* Of several waits of a step the longest speaks for it. */
static void sum_step(struct pt_trainer *t, struct pt_step *s)
{
	uint64_t most = 0;
	size_t i;

	for (i = s->wait0; i < s->wait0 + s->n_waits; i++) {
		const struct pt_fetch *w = &t->waits.v[i];
		uint64_t ns = w->end - w->begin;

		s->blocked_ns += w->blocked_ns;
		if (ns <= most)
			continue;
		most = ns;
		s->cause = w->cause;
		s->worker = w->worker;
	}
}

int pt_charge_waits(struct pt_an *an, struct pt_trainer *t,
		    const struct pt_actor *a, struct pt_paths *paths)
{
	struct pt_charger k = { .an = an, .t = t, .a = a, .paths = paths };
	size_t i;
	int err = pt_find_quota(an, t, t->proc);

	err = err ?: pt_learn_refills(an, t);
	err = err ?: pt_find_fed(an, t, a, paths, &k.feds);
	for (i = 0; i < t->workers.n && !err; i++) {
		if (t->workers.v[i].proc != t->proc)
			err = pt_find_quota(an, t, t->workers.v[i].proc);
		err = err ?: pt_vec_push(&k.by_worker, 0);
		err = err ?: pt_vec_push(&k.movers, pt_mover_of(an, t, &t->workers.v[i]));
		err = err ?: pt_vec_push(&k.kernel, pt_kernel_part(t->workers.v[i].proc));
		err = err ?: pt_vec_push(&k.fetching, pt_fetching_part(an, &t->workers.v[i]));
	}
	for (i = 0; i < t->waits.n && !err; i++)
		err = charge_wait(&k, &t->waits.v[i]);
	for (i = 0; i < t->steps.n; i++)
		sum_step(t, &t->steps.v[i]);
	t->top_cause = pt_largest_cause(t->cause_ns);
	pt_vec_free(&k.by_worker);
	pt_vec_free(&k.movers);
	pt_vec_free(&k.kernel);
	pt_vec_free(&k.fetching);
	pt_vec_free(&k.feds);
	return err;
}
