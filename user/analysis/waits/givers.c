/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/givers.h"

#include <errno.h>

#include "analysis/waits/callers.h"
#include "analysis/waits/host.h"
#include "analysis/waits/look.h"
#include "analysis/waits/roles.h"
#include "model/callclass.h"
#include "model/socks.h"
#include "model/syscalls.h"

/* ---- peers and ranks ------------------------------------------------------------ */

bool pt_waits_for_peer(const struct pt_an *an, const struct pt_feed *f,
		       const struct pt_iv *iv)
{
	/* a Unix socket's reader is woken, too, when the other end takes something */
	bool room = iv->valid_wake && iv->wake == PT_WAKE_ROOM &&
		    pt_call_class(iv->syscall) & PT_C_PUT;

	return room || pt_sock_feeds_nothing(f, pt_wait_sock(an, iv));
}

size_t pt_times_asked(const struct pt_an *an, const struct pt_proc *by,
		      const struct pt_thread *th)
{
	size_t n = 0;

	pt_each_iv(iv, th, an->t0, an->t1)
		n += iv->valid_wake && iv->waker_tgid == by->tgid &&
		     (iv->wake == PT_WAKE_DATA || iv->wake == PT_WAKE_FUTEX ||
		      iv->wake == PT_WAKE_ROOM) &&
		     !pt_inside_call(by, iv->waker_tid, iv->ready);
	return n;
}

bool pt_descends_from(const struct pt_model *m, const struct pt_proc *p, uint32_t ancestor)
{
	int depth;

	for (depth = 0; p && depth < 32; depth++) {
		if (p->ppid == ancestor)
			return true;
		p = p->ppid ? pt_model_proc(m, p->ppid) : NULL;
	}
	return false;
}

bool pt_feeds_device(const struct pt_an *an, const struct pt_proc *p)
{
	pt_each_call(c, p, an->t0, an->t1)
		if (pt_call_is_step(c))
			return true;
	return false;
}

/* ---- walks ----------------------------------------------------------------------- */

struct host_walk {
	const struct pt_an *an;
	struct pt_paths *paths;
	const struct pt_actor *a;
	const struct pt_givers *g; /* whose helpers are followed; NULL: nobody's */
};

/* A thread of the process that works for the consumer when it is asked: what it does then is
 * what the consumer waits for. */
static bool helps(const struct host_walk *k, const struct pt_iv *iv, const struct pt_thread *who)
{
	const struct pt_giver *x = k->g ? pt_giver_of(k->g, iv) : NULL;

	return x && x->role == PT_GIVER_HELPER && who->proc == k->a->proc &&
	       !pt_is_driver_thread(who);
}

static enum pt_link host_link(void *ctx, const struct pt_thread *th,
			      const struct pt_iv *iv, uint64_t at,
			      const struct pt_thread **who)
{
	const struct host_walk *k = ctx;

	(void)at;
	if (*who && pt_is_lock(k->paths, th, iv))
		return PT_LINK_LOCK;
	return *who && (pt_is_actor(k->a, *who) || helps(k, iv, *who)) ?
		       PT_LINK_FOLLOW : PT_LINK_STOP;
}

int pt_walk_host(const struct pt_an *an, struct pt_paths *paths,
		 const struct pt_actor *a, const struct pt_givers *helpers, const struct pt_gap *g,
		 int (*leg)(void *ctx, const struct pt_leg *leg), void *ctx)
{
	struct host_walk k = { an, paths, a, helpers };
	struct pt_walk_opts o = { host_link, leg, &k, ctx };

	return pt_walk_back(paths, g->th, g->begin, g->end, &o);
}

enum pt_link pt_cause_link(const struct pt_an *an, struct pt_paths *paths,
			   const struct pt_thread *th, const struct pt_iv *iv,
			   const struct pt_thread *who)
{
	if (!who)
		return PT_LINK_STOP;
	if (pt_waits_for_client(an, th, iv))
		return pt_is_caller(an, iv->waker_tid) ? PT_LINK_BEGIN : PT_LINK_STOP;
	return pt_is_lock(paths, th, iv) ? PT_LINK_LOCK : PT_LINK_FOLLOW;
}

static enum pt_link cause_link(void *ctx, const struct pt_thread *th,
			       const struct pt_iv *iv, uint64_t at,
			       const struct pt_thread **who)
{
	const struct host_walk *k = ctx;

	(void)at;
	return pt_cause_link(k->an, k->paths, th, iv, *who);
}

int pt_walk_cause(const struct pt_an *an, struct pt_paths *paths,
		  const struct pt_thread *th, uint64_t begin, uint64_t end,
		  int (*leg)(void *ctx, const struct pt_leg *leg), void *ctx)
{
	struct host_walk k = { .an = an, .paths = paths };
	struct pt_walk_opts o = { cause_link, leg, &k, ctx };

	return pt_walk_back(paths, th, begin, end, &o);
}

/* ---- sums over the sleeps that one thread ends ------------------------------------- */

struct given {
	struct pt_leg leg;
	struct pt_giver *by;
	uint64_t gap; /* when its gap began */
};

struct sums {
	struct pt_givers *g;
	const struct pt_actor *a;
	const struct pt_gap *gap;
	bool uploads; /* it ends with one */
	bool results; /* ... with pt_brings_results() */
	bool waited; /* somebody ended a sleep in it */
	struct pt_giver *x; /* whose sleep it is */
	bool asked; /* the walk has come upon the consumer itself */
	bool answer; /* the consumer had asked for what it slept for */
	bool rank; /* the walk has entered another rank: what lies behind is why
		    * that one was late */
	const struct pt_thread *before; /* whose part of the way came last */
	const struct pt_thread *via; /* ... of the consumer's process, if that did */
	PT_VEC(struct given) given; /* that followed threads ended */
};

/* Takes input: sleeps for a disk, a page of a file, or for somebody far away. */
static bool takes_input(const struct pt_iv *iv)
{
	return iv && (iv->wait == PT_WAIT_DISK || iv->wait == PT_WAIT_FAULT ||
		      iv->wait == PT_WAIT_SOCK);
}

static bool is_rank(const struct sums *k, const struct pt_proc *p)
{
	const struct pt_an *an = k->g->an;
	size_t i;

	for (i = 0; i < an->trainers.n && an->trainers.v[i].proc != p; i++)
		;
	return p != k->a->proc && i < an->trainers.n;
}

static int origin_leg(void *ctx, const struct pt_leg *l)
{
	struct sums *k = ctx;
	const struct pt_proc *p = l->th->proc;
	uint64_t ns = l->end - l->begin;
	uint32_t by;

	if (l->kind == PT_LEG_UNSEEN)
		return 0;
	k->rank |= is_rank(k, p);
	if (k->rank) {
		k->x->ranks_ns += ns;
	} else if (!k->answer && (l->kind == PT_LEG_GIVEN ?
				  pt_waits_for_client(k->g->an, l->th, l->iv) :
				  l->kind == PT_LEG_BLOCKED && pt_listens(l->th, l->iv))) {
		k->x->clients_ns += ns;
	} else if (p != k->a->proc || takes_input(l->iv)) {
		k->x->made_ns += ns;
		by = l->kind == PT_LEG_GIVEN ? l->iv->waker_tgid : p->tgid;
		k->x->beyond_ns += by != k->a->proc->tgid && by != k->x->tgid ? ns : 0;
		k->x->shared_ns += pt_may_share(&k->g->feed, p, k->a->proc) ? ns : 0;
	} else {
		k->x->helped_ns += ns;
	}
	return 0;
}

static int asked_leg(void *ctx, const struct pt_leg *l)
{
	struct sums *k = ctx;

	/* what it did before it was followed tells nothing */
	k->asked |= pt_is_actor(k->a, l->th) || l->kind == PT_LEG_UNSEEN;
	return 0;
}

/* Had it begun before the gap, or did the consumer ask it first? */
static int sum_ahead(struct sums *k, const struct given *x)
{
	const struct pt_leg *l = &x->leg;
	int err;

	k->asked = false;
	err = pt_walk_cause(k->g->an, k->g->paths, l->who, x->gap, l->end, asked_leg, k);
	x->by->ahead_ns += k->asked ? 0 : l->end - l->begin;
	if (x->gap <= k->g->an->t0) {
		x->by->cut_ns += l->end - l->begin;
		x->by->cut_ahead_ns += k->asked ? 0 : l->end - l->begin;
	}
	return err;
}

static uint64_t stays_in(const struct pt_thread *th, uint64_t b, uint64_t e)
{
	return pt_iv_after(th, e) - pt_iv_after(th, b);
}

/* A pipe hands over what is read from it. What is put into shared memory or sent in a
 * message is not counted so. */
static bool is_sized(const struct pt_iv *iv)
{
	return iv->obj_kind == PT_OBJ_PIPE ||
	       (iv->obj_kind == PT_OBJ_SOCK && iv->syscall == PT_NR_read);
}

/* Such an end says nothing but that one may go on: what is handed over lies in memory that both
 * have, and they have none that is large enough. */
static bool is_apart(const struct pt_givers *g, const struct pt_iv *iv, const struct pt_thread *who)
{
	return who && (iv->wait == PT_WAIT_FUTEX || iv->wait == PT_WAIT_SEM ||
		       iv->wait == PT_WAIT_EVENT) &&
	       who->proc != g->own &&
	       pt_shares_nothing(&g->feed, who->proc);
}

static struct pt_giver *giver_make(struct pt_givers *g, const struct pt_iv *iv,
				   const struct pt_thread *who)
{
	struct pt_giver *x;

	HASH_FIND(hh, g->all, &iv->waker_tid, sizeof(iv->waker_tid), x);
	if (x)
		return x;
	x = pt_hash_make(g->all, tid, &iv->waker_tid);
	if (x) {
		x->tgid = iv->waker_tgid;
		x->th = who;
		x->stays = who ? stays_in(who, g->an->t0, g->an->t1) : 0;
		if (who && who->proc != g->own) {
			x->bytes = pt_read_by(g->an, who->proc);
			x->wrote = pt_written_by(g->an, who->proc);
			g->wrote += pt_written_between(who, g->an->t0, g->an->t1);
		}
	}
	return x;
}

/* Only one process ends such sleeps, so much of the time in all: it has that pipe or socket for
 * itself. One that is there for a moment, to pass a descriptor, tells nothing. */
#define OWN_PART 0.02

/* What a sleep was on: the end of it that the sleeper sees. */
struct pt_given_at {
	uint64_t key[2]; /* kind of wait, object */
	struct pt_giver *last; /* who ended the last one */
	uint64_t ns;  /* of all of them */
	bool several; /* processes end them */
	UT_hash_handle hh;
};

static void key_of(const struct pt_iv *iv, uint64_t key[2])
{
	key[0] = iv->wait;
	key[1] = iv->wait == PT_WAIT_FUTEX ? iv->arg0 >> 3 : iv->object;
}

static struct pt_given_at *given_at(struct pt_givers *g, const struct pt_iv *iv)
{
	uint64_t key[2];

	key_of(iv, key);
	return pt_hash_make(g->at, key, key);
}

/* What the sleeper's Python says of the sleep. */
static void sum_looks(struct pt_giver *x, const struct pt_givers *g, const struct pt_thread *th,
		      const struct pt_iv *iv)
{
	const struct pt_told *told;
	const struct pt_model *m = g->an->m;
	const struct pt_code_look *l = pt_look_in(th, iv);

	if (!l)
		return;
	x->looked++;
	x->handed_out += pt_hands_out(m, l->stack);
	x->taking += pt_is_taking(m, &g->taking, l->stack);
	if (pt_takes_batch(m, l->stack) && !pt_hands_out(m, l->stack))
		x->taken_ns += iv->ready - iv->begin;
	told = pt_loop_tell(g->loop, l->stack);
	x->behind += told && told->at.line && !told->above && !told->named;
}

static int sum_leg(void *ctx, const struct pt_leg *l)
{
	struct pt_given_at *at;
	struct given given;
	struct sums *k = ctx;
	uint64_t got;
	int err;

	if (l->kind != PT_LEG_GIVEN)
		return 0;
	k->waited = true;
	k->x = giver_make(k->g, l->iv, l->who);
	at = given_at(k->g, l->iv);
	if (!k->x || !at)
		return -ENOMEM;
	given = (struct given){ *l, k->x, k->gap->begin };
	if (l->who && pt_vec_push(&k->given, given))
		return -ENOMEM;
	at->several |= at->last && at->last->tgid != k->x->tgid;
	at->ns += l->end - l->begin;
	at->last = k->x;
	k->x->sleeps++;
	k->x->ns += l->end - l->begin;
	k->x->unsized += !is_sized(l->iv);
	k->x->apart += is_apart(k->g, l->iv, l->who);
	k->x->puts += !!(pt_call_class(l->iv->syscall) & PT_C_PUT);
	k->x->answers += !!(l->iv->sock & PT_IV_SOCK_AWAITED);
	k->x->ends += l->iv->wait == PT_WAIT_CHILD;
	sum_looks(k->x, k->g, l->th, l->iv);
	if (!k->x->gaps || k->x->last_gap != k->gap->begin) {
		k->x->gaps++;
		k->x->uploads += k->uploads;
		k->x->results += k->results;
		got = pt_read_between(l->th, k->gap->begin, k->gap->end);
		k->x->got += got;
		k->x->bytes += got;
		k->x->sent += pt_written_between(l->th, k->gap->begin, k->gap->end);
		k->x->stays_there += l->who ?
			stays_in(l->who, k->gap->begin, k->gap->end) : 0;
	}
	k->x->last_gap = k->gap->begin;
	if (pt_waits_for_client(k->g->an, l->th, l->iv)) {
		k->x->clients_ns += l->end - l->begin;
		return 0;
	}
	/* ranks that meet over a socket of their own make room for each other, too */
	if (l->who && l->iv->wake == PT_WAKE_ROOM && is_rank(k, l->who->proc)) {
		k->x->ranks_ns += l->end - l->begin;
		return 0;
	}
	if (pt_waits_for_peer(k->g->an, &k->g->feed, l->iv)) {
		k->x->peer_ns += l->end - l->begin;
		return 0;
	}
	if (!l->who) { /* of a process that is not followed */
		k->x->made_ns += l->end - l->begin;
		return 0;
	}
	/* of other processes few are asked for: when all is summed */
	err = l->who->proc == k->a->proc ? sum_ahead(k, &given) : 0;
	k->rank = false;
	k->answer = l->iv->sock & PT_IV_SOCK_AWAITED;
	return err ? err : pt_walk_cause(k->g->an, k->g->paths, l->who, l->begin,
				      l->end, origin_leg, k);
}

/* ---- makers --------------------------------------------------------------------------- */

static int add_maker(struct pt_givers *g, const struct pt_thread *th,
		     const struct pt_thread *via, uint64_t ns)
{
	struct pt_maker *x = pt_hash_make(g->makers, th, &th);

	if (!x)
		return -ENOMEM;
	x->ns += ns;
	x->via = via ? via : x->via;
	return 0;
}

static int maker_leg(void *ctx, const struct pt_leg *l)
{
	struct sums *k = ctx;

	if (l->th->proc != k->before->proc)
		k->via = k->before->proc == k->a->proc ? k->before : NULL;
	k->before = l->th;
	k->rank |= is_rank(k, l->th->proc);
	if (l->kind == PT_LEG_UNSEEN || pt_is_actor(k->a, l->th) || k->rank)
		return 0;
	/* what keeps a batch from being handed on is the next one's making */
	if (l->kind == PT_LEG_LOCK && l->who)
		return add_maker(k->g, l->who, NULL, l->end - l->begin);
	return add_maker(k->g, l->th, k->via, l->end - l->begin);
}

static int find_makers(struct sums *k, const struct pt_leg *l)
{
	const struct pt_giver *x = pt_giver_of(k->g, l->iv);

	if (!x || x->role != PT_GIVER_SUPPLIER)
		return 0;
	k->rank = false;
	k->before = l->th;
	k->via = NULL;
	return pt_walk_cause(k->g->an, k->g->paths, l->who, l->begin, l->end,
			     maker_leg, k);
}

static int sum_gaps(struct sums *k)
{
	const struct pt_an *an = k->g->an;
	struct pt_gap g;
	size_t i;
	int err = 0;

	k->gap = &g;
	for (i = 0; i <= k->a->calls.n && !err; i++) {
		const struct pt_lead_call *v = k->a->calls.v;
		bool gap = pt_gap_before(k->a, i, an->t0, an->t1, &g);

		k->uploads = i < k->a->calls.n && v[i].uploads;
		k->results = i < k->a->calls.n && v[i].results;
		k->waited = false;
		if (gap)
			err = pt_walk_host(an, k->g->paths, k->a, NULL, &g, sum_leg, k);
		/* a batch that was there goes up without a gap worth the name; one of many tensors
		 * with several, in which nobody is waited for */
		k->g->uploads += k->uploads && ((i && !v[i - 1].uploads) || k->waited);
	}
	k->gap = NULL;
	return err;
}

/* Of those in other processes. */
static int sum_others_ahead(struct sums *k)
{
	size_t i;
	int err = 0;

	for (i = 0; i < k->given.n && !err; i++)
		if (k->given.v[i].by->tgid != k->g->own->tgid)
			err = sum_ahead(k, &k->given.v[i]);
	return err;
}

int pt_find_givers(const struct pt_an *an, struct pt_paths *paths,
		   const struct pt_actor *a, struct pt_loop *loop, struct pt_givers *out)
{
	struct sums k = { .g = out, .a = a };
	size_t i;
	int err;

	*out = (struct pt_givers){ .an = an, .paths = paths, .own = a->proc, .loop = loop };
	out->own_read = pt_read_by(an, a->proc);
	out->lead_read = a->lead ? pt_read_between(a->lead, an->t0, an->t1) : 0;
	pt_find_taking(loop, a->lead, &out->taking);
	err = pt_find_feed(an->m, a->proc, &out->feed);
	err = err ?: sum_gaps(&k);
	pt_find_writers(out);
	if (!err && pt_ahead_tells(out))
		err = sum_others_ahead(&k);
	err = err ?: pt_find_roles(out);
	for (i = 0; i < k.given.n && !err; i++)
		err = find_makers(&k, &k.given.v[i].leg);
	pt_vec_free(&k.given);
	return err;
}

void pt_givers_free(struct pt_givers *g)
{
	pt_feed_free(&g->feed);
	pt_hash_free(g->makers);
	pt_hash_free(g->at);
	pt_hash_free(g->all);
}

const struct pt_giver *pt_giver_of(const struct pt_givers *g,
				   const struct pt_iv *iv)
{
	struct pt_giver *x;

	HASH_FIND(hh, g->all, &iv->waker_tid, sizeof(iv->waker_tid), x);
	return x;
}

bool pt_is_own_channel(const struct pt_givers *g, const struct pt_iv *iv)
{
	const struct pt_given_at *x;
	uint64_t key[2];

	if (iv->wait == PT_WAIT_SIGNAL) /* it says itself who sent it */
		return true;
	if (iv->wait != PT_WAIT_PIPE_IN && iv->wait != PT_WAIT_SOCK)
		return false;
	key_of(iv, key);
	HASH_FIND(hh, g->at, key, sizeof(key), x);
	return x && !x->several &&
	       (double)x->ns >= OWN_PART * (double)(g->an->t1 - g->an->t0);
}

bool pt_waits_in_vain(const struct pt_givers *g, const struct pt_thread *th, const struct pt_iv *iv,
		      uint64_t until)
{
	const struct pt_given_at *x;
	uint64_t key[2];

	if (iv->obj_kind != PT_OBJ_SOCK || !pt_gives_up(th, iv, until))
		return false;
	key_of(iv, key);
	HASH_FIND(hh, g->at, key, sizeof(key), x);
	return x && x->last->th && !x->last->th->proc->outside;
}

enum pt_giver_role pt_role_at(const struct pt_givers *g, const struct pt_iv *iv)
{
	const struct pt_given_at *x;
	uint64_t key[2];

	key_of(iv, key);
	HASH_FIND(hh, g->at, key, sizeof(key), x);
	return x ? x->last->role : PT_GIVER_UNKNOWN;
}
