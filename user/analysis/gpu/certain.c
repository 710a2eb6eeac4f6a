/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a wait of the host shows for certain. A host that waits in a sync and
 * has to sleep was told of the end by somebody: an interrupt, or a thread of
 * the process that serves the device. That thread was woken by an interrupt in
 * turn, and may have waited for a core since, so the device may have stopped
 * as early as when that thread was woken. On the run queue nothing is known of
 * the device. A host that spins sees the end at once, unless the end was to be
 * told by such a thread.
 */
#include "analysis/gpu/passes.h"

/* How long a thread that serves the device may take from its CPU to the
 * moment at which a host that spins sees what it has to say. */
#define SERVED_NS 200000ull
/* How long one may run between being woken and waking the host. */
#define RUNS_NS 150000ull

/* May `th` be one that serves the device: it makes no GPU calls itself. */
static bool serves(const struct pt_thread *th)
{
	return !th->calls;
}

static bool asleep(const struct pt_iv *iv)
{
	return iv->ready > iv->begin && iv->wait != PT_WAIT_FAULT &&
	       iv->wait != PT_WAIT_DISK && iv->wait != PT_WAIT_DISK_WRITE &&
	       iv->wait != PT_WAIT_STOPPED && iv->wait != PT_WAIT_RUNQ;
}

/* The thread of the process that ended the sleep; NULL: another process, or nobody known, an
 * interrupt. */
static const struct pt_thread *ended_by(const struct pt_an *an, const struct pt_proc *p,
					const struct pt_iv *iv)
{
	const struct pt_thread *w = iv->waker_tid && iv->valid_wake ?
		pt_model_thread(an->m, iv->waker_tid) : NULL;

	return w && w->proc == p ? w : NULL;
}

/* The sleep from which the thread came when it was running at `at`; NULL: it was awake since
 * before `from`. It may have been preempted since it was woken. */
static const struct pt_iv *slept_before(const struct pt_thread *w, uint64_t from, uint64_t at)
{
	size_t i;

	for (i = pt_iv_after(w, at); i-- > 0;) {
		const struct pt_iv *iv = &w->iv.v[i];

		if (iv->end > at)
			continue;
		if (iv->end < from || iv->gap_before)
			return NULL;
		if (iv->ready > iv->begin)
			return iv->ready >= from ? iv : NULL;
	}
	return NULL;
}

/* Threads that serve a device one behind the other (a function of the host's: three). */
#define SERVERS_MAX 8

/* When the thread that ended the sleep was woken itself, or the first of several of which each
 * woke the next; 0: it was awake since before `from`, or is none that serves the device. */
static uint64_t woken(const struct pt_an *an, const struct pt_proc *p,
		      const struct pt_iv *by, uint64_t from, uint64_t *likely)
{
	const struct pt_thread *w = ended_by(an, p, by);
	uint64_t at = by->ready;
	int hop;

	*likely = at;
	if (w && !serves(w))
		return 0;
	for (hop = 0; w && serves(w) && hop < SERVERS_MAX; hop++) {
		by = slept_before(w, from, at);
		if (!by)
			return 0;
		/* not what woke it, if it has been running for long since */
		if (at - by->end < RUNS_NS)
			*likely = by->ready;
		at = by->ready;
		w = ended_by(an, p, by);
	}
	return at;
}

/* A host that spun until `ts`: a thread that serves the device may have told
 * it the end, later than that was. */
static uint64_t spun(const struct pt_proc *p, uint64_t from, uint64_t ts)
{
	uint64_t at = ts;
	size_t i;

	for (i = 0; i < p->threads.n; i++) {
		const struct pt_thread *th = p->threads.v[i];
		const struct pt_iv *iv;

		if (!serves(th))
			continue;
		iv = pt_iv_before(th, ts);
		if (iv && iv->end > from && ts - iv->end < SERVED_NS &&
		    iv->ready < at)
			at = iv->ready;
	}
	return at > from ? at : 0;
}

uint64_t pt_wait_end(const struct pt_an *an, const struct pt_proc *p,
		     const struct pt_gpu_call *c, bool spins, uint64_t *likely)
{
	const struct pt_thread *th = pt_model_thread(an->m, c->tid);
	uint64_t pos = c->end, at;
	size_t i;

	*likely = c->end;
	if (!th || c->end < c->begin + PT_BLOCKED_NS)
		return 0;
	/* from the end to the beginning: the last piece that tells */
	for (i = pt_iv_after(th, c->end); i <= th->iv.n; i--) {
		const struct pt_iv *iv = i < th->iv.n ? &th->iv.v[i] : NULL;

		if (iv && iv->begin < c->end) {
			uint64_t end = pt_min64(iv->end, c->end);

			if (iv->end <= c->begin)
				break;
			if (pos > end + (spins ? PT_SPUN_NS : PT_BLOCKED_NS)) {
				at = spins ? spun(p, pt_max64(c->begin, end), pos) : 0;
				*likely = at ? at : pos;
				return at;
			}
			if (iv->gap_before)
				return 0;
			at = asleep(iv) && !iv->open ?
				     woken(an, p, iv, pt_max64(c->begin, iv->begin),
					   likely) : 0;
			if (at)
				return at;
			pos = pt_max64(iv->begin, c->begin);
		}
		if (!i)
			break;
	}
	if (!spins || pos <= c->begin + PT_SPUN_NS)
		return 0;
	at = spun(p, c->begin, pos);
	*likely = at ? at : pos;
	return at;
}
