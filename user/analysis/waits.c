/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waits to causes. Each data wait is cut into pieces by what the trainer's
 * main thread did; sleep for a batch is walked back, through the pin thread
 * where there is one, to the worker that delivered, and charged to what that
 * worker was doing then. Pieces cover a wait exactly, so charges sum to it.
 */
#include <errno.h>
#include <string.h>

#include "analysis/internal.h"

#define WALK_DEPTH 3 /* worker -> its helper -> the helper's helper */

struct walker {
	struct pt_an *an;
	struct pt_trainer *t;
	struct pt_step *step;
	struct pt_step *part; /* of its wait: for one batch */
	uint64_t by_cause[PT_CAUSE_NR]; /* of this step */
	uint64_t not_before; /* the hand-over cannot have begun; 0 unknown */
	uint64_t asleep; /* for a batch, inside the wait */
	uint64_t helped; /* asleep for another thread of the trainer */
	struct pt_worker *w;		/* who delivered; NULL unknown */
	bool several;			/* loaders in this wait */
	uint64_t made; /* when w had made the batch; ~0: not before it came */
	const struct pt_thread *th;	/* whose pieces are walked */
	int depth;
};

static int charge(struct walker *k, enum pt_cause cause,
		  const struct pt_thread *who, uint64_t ns,
		  const struct pt_iv *iv)
{
	struct pt_charge c = { 0 };

	k->by_cause[cause] += ns;
	c.cause = (uint8_t)cause;
	c.ns = ns;
	c.syscall = PT_SYSCALL_NONE;
	if (who) {
		c.pid = who->tgid;
		c.tid = who->tid;
	}
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
	if (iv && cause == PT_CAUSE_UNKNOWN)
		c.syscall = iv->syscall;
	return pt_add_charge(&k->t->charges, &c);
}

/* `th` had work and no core, or no quota. */
static int charge_queue(struct walker *k, const struct pt_thread *th,
			uint64_t b, uint64_t e, const struct pt_iv *iv)
{
	return charge(k, pt_queue_cause(k->t, th, iv), th, e - b, NULL);
}

static int walk_thread(struct walker *k, const struct pt_thread *th, uint64_t b,
		       uint64_t e);

/* The same futex, again and again: a lock that is waited for with a timeout
 * (the interpreter's, every 5 ms). This many in a row at most. */
#define RETRIES_MAX 1024

/* The thread of the same process that had what this futex sleep of k->th was
 * for: it ended the sleep, or a later one in the same row of retries. NULL
 * when it cannot be told. */
static const struct pt_thread *holder_of(const struct walker *k,
					 const struct pt_iv *iv)
{
	const struct pt_thread *th = k->th, *h;
	size_t i = (size_t)(iv - th->iv.v), n;

	for (n = 0; n < RETRIES_MAX && i < th->iv.n; n++, i++) {
		const struct pt_iv *x = &th->iv.v[i];

		if (x->wait == PT_WAIT_RUNQ)
			continue;
		if (x->wait != PT_WAIT_FUTEX || x->arg0 != iv->arg0)
			return NULL;
		if (!x->valid_wake)
			continue;
		h = pt_model_thread(k->an->m, x->waker_tid);
		return h && h->tgid == th->tgid && h != th ? h : NULL;
	}
	return NULL;
}

/* A futex sleep: whatever the thread that ended it was doing, if it is of
 * the same process (a helper thread); else a lock. */
static int charge_futex(struct walker *k, uint64_t b, uint64_t e,
			const struct pt_iv *iv)
{
	const struct pt_thread *helper;

	if (k->depth < WALK_DEPTH) {
		helper = holder_of(k, iv);
		if (helper && helper->first <= b)
			return walk_thread(k, helper, b, e);
	}
	return charge(k, PT_CAUSE_LOCK, k->th, e - b, iv);
}

enum pt_cause pt_piece_cause(const struct pt_an *an, const struct pt_worker *w,
			     const struct pt_iv *iv)
{
	bool inside = iv->wait == PT_WAIT_SOCK || iv->wait == PT_WAIT_POLL ?
			      pt_wait_inside(an, iv) : false;

	switch (iv->wait) {
	case PT_WAIT_DISK:
	case PT_WAIT_DISK_WRITE:
		return PT_CAUSE_DISK;
	case PT_WAIT_FAULT:
		return PT_CAUSE_PAGE_FAULT;
	case PT_WAIT_PIPE_IN:
		if (w && (!w->index_pipe || iv->object == w->index_pipe))
			return PT_CAUSE_WORKER_IDLE;
		return PT_CAUSE_IPC;
	case PT_WAIT_PIPE_OUT:
		return PT_CAUSE_IPC;
	case PT_WAIT_SOCK:
		return inside ? PT_CAUSE_IPC : PT_CAUSE_NETWORK;
	case PT_WAIT_POLL:
		return inside ? PT_CAUSE_IPC :
		       iv->obj_kind == PT_OBJ_SOCK ? PT_CAUSE_NETWORK :
						     PT_CAUSE_UNKNOWN;
	case PT_WAIT_FUTEX:
		return PT_CAUSE_LOCK;
	default:
		return PT_CAUSE_UNKNOWN;
	}
}

static int charge_idle(struct walker *k, uint64_t b, uint64_t e);

static int worker_piece(void *ctx, uint64_t b, uint64_t e,
			const struct pt_iv *iv, bool queued)
{
	struct walker *k = ctx;
	enum pt_cause cause;

	if (!iv)
		return charge(k, PT_CAUSE_CPU, k->th, e - b, NULL);
	if (queued)
		return charge_queue(k, k->th, b, e, iv);
	if (iv->wait == PT_WAIT_FUTEX)
		return charge_futex(k, b, e, iv);
	cause = pt_piece_cause(k->an, k->w, iv);
	if (cause == PT_CAUSE_WORKER_IDLE && k->th == k->w->main &&
	    k->w->feeder != k->w->main)
		return charge_idle(k, b, e);
	return charge(k, cause, k->th, e - b, iv);
}

static int walk_thread(struct walker *k, const struct pt_thread *th, uint64_t b,
		       uint64_t e)
{
	const struct pt_thread *saved = k->th;
	int err;

	if (b >= e)
		return 0;
	k->th = th;
	k->depth++;
	err = pt_walk(th, b, e, worker_piece, k);
	k->depth--;
	k->th = saved;
	return err;
}

/* Held up by a lock of its own process: while the thread that had the lock
 * waited for something, that; else the lock. */
static int holder_piece(void *ctx, uint64_t b, uint64_t e,
			const struct pt_iv *iv, bool queued)
{
	struct walker *k = ctx;
	enum pt_cause c = !iv ? PT_CAUSE_LOCK :
			  queued ? pt_queue_cause(k->t, k->th, iv) :
				   pt_piece_cause(k->an, k->w, iv);

	/* at rest, it no longer had it */
	if (c == PT_CAUSE_WORKER_IDLE || c == PT_CAUSE_UNKNOWN)
		c = PT_CAUSE_LOCK;
	return charge(k, c, k->th, e - b, iv);
}

/* The batch is made and on its way: whatever holds the sender up is the
 * hand-over's, but for cores and locks. */
static int sender_piece(void *ctx, uint64_t b, uint64_t e,
			const struct pt_iv *iv, bool queued)
{
	struct walker *k = ctx;
	const struct pt_thread *holder, *self = k->th;
	int err;

	if (iv && queued)
		return charge_queue(k, k->th, b, e, iv);
	if (iv && iv->wait == PT_WAIT_FUTEX) {
		holder = holder_of(k, iv);
		if (holder && holder->first <= b) {
			k->th = holder;
			err = pt_walk(holder, b, e, holder_piece, k);
			k->th = self;
			return err;
		}
	}
	return charge(k, PT_CAUSE_IPC, k->th, e - b, iv);
}

/* The worker has nothing to make, and is waited for: its sender may still
 * have the batch. A sender at rest sleeps until the maker wakes it. */
static int idle_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		      bool queued)
{
	struct walker *k = ctx;
	const struct pt_worker *w = k->w;

	if (iv && !queued && iv->wait == PT_WAIT_FUTEX &&
	    (!iv->valid_wake || iv->waker_tid == w->main->tid))
		return charge(k, PT_CAUSE_WORKER_IDLE, w->main, e - b, iv);
	return sender_piece(k, b, e, iv, queued);
}

static int charge_idle(struct walker *k, uint64_t b, uint64_t e)
{
	const struct pt_thread *saved = k->th;
	int err;

	k->th = k->w->feeder;
	err = pt_walk(k->w->feeder, b, e, idle_piece, k);
	k->th = saved;
	return err;
}

/* What the delivering worker did in [b,e), a stretch of sleep for a batch. */
static int charge_worker(struct walker *k, uint64_t b, uint64_t e)
{
	struct pt_worker *w = k->w;
	uint64_t made = e;
	int err;

	if (b >= e)
		return 0;
	if (!w)
		return charge(k, PT_CAUSE_UNKNOWN, NULL, e - b, NULL);
	w->charged_ns += e - b;
	if (w->feeder != w->main)
		made = pt_min64(pt_max64(k->made, b), e);
	w->making_ns += made - b;
	err = walk_thread(k, w->main, b, made);
	if (err || made >= e)
		return err;
	k->th = w->feeder;
	return pt_walk(w->feeder, made, e, sender_piece, k);
}

/* ... or, in a wait on several loaders, the sender on this sleep's pipe. */
static int charge_sender(struct walker *k, uint64_t b, uint64_t e,
			 const struct pt_iv *iv)
{
	struct pt_worker *w = k->w;
	uint64_t made = k->made;
	int other, err;

	if (k->several) {
		other = pt_sender_on(k->t, k->part, iv->object);
		k->w = other >= 0 ? &k->t->workers.v[other] : NULL;
		if (k->w)
			k->made = pt_made_at(k->t, k->w, k->part);
	}
	err = charge_worker(k, b, e);
	k->w = w;
	k->made = made;
	return err;
}

static int pin_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		     bool queued)
{
	struct walker *k = ctx;

	if (iv && !queued && pt_is_batch_wait(k->t, k->t->pin, iv))
		return charge_sender(k, b, e, iv);
	if (queued)
		return charge_queue(k, k->t->pin, b, e, iv);
	return charge(k, PT_CAUSE_IPC, k->t->pin, e - b, iv);
}

static int main_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		      bool queued)
{
	struct walker *k = ctx;
	struct pt_trainer *t = k->t;
	struct pt_step *s = k->step;
	enum pt_cause cause;

	/* Taking in other workers' early batches delays nothing: the one that
	 * is waited for is not made yet. */
	if (b < k->not_before && !(iv && !queued && pt_is_batch_wait(t, t->main, iv))) {
		uint64_t mid = pt_min64(e, k->not_before);
		int err;

		s->handover_ns += mid - b;
		err = charge_worker(k, b, mid);
		if (err || mid == e)
			return err;
		b = mid;
	}
	if (!iv) {
		if (t->handoffs) {
			s->handover_ns += e - b;
			return charge(k, PT_CAUSE_IPC, t->main, e - b, NULL);
		}
		s->own_cpu_ns += e - b;
		return charge(k, PT_CAUSE_CPU, t->main, e - b, NULL);
	}
	if (queued) {
		*(t->handoffs ? &s->handover_ns : &s->own_cpu_ns) += e - b;
		return charge_queue(k, t->main, b, e, iv);
	}
	if (pt_is_batch_wait(t, t->main, iv)) {
		k->asleep += e - b;
		if (t->pin)
			return pt_walk(t->pin, b, e, pin_piece, k);
		return charge_sender(k, b, e, iv);
	}
	cause = pt_piece_cause(k->an, NULL, iv);
	if (iv->wait == PT_WAIT_SOCK && t->handoffs && iv->valid_wake &&
	    cause == PT_CAUSE_IPC) {
		const struct pt_thread *peer = pt_model_thread(k->an->m,
							       iv->waker_tid);

		/* asking a worker for its descriptors: what its answering
		 * thread did meanwhile */
		if (peer && peer->first <= b) {
			s->handover_ns += e - b;
			k->th = peer;
			return pt_walk(peer, b, e, sender_piece, k);
		}
	}
	if (iv->wait == PT_WAIT_DISK_WRITE) /* what is loaded is not written */
		cause = PT_CAUSE_CHECKPOINT;
	if (cause == PT_CAUSE_DISK || cause == PT_CAUSE_PAGE_FAULT)
		s->own_read_ns += e - b;
	else if (t->handoffs)
		s->handover_ns += e - b;
	else
		s->own_cpu_ns += e - b;
	if (iv->wait == PT_WAIT_FUTEX) {
		k->th = t->main;
		k->depth = 0;
		if (t->handoffs)
			return charge(k, PT_CAUSE_LOCK, t->main, e - b, iv);
		if (holder_of(k, iv))
			k->helped += e - b;
		return charge_futex(k, b, e, iv);
	}
	return charge(k, cause, t->main, e - b, iv);
}

/* One part of a wait: until a batch was obtained. */
static int charge_part(struct walker *k, struct pt_step *part)
{
	struct pt_trainer *t = k->t;

	k->part = part;
	k->several = t->receiver && pt_waits_on_several(t, part);
	k->w = NULL;
	k->made = k->not_before = 0;
	if (part->worker >= 0) {
		k->w = &t->workers.v[part->worker];
		k->made = pt_made_at(t, k->w, part);
		if (!t->pin && !k->several && k->made != UINT64_MAX)
			k->not_before = pt_min64(k->made, part->wait_end);
	}
	return pt_walk(t->main, part->wait_begin, part->wait_end, main_piece,
		       k);
}

/* Charges one wait; *helped: its sleep for other threads of the trainer. */
static int charge_step(struct pt_an *an, struct pt_trainer *t,
		       struct pt_step *s, uint64_t *helped)
{
	struct walker k = { .an = an, .t = t, .step = s };
	uint64_t most = 0, from;
	struct pt_step part;
	int err = 0, c;

	if (s->worker >= 0)
		t->workers.v[s->worker].delivered++;
	for (from = s->wait_begin; from < s->wait_end && !err;
	     from = part.wait_end) {
		part = pt_wait_part(t, s, from);
		err = charge_part(&k, &part);
	}
	*helped += k.helped;
	/* a sleep may reach beyond the wait that it is evidence of */
	s->blocked_ns = pt_min64(s->blocked_ns, k.asleep) + k.helped;
	s->own_cpu_ns -= pt_min64(s->own_cpu_ns, k.helped);
	for (c = 0; c < PT_CAUSE_NR; c++) {
		t->cause_ns[c] += k.by_cause[c];
		if (k.by_cause[c] <= most)
			continue;
		most = k.by_cause[c];
		s->cause = (uint8_t)c;
	}
	return err;
}

int pt_charge_waits(struct pt_an *an, struct pt_trainer *t)
{
	uint64_t helped = 0;
	size_t i;
	int err, c;

	err = pt_find_quota(an, t, t->proc);
	for (i = 0; i < t->workers.n && !err; i++)
		err = pt_find_quota(an, t, t->workers.v[i].proc);
	for (i = 0; i < t->steps.n && !err; i++)
		err = charge_step(an, t, &t->steps.v[i], &helped);
	if (!err)
		err = pt_find_pool(an, t, helped);
	t->top_cause = PT_CAUSE_UNKNOWN;
	for (c = 0; c < PT_CAUSE_NR; c++)
		if (t->cause_ns[c] > t->cause_ns[t->top_cause])
			t->top_cause = (uint8_t)c;
	return err;
}
