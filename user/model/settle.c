/* SPDX-License-Identifier: BSD-2-Clause */
/* Ordering of what came in: the ring is nearly in time order, a recorded or
 * hostile stream need not be. */
#include <stdlib.h>
#include <string.h>

#include "model/acts.h"
#include "model/budget.h"
#include "model/classify.h"
#include "model/internal.h"
#include "model/model.h"
#include "model/timeline.h"

PT_ORDER(by_begin, struct pt_iv, pt_cmp(x->begin, y->begin) ?: pt_cmp(x->end, y->end))

PT_ORDER(gpu_by_begin, struct pt_gpu_call,
	 pt_cmp(x->begin, y->begin) ?: pt_cmp(x->tid, y->tid) ?: pt_cmp(x->api, y->api))

/* Drop duplicates and clip overlaps, which only damage can make. */
static void tidy(struct pt_thread *t, size_t from)
{
	size_t i, n = from;

	for (i = from; i < t->iv.n; i++) {
		struct pt_iv iv = t->iv.v[i];

		if (n) {
			uint64_t prev = t->iv.v[n - 1].end;

			if (iv.begin < prev) {
				iv.begin = prev;
				if (iv.ready < prev)
					iv.ready = prev;
			}
			if (iv.begin >= iv.end)
				continue;
		}
		t->iv.v[n++] = iv;
	}
	t->iv.n = n;
}

/*
 * What comes from several CPUs is nearly in order: each record lies a few
 * places off. Insertion then is linear; true disorder is left to qsort.
 */
#define MOVES_MAX 16 /* an element, on average */

#define SORT_NEARLY(vec, cmp)                                                  \
	do {                                                                   \
		size_t n_ = (vec)->n, moves_ = MOVES_MAX * n_, i_, j_;         \
		typeof((vec)->v) v_ = (vec)->v;                                \
		typeof(*v_) x_;                                                \
									       \
		for (i_ = 1; i_ < n_ && moves_; i_++) {                        \
			x_ = v_[i_];                                           \
			for (j_ = i_; j_ && moves_ &&                          \
			     cmp(&v_[j_ - 1], &x_) > 0; j_--, moves_--)        \
				v_[j_] = v_[j_ - 1];                           \
			v_[j_] = x_;                                           \
		}                                                              \
		if (n_ && !moves_)                                             \
			qsort(v_, n_, sizeof(*v_), cmp);                       \
	} while (0)

/*
 * A poll, or a read of an eventfd, that an interrupt ended: what for is not seen. Since it
 * last slept the thread had asked storage for more than its read calls returned, so it
 * waits for the ends of asynchronous reads (libaio's io_submit; the kernel counts them for
 * the task that submits).
 */
static void find_async_reads(struct pt_thread *t, size_t from)
{
	size_t i;

	for (i = from ? from : 1; i < t->iv.n; i++) {
		const struct pt_iv *last = &t->iv.v[i - 1];
		struct pt_iv *iv = &t->iv.v[i];

		if ((iv->wait == PT_WAIT_POLL || iv->wait == PT_WAIT_EVENT) &&
		    !iv->valid_wake && !iv->gap_before && iv->obj_kind != PT_OBJ_SOCK &&
		    iv->rchar >= last->rchar && iv->read_bytes > last->read_bytes &&
		    iv->read_bytes - last->read_bytes > iv->rchar - last->rchar)
			iv->wait = PT_WAIT_DISK;
	}
}

static void settle_thread(struct pt_thread *t)
{
	size_t i, from = t->settled;

	if (from == t->iv.n)
		return;
	for (i = from ? from : 1; i < t->iv.n; i++)
		if (t->iv.v[i].begin < t->iv.v[i - 1].begin)
			break;
	if (i < t->iv.n) {
		SORT_NEARLY(&t->iv, by_begin);
		from = 0;
	}
	tidy(t, from);
	find_async_reads(t, from);
	t->settled = t->iv.n;
}

/* The same call twice: the one whose return was seen stays. */
static void drop_doubles(struct pt_model *m, struct pt_proc *p)
{
	size_t n = 0;

	pt_each(const struct pt_gpu_call, c, &p->gpu) {
		if (n && !gpu_by_begin(&p->gpu.v[n - 1], c)) {
			if (p->gpu.v[n - 1].ret == INT64_MIN)
				p->gpu.v[n - 1] = *c;
			m->doubled++;
			continue;
		}
		p->gpu.v[n++] = *c;
	}
	p->gpu.n = n;
}

PT_ORDER(by_value, uint64_t, pt_cmp(*x, *y))

/* A gap lies before the event that told of it. */
PT_ORDER(nvtx_by_ts, struct pt_nvtx_event,
	 pt_cmp(x->ts, y->ts) ?: pt_cmp(x->tid, y->tid) ?:
	 (y->op == PT_NVTX_GAP) - (x->op == PT_NVTX_GAP))

static void order_calls(struct pt_model *m, struct pt_proc *p)
{
	size_t i;

	for (i = p->settled ? p->settled : 1; i < p->gpu.n; i++)
		if (p->gpu.v[i].begin < p->gpu.v[i - 1].begin)
			break;
	if (i < p->gpu.n) {
		SORT_NEARLY(&p->gpu, gpu_by_begin);
		drop_doubles(m, p);
	}
	p->settled = p->gpu.n;
}

static int settle_proc(struct pt_model *m, struct pt_proc *p, bool all)
{
	int err;

	order_calls(m, p);
	err = pt_find_host_waits(m, p, all);
	order_calls(m, p);
	pt_settle_acts(p);
	SORT_NEARLY(&p->markers, by_value);
	SORT_NEARLY(&p->nvtx, nvtx_by_ts);
	return err;
}

static int settle(struct pt_model *m, bool all)
{
	size_t i;
	int err = 0;

	for (i = 0; i < m->all_threads.n; i++)
		settle_thread(m->all_threads.v[i]);
	for (i = 0; i < m->all_procs.n && !err; i++)
		err = settle_proc(m, m->all_procs.v[i], all);
	return err;
}

int pt_model_settle(struct pt_model *m)
{
	return settle(m, false);
}

static int close_open(struct pt_model *m, struct pt_thread *t, uint64_t end)
{
	struct pt_rec_off *o = &t->open;
	struct pt_iv iv;
	uint64_t last = t->iv.n ? t->iv.v[t->iv.n - 1].end : 0;

	if (!o->hdr.kind || t->exited || o->off_ts < last || o->off_ts >= end)
		return 0;
	memset(&iv, 0, sizeof(iv));
	iv.begin = o->off_ts;
	iv.end = end;
	iv.wait = (uint8_t)pt_classify(o);
	/* A wake-up just as it begins was one that found the thread running: that of a
	 * sleep that goes on is still to come. */
	iv.ready = iv.wait == PT_WAIT_RUNQ ? iv.begin :
		   o->wake_ts > iv.begin && o->wake_ts < iv.end ? o->wake_ts :
								   iv.end;
	iv.object = o->object;
	iv.dev = o->dev;
	iv.arg0 = o->arg[0];
	iv.syscall = (int16_t)o->syscall;
	iv.obj_kind = (uint8_t)o->obj_kind;
	iv.waker_syscall = PT_SYSCALL_NONE;
	iv.open = true;
	iv.since_unknown = o->hdr.flags & PT_F_SINCE_UNKNOWN;
	iv.rchar = o->tot.rchar;
	iv.read_bytes = o->tot.read_bytes;
	iv.wchar = o->tot.wchar;
	t->settled = 0;
	return pt_held_push(&m->held.time, &t->iv, iv);
}

int pt_close_part(struct pt_model *m, uint64_t end)
{
	size_t i;
	int err = 0, e;

	for (i = 0; i < m->all_threads.n; i++) {
		struct pt_thread *t = m->all_threads.v[i];

		e = close_open(m, t, end);
		err = e ? e : err;
		t->open.hdr.kind = 0;
	}
	return err;
}

int pt_model_lend_open(struct pt_model *m)
{
	size_t i;
	int err = 0, e;

	for (i = 0; i < m->all_threads.n; i++) {
		struct pt_thread *t = m->all_threads.v[i];
		size_t n = t->iv.n, settled = t->settled;

		e = close_open(m, t, m->last_ts);
		err = e ? e : err;
		t->lent = t->iv.n > n;
		t->settled = settled + t->lent;
	}
	return err;
}

void pt_model_take_back(struct pt_model *m)
{
	size_t i;

	for (i = 0; i < m->all_threads.n; i++) {
		struct pt_thread *t = m->all_threads.v[i];

		t->iv.n -= t->lent;
		t->settled -= t->lent;
		t->lent = false;
	}
}

static void close_calls(struct pt_thread *t)
{
	struct pt_proc *p = t->proc;
	size_t i;

	pt_check_stack(t);
	while (t->depth) {
		struct pt_inflight *f = &t->stack[--t->depth];

		for (i = p->gpu.n; i-- > 0;) {
			struct pt_gpu_call *c = &p->gpu.v[i];

			if (c->tid != t->tid || c->api != f->api ||
			    c->begin != f->begin)
				continue;
			c->open = true;
			c->end = t->last > c->begin ? t->last : c->begin;
			break;
		}
	}
}

PT_ORDER(thread_by_first, struct pt_thread *, pt_cmp((*x)->first, (*y)->first))

static int proc_by_first(const void *a, const void *b)
{
	const struct pt_proc *x = *(struct pt_proc *const *)a;
	const struct pt_proc *y = *(struct pt_proc *const *)b;

	/* without a thread: known from samples alone */
	if (!x->threads.n || !y->threads.n)
		return (int)!x->threads.n - (int)!y->threads.n;
	return thread_by_first(&x->threads.v[0], &y->threads.v[0]);
}

/* Who comes first in a list must not depend on whose records came first. */
static void order_by_first(struct pt_model *m)
{
	size_t i;

	for (i = 0; i < m->all_procs.n; i++)
		SORT_NEARLY(&m->all_procs.v[i]->threads,
			    thread_by_first);
	SORT_NEARLY(&m->all_threads, thread_by_first);
	SORT_NEARLY(&m->all_procs, proc_by_first);
}

int pt_model_finish(struct pt_model *m)
{
	size_t i;
	int err = 0, e;

	if (m->finished)
		return 0;
	if (!m->begin)
		m->begin = m->first_ts;
	if (!m->end || m->end < m->begin)
		m->end = m->last_ts > m->begin ? m->last_ts : m->begin;
	for (i = 0; i < m->all_threads.n; i++) {
		struct pt_thread *t = m->all_threads.v[i];

		if (!t->exited)
			t->last = m->end;
		e = close_open(m, t, m->end);
		if (e)
			err = e;
		close_calls(t);
	}
	order_by_first(m);
	e = settle(m, true);
	for (i = 0; i < m->all_procs.n; i++)
		pt_join_acts(m->all_procs.v[i]);
	if (!e)
		e = pt_settle_files(m);
	m->finished = true;
	return err ? err : e;
}

/* Passes move through time. Where they were last is kept in the thread and in the
 * process, which are nobody's constants. */
size_t pt_iv_after(const struct pt_thread *t, uint64_t ts)
{
	return ((struct pt_thread *)t)->near =
		       pt_bisect_near(t->iv.n, t->near, i, t->iv.v[i].end <= ts);
}

size_t pt_gpu_after(const struct pt_proc *p, uint64_t ts)
{
	return ((struct pt_proc *)p)->near =
		       pt_bisect_near(p->gpu.n, p->near, i, p->gpu.v[i].begin < ts);
}
