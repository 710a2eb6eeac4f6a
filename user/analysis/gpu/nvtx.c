/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranges that the program named: push and pop nest in a thread and a domain,
 * start and end pair by the handle, whichever thread ends it. An end without a
 * begin belongs to a range from before the trace; its text is not known, so it
 * does not count, and neither does a begin from before the capture's. A range
 * that is open at the end counts until then, but its length is nobody's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/gpu/operations.h"

/* Deeper nesting, or more started at once, only damage or a leak makes. */
#define MAX_OPEN 1024

struct range {
	const struct pt_nvtx_event *begin;
	bool inner;   /* inside a range of the same text: its time is counted */
	bool unknown; /* which end is its own cannot be told */
};

struct ranges {
	struct pt_ops *o;
	PT_VEC(struct range) open;
	bool mixed_up; /* ends without a handle could be anybody's */
};

static struct pt_op *row_of(struct pt_ops *o, const struct pt_nvtx_event *e)
{
	struct pt_op *p = pt_op_row(o, PT_OP_NVTX, e->op == PT_NVTX_MARK,
				    (uint64_t)(uintptr_t)e->text);

	/* not of the row that the rest shares */
	if (p && p->key.id == (uint64_t)(uintptr_t)e->text)
		p->name = e->text;
	return p;
}

/* `end` is NULL: it was open when the trace ended. */
static int add_range(struct ranges *k, const struct range *r,
		     const struct pt_nvtx_event *end)
{
	const struct pt_an *an = k->o->an;
	const struct pt_thread *th = pt_model_thread(an->m, r->begin->tid);
	uint64_t b = pt_max64(r->begin->ts, an->t0);
	uint64_t e = end ? end->ts : th ? pt_thread_end(an, th) : an->t1;
	struct pt_op *p;

	e = pt_min64(e, an->t1);
	if (b >= an->t1 || e < b || e < an->t0)
		return 0;
	p = row_of(k->o, r->begin);
	if (!p)
		return -ENOMEM;
	p->calls++;
	if (r->unknown)
		return 0;
	if (!r->inner)
		p->total_ns += (double)(e - b);
	if (!end || r->begin->ts < an->t0 || end->ts > an->t1)
		return 0;
	/* one thread's: a range that another ends is nobody's CPU time */
	if (th && !r->inner && end->tid == r->begin->tid)
		p->cpu_ns += (double)pt_cpu_ns(th, b, e);
	return pt_vec_push(&p->us, (double)(e - b) / 1000);
}

/* Everything still open goes: at the end, or because nobody knows. */
static int close_all(struct ranges *k, bool unknown)
{
	int err = 0;
	size_t i;

	for (i = 0; i < k->open.n && !err; i++) {
		k->open.v[i].unknown |= unknown;
		err = add_range(k, &k->open.v[i], NULL);
	}
	k->open.n = 0;
	return err;
}

static bool paired(const struct pt_nvtx_event *e) /* by handle, any thread */
{
	return e->op == PT_NVTX_START || e->op == PT_NVTX_END;
}

static int push(struct ranges *k, const struct pt_nvtx_event *e)
{
	struct range r = { .begin = e };
	size_t i;

	r.unknown = paired(e) && !e->id && k->mixed_up;
	if (k->open.n == MAX_OPEN) {
		r.unknown = true;
		return add_range(k, &r, NULL);
	}
	for (i = 0; i < k->open.n; i++)
		r.inner |= k->open.v[i].begin->text == e->text;
	return pt_vec_push(&k->open, r);
}

static int drop(struct ranges *k, size_t at, const struct pt_nvtx_event *end)
{
	struct range r = k->open.v[at];

	memmove(&k->open.v[at], &k->open.v[at + 1],
		(--k->open.n - at) * sizeof(r));
	return add_range(k, &r, end);
}

static int pop(struct ranges *k, const struct pt_nvtx_event *e)
{
	size_t i;

	for (i = k->open.n; i-- > 0;)
		if (k->open.v[i].begin->domain == e->domain)
			return drop(k, i, e);
	return 0;
}

static int end(struct ranges *k, const struct pt_nvtx_event *e)
{
	size_t i;

	for (i = k->open.n; i-- > 0;)
		if (k->open.v[i].begin->id == e->id)
			return drop(k, i, e);
	return 0;
}

/*
 * Without a profiler the library gives every range the same handle, 0. Then an
 * end is certain to be that of the one range that is open only as long as there
 * never are two, and but for the first event no end comes unasked (its range
 * would be one from before the trace).
 */
static bool mixed_up(const struct pt_proc *p, size_t first)
{
	size_t i, open = 0, n = 0;

	for (i = first; i < p->nvtx.n; i++) {
		const struct pt_nvtx_event *e = &p->nvtx.v[i];

		if (e->id || !paired(e))
			continue;
		if (e->op == PT_NVTX_START ? open++ : n && !open)
			return true;
		if (e->op == PT_NVTX_END && open)
			open--;
		n++;
	}
	return false;
}

static int take_event(struct ranges *k, const struct pt_nvtx_event *e)
{
	struct range mark = { .begin = e, .unknown = true };

	switch (e->op) {
	case PT_NVTX_PUSH:
	case PT_NVTX_START:
		return push(k, e);
	case PT_NVTX_POP:
		return pop(k, e);
	case PT_NVTX_END:
		return end(k, e);
	case PT_NVTX_MARK:
		return e->ts < k->o->an->t0 ? 0 : add_range(k, &mark, e);
	case PT_NVTX_GAP:
		return close_all(k, true);
	default:
		return 0;
	}
}

PT_ORDER(by_thread, struct pt_nvtx_event *, pt_cmp((*x)->tid, (*y)->tid) ?: pt_cmp(*x, *y))

int pt_op_ranges(struct pt_ops *o, const struct pt_proc *p)
{
	const struct pt_nvtx_event **e = NULL;
	/* While hooks were put in, a push may have been seen and its pop not:
	 * what was seen then would never end. */
	uint64_t hooked = o->an->m->begin - o->an->m->trimmed_ns;
	struct ranges k = { .o = o };
	size_t i, first = 0, n = 0;
	int err = 0;

	while (first < p->nvtx.n && p->nvtx.v[first].ts < hooked)
		first++;
	if (first == p->nvtx.n)
		return 0;
	e = malloc(p->nvtx.n * sizeof(*e));
	if (!e)
		return -ENOMEM;
	/* those that nest, thread by thread */
	for (i = first; i < p->nvtx.n; i++)
		if (!paired(&p->nvtx.v[i]))
			e[n++] = &p->nvtx.v[i];
	qsort(e, n, sizeof(*e), by_thread);
	for (i = 0; i < n && !err; i++) {
		if (i && e[i]->tid != e[i - 1]->tid)
			err = close_all(&k, false);
		err = err ?: take_event(&k, e[i]);
	}
	err = err ?: close_all(&k, false);
	/* the others, in time */
	k.mixed_up = mixed_up(p, first);
	for (i = first; i < p->nvtx.n && !err; i++)
		if (paired(&p->nvtx.v[i]))
			err = take_event(&k, &p->nvtx.v[i]);
	err = err ?: close_all(&k, false);
	pt_vec_free(&k.open);
	free(e);
	return err;
}
