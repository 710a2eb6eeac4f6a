/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/givers.h"

#include <errno.h>
#include <string.h>

#include "model/callclass.h"
#include "model/socks.h"
#include "model/syscalls.h"

/* A role takes so many sleeps: one or two are chance. */
#define SLEEPS_MIN 3
/* Of the way back from a giver's wake-ups; more of another kind decides. */
#define ROLE_SHARE 0.5
/* A supplier's own part of the way back may be small: it relays. */
#define MADE_SHARE 0.1
/* ... of its sleeps: a supplier works ahead, a helper when it is asked. */
#define AHEAD_SHARE 0.5

/* ---- clients and ranks ---------------------------------------------------------- */

static bool is_listening_call(int nr)
{
	return nr == PT_NR_accept || nr == PT_NR_accept4;
}

/* Is whoever ended the sleep a process of the job's own tree? */
static bool ended_inside(const struct pt_an *an, const struct pt_iv *iv)
{
	const struct pt_proc *p = iv->valid_wake ?
				pt_model_proc(an->m, iv->waker_tgid) : NULL;

	return p && !p->outside;
}

bool pt_waits_for_client(const struct pt_an *an, const struct pt_thread *th,
			 const struct pt_iv *iv)
{
	const struct pt_sock *s;

	if (is_listening_call(iv->syscall))
		return !ended_inside(an, iv);
	if (iv->obj_kind != PT_OBJ_SOCK ||
	    (iv->wait != PT_WAIT_SOCK && iv->wait != PT_WAIT_POLL) ||
	    iv->sock & PT_IV_SOCK_INSIDE || ended_inside(an, iv))
		return false;
	s = pt_wait_sock(an, iv);
	/* who connects asks, also when it has had an answer; but for one who only
	 * sends, and is never answered */
	if (s && s->ends.family != PT_AF_UNIX)
		return s->ends.remote_port && s->sent &&
		       pt_sock_accepted(an->m, s);
	if (s && pt_sock_accepted(an->m, s))
		return true;
	/* whoever is followed from there was seen to supply */
	if (pt_model_proc(an->m, iv->waker_tgid))
		return false;
	/* who speaks first asks: of a process that feeds the device, for loaders
	 * are not asked from outside */
	return !(iv->sock & PT_IV_SOCK_AWAITED) && iv->valid_wake &&
	       (s || pt_feeds_device(an, th->proc));
}

bool pt_waits_for_peer(const struct pt_an *an, const struct pt_feed *f,
		       const struct pt_iv *iv)
{
	/* a Unix socket's reader is woken, too, when the other end takes something */
	bool room = iv->valid_wake && iv->wake == PT_WAKE_ROOM &&
		    pt_call_class(iv->syscall) & PT_C_PUT;

	return room || pt_sock_feeds_nothing(f, pt_wait_sock(an, iv));
}

static bool descends_from(const struct pt_model *m, const struct pt_proc *p,
			  uint32_t ancestor)
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
	size_t i;

	for (i = pt_gpu_after(p, an->t0); i < p->gpu.n; i++) {
		if (p->gpu.v[i].begin >= an->t1)
			break;
		if (pt_call_is_step(&p->gpu.v[i]))
			return true;
	}
	return false;
}

/* ---- walks ----------------------------------------------------------------------- */

struct host_walk {
	const struct pt_an *an;
	struct pt_paths *paths;
	const struct pt_actor *a;
};

static enum pt_link host_link(void *ctx, const struct pt_thread *th,
			      const struct pt_iv *iv, uint64_t at,
			      const struct pt_thread **who)
{
	const struct host_walk *k = ctx;

	(void)at;
	if (*who && pt_is_lock(k->paths, th, iv))
		return PT_LINK_LOCK;
	return *who && pt_is_actor(k->a, *who) ? PT_LINK_FOLLOW : PT_LINK_STOP;
}

struct host_ctx {
	struct host_walk k;
	int (*leg)(void *ctx, const struct pt_leg *leg);
	void *ctx;
};

static int host_leg(void *ctx, const struct pt_leg *leg)
{
	struct host_ctx *x = ctx;

	return x->leg(x->ctx, leg);
}

int pt_walk_host(const struct pt_an *an, struct pt_paths *paths,
		 const struct pt_actor *a, const struct pt_gap *g,
		 int (*leg)(void *ctx, const struct pt_leg *leg), void *ctx)
{
	struct host_ctx x = { { an, paths, a }, leg, ctx };
	struct pt_walk_opts o = { .link = host_link, .leg = host_leg, .ctx = &x };

	return pt_walk_back(paths, g->th, g->begin, g->end, &o);
}

enum pt_link pt_cause_link(const struct pt_an *an, struct pt_paths *paths,
			   const struct pt_thread *th, const struct pt_iv *iv,
			   const struct pt_thread *who)
{
	if (!who || pt_waits_for_client(an, th, iv))
		return PT_LINK_STOP;
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

static int walk_cause(const struct pt_an *an, struct pt_paths *paths,
		      const struct pt_thread *th, uint64_t begin, uint64_t end,
		      int (*leg)(void *ctx, const struct pt_leg *leg), void *ctx)
{
	struct host_ctx x = { { an, paths, NULL }, leg, ctx };
	struct pt_walk_opts o = { .link = cause_link, .leg = host_leg, .ctx = &x };

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

/* A loader may use a device for its work, too: it is the consumer's child. */
static bool is_rank(const struct sums *k, const struct pt_proc *p)
{
	return p != k->a->proc && pt_feeds_device(k->g->an, p) &&
	       !descends_from(k->g->an->m, p, k->a->proc->tgid);
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
	} else if (l->kind == PT_LEG_GIVEN && !k->answer &&
		   pt_waits_for_client(k->g->an, l->th, l->iv)) {
		k->x->clients_ns += ns;
	} else if (p != k->a->proc || takes_input(l->iv)) {
		k->x->made_ns += ns;
		by = l->kind == PT_LEG_GIVEN ? l->iv->waker_tgid : p->tgid;
		k->x->beyond_ns += by != k->a->proc->tgid && by != k->x->tgid ? ns : 0;
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
	err = walk_cause(k->g->an, k->g->paths, l->who, x->gap, l->end, asked_leg, k);
	x->by->ahead_ns += k->asked ? 0 : l->end - l->begin;
	return err;
}

static uint64_t stays_in(const struct pt_thread *th, uint64_t b, uint64_t e)
{
	return pt_iv_after(th, e) - pt_iv_after(th, b);
}

static uint64_t read_by(const struct pt_an *an, const struct pt_proc *p)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < p->threads.n; i++)
		sum += pt_read_between(p->threads.v[i], an->t0, an->t1);
	return sum;
}

/* A pipe hands over what is read from it. What is put into shared memory or sent in a
 * message is not counted so. */
static bool is_sized(const struct pt_iv *iv)
{
	return iv->obj_kind == PT_OBJ_PIPE ||
	       (iv->obj_kind == PT_OBJ_SOCK && iv->syscall == PT_NR_read);
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
		x->bytes = who && who->proc != g->own ? read_by(g->an, who->proc) : 0;
	}
	return x;
}

/* What a sleep was on: the end of it that the sleeper sees. */
struct pt_given_at {
	uint64_t key[2]; /* kind of wait, object */
	struct pt_giver *last; /* who ended the last one */
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

static int sum_leg(void *ctx, const struct pt_leg *l)
{
	struct pt_given_at *at;
	struct given given;
	struct sums *k = ctx;
	int err;

	if (l->kind != PT_LEG_GIVEN)
		return 0;
	k->x = giver_make(k->g, l->iv, l->who);
	at = given_at(k->g, l->iv);
	if (!k->x || !at)
		return -ENOMEM;
	given = (struct given){ *l, k->x, k->gap->begin };
	if (l->who && pt_vec_push(&k->given, given))
		return -ENOMEM;
	at->last = k->x;
	k->x->sleeps++;
	k->x->ns += l->end - l->begin;
	k->x->unsized += !is_sized(l->iv);
	k->x->answers += !!(l->iv->sock & PT_IV_SOCK_AWAITED);
	if (!k->x->gaps || k->x->last_gap != k->gap->begin) {
		k->x->gaps++;
		k->x->bytes += pt_read_between(l->th, k->gap->begin, k->gap->end);
		k->x->stays_there += l->who ?
			stays_in(l->who, k->gap->begin, k->gap->end) : 0;
	}
	k->x->last_gap = k->gap->begin;
	if (pt_waits_for_client(k->g->an, l->th, l->iv)) {
		k->x->clients_ns += l->end - l->begin;
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
	return err ? err : walk_cause(k->g->an, k->g->paths, l->who, l->begin,
				      l->end, origin_leg, k);
}

/* ---- roles --------------------------------------------------------------------------- */

/* Not even one upload in so many gaps: it would have come. */
#define GAPS_MIN 4
#define GAPS_FEW 2
/* A thread that writes so much for each sleep that it ends, and reads less than a part of
 * it, writes what it was given: it logs. */
#define WRITTEN_MIN 512
#define READ_PART 4
/* Who supplies is waited for before most uploads, or works ahead of them. */
#define SELDOM 4
/* ... and in the other gaps it rests: a worker sleeps once for each batch and more. */
#define RESTS 2

static bool only_writes(const struct pt_givers *g, const struct pt_giver *x)
{
	const struct pt_thread *th = x->th;
	size_t first = pt_iv_after(th, g->an->t0), last = pt_iv_after(th, g->an->t1);
	uint64_t in, out;

	if (last <= first + 1)
		return false;
	last--;
	in = th->iv.v[last].rchar - th->iv.v[first].rchar;
	out = th->iv.v[last].wchar - th->iv.v[first].wchar;
	return out >= x->sleeps * WRITTEN_MIN && out > in * READ_PART;
}

static bool rests(const struct pt_giver *x)
{
	return x->stays <= x->stays_there + RESTS * x->gaps;
}

/* It works when it is asked: where it was waited for, it had begun in the same gap. */
static bool is_asked(const struct pt_giver *x)
{
	return (double)x->ahead_ns <= MADE_SHARE * (double)x->ns;
}

/* ... as far as the way back shows: a pool's process that takes its next task by itself was
 * asked for that, too. Who works ahead has begun each time. */
static bool is_mostly_asked(const struct pt_giver *x)
{
	return (double)x->ahead_ns <= AHEAD_SHARE / 2 * (double)x->ns;
}

/* Made by the loop itself meanwhile: it begins when it is asked in any case. */
static bool is_newborn(const struct pt_giver *x)
{
	return x->th && (x->th->parent || x->th->proc->born);
}

/* ... and does nothing else. */
static bool is_seldom(const struct pt_givers *g, const struct pt_giver *x,
		      const struct pt_giver *kin)
{
	return x->gaps >= GAPS_FEW && rests(x) && !is_newborn(x) &&
	       kin->gaps * SELDOM <= g->uploads;
}

/* Neither it and its kin nor what it read can be what goes to a device. Nothing at all was
 * read where the kernel does not count it. */
static bool hands_over_little(const struct pt_givers *g, const struct pt_giver *x,
			      const struct pt_giver *kin)
{
	return x->gaps >= GAPS_MIN && !kin->unsized && kin->bytes &&
	       pt_feeds_too_little(&g->feed, kin->bytes);
}

/* Who computes less of the time does not make batches. */
#define WORKS_PART 500

/* Some end none of the consumer's sleeps, are told about as often as something is uploaded
 * that it goes on, and work: batches that are always there in time come from these. */
static bool others_supply(const struct pt_givers *g)
{
	const struct pt_an *an = g->an;
	const struct pt_giver *x;
	uint64_t told = 0;
	size_t i, j;

	for (i = 0; i < an->m->all_procs.n; i++) {
		const struct pt_proc *p = an->m->all_procs.v[i];
		uint64_t n = 0, run = 0;

		if (p->ppid != g->own->tgid || pt_feeds_device(an, p))
			continue;
		for (x = g->all; x && x->tgid != p->tgid; x = x->hh.next)
			;
		for (j = 0; j < p->threads.n && !x; j++) {
			run += pt_run_ns(an, p->threads.v[j]);
			pt_each_iv(iv, p->threads.v[j], an->t0, an->t1) {
				n += iv->valid_wake && iv->waker_tgid == g->own->tgid &&
				     (iv->wake == PT_WAKE_DATA || iv->wake == PT_WAKE_FUTEX ||
				      iv->wake == PT_WAKE_ROOM);
			}
		}
		told += run * WORKS_PART >= an->t1 - an->t0 ? n : 0;
	}
	/* uploads that are not seen say nothing of how often */
	return g->uploads && 2 * told >= g->uploads;
}

/* Works as a supplier does; but what it hands over goes to no device, as far as can be
 * seen. */
static bool is_peer(struct pt_givers *g, const struct pt_giver *x,
		    const struct pt_giver *kin)
{
	bool own = x->th && x->th->proc == g->own;
	bool asked = is_asked(x);

	/* it works when it is asked, and nothing goes to a device, or most batches come
	 * without it */
	if (asked && x->gaps >= GAPS_MIN && pt_feeds_nothing(&g->feed))
		return true;
	if (is_mostly_asked(x) && is_seldom(g, x, kin))
		return true;
	if (asked && !own && x->gaps >= GAPS_MIN && rests(x) && !is_newborn(x) &&
	    g->others_supply)
		return g->guessed = true;
	if (!own)
		return asked && hands_over_little(g, x, kin);
	return (double)x->made_ns < MADE_SHARE * (double)x->ns && only_writes(g, x);
}

/* The consumer fetches by itself: it asks, and only then somebody outside begins, who has
 * what is asked for and waits for nobody. */
static bool may_be_store(const struct pt_giver *x)
{
	return x->th && x->th->proc->outside && 2 * x->answers > x->sleeps &&
	       (double)x->beyond_ns <= MADE_SHARE * (double)x->made_ns;
}

static enum pt_giver_role who_feeds(struct pt_givers *g, const struct pt_giver *x,
				    const struct pt_giver *kin)
{
	if (is_peer(g, x, kin))
		return PT_GIVER_PEER;
	return may_be_store(x) && is_asked(x) ? PT_GIVER_STORE : PT_GIVER_SUPPLIER;
}

/* kin: sums over it and its kin. */
static void find_role(struct pt_givers *g, struct pt_giver *x,
		      const struct pt_giver *kin)
{
	double all = (double)(x->made_ns + x->ranks_ns + x->clients_ns +
			      x->peer_ns + x->helped_ns);

	if (x->th && pt_is_driver_thread(x->th))
		x->role = PT_GIVER_HELPER;
	else if (x->sleeps < SLEEPS_MIN || !(all > 0))
		x->role = PT_GIVER_UNKNOWN;
	else if ((double)x->clients_ns >= ROLE_SHARE * all)
		x->role = PT_GIVER_CLIENT;
	else if ((double)x->ranks_ns >= ROLE_SHARE * all)
		x->role = PT_GIVER_RANK;
	else if ((double)x->peer_ns >= ROLE_SHARE * all)
		x->role = PT_GIVER_PEER;
	else if ((double)x->made_ns >= MADE_SHARE * all ||
		 (double)x->ahead_ns > AHEAD_SHARE * (double)x->ns)
		x->role = who_feeds(g, x, kin);
	else
		x->role = PT_GIVER_HELPER;
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
	return walk_cause(k->g->an, k->g->paths, l->who, l->begin, l->end,
			     maker_leg, k);
}

static int sum_gaps(struct sums *k)
{
	const struct pt_an *an = k->g->an;
	struct pt_gap g;
	size_t i;
	int err = 0;

	k->gap = &g;
	for (i = 0; i <= k->a->calls.n && !err; i++)
		if (pt_gap_before(k->a, i, an->t0, an->t1, &g)) {
			k->g->uploads += i < k->a->calls.n && k->a->calls.v[i].uploads;
			err = pt_walk_host(an, k->g->paths, k->a, &g, sum_leg, k);
		}
	k->gap = NULL;
	return err;
}

/*
 * Threads and processes that come and go (a loader started anew, a program run for each
 * item) are known by their kin: who made them, and their name. Of what is not followed
 * only the process is known.
 */
enum kinds { OF_PROCESS, NOT_FOLLOWED, OWN_THREADS, PROCESSES };
struct kin {
	struct {
		uint32_t kind, id, asked; /* who works ahead is no kin of who is asked */
		char comm[PT_COMM_LEN];
	} key;
	struct pt_giver sum;
	UT_hash_handle hh;
};

static struct kin *kin_of(struct kin **all, enum kinds kind, uint32_t id, bool asked,
			  const char *comm)
{
	struct kin x = { .key = { kind, id, asked, "" } };

	memcpy(x.key.comm, comm, strnlen(comm, sizeof(x.key.comm)));
	return pt_hash_make(*all, key, &x.key);
}

/* ... of one that is followed. */
static struct kin *kin_of_thread(struct kin **all, const struct pt_giver *x,
				 const struct pt_proc *own)
{
	return x->tgid == own->tgid ?
		       kin_of(all, OWN_THREADS, x->tgid, is_mostly_asked(x), x->th->comm) :
		       kin_of(all, PROCESSES, x->th->proc->ppid, is_mostly_asked(x),
			      x->th->proc->comm);
}

static void add_giver(struct pt_giver *sum, const struct pt_giver *x)
{
	sum->sleeps += x->sleeps;
	sum->ns += x->ns;
	sum->gaps += x->gaps;
	sum->bytes += x->bytes;
	sum->unsized += x->unsized;
	sum->answers += x->answers;
	sum->stays += x->stays;
	sum->stays_there += x->stays_there;
	sum->ahead_ns += x->ahead_ns;
	sum->made_ns += x->made_ns;
	sum->ranks_ns += x->ranks_ns;
	sum->clients_ns += x->clients_ns;
	sum->peer_ns += x->peer_ns;
	sum->helped_ns += x->helped_ns;
}

static int sum_kin(const struct pt_actor *a, const struct pt_givers *g, struct kin **all)
{
	const struct pt_giver *x;

	for (x = g->all; x; x = x->hh.next) {
		struct kin *p = kin_of(all, OF_PROCESS, x->tgid, false, "");
		struct kin *q = x->th ? kin_of_thread(all, x, a->proc) :
					kin_of(all, NOT_FOLLOWED, x->tgid, false, "");

		if (!p || !q)
			return -ENOMEM;
		add_giver(&p->sum, x);
		add_giver(&q->sum, x);
	}
	return 0;
}

/* Of those in other processes, if one of them may be no supplier for it. */
static int sum_others_ahead(struct sums *k)
{
	const struct pt_giver *x;
	bool any = false;
	size_t i;
	int err = 0;

	for (x = k->g->all; x; x = x->hh.next)
		any |= x->tgid != k->g->own->tgid &&
		       (k->g->others_supply || pt_feeds_nothing(&k->g->feed) || may_be_store(x) ||
			hands_over_little(k->g, x, x) || is_seldom(k->g, x, x));
	for (i = 0; i < k->given.n && any && !err; i++)
		if (k->given.v[i].by->tgid != k->g->own->tgid)
			err = sum_ahead(k, &k->given.v[i]);
	return err;
}

static int find_roles(struct sums *k)
{
	struct kin *all = NULL, *p, *q;
	struct pt_givers *g = k->g;
	struct pt_giver *x;
	int err = sum_kin(k->a, g, &all);

	for (x = g->all; x && !err; x = x->hh.next) {
		struct pt_giver sum = { .th = x->th };

		p = kin_of(&all, x->th ? NOT_FOLLOWED : OF_PROCESS, x->tgid, false, "");
		q = x->th ? kin_of_thread(&all, x, g->own) : NULL;
		if (p)
			add_giver(&sum, &p->sum);
		if (q)
			add_giver(&sum, &q->sum);
		find_role(g, x, &sum);
		if (x->sleeps >= SLEEPS_MIN)
			continue;
		/* too few were seen */
		find_role(g, &sum, &sum);
		x->role = sum.role;
	}
	pt_hash_free(all);
	return err;
}

/* Whose threads hand over batches, and answer or take something else meanwhile (PyTorch's
 * passes descriptors so), supplies with all of it. */
struct supplier {
	uint32_t tgid;
	UT_hash_handle hh;
};

static int join_peers(struct pt_givers *g)
{
	struct supplier *all = NULL, *p;
	struct pt_giver *x;
	int err = 0;

	for (x = g->all; x && !err; x = x->hh.next)
		if (x->role == PT_GIVER_SUPPLIER && x->tgid != g->own->tgid &&
		    !pt_hash_make(all, tgid, &x->tgid))
			err = -ENOMEM;
	for (x = g->all; x && !err; x = x->hh.next) {
		HASH_FIND(hh, all, &x->tgid, sizeof(x->tgid), p);
		if (p && (x->role == PT_GIVER_PEER || x->role == PT_GIVER_STORE))
			x->role = PT_GIVER_SUPPLIER;
	}
	pt_hash_free(all);
	return err;
}

int pt_find_givers(const struct pt_an *an, struct pt_paths *paths,
		   const struct pt_actor *a, struct pt_givers *out)
{
	struct sums k = { .g = out, .a = a };
	size_t i;
	int err;

	*out = (struct pt_givers){ .an = an, .paths = paths, .own = a->proc };
	err = pt_find_feed(an->m, &out->feed);
	err = err ?: sum_gaps(&k);
	out->others_supply = !err && others_supply(out);
	err = err ?: sum_others_ahead(&k);
	err = err ?: find_roles(&k);
	err = err ?: join_peers(out);
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

enum pt_giver_role pt_role_at(const struct pt_givers *g, const struct pt_iv *iv)
{
	const struct pt_given_at *x;
	uint64_t key[2];

	key_of(iv, key);
	HASH_FIND(hh, g->at, key, sizeof(key), x);
	return x ? x->last->role : PT_GIVER_UNKNOWN;
}
