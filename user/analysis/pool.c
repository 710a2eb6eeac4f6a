/* SPDX-License-Identifier: BSD-2-Clause */
/* Loaders that are threads of the trainer itself: who they are, when they
 * rest, and what they delivered. */
#include <errno.h>

#include "analysis/internal.h"

/* A thread with less of the charges than this is none of them. */
#define POOL_SHARE 0.05
/* More addresses than these are no condition's of a pool. */
#define ADDR_MAX 64

static bool has(const pt_times *v, uint64_t addr)
{
	size_t i;

	for (i = 0; i < v->n; i++)
		if (v->v[i] == addr)
			return true;
	return false;
}

static int add(pt_times *v, uint64_t addr)
{
	return v->n >= ADDR_MAX || has(v, addr) ? 0 : pt_vec_push(v, addr);
}

/* Addresses that `th` slept on; of a pool thread, where the trainer's main
 * thread (`by`) ended the sleep. */
static int sleeps_of(const struct pt_an *an, const struct pt_thread *th,
		     const struct pt_thread *by, pt_times *out)
{
	size_t i;

	for (i = pt_iv_after(th, an->t0); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];

		if (iv->begin >= an->t1)
			break;
		if (iv->wait == PT_WAIT_FUTEX &&
		    (!by || (iv->valid_wake && iv->waker_tid == by->tid)) &&
		    add(out, iv->arg0))
			return -ENOMEM;
	}
	return 0;
}

/* A thread of the pool rests where the main thread wakes it, and where that
 * never sleeps itself: not the lock that both need. */
static int find_rests(const struct pt_an *an, struct pt_trainer *t)
{
	pt_times own = { 0 }, all = { 0 };
	int err = sleeps_of(an, t->main, NULL, &own);
	size_t i;

	for (i = 0; i < t->pool.n && !err; i++)
		err = sleeps_of(an, t->pool.v[i].thread, t->main, &all);
	for (i = 0; i < all.n && !err; i++)
		if (!has(&own, all.v[i]))
			err = pt_vec_push(&t->pool_rests, all.v[i]);
	pt_vec_free(&own);
	pt_vec_free(&all);
	return err;
}

bool pt_pool_rests(const struct pt_trainer *t, const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_FUTEX && has(&t->pool_rests, iv->arg0);
}

static struct pt_pool_thread *pool_thread(struct pt_trainer *t, uint32_t tid)
{
	size_t i;

	for (i = 0; i < t->pool.n; i++)
		if (t->pool.v[i].thread->tid == tid)
			return &t->pool.v[i];
	return NULL;
}

/* Who of the pool woke the main thread last in the wait of `s`, but for locks
 * that they need themselves; NULL. */
static struct pt_pool_thread *last_waker(struct pt_trainer *t,
					 const struct pt_step *s,
					 const pt_times *locks)
{
	const struct pt_thread *th = t->main;
	struct pt_pool_thread *found = NULL, *p;
	size_t i;

	for (i = pt_iv_after(th, s->wait_begin); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];

		if (iv->begin >= s->wait_end || iv->ready > s->wait_end)
			break;
		if (iv->wait != PT_WAIT_FUTEX || !iv->valid_wake ||
		    has(locks, iv->arg0))
			continue;
		p = pool_thread(t, iv->waker_tid);
		found = p ? p : found;
	}
	return found;
}

/* Batches are seen only where somebody waits for them: they are counted where
 * every wait shows who ended it. */
static int count_batches(const struct pt_an *an, struct pt_trainer *t)
{
	pt_times locks = { 0 };
	struct pt_pool_thread *p;
	size_t i;
	int err = 0;

	for (i = 0; i < t->pool.n && !err; i++)
		err = sleeps_of(an, t->pool.v[i].thread, NULL, &locks);
	for (i = 0; i < t->steps.n && !err; i++) {
		if (t->steps.v[i].cut_end)
			continue;
		p = last_waker(t, &t->steps.v[i], &locks);
		if (!p)
			break;
		p->batches++;
	}
	pt_vec_free(&locks);
	if (err || i == t->steps.n)
		return err;
	for (i = 0; i < t->pool.n; i++)
		t->pool.v[i].batches = PT_NULL;
	return 0;
}

/* All threads of the trainer with a charge, and how much. */
static int gather(const struct pt_an *an, struct pt_trainer *t, uint64_t *sum)
{
	size_t i;

	for (i = 0; i < t->charges.n; i++) {
		const struct pt_charge *c = &t->charges.v[i];
		struct pt_pool_thread *p, fresh = { 0 };

		*sum += c->ns;
		if (c->pid != t->proc->tgid || c->tid == t->main->tid)
			continue;
		p = pool_thread(t, c->tid);
		fresh.thread = p ? NULL : pt_model_thread(an->m, c->tid);
		if (p)
			p->charged_ns += c->ns;
		fresh.charged_ns = c->ns;
		if (fresh.thread && pt_vec_push(&t->pool, fresh))
			return -ENOMEM;
	}
	return 0;
}

int pt_find_pool(const struct pt_an *an, struct pt_trainer *t, uint64_t helped)
{
	uint64_t sum = 0;
	size_t i, n = 0;
	int err;

	if (t->handoffs)
		return 0;
	err = gather(an, t, &sum);
	if (err || !sum || helped * 2 < sum) {
		t->pool.n = 0;
		return err;
	}
	t->thread_loader = true;
	for (i = 0; i < t->pool.n; i++)
		if ((double)t->pool.v[i].charged_ns >= POOL_SHARE * (double)sum)
			t->pool.v[n++] = t->pool.v[i];
	t->pool.n = n;
	t->concurrent += n;
	err = count_batches(an, t);
	return err ? err : find_rests(an, t);
}
