/* SPDX-License-Identifier: BSD-2-Clause */
/* A lock keeps a batch from being handed on: what its holder was at meanwhile is the cause. */
#include "analysis/waits/charger.h"
#include "analysis/waits/look.h"

static bool is_maker(const struct pt_charger *k, const struct pt_thread *th)
{
	int w;

	return pt_worker_index(k->t, th, &w) && k->t->workers.v[w].main == th;
}

/* Does `maker` make batches in another process, in which `th` hands them over, or serves who
 * takes them (PyTorch's worker has a thread that passes descriptors)? */
static bool serves_maker(const struct pt_charger *k, const struct pt_thread *th,
			 const struct pt_thread *maker)
{
	return th != maker && th->proc == maker->proc && th->proc != k->t->proc &&
	       is_maker(k, maker);
}

static int has_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv, bool queued)
{
	*(uint64_t *)ctx += !iv || (!queued && iv->wait == PT_WAIT_FAULT) ? e - b : 0;
	return 0;
}

/* Nobody is seen to give the interpreter's lock up: the worker that ran for most of the time had
 * it, or waited for a page, with the lock as no call knows of that. NULL: none did. */
static const struct pt_thread *who_ran(const struct pt_charger *k, const struct pt_leg *l)
{
	const struct pt_trainer *t = k->t;
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		const struct pt_thread *th = t->workers.v[i].main;
		uint64_t ns = 0;

		if (th != l->th && th->proc == l->th->proc)
			pt_walk(th, l->begin, l->end, has_piece, &ns);
		if (2 * ns > l->end - l->begin)
			return th;
	}
	return NULL;
}

static int holder_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
			bool queued);

/* What `who` is at while it keeps a lock from `held_up`, piece by piece. */
static int walk_holder(struct pt_charger *k, const struct pt_thread *who,
		       const struct pt_thread *held_up, uint64_t b, uint64_t e, pt_piece_fn piece)
{
	const struct pt_thread *holder = k->holder, *before = k->held_up;
	int err;

	k->holder = who;
	k->held_up = held_up;
	err = pt_walk(who, b, e, piece, k);
	k->holder = holder;
	k->held_up = before;
	return err;
}

/* Whoever has the interpreter of a sender that has the lock of all senders; NULL: none. */
static const struct pt_thread *behind_sender(const struct pt_charger *k, const struct pt_leg *l)
{
	const struct pt_thread *who =
		l->iv->valid_wake ? pt_model_thread(k->an->m, l->iv->waker_tid) : NULL;

	if (l->th->tgid == k->held_up->tgid || !pt_only_sends(k, l->th))
		return NULL;
	return who && who->tgid == l->th->tgid ? who : who_ran(k, l);
}

/* The holder of a lock that kept a batch from being handed on: what it waited for
 * meanwhile; else the lock. A maker that has the interpreter while who hands over wants it is
 * at the next batch: batches come no faster than it makes them. */
static int holder_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
			bool queued)
{
	struct pt_charger *k = ctx;
	struct pt_leg l = { .begin = b, .end = e, .th = k->holder, .iv = iv };
	enum pt_cause c = !iv ? PT_CAUSE_LOCK :
			  queued ? pt_queue_cause(k->t, k->holder, iv) :
				   pt_sleep_cause(k->an, iv);
	const struct pt_thread *who = c == PT_CAUSE_LOCK && iv ? behind_sender(k, &l) : NULL;

	if (who)
		return walk_holder(k, who, k->holder, b, e, holder_piece);
	if (c == PT_CAUSE_UNKNOWN || c == PT_CAUSE_IPC)
		c = PT_CAUSE_LOCK;
	if (!iv && serves_maker(k, k->held_up, k->holder))
		c = PT_CAUSE_CPU;
	l.kind = c == PT_CAUSE_LOCK ? PT_LEG_LOCK : PT_LEG_BLOCKED;
	/* whoever takes a batch does not make it: the one that has the lock does */
	return pt_charge(k, c, &l, pt_charger_receives(k, k->held_up) ? k->holder : k->held_up);
}

/* A maker waits for the interpreter. As long as whoever has it waits for a page, so would the maker,
 * in its turn: that is the page's. Else they take turns at the lock. */
static int maker_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv, bool queued)
{
	struct pt_charger *k = ctx;
	bool faults = iv && !queued && iv->wait == PT_WAIT_FAULT;
	struct pt_leg l = { .begin = b, .end = e, .th = faults ? k->holder : k->held_up,
			    .iv = iv, .kind = faults ? PT_LEG_BLOCKED : PT_LEG_LOCK };

	return pt_charge(k, faults ? PT_CAUSE_PAGE_FAULT : PT_CAUSE_LOCK, &l, k->held_up);
}

int pt_charge_lock(struct pt_charger *k, const struct pt_leg *l)
{
	const struct pt_thread *who = l->who ? l->who : who_ran(k, l);
	bool maker = is_maker(k, l->th);

	if (!who || (who->tgid != l->th->tgid && !(pt_only_sends(k, who) && pt_only_sends(k, l->th))) ||
	    (maker && !(l->iv && pt_is_interpreter_lock(k->paths, l->th, l->iv))))
		return pt_charge(k, PT_CAUSE_LOCK, l, l->th);
	return walk_holder(k, who, l->th, l->begin, l->end, maker ? maker_piece : holder_piece);
}
