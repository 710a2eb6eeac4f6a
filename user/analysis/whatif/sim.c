/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A discrete-event simulation of a loader: workers that make batches in turn, a
 * bounded number in flight, a trainer that takes them, in order or as they come,
 * and uses them. Threads that compute share the cores evenly (processor sharing);
 * where only one may be at a time the others queue in the order in which they
 * came; all else takes the time that it took. As PyTorch's DataLoader does it
 * (measured, and its public sources): taking a batch sends out the next.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/whatif/job.h"

#define EPS 1e-9
/* A block is long enough to keep what neighbours have in common. */
#define BLOCK 16
/* A stream takes about this many launches before a launch waits. */
#define LAUNCH_QUEUE 1024
#define AHEAD 4 /* steps */

enum state { IDLE, RUN, SLEEP, QUEUED };

struct task {
	enum state state;
	double left; /* ms of work (RUN) or of time (SLEEP) */
	double cap;  /* RUN: at most this share of a core */
	double rate;
};

struct draw { /* position in a pool of samples */
	size_t at, block;
	uint64_t rnd;
};

struct maker { /* a worker */
	struct task t;
	struct draw d;
	const struct pt_wi_pool *pool;
	double cap, extra; /* of the batch: work that is not of its phases */
	size_t phase, end; /* the next of its batch's phases */
	size_t next;	   /* its batch, in order */
	uint8_t lock;	/* held, or queued for */
	size_t ticket;
	bool busy;
};

enum stage { WAITING, LOADING, HOSTWORK, HOSTSLEEP, DEVICE };

struct sim {
	const struct pt_wi_run *r;
	struct maker *m; /* one even when the trainer loads */
	size_t n;
	struct task **on; /* theirs that pass time, in their order */
	size_t n_on;
	struct { bool taken; size_t tickets, served; } lock[PT_WI_PLACES];
	struct task main, extra;
	struct draw d;
	struct pt_wi_step step;
	enum stage stage;
	double *avail; /* ring: when batch k may be taken; -1 not yet */
	size_t ring, taken, done, warm;
	size_t started; /* any order: batches made */
	double now, pin_free, dev_free, warm_at, bus_free, copied, queued;
	bool hungry; /* a maker may begin a batch */
};

static uint64_t next_random(uint64_t *s)
{
	uint64_t z = *s += 0x9e3779b97f4a7c15ull; /* SplitMix64 */

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* In order, or blocks from random places: moving-block bootstrap, Kuensch 1989. */
static size_t draw_next(struct draw *d, size_t n, bool random)
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

static void set(struct task *t, enum state s, double left, double cap)
{
	t->state = s;
	t->left = left;
	t->cap = cap;
}

/* ---- makers --------------------------------------------------------------------------- */

/* What only one may have at a time while it is in this phase; 0: nothing. */
static uint8_t lock_of(const struct pt_wi_run *r, const struct pt_wi_phase *p)
{
	if (p->lock && !r->no_locks)
		return p->lock;
	return r->in_turn[p->place] ? p->place : 0;
}

static double length_of(const struct pt_wi_run *r, const struct pt_wi_phase *p)
{
	const struct pt_wi_place *at = &r->o->place[p->place];

	if (!p->cpu && p->place != PT_WI_NOWHERE && r->gone & 1u << at->cause)
		return 0;
	return r->in_turn[p->place] && !p->lock && !p->cpu ? p->own : p->ms;
}

static void draw_item(const struct sim *s, struct maker *m)
{
	const struct pt_wi_item *it;
	size_t tries = 0;

	do
		it = &m->pool->items.v[draw_next(&m->d, m->pool->items.n,
						 s->r->seed != 0)];
	while (s->r->no_tail && it->ms > PT_WI_TAIL * m->pool->usual &&
	       tries++ < BLOCK);
	m->phase = it->first;
	m->end = it->first + it->n;
	m->extra = s->r->add_made;
	m->busy = true;
}

static void begin_phase(struct sim *s, struct maker *m)
{
	const struct pt_wi_phase *p = &m->pool->phases.v[m->phase++];

	set(&m->t, p->cpu ? RUN : SLEEP, length_of(s->r, p), m->cap);
}

static void give_back(struct sim *s, struct maker *m)
{
	uint8_t l = m->lock;

	m->lock = 0;
	s->lock[l].taken = false;
	pt_each_of(struct maker, x, s->m, s->n) {
		if (x->t.state != QUEUED || x->lock != l ||
		    x->ticket != s->lock[l].served)
			continue;
		s->lock[l].served++;
		s->lock[l].taken = true;
		begin_phase(s, x);
		return;
	}
}

static void want(struct sim *s, struct maker *m, uint8_t l)
{
	m->lock = l;
	if (s->lock[l].taken) {
		set(&m->t, QUEUED, INFINITY, 1);
		m->ticket = s->lock[l].tickets++;
		return;
	}
	s->lock[l].taken = true;
	begin_phase(s, m);
}

/* The next part of the batch; false when it is made. */
static bool go_on(struct sim *s, struct maker *m)
{
	bool last = m->phase == m->end;
	uint8_t l = last ? 0 : lock_of(s->r, &m->pool->phases.v[m->phase]);

	if (m->lock && m->lock != l)
		give_back(s, m);
	if (last && m->extra <= EPS) {
		set(&m->t, IDLE, 0, 1);
		return false;
	}
	if (last) {
		set(&m->t, RUN, m->extra, m->cap);
		m->extra = 0;
	} else if (l && !m->lock) {
		want(s, m, l);
	} else {
		begin_phase(s, m);
	}
	return true;
}

static void made(struct sim *s, struct maker *m)
{
	double at = s->now;

	if (s->r->o->pin > 0) {
		s->pin_free = fmax(s->pin_free, at) + s->r->o->pin;
		at = s->pin_free;
	}
	if (!s->r->in_order) /* the next one that is taken */
		m->next = s->started++;
	s->avail[m->next % s->ring] = at;
	m->next += s->n;
}

/* A part is over, or the batch begins: on to what takes time. */
static void part_done(struct sim *s, struct maker *m)
{
	do {
		if (go_on(s, m))
			continue;
		m->busy = false;
		s->hungry = true;
		if (s->r->workers)
			made(s, m);
		return;
	} while (m->t.state != QUEUED && m->t.left <= EPS);
}

/* May maker `i` begin another batch? */
static bool may_start(const struct sim *s, const struct maker *m, size_t busy)
{
	size_t most = s->r->workers * s->r->prefetch;

	return s->r->in_order ? m->next < s->taken + most :
				s->started + busy < s->taken + most;
}

static void feed(struct sim *s)
{
	size_t i, busy = 0;

	if (!s->hungry)
		return;
	s->hungry = false;
	for (i = 0; i < s->r->workers; i++)
		busy += s->m[i].busy;
	pt_each_of(struct maker, m, s->m, s->r->workers) {
		if (m->busy || !may_start(s, m, busy))
			continue;
		busy++;
		draw_item(s, m);
		part_done(s, m);
	}
}

/* ---- the trainer ---------------------------------------------------------------------- */

static void begin_host(struct sim *s)
{
	const struct pt_wi_run *r = s->r;
	struct pt_wi_step *p = &s->step;

	*p = r->o->steps.v[draw_next(&s->d, r->o->steps.n, r->seed != 0)];
	p->cpu += p->take;
	if (r->no_pause)
		p->blocked -= p->pause;
	if (r->cut_transfer > 0) /* of each step alike */
		p->blocked *= 1 - fmin(1, r->cut_transfer / r->o->blocked);
	p->blocked += r->handover * p->handover;
	if (!r->device_queue)
		p->blocked += p->gpu_wait;
	s->stage = HOSTWORK;
	set(&s->main, RUN, p->cpu + r->add_cpu, 1);
	s->extra.left += r->o->extra_cpu;
	if (s->extra.left > EPS)
		s->extra.state = RUN;
	s->extra.cap = 1;
	if (r->device_queue && r->copies_block) {
		/* the copy comes behind all that its stream had */
		p->blocked += fmax(0, s->dev_free - s->now);
		if (r->launch_late)
			s->dev_free = fmax(s->dev_free, s->now) + p->cpu;
	}
	if (r->device_queue)
		s->dev_free = fmax(s->dev_free, s->now) + r->gpu;
	/* this batch's copy behind the one before it, on a bus of its own */
	s->copied = s->bus_free;
	s->bus_free = fmax(s->bus_free, s->now) + r->cut_transfer;
}

/* The trainer wants batch `taken`. */
static void try_take(struct sim *s)
{
	double at;

	if (!s->r->workers) {
		if (s->stage != LOADING) {
			draw_item(s, &s->m[0]);
			s->stage = LOADING;
			part_done(s, &s->m[0]);
		}
		if (!s->m[0].busy)
			begin_host(s);
		return;
	}
	at = s->avail[s->taken % s->ring];
	if (at < 0)
		return;
	if (at > s->now + EPS) { /* made, still in the pin thread */
		set(&s->main, SLEEP, at - s->now, 1);
		return;
	}
	s->avail[s->taken % s->ring] = -1;
	s->taken++;
	s->hungry = true;
	begin_host(s);
}

/* How long the host has to wait for the device at the end of its part. */
static double device_debt(const struct sim *s)
{
	const struct pt_wi_run *r = s->r;
	double owed = s->dev_free - s->now, ahead;

	if (!r->device_queue || owed <= 0)
		return 0;
	if (!r->no_sync && s->step.gpu_wait > 0)
		return owed;
	ahead = r->o->launches > 0 ? floor(LAUNCH_QUEUE / r->o->launches) : 1;
	/* without syncs there is no end to how far; a few steps show the rate */
	ahead = fmin(fmax(1, ahead), r->no_sync || r->o->gpu_wait <= 0 ? AHEAD : ahead) *
		r->gpu;
	return owed > ahead ? owed - ahead : 0;
}

static void main_ready(struct sim *s)
{
	switch (s->stage) {
	case HOSTWORK:
		s->stage = HOSTSLEEP;
		set(&s->main, SLEEP, fmax(s->step.blocked, s->copied - s->now), 1);
		break;
	case HOSTSLEEP:
		s->stage = DEVICE;
		set(&s->main, SLEEP, device_debt(s), 1);
		break;
	case DEVICE:
		s->done++;
		if (s->done == s->warm)
			s->warm_at = s->now;
		s->stage = WAITING;
		/* fall through */
	default:
		set(&s->main, IDLE, 0, 1);
		try_take(s);
	}
}

/* ---- time ----------------------------------------------------------------------------- */

static bool counts(const struct task *t)
{
	return t->state == RUN || t->state == SLEEP;
}

/* What a thread that computes has of a core, of what it could use. */
static double share_out(struct sim *s)
{
	double cores = s->r->cores, scale = 1, wanted = s->r->others;
	size_t i;

	s->n_on = 0;
	for (i = 0; i < s->n; i++) {
		struct task *t = &s->m[i].t;

		if (counts(t))
			s->on[s->n_on++] = t;
		wanted += t->state == RUN ? t->cap : 0;
	}
	wanted += s->main.state == RUN ? s->main.cap : 0;
	wanted += s->extra.state == RUN ? s->extra.cap : 0;
	if (cores > 0 && wanted > cores)
		scale = cores / wanted;
	s->main.rate = s->main.state == RUN ? s->main.cap * scale : 1;
	s->extra.rate = s->extra.cap * scale;
	return scale;
}

static double soonest(const struct task *t, double dt)
{
	double left;

	if (!counts(t))
		return dt;
	left = t->rate == 1 ? t->left : t->left / t->rate;
	return left < dt ? left : dt;
}

static double lacked(const struct task *t, double dt)
{
	return t->state == RUN && t->cap > 0 ? dt * (1 - t->rate / t->cap) : 0;
}

/* Pass `dt`; true when the task's part is over. */
static bool pass(struct sim *s, struct task *t, double dt)
{
	if (s->r->queued && s->done >= s->warm && t != &s->extra)
		s->queued += lacked(t, dt);
	if (!counts(t))
		return false;
	t->left -= dt * t->rate;
	return t->left <= EPS;
}

/* To the next event. False when nothing can happen any more. */
static bool advance(struct sim *s)
{
	double scale = share_out(s), dt;
	bool over, ended = false;
	size_t i;

	dt = soonest(&s->extra, soonest(&s->main, INFINITY));
	for (i = 0; i < s->n_on; i++) {
		struct task *t = s->on[i];

		t->rate = t->state == RUN ? t->cap * scale : 1;
		dt = soonest(t, dt);
	}
	if (!isfinite(dt))
		return false;
	s->now += dt;
	over = pass(s, &s->main, dt);
	if (pass(s, &s->extra, dt))
		set(&s->extra, IDLE, 0, 1);
	for (i = 0; i < s->n_on; i++) /* all first: who gets a lock begins now */
		ended |= pass(s, s->on[i], dt);
	for (i = 0; i < s->n && ended; i++)
		if (counts(&s->m[i].t) && s->m[i].t.left <= EPS)
			part_done(s, &s->m[i]);
	if (over)
		main_ready(s);
	else if (s->stage <= LOADING && s->main.state == IDLE)
		try_take(s);
	feed(s);
	return true;
}

/* ---- begin and end ---------------------------------------------------------------------- */

static int init(struct sim *s, const struct pt_wi_run *r)
{
	size_t i;

	memset(s, 0, sizeof(*s));
	s->r = r;
	s->hungry = true;
	s->n = r->workers ? r->workers : 1;
	s->ring = r->workers * r->prefetch + r->workers + 1;
	s->m = calloc(s->n, sizeof(*s->m));
	s->on = calloc(s->n, sizeof(*s->on));
	s->avail = malloc(s->ring * sizeof(*s->avail));
	if (!s->m || !s->on || !s->avail)
		return -ENOMEM;
	for (i = 0; i < s->ring; i++)
		s->avail[i] = -1;
	for (i = 0; i < s->n; i++) {
		struct maker *m = &s->m[i];

		m->pool = r->pool[i];
		m->next = i;
		m->cap = r->private_share ? m->pool->share : 1;
		m->d.rnd = r->seed + 0x10001u * (i + 1);
		/* workers that share one pool start at different places */
		m->d.at = i * m->pool->items.n / s->n;
	}
	s->d.rnd = r->seed;
	/* until the queue has found its level */
	s->warm = 2 * (r->workers * r->prefetch + 1);
	return 0;
}

double pt_wi_simulate(const struct pt_wi_run *r, int *err)
{
	struct sim s;
	double mean = NAN;
	size_t i;

	*err = 0;
	if (!r->o->steps.n || !r->n || (r->workers && !r->prefetch))
		return NAN;
	for (i = 0; i < (r->workers ? r->workers : 1); i++)
		if (!r->pool[i] || !r->pool[i]->items.n)
			return NAN;
	*err = init(&s, r);
	if (*err)
		goto out;
	feed(&s);
	try_take(&s);
	while (s.done < s.warm + r->n)
		if (!advance(&s))
			goto out;
	mean = (s.now - s.warm_at) / (double)r->n;
	/* programs for a batch must be done by then, however many may run at once */
	if (r->cores > 0)
		mean = fmax(mean, r->o->programs_cpu / r->cores);
	if (r->queued)
		*r->queued = s.queued / (double)r->n;
out:
	free(s.m);
	free(s.on);
	free(s.avail);
	return mean;
}
