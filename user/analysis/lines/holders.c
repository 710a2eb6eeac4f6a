/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who had the interpreter's lock while others waited for it: whoever was the next to give it up,
 * which ends the sleep of one who waits. Samples of that thread tell where it was.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/lines/lines.h"
#include "analysis/verdicts/thresholds.h"
#include "analysis/waits/look.h"
#include "analysis/waits/path.h"

/* It asked in vain, and asks again. */
#define AGAIN_NS 200000ull

struct given_up {
	uint64_t ts;
	uint32_t tgid, tid; /* whose lock; who had it until then */
};

struct waiter {
	const struct pt_thread *th;
	pt_spans v; /* its waits for the lock, each from when it was first asked for */
};

struct holders {
	const struct pt_an *an;
	const struct pt_trainer *t;
	const struct pt_paths *paths;
	PT_VEC(struct waiter) waiters;
	PT_VEC(struct given_up) given_up; /* by process and time */
	uint64_t lock_ns, own_ns; /* of their waits for locks; for the interpreter's */
	uint64_t *stacks;	  /* samples, by id - 1 */
	uint64_t samples;
};

static int add_sleep(struct waiter *w, const struct pt_iv *iv)
{
	struct pt_span *last = w->v.n ? &w->v.v[w->v.n - 1] : NULL;
	const struct pt_span new = { iv->begin, iv->ready };

	if (!last || iv->begin > last->end + AGAIN_NS)
		return pt_vec_push(&w->v, new);
	last->end = new.end;
	return 0;
}

/* Of the training thread those in its data waits, or all other. */
static int add_waiter(struct holders *k, const struct pt_thread *th, bool loading)
{
	struct waiter w = { .th = th };
	size_t hint = 0;
	int err = 0;

	pt_each_iv(iv, th, k->an->t0, k->an->t1) {
		if (err || iv->begin < k->an->t0 || iv->ready > k->an->t1 ||
		    (th == k->t->main &&
		     loading != (2 * pt_waits_in(k->t, &hint, iv->begin, iv->ready) >
				 iv->ready - iv->begin)) ||
		    !pt_is_lock(k->paths, th, iv))
			continue;
		k->lock_ns += iv->ready - iv->begin;
		if (!pt_is_interpreter_lock(k->paths, th, iv))
			continue;
		k->own_ns += iv->ready - iv->begin;
		err = add_sleep(&w, iv);
	}
	err = err ?: pt_vec_push(&k->waiters, w);
	if (err)
		pt_vec_free(&w.v);
	return err;
}

static int add_given_up(struct holders *k, const struct pt_thread *th)
{
	bool waits = false;
	size_t i;
	int err = 0;

	for (i = 0; i < k->waiters.n; i++)
		waits |= k->waiters.v[i].th->tgid == th->tgid;
	for (i = 0; waits && i < th->iv.n && !err; i++) {
		const struct pt_iv *iv = &th->iv.v[i];
		const struct given_up new = { iv->ready, th->tgid, iv->waker_tid };

		if (iv->valid_wake && pt_asks_interpreter(k->paths, th, iv))
			err = pt_vec_push(&k->given_up, new);
	}
	return err;
}

PT_ORDER(by_process, struct given_up, pt_cmp(x->tgid, y->tgid) ?: pt_cmp(x->ts, y->ts))

/* Did it have the lock then, in a wait that goes on to `end`? */
static bool had_it(const struct holders *k, const struct pt_thread *x, uint64_t ts, uint64_t end)
{
	const struct given_up at = { ts, x->tgid, 0 };
	size_t n = pt_bisect(k->given_up.n, i, by_process(&k->given_up.v[i], &at) < 0);
	const struct given_up *g = n < k->given_up.n ? &k->given_up.v[n] : NULL;

	return g && g->tgid == x->tgid && g->ts <= end && g->tid == x->tid;
}

/* Each sample once, however many waited then. */
static void mark(const struct holders *k, const struct waiter *w, const struct pt_thread *x,
		 uint8_t *had)
{
	const struct pt_code_look *l = x->looks.v;
	size_t at;

	pt_each(const struct pt_span, v, &w->v) {
		at = pt_bisect(x->looks.n, i, l[i].begin < v->begin);
		for (; at < x->looks.n && l[at].begin < v->end; at++)
			had[at] |= l[at].running && l[at].begin == l[at].end &&
				   had_it(k, x, l[at].begin, v->end);
	}
}

static int count_thread(struct holders *k, const struct pt_thread *x)
{
	uint8_t *had = calloc(x->looks.n + 1, 1);
	size_t i;

	if (!had)
		return -ENOMEM;
	for (i = 0; i < k->waiters.n; i++)
		if (k->waiters.v[i].th->tgid == x->tgid && k->waiters.v[i].th != x)
			mark(k, &k->waiters.v[i], x, had);
	for (i = 0; i < x->looks.n; i++)
		if (had[i] && pt_model_stack(k->an->m, x->looks.v[i].stack)) {
			k->stacks[x->looks.v[i].stack - 1]++;
			k->samples++;
		}
	free(had);
	return 0;
}

static int count(struct holders *k)
{
	const struct pt_model *m = k->an->m;
	size_t i;
	int err = 0;

	k->stacks = calloc(m->code_stacks.n + 1, sizeof(*k->stacks));
	if (!k->stacks)
		return -ENOMEM;
	for (i = 0; i < m->all_threads.n && !err; i++)
		err = add_given_up(k, m->all_threads.v[i]);
	pt_vec_sort(&k->given_up, by_process);
	for (i = 0; i < m->all_threads.n && !err; i++)
		if (m->all_threads.v[i]->looks.n)
			err = count_thread(k, m->all_threads.v[i]);
	return err;
}

int pt_holding_line(const struct pt_an *an, const struct pt_trainer *t, bool loading,
		    uint32_t *line, double *share, uint64_t *samples)
{
	struct holders k = { .an = an, .t = t, .paths = t->look ? t->look->paths : NULL };
	uint64_t most;
	size_t i;
	int err;

	*line = 0;
	if (!k.paths || !an->m->code_stacks.n)
		return 0;
	err = add_waiter(&k, t->main, loading);
	for (i = 0; i < t->workers.n && loading && !err; i++)
		if (t->workers.v[i].main && t->workers.v[i].main != t->main)
			err = add_waiter(&k, t->workers.v[i].main, loading);
	if (err || 2 * k.own_ns < k.lock_ns || !k.own_ns)
		goto out;
	err = count(&k);
	if (!err && k.samples >= PT_HOLDER_SAMPLES)
		err = pt_most_line(an->m, k.stacks, line, &most);
	if (err || !*line)
		goto out;
	*share = (double)most / (double)k.samples;
	*samples = k.samples;
out:
	pt_each(struct waiter, w, &k.waiters)
		pt_vec_free(&w->v);
	pt_vec_free(&k.waiters);
	pt_vec_free(&k.given_up);
	free(k.stacks);
	return err;
}
