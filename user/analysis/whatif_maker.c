/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The replay's workers: each makes a batch after another, out of parts drawn
 * from what was seen. They may share a lock, one disk, and have CPU quotas.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/whatif_sim.h"

/* A block is long enough to keep what neighbours have in common. */
#define BLOCK 16
#define EPS PT_WI_EPS

static uint64_t next_random(uint64_t *s)
{
	uint64_t z = *s += 0x9e3779b97f4a7c15ull; /* SplitMix64 */

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

double pt_wi_random(uint64_t *state)
{
	return (double)(next_random(state) >> 11) / 9007199254740992.0;
}

/* Blocks from random places: moving-block bootstrap, Kuensch 1989. */
size_t pt_wi_draw_next(struct pt_wi_draw *d, size_t n, bool random)
{
	if (random && d->block == 0) {
		d->at = next_random(&d->rnd) % n;
		d->block = BLOCK;
	}
	if (d->block)
		d->block--;
	d->at = d->at + 1 < n ? d->at + 1 : 0;
	return d->at;
}

void pt_wi_set(struct pt_wi_task *t, enum pt_wi_phase p, double left, double cap)
{
	t->phase = p;
	t->left = left;
	t->cap = cap;
}

struct pt_wi_batch pt_wi_sample(const struct pt_wi_run *r,
				const struct pt_wi_pool *p,
				struct pt_wi_draw *d)
{
	struct pt_wi_batch b = p->b.v[pt_wi_draw_next(d, p->b.n, r->seed != 0)];

	if (r->no_disk)
		b.disk = 0;
	if (r->lock_hold > 0) /* replayed, not drawn */
		b.lock = 0;
	b.cpu += r->add_made;
	if (r->runq == PT_WI_QUOTAS)
		b.cpu += p->aux;
	return b;
}

bool pt_wi_next_part(const struct pt_wi_run *r, struct pt_wi_batch *b,
		     struct pt_wi_task *t, double cap)
{
	if (b->disk > EPS) {
		if (r->disk_shared)
			pt_wi_set(t, PT_WI_DISK, b->disk / r->o->readers, 1);
		else
			pt_wi_set(t, PT_WI_LAT, b->disk, 1);
		b->disk = 0;
	} else if (b->cpu > EPS) {
		pt_wi_set(t, PT_WI_CPU, b->cpu, cap);
		b->cpu = 0;
	} else if (b->lock + b->other > EPS) {
		pt_wi_set(t, PT_WI_LAT, b->lock + b->other, 1);
		b->lock = b->other = 0;
	} else {
		pt_wi_set(t, PT_WI_IDLE, 0, 1);
		return false;
	}
	return true;
}

/* ---- the lock --------------------------------------------------------------- */

/* The part of a batch that is made with the lock held. */
static void split_held(const struct pt_wi_run *r, struct pt_wi_maker *w)
{
	double work = w->b.cpu + w->b.disk + w->b.other, f;

	memset(&w->held, 0, sizeof(w->held));
	if (!(r->lock_hold > 0) || !(work > 0))
		return;
	f = fmin(1, r->lock_hold / work);
	w->held.cpu = f * w->b.cpu;
	w->held.disk = f * w->b.disk;
	w->held.other = f * w->b.other;
	w->b.cpu -= w->held.cpu;
	w->b.disk -= w->held.disk;
	w->b.other -= w->held.other;
}

static void unlock(struct pt_wi_makers *k, struct pt_wi_maker *w)
{
	size_t i;

	w->has_lock = k->lock_taken = false;
	for (i = 0; i < k->n; i++) { /* in the order in which they came */
		struct pt_wi_maker *x = &k->v[i];

		if (x->t.phase != PT_WI_LOCK || x->ticket != k->served)
			continue;
		k->served++;
		k->lock_taken = x->has_lock = true;
		pt_wi_next_part(k->r, &x->held, &x->t, x->cap);
		return;
	}
}

/* The next part of the worker's batch; false when it is made. */
static bool go_on(struct pt_wi_makers *k, struct pt_wi_maker *w)
{
	const struct pt_wi_batch *h = &w->held;

	if (w->has_lock) {
		if (pt_wi_next_part(k->r, &w->held, &w->t, w->cap))
			return true;
		unlock(k, w);
		return false;
	}
	if (pt_wi_next_part(k->r, &w->b, &w->t, w->cap))
		return true;
	if (h->cpu + h->disk + h->other <= 4 * EPS) /* each may be too small */
		return false;
	if (k->lock_taken) {
		pt_wi_set(&w->t, PT_WI_LOCK, INFINITY, 1);
		w->ticket = k->tickets++;
		return true;
	}
	k->lock_taken = w->has_lock = true;
	return pt_wi_next_part(k->r, &w->held, &w->t, w->cap);
}

void pt_wi_makers_feed(struct pt_wi_makers *k, size_t limit)
{
	size_t i;

	for (i = 0; i < k->n; i++) {
		struct pt_wi_maker *w = &k->v[i];

		if (w->t.phase != PT_WI_IDLE || w->next >= limit)
			continue;
		w->b = pt_wi_sample(k->r, k->r->pool[i], &w->d);
		split_held(k->r, w);
		if (!go_on(k, w)) /* took no time at all */
			pt_wi_set(&w->t, PT_WI_LAT, 0, 1);
	}
}

/* ---- quotas ----------------------------------------------------------------- */

static void refill(struct pt_wi_makers *k, double now)
{
	const struct pt_wi_quota *q = &k->r->o->quota;
	size_t i;

	for (i = 0; i < k->n_buckets; i++)
		while (k->bucket[i].refill_at <= now + EPS) {
			k->bucket[i].left = q->budget;
			k->bucket[i].refill_at += q->period;
		}
}

static bool dry(const struct pt_wi_maker *w)
{
	return w->quota && w->quota->left <= EPS;
}

double pt_wi_makers_throttled(const struct pt_wi_makers *k, size_t i, double now)
{
	const struct pt_wi_maker *w = &k->v[i];

	return dry(w) ? w->quota->refill_at - now : 0;
}

/* ---- time ------------------------------------------------------------------- */

double pt_wi_makers_want(struct pt_wi_makers *k, double now, size_t *readers)
{
	double wanted = 0;
	size_t i;

	*readers = 0;
	refill(k, now);
	for (i = 0; i < k->n; i++) {
		if (k->v[i].t.phase == PT_WI_CPU && !dry(&k->v[i]))
			wanted += k->v[i].t.cap;
		*readers += k->v[i].t.phase == PT_WI_DISK;
	}
	return wanted;
}

void pt_wi_makers_rate(struct pt_wi_makers *k, double scale, size_t readers)
{
	size_t i;

	for (i = 0; i < k->n_buckets; i++)
		k->bucket[i].drain = 0;
	for (i = 0; i < k->n; i++) {
		struct pt_wi_maker *w = &k->v[i];
		struct pt_wi_task *t = &w->t;

		t->rate = t->phase == PT_WI_DISK ? 1 / (double)readers : 1;
		if (t->phase != PT_WI_CPU)
			continue;
		t->rate = dry(w) ? 0 : t->cap * scale;
		if (w->quota)
			w->quota->drain += t->rate;
	}
}

double pt_wi_makers_soonest(const struct pt_wi_makers *k, double now)
{
	double dt = INFINITY;
	size_t i;

	for (i = 0; i < k->n; i++) {
		const struct pt_wi_maker *w = &k->v[i];
		const struct pt_wi_task *t = &w->t;

		if (t->phase == PT_WI_IDLE || t->phase == PT_WI_LOCK)
			continue;
		if (t->rate > 0)
			dt = fmin(dt, t->left / t->rate);
		if (t->phase == PT_WI_CPU && w->quota) {
			dt = fmin(dt, w->quota->refill_at - now);
			if (w->quota->drain > 0)
				dt = fmin(dt, w->quota->left / w->quota->drain);
		}
	}
	return dt;
}

void pt_wi_makers_pass(struct pt_wi_makers *k, double dt, double now,
		       void (*fn)(void *ctx, struct pt_wi_maker *w), void *ctx)
{
	size_t i;

	for (i = 0; i < k->n_buckets; i++) {
		k->bucket[i].left -= dt * k->bucket[i].drain;
		if (k->bucket[i].left < EPS)
			k->bucket[i].left = 0;
	}
	for (i = 0; i < k->n; i++) {
		struct pt_wi_maker *w = &k->v[i];

		if (w->t.phase != PT_WI_IDLE && w->t.phase != PT_WI_LOCK)
			w->t.left -= dt * w->t.rate;
	}
	refill(k, now);
	for (i = 0; i < k->n; i++) {
		struct pt_wi_maker *w = &k->v[i];

		if (w->t.phase == PT_WI_IDLE || w->t.left > EPS || go_on(k, w))
			continue;
		fn(ctx, w);
		w->next += k->n;
	}
}

double pt_wi_makers_lack(const struct pt_wi_makers *k, double dt)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < k->n; i++)
		if (k->v[i].t.phase == PT_WI_CPU && k->v[i].t.cap > 0)
			sum += dt * (1 - k->v[i].t.rate / k->v[i].t.cap);
	return sum;
}

/* ---- begin and end ---------------------------------------------------------- */

static void init_quotas(struct pt_wi_makers *k)
{
	const struct pt_wi_quota *q = &k->r->o->quota;
	uint64_t rnd = k->r->seed * 77 + 5;
	size_t i;

	if (k->r->runq != PT_WI_QUOTAS || q->of == PT_WI_QUOTA_NONE)
		return;
	k->n_buckets = q->of == PT_WI_QUOTA_EACH ? k->n : k->n ? 1 : 0;
	for (i = 0; i < k->n_buckets; i++) {
		double x = pt_wi_random(&rnd) * q->period;

		k->bucket[i].left = q->budget;
		k->bucket[i].refill_at = k->r->any_phase ? x :
						k->r->pool[i]->phase;
	}
	for (i = 0; i < k->n; i++)
		k->v[i].quota = &k->bucket[k->n_buckets > 1 ? i : 0];
}

int pt_wi_makers_init(struct pt_wi_makers *k, const struct pt_wi_run *r)
{
	size_t i;

	memset(k, 0, sizeof(*k));
	k->r = r;
	k->v = calloc(r->workers + 1, sizeof(*k->v));
	k->bucket = calloc(r->workers + 1, sizeof(*k->bucket));
	if (!k->v || !k->bucket)
		return -ENOMEM;
	k->n = r->workers;
	for (i = 0; i < k->n; i++) {
		struct pt_wi_maker *w = &k->v[i];

		w->next = i;
		w->cap = r->runq == PT_WI_PRIVATE ? r->pool[i]->share : 1;
		w->d.rnd = r->seed + 0x10001u * (i + 1);
		/* workers that share one pool start at different places */
		w->d.at = i * r->pool[i]->b.n / r->workers;
	}
	init_quotas(k);
	return 0;
}

void pt_wi_makers_free(struct pt_wi_makers *k)
{
	free(k->v);
	free(k->bucket);
}
