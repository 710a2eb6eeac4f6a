/* SPDX-License-Identifier: BSD-2-Clause */
#include "model/past.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_WIDTH 1000000u /* ns; doubled whenever the buckets are used up */

/* One stay off the CPU, and the time on it before; where it ended. */
static uint64_t one_stay(const struct pt_iv *v, uint64_t at, pt_state_fn fn,
			 void *ctx)
{
	uint64_t end = v->end > at ? v->end : at;
	uint64_t ready = v->ready < end ? v->ready : end;

	if (!v->gap_before && v->begin > at)
		fn(ctx, at, v->begin, PT_PAST_RUNNING);
	at = v->begin > at ? v->begin : at;
	if (ready > at)
		fn(ctx, at, ready, v->wait);
	at = ready > at ? ready : at;
	if (end > at)
		fn(ctx, at, end, PT_WAIT_RUNQ);
	return end;
}

void pt_thread_states(const struct pt_thread *th,
		      const struct pt_past_thread *past, pt_state_fn fn,
		      void *ctx)
{
	uint64_t at = past ? past->until : th->first;
	bool seen = th->iv.n || (past && past->seen);
	size_t i;

	for (i = 0; i < th->iv.n; i++)
		at = one_stay(&th->iv.v[i], at, fn, ctx);
	if (seen && !th->gap && th->last > at)
		fn(ctx, at, th->last, PT_PAST_RUNNING);
}

/* ---- buckets ------------------------------------------------------------------ */

struct into {
	const struct pt_past *p;
	pt_past_row *v; /* NULL: a thread beyond those that are kept */
};

static void put(void *ctx, uint64_t begin, uint64_t end, unsigned state)
{
	const struct into *to = ctx;
	const struct pt_past *p = to->p;
	uint64_t at, next;
	size_t i;

	if (state >= PT_PAST_STATES)
		state = PT_WAIT_OTHER;
	for (at = begin > p->begin ? begin : p->begin; at < end; at = next) {
		i = (size_t)((at - p->begin) / p->width);
		if (i >= PT_PAST_BUCKETS)
			break;
		next = p->begin + (i + 1) * p->width;
		next = next < end ? next : end;
		p->sum[i][state] += (float)(next - at);
		if (to->v)
			to->v[i][state] += (float)(next - at);
	}
}

static void halve(pt_past_row *v)
{
	size_t i, k;

	for (i = 0; i < PT_PAST_BUCKETS / 2; i++)
		for (k = 0; k < PT_PAST_STATES; k++)
			v[i][k] = v[2 * i][k] + v[2 * i + 1][k];
	memset(v + i, 0, (PT_PAST_BUCKETS - i) * sizeof(*v));
}

static void reach(struct pt_past *p, uint64_t before)
{
	size_t i;

	while ((before - p->begin) / p->width >= PT_PAST_BUCKETS) {
		halve(p->sum);
		for (i = 0; i < p->threads.n; i++)
			halve(p->threads.v[i].v);
		p->width *= 2;
	}
}

static struct pt_past_thread *find(const struct pt_past *p, uint32_t tid)
{
	size_t i;

	for (i = 0; p && i < p->threads.n; i++)
		if (p->threads.v[i].tid == tid)
			return &p->threads.v[i];
	return NULL;
}

const struct pt_past_thread *pt_past_of(const struct pt_past *p, uint32_t tid)
{
	return find(p, tid);
}

static struct pt_past_thread *thread_make(struct pt_past *p,
					  const struct pt_thread *th)
{
	struct pt_past_thread *found = find(p, th->tid);
	struct pt_past_thread t = { .tid = th->tid, .until = th->first };

	if (found || p->threads.n == PT_PAST_THREADS)
		return found;
	t.v = calloc(PT_PAST_BUCKETS, sizeof(*t.v));
	if (!t.v || pt_vec_push(&p->threads, t)) {
		free(t.v);
		return NULL;
	}
	return &p->threads.v[p->threads.n - 1];
}

static int take_thread(struct pt_past *p, const struct pt_thread *th,
		       uint64_t before)
{
	struct pt_past_thread *t;
	struct into to = { .p = p };
	uint64_t at = th->first;
	size_t i;

	/* also one that only ran, or sleeps: its begin is about to be forgotten */
	if (th->first >= before)
		return 0;
	t = thread_make(p, th);
	if (!t && p->threads.n < PT_PAST_THREADS)
		return -ENOMEM;
	if (t) {
		to.v = t->v;
		at = t->until;
	}
	for (i = 0; i < th->iv.n && th->iv.v[i].end <= before; i++)
		at = one_stay(&th->iv.v[i], at, put, &to);
	/* it may be folded before anybody asks */
	if (th->exited && th->last <= before && th->last > at && !th->gap &&
	    (i || (t && t->seen))) {
		put(&to, at, th->last, PT_PAST_RUNNING);
		at = th->last;
	}
	if (t) {
		t->until = at;
		t->seen |= i > 0;
	}
	return 0;
}

int pt_past_take(struct pt_past *p, const struct pt_model *m, uint64_t before)
{
	size_t i;
	int err = 0;

	if (!p->sum) {
		p->sum = calloc(PT_PAST_BUCKETS, sizeof(*p->sum));
		if (!p->sum)
			return -ENOMEM;
		p->begin = m->begin ? m->begin : m->first_ts;
		p->width = FIRST_WIDTH;
	}
	if (before <= p->begin)
		return 0;
	reach(p, before);
	for (i = 0; i < m->all_threads.n && !err; i++)
		err = take_thread(p, m->all_threads.v[i], before);
	return err;
}

void pt_past_free(struct pt_past *p)
{
	size_t i;

	for (i = 0; i < p->threads.n; i++)
		free(p->threads.v[i].v);
	pt_vec_free(&p->threads);
	free(p->sum);
	p->sum = NULL;
}
