/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which thread of a process makes the batches that come out of it: not the one that only
 * sends them, nor the one that answers for memory.
 */
#include "analysis/waits/loader.h"

uint64_t pt_made_by(const struct pt_givers *g, const struct pt_thread *th)
{
	const struct pt_maker *x;

	HASH_FIND(hh, g->makers, &th, sizeof(th), x);
	return x ? x->ns : 0;
}

/* Less of the way back than this part of the time tells nothing of a process. */
#define MET_SHARE 0.02

static int busy_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		      bool queued)
{
	if (!iv || queued || iv->wait == PT_WAIT_DISK || iv->wait == PT_WAIT_FAULT)
		*(uint64_t *)ctx += e - b;
	return 0;
}

static uint64_t busy_ns(const struct pt_an *an, const struct pt_thread *th)
{
	uint64_t b = pt_max64(an->t0, th->first), ns = 0;

	pt_walk(th, b, pt_max64(b, pt_min64(an->t1, pt_thread_end(an, th))), busy_piece, &ns);
	return ns;
}

/* How long it computes, and waits for something that is not of the job. */
static uint64_t work_ns(const struct pt_an *an, const struct pt_thread *th)
{
	uint64_t ns = pt_run_ns(an, th);

	pt_each_iv(iv, th, an->t0, an->t1) {
		bool answer = iv->sock & PT_IV_SOCK_AWAITED &&
			      !(iv->sock & PT_IV_SOCK_INSIDE);

		if (iv->wait == PT_WAIT_DISK || iv->wait == PT_WAIT_FAULT ||
		    iv->wait == PT_WAIT_SLEEP || answer)
			ns += iv->ready - iv->begin;
	}
	return ns;
}

/* Whoever is given items sleeps for them; fewer than one in so many of all its sleeps
 * are some that a lock's word was not known for. */
#define RESTS_PART 10

static size_t sleeps_of(const struct pt_an *an, const struct pt_thread *th)
{
	size_t n = 0;

	pt_each_iv(iv, th, an->t0, an->t1)
		n += iv->wait != PT_WAIT_RUNQ;
	return n;
}

/* A thread that another one of the process wakes for each item that it writes only
 * sends: who wakes it makes. `th` where there is none, or out of memory. */
static struct pt_thread *maker_behind(const struct pt_an *an,
				      const struct pt_givers *g,
				      struct pt_proc *p, struct pt_thread *th)
{
	struct pt_thread *found = th;
	pt_times items = { 0 };
	size_t i, most = pt_max64(2, sleeps_of(an, th) / RESTS_PART);

	for (i = 0; i < p->threads.n; i++) {
		uint64_t wakes = 0;

		items.n = 0;
		if (p->threads.v[i] == th ||
		    pt_rest_wakes(an, g->paths, th, p->threads.v[i], &items,
				  &wakes) ||
		    items.n <= most || items.n * 4 < wakes)
			continue;
		most = items.n;
		found = p->threads.v[i];
	}
	pt_vec_free(&items);
	return found;
}

#define ASKED_MIN 3

/* How often the consumer's process ended a sleep of the thread with data; of one outside of the
 * job its parent, for to the job it answers by another thread than makes. */
static size_t times_asked(const struct pt_an *an, const struct pt_givers *g,
			  const struct pt_thread *th)
{
	uint32_t by = th->proc->outside ? th->proc->ppid : g->own->tgid;
	size_t n = 0;

	pt_each_iv(iv, th, an->t0, an->t1) {
		n += iv->valid_wake && iv->waker_tgid == by &&
		     (iv->wake == PT_WAKE_DATA || iv->wake == PT_WAKE_FUTEX);
	}
	return n;
}

/* Does the thread end sleeps of the consumer itself? */
static bool gives(const struct pt_givers *g, const struct pt_thread *th)
{
	const struct pt_giver *x;

	HASH_FIND(hh, g->all, &th->tid, sizeof(th->tid), x);
	return x && x->sleeps >= ASKED_MIN;
}

/* A thread that sends may never rest for want of something to send. Then the one
 * that is asked makes what it sends; of several the one that works most. One that
 * answers for memory is asked, too, but answers by itself: it is met most where it
 * waits for the interpreter's lock, and another that is asked works more. */
static struct pt_thread *maker_asked(const struct pt_an *an,
				     const struct pt_givers *g, struct pt_proc *p,
				     struct pt_thread *th)
{
	struct pt_thread *best = NULL;
	bool asked = times_asked(an, g, th) >= ASKED_MIN;
	uint64_t most = work_ns(an, th), ns;
	size_t i;

	if (asked && !gives(g, th))
		return th;
	if (!asked)
		most /= 10;
	for (i = 0; i < p->threads.n; i++) {
		ns = work_ns(an, p->threads.v[i]);
		if (ns <= most || gives(g, p->threads.v[i]) ||
		    times_asked(an, g, p->threads.v[i]) < ASKED_MIN)
			continue;
		best = p->threads.v[i];
		most = ns;
	}
	return best ? best : th;
}

/* Of its threads the one that is met most; where hardly any was, the busiest. */
struct pt_thread *pt_maker_in(const struct pt_an *an,
				  const struct pt_givers *g, struct pt_proc *p)
{
	struct pt_thread *best = NULL, *busiest = NULL;
	uint64_t most = 0, longest = 0, ns;
	size_t i;

	for (i = 0; i < p->threads.n; i++) {
		struct pt_thread *th = p->threads.v[i];

		ns = pt_made_by(g, th);
		if (ns > most) {
			best = th;
			most = ns;
		}
		ns = busy_ns(an, th);
		if (!busiest || ns > longest) {
			busiest = th;
			longest = ns;
		}
	}
	if ((double)most < MET_SHARE * (double)(an->t1 - an->t0))
		best = busiest;
	if (best)
		best = maker_behind(an, g, p, best);
	return best ? maker_asked(an, g, p, best) : NULL;
}
