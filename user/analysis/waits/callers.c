/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/callers.h"

#include "analysis/waits/gaps.h"
#include "analysis/waits/givers.h"
#include "model/callclass.h"
#include "model/socks.h"
#include "model/syscalls.h"

/* ---- callers ----------------------------------------------------------------------- */

/* So many answers, and calls, tell. */
#define CALLS_MIN 4
/* Of its sleeping, until its own timers end; and of all its time it sleeps for so much. */
#define BY_CLOCK 0.9
#define RESTS 0.5
/* Of what the loop sleeps between two of its GPU calls, behind the answer: who asks for the next
 * batch when it has one has slept before. */
#define BEHIND 0.9
/* Nobody of the job has ended more of its sleeps than this (it was told to begin). */
#define TOLD 0.1
/* More of a process's are not looked at. */
#define ANSWERS_MAX 1000

struct answers {
	const struct pt_an *an;
	uint64_t n, before, after; /* ns that who answers sleeps in the same gaps */
};

static uint64_t sleeps_in(const struct pt_thread *th, uint64_t b, uint64_t e)
{
	uint64_t ns = 0;

	pt_each_iv(iv, th, b, e)
		if (iv->wait != PT_WAIT_RUNQ)
			ns += pt_overlap(iv->begin, iv->ready, b, e);
	return ns;
}

/* Who woke `th` last before `ts`, and when: what it does then it may do for that one. */
static const struct pt_thread *woken_by(const struct pt_an *an, const struct pt_thread *th,
					uint64_t *ts)
{
	size_t i = pt_iv_after(th, *ts);

	while (i-- > 0) {
		const struct pt_iv *iv = &th->iv.v[i];

		if (iv->wait == PT_WAIT_RUNQ || iv->ready > *ts)
			continue;
		*ts = iv->ready;
		return iv->valid_wake ? pt_model_thread(an->m, iv->waker_tid) : NULL;
	}
	return NULL;
}

/* `by`, which calls the device, has told a thread of the caller's something at `ts`; or it had an
 * event loop's thread do so. */
static void take_answer(struct answers *k, const struct pt_thread *by, uint64_t ts)
{
	const struct pt_gpu_call *last;
	uint64_t begin, end = k->an->t1;

	if (!by->calls)
		by = woken_by(k->an, by, &ts);
	last = by && by->calls ? pt_last_call(by->proc, by->tid, ts) : NULL;
	if (!last || ts < last->end)
		return;
	begin = last->end;
	pt_each_call(c, by->proc, ts, k->an->t1)
		if (c->tid == by->tid) {
			end = c->begin;
			break;
		}
	k->n++;
	k->before += sleeps_in(by, begin, ts);
	k->after += sleeps_in(by, ts, end);
}

static bool is_answered(const struct pt_an *an, const struct pt_proc *p)
{
	struct answers k = { .an = an };
	const struct pt_thread *by;
	size_t i;

	for (i = 0; i < p->threads.n; i++)
		pt_each_iv(iv, p->threads.v[i], an->t0, an->t1) {
			if (k.n == ANSWERS_MAX)
				break;
			by = iv->valid_wake ? pt_model_thread(an->m, iv->waker_tid) : NULL;
			if (by && !by->proc->outside)
				take_answer(&k, by, iv->ready);
		}
	return k.n >= CALLS_MIN && (double)k.after >= BEHIND * (double)(k.before + k.after);
}

/* Nobody of the job ends its sleeps, and nearly all of them its own timers do. */
static bool has_own_clock(const struct pt_an *an, const struct pt_thread *th)
{
	uint64_t slept = 0, timed = 0, n = 0, told = 0;

	pt_each_iv(iv, th, an->t0, an->t1) {
		const struct pt_proc *by = iv->valid_wake ? pt_model_proc(an->m, iv->waker_tgid) :
							    NULL;
		uint64_t ns = iv->ready - iv->begin;

		if (iv->wait == PT_WAIT_RUNQ)
			continue;
		n++;
		told += by && !by->outside;
		slept += ns;
		if (iv->wait == PT_WAIT_SLEEP)
			timed += ns;
	}
	return n >= CALLS_MIN && (double)told <= TOLD * (double)n && (double)timed >= BY_CLOCK * (double)slept &&
	       (double)slept >= RESTS * (double)(an->t1 - an->t0);
}

static uint64_t times_spoken(const struct pt_an *an, const struct pt_thread *th)
{
	const struct pt_proc *p;
	uint64_t n = 0;
	size_t i;

	for (p = an->m->procs; p; p = p->hh.next)
		for (i = 0; !p->outside && i < p->threads.n; i++)
			pt_each_iv(iv, p->threads.v[i], an->t0, an->t1)
				n += iv->valid_wake && iv->waker_tid == th->tid;
	return n;
}

int pt_find_callers(const struct pt_an *an, pt_ids *out)
{
	const struct pt_proc *p;
	size_t i;
	int err = 0;

	for (p = an->m->procs; p && !err; p = p->hh.next) {
		if (!p->outside || !is_answered(an, p))
			continue;
		for (i = 0; i < p->threads.n && !err; i++)
			if (has_own_clock(an, p->threads.v[i]) &&
			    times_spoken(an, p->threads.v[i]) >= CALLS_MIN)
				err = pt_vec_push(out, p->threads.v[i]->tid);
	}
	return err;
}

bool pt_is_caller(const struct pt_an *an, uint32_t tid)
{
	pt_each(const uint32_t, id, &an->callers)
		if (*id == tid)
			return true;
	return false;
}

/* ---- clients ----------------------------------------------------------------------- */

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

/* It polls, and somebody connects. */
static bool is_connected(const struct pt_iv *iv)
{
	return (iv->wait == PT_WAIT_POLL || iv->wait == PT_WAIT_SOCK) && iv->valid_wake &&
	       iv->waker_syscall == PT_NR_connect;
}

/* So many sleeps around a poll that timed out are asked what it polls. */
#define POLLS_AROUND 64

/* Nobody came by the time that it gave itself: somebody connected to the same before, or will. */
static bool awaits_connection(const struct pt_thread *th, const struct pt_iv *iv)
{
	size_t at = pt_iv_after(th, iv->begin), i;

	if (iv->wake != PT_WAKE_TIMER || iv->obj_kind != PT_OBJ_SOCK || !iv->object)
		return false;
	for (i = at - pt_min64(at, POLLS_AROUND); i < th->iv.n && i < at + POLLS_AROUND; i++)
		if (th->iv.v[i].object == iv->object && th->iv.v[i].obj_kind == PT_OBJ_SOCK &&
		    is_connected(&th->iv.v[i]))
			return true;
	return false;
}

bool pt_listens(const struct pt_thread *th, const struct pt_iv *iv)
{
	return is_listening_call(iv->syscall) || awaits_connection(th, iv);
}

bool pt_waits_for_client(const struct pt_an *an, const struct pt_thread *th,
			 const struct pt_iv *iv)
{
	const struct pt_sock *s;

	if (is_connected(iv) || pt_listens(th, iv))
		return !ended_inside(an, iv);
	/* who sends waits for room */
	if (pt_call_class(iv->syscall) & PT_C_PUT)
		return false;
	if (iv->obj_kind != PT_OBJ_SOCK ||
	    (iv->wait != PT_WAIT_SOCK && iv->wait != PT_WAIT_POLL) ||
	    iv->sock & PT_IV_SOCK_INSIDE || ended_inside(an, iv))
		return false;
	if (iv->valid_wake && pt_is_caller(an, iv->waker_tid))
		return true;
	s = pt_wait_sock(an, iv);
	/* datagrams of whoever sends some, by his own clock */
	if (s && s->ends.protocol == PT_IPPROTO_UDP && !s->ends.remote_port)
		return true;
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
