/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether workers take turns: of workers that know nothing of each other, who computes for c of
 * the time, two compute at once for c * c of it. Where that hardly happens one lets the other go
 * on: by a lock, a token, a server of locks, a connection; what it is need not be seen.
 *
 * And whether threads that load keep the interpreter from the thread that trains while they compute:
 * where they do not, one more of them finds a core, as a process would.
 */
#include <stdlib.h>

#include "analysis/health.h"
#include "analysis/waits/look.h"

#define LIVES 0.75 /* of the time */
#define SLEPT_NS 200000ull  /* a sleep behind which the consumer takes the interpreter again */
#define BESIDE_NS 5000000ull /* CPython's switch interval: so long from then on ... */
#define BESIDE 0.8	    /* ... somebody computes, for so much of it */
#define ASKED_NS 100000ull  /* from its waking to its asking for the interpreter ... */
#define HELD_NS 1000000ull  /* ... which it does not get for so long */

struct edge {
	uint64_t ts;
	int by;
};
typedef PT_VEC(struct edge) edges;

struct wants {
	edges v;
	uint64_t ns; /* of this worker */
};

static int wants_core(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv, bool queued)
{
	struct wants *k = ctx;
	struct edge *last = k->v.n ? &k->v.v[k->v.n - 1] : NULL;

	if (iv && !queued)
		return 0;
	k->ns += e - b;
	if (last && k->ns > e - b && last->ts == b) {
		last->ts = e;
		return 0;
	}
	return pt_vec_push(&k->v, ((struct edge){ b, 1 })) ?:
	       pt_vec_push(&k->v, ((struct edge){ e, -1 }));
}

PT_ORDER(by_time, struct edge, pt_cmp(x->ts, y->ts) ?: pt_cmp(x->by, y->by))

static double pairs(const edges *v)
{
	double sum = 0, n = 0;
	size_t i;

	for (i = 0; i + 1 < v->n; i++) {
		n += v->v[i].by;
		sum += n * (n - 1) / 2 * (double)(v->v[i + 1].ts - v->v[i].ts);
	}
	return sum;
}

int pt_measure_turns(const struct pt_an *an, const struct pt_trainer *t, double *together,
		     double *chance)
{
	double all = 0, squares = 0;
	struct wants k = { 0 };
	int err = 0;

	*together = *chance = 0;
	pt_each_ok(const struct pt_worker, w, &t->workers, err) {
		uint64_t b = pt_max64(an->t0, w->main->first);
		uint64_t e = pt_min64(an->t1, pt_thread_end(an, w->main));

		/* threads of a process may share an interpreter: locks.c knows that lock. And those of
		 * one epoch do not meet those of the next. */
		if (w->role == PT_ROLE_HELPER || w->main->tid != w->proc->tgid || e <= b ||
		    (double)(e - b) < LIVES * (double)(an->t1 - an->t0))
			continue;
		k.ns = 0;
		err = pt_walk(w->main, b, e, wants_core, &k);
		all += (double)k.ns;
		squares += (double)k.ns * (double)k.ns;
	}
	if (!err && k.v.n) {
		qsort(k.v.v, k.v.n, sizeof(*k.v.v), by_time);
		*together = pairs(&k.v);
		*chance = (all * all - squares) / 2 / (double)(an->t1 - an->t0);
	}
	pt_vec_free(&k.v);
	return err;
}

static bool computes(const struct pt_thread *th, uint64_t b, uint64_t e)
{
	uint64_t asleep = 0;
	size_t i;

	if (th->first > b || (th->exited && th->last < e))
		return false;
	for (i = pt_iv_after(th, b); i < th->iv.n && th->iv.v[i].begin < e; i++)
		asleep += pt_overlap(th->iv.v[i].begin, th->iv.v[i].end, b, e);
	return (double)asleep <= (1 - BESIDE) * (double)(e - b);
}

static bool is_own_thread(const struct pt_trainer *t, const struct pt_worker *w)
{
	return w->role == PT_ROLE_THREAD && w->proc == t->proc;
}

static bool loads_beside(const struct pt_trainer *t, uint64_t ts)
{
	size_t i;

	for (i = 0; i < t->workers.n; i++)
		if (is_own_thread(t, &t->workers.v[i]) &&
		    computes(t->workers.v[i].main, ts, ts + BESIDE_NS))
			return true;
	return false;
}

void pt_measure_apart(const struct pt_an *an, const struct pt_trainer *t,
		      struct pt_pool_time *out)
{
	const struct pt_thread *th = t->main;
	size_t i;

	for (i = 0; i < t->workers.n && !is_own_thread(t, &t->workers.v[i]); i++)
		;
	if (i == t->workers.n)
		return;
	for (i = 0; i + 1 < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i], *next = iv + 1;

		if (iv->end < an->t0 || iv->end + BESIDE_NS >= an->t1 ||
		    iv->ready < iv->begin + SLEPT_NS ||
		    pt_is_interpreter_lock(t->look->paths, th, iv) || !loads_beside(t, iv->end))
			continue;
		out->woken++;
		out->held += next->begin < iv->end + ASKED_NS &&
			     next->ready >= next->begin + HELD_NS &&
			     pt_is_interpreter_lock(t->look->paths, th, next);
	}
}
