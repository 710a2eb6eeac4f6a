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
#include "analysis/whatif/timers.h"

#define EPS 1e-9
/* A block is long enough to keep what neighbours have in common. */
#define BLOCK 16
/* A stream takes about this many launches before a launch waits. */
#define LAUNCH_QUEUE 1024
#define AHEAD 4 /* steps */

enum state { IDLE, RUN, SLEEP, QUEUED };

/* Who passes time: the makers, behind them the trainer and its other threads. */
#define MAIN(s) ((s)->n)
#define EXTRA(s) ((s)->n + 1)
#define TASKS (PT_WI_MAX_WORKERS + 2)
#define BIT(task) (1ull << (task))
_Static_assert(TASKS <= PT_WI_TIMERS, "each task has a timer and a bit");

struct draw { /* position in a pool of samples */
	size_t at, block;
	uint64_t rnd;
};

struct maker { /* a worker */
	struct draw d;
	const struct pt_wi_pool *pool;
	double extra; /* of the batch: work that is not of its phases */
	size_t phase, end; /* the next of its batch's phases */
	size_t next;	   /* its batch, in order */
	uint8_t lock;	/* held, or queued for */
	size_t ticket;
	bool busy;
};

enum stage { WAITING, LOADING, HOSTWORK, HOSTSLEEP, DEVICE };

struct sim {
	const struct pt_wi_run *r;
	struct maker m[PT_WI_MAX_WORKERS]; /* one even when the trainer loads */
	size_t n;
	/* Of each task: what it does, and at most which share of a core it uses for that. */
	enum state state[TASKS];
	double cap[TASKS];
	/* SLEEP: until when. RUN: until which `turn`, the time that a thread has computed which
	 * always had all of the core that it could use. So nothing has to be counted down. */
	struct pt_wi_timers sleeps, runs;
	double now, turn;
	uint64_t over; /* tasks whose sleep or work has ended; a bit each */
	size_t n_run;
	double wanted; /* cores, by those that RUN and by others */
	struct { bool taken; size_t tickets, served; } lock[PT_WI_PLACES];
	struct draw d;
	struct pt_wi_step step;
	enum stage stage;
	double *avail; /* ring: when batch k may be taken; -1 not yet */
	size_t ring, taken, done, warm;
	size_t started; /* any order: batches made */
	double pin_free, dev_free, warm_at, bus_free, copied, queued;
	bool hungry; /* a maker may begin a batch */
	bool slept;  /* the trainer, for the batch that it wants */
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

/* left: ms of time (SLEEP), or of work (RUN). */
static void set(struct sim *s, size_t task, enum state state, double left)
{
	enum state was = s->state[task];
	bool over = (state == RUN || state == SLEEP) && left <= EPS;

	s->n_run += state == RUN;
	s->n_run -= was == RUN;
	s->wanted += state == RUN ? s->cap[task] : 0;
	s->wanted -= was == RUN ? s->cap[task] : 0;
	s->state[task] = state;
	s->over = over ? s->over | BIT(task) : s->over & ~BIT(task);
	if (state == RUN || was == RUN)
		pt_wi_set_timer(&s->runs, task, state == RUN && !over ?
				s->turn + left / s->cap[task] : INFINITY);
	if (state == SLEEP || was == SLEEP)
		pt_wi_set_timer(&s->sleeps, task, state == SLEEP && !over ?
				s->now + left : INFINITY);
}

static bool is_over(const struct sim *s, size_t task)
{
	return s->over & BIT(task);
}

/* ms of work. */
static double left_of(const struct sim *s, size_t task)
{
	double at = s->runs.at[task];

	return s->state[task] == RUN && isfinite(at) ? (at - s->turn) * s->cap[task] : 0;
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
	if (p->cpu && r->gone & 1u << PT_CAUSE_DISK)
		return p->ms * (1 - r->o->reading);
	return r->in_turn[p->place] && !p->lock && !p->cpu ? p->own : p->ms;
}

static size_t task_of(const struct sim *s, const struct maker *m)
{
	return (size_t)(m - s->m);
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

	set(s, task_of(s, m), p->cpu ? RUN : SLEEP, length_of(s->r, p));
}

static void give_back(struct sim *s, struct maker *m)
{
	uint8_t l = m->lock;

	m->lock = 0;
	s->lock[l].taken = false;
	pt_each_of(struct maker, x, s->m, s->n) {
		if (s->state[task_of(s, x)] != QUEUED || x->lock != l ||
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
		set(s, task_of(s, m), QUEUED, 0);
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
		set(s, task_of(s, m), IDLE, 0);
		return false;
	}
	if (last) {
		set(s, task_of(s, m), RUN, m->extra);
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
	} while (is_over(s, task_of(s, m)));
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

/* Of each step alike; what it is on average. */
static void take_off(double *x, double mean, double *rest)
{
	double part = mean > EPS ? fmin(1, *rest / mean) : 0;

	*x *= 1 - part;
	*rest -= part * mean;
}

/* The host sleeps in copies, or waits in them awake, or copies by itself. */
static void cut_transfers(const struct pt_wi_run *r, struct pt_wi_step *p)
{
	double rest = r->cut_transfer;

	if (rest <= 0)
		return;
	take_off(&p->blocked, r->o->blocked, &rest);
	take_off(&p->gpu_wait, r->o->gpu_wait, &rest);
	take_off(&p->cpu, r->o->cpu, &rest);
}

static void begin_host(struct sim *s)
{
	const struct pt_wi_run *r = s->r;
	struct pt_wi_step *p = &s->step;
	double extra = r->o->extra_cpu, warm;

	*p = r->o->steps.v[draw_next(&s->d, r->o->steps.n, r->seed != 0)];
	warm = p->slept && !s->slept ? r->warm : 1;
	if (r->ready && p->slept)
		*r->ready += !s->slept;
	if (r->waited && s->done >= s->warm)
		*r->waited += s->slept;
	s->slept = false;
	p->cpu += warm * p->take;
	if (r->no_pause)
		p->blocked -= p->pause;
	cut_transfers(r, p);
	p->blocked += warm * r->handover * p->handover;
	if (!r->device_queue)
		p->blocked += p->gpu_wait;
	s->stage = HOSTWORK;
	set(s, MAIN(s), RUN, p->cpu + r->add_cpu);
	extra += left_of(s, EXTRA(s));
	if (extra > EPS)
		set(s, EXTRA(s), RUN, extra);
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
	s->slept |= at < 0 || at > s->now + EPS;
	if (at < 0)
		return;
	if (at > s->now + EPS) { /* made, still in the pin thread */
		set(s, MAIN(s), SLEEP, at - s->now);
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
		set(s, MAIN(s), SLEEP, fmax(s->step.blocked, s->copied - s->now));
		break;
	case HOSTSLEEP:
		s->stage = DEVICE;
		set(s, MAIN(s), SLEEP, device_debt(s));
		break;
	case DEVICE:
		s->done++;
		if (s->done == s->warm)
			s->warm_at = s->now;
		s->stage = WAITING;
		/* fall through */
	default:
		set(s, MAIN(s), IDLE, 0);
		try_take(s);
	}
}

/* ---- time ----------------------------------------------------------------------------- */

/* What a thread that computes gets of what it could use of a core. */
static double share_out(const struct sim *s)
{
	double cores = s->r->cores;

	return cores > 0 && s->wanted > cores ? cores / s->wanted : 1;
}

static void end_by(struct sim *s, struct pt_wi_timers *t, double until)
{
	while (pt_wi_soonest(t) <= until + EPS) {
		s->over |= BIT(pt_wi_first(t));
		pt_wi_set_timer(t, pt_wi_first(t), INFINITY);
	}
}

/* Until the next part of anybody is over. False when that will never be. */
static bool pass(struct sim *s)
{
	double scale = share_out(s), sleep = pt_wi_soonest(&s->sleeps);
	double run = s->now + (pt_wi_soonest(&s->runs) - s->turn) / scale, dt;

	if (s->over)
		return true;
	if (!isfinite(sleep) && !isfinite(run))
		return false;
	/* exactly until then, so that it is over, however large the numbers are */
	dt = fmin(sleep, run) - s->now;
	s->turn = run <= sleep ? pt_wi_soonest(&s->runs) : s->turn + dt * scale;
	s->now += dt;
	s->now = sleep < run ? sleep : s->now;
	if (s->done >= s->warm)
		s->queued += dt * (1 - scale) *
			     (double)(s->n_run - (s->state[EXTRA(s)] == RUN));
	end_by(s, &s->sleeps, s->now);
	end_by(s, &s->runs, s->turn);
	return true;
}

/* To the next event. False when nothing can happen any more. */
static bool advance(struct sim *s)
{
	uint64_t makers = BIT(s->n) - 1, over;
	size_t i;

	if (!pass(s)) /* all first: who gets a lock begins now */
		return false;
	if (is_over(s, EXTRA(s)))
		set(s, EXTRA(s), IDLE, 0);
	for (i = 0; (over = s->over & makers & ~(BIT(i) - 1)); i++) {
		i = (size_t)__builtin_ctzll(over);
		part_done(s, &s->m[i]);
	}
	if (is_over(s, MAIN(s)))
		main_ready(s);
	else if (s->stage <= LOADING && s->state[MAIN(s)] == IDLE)
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
	s->avail = malloc(s->ring * sizeof(*s->avail));
	if (!s->avail)
		return -ENOMEM;
	pt_wi_timers_init(&s->sleeps, s->n + 2);
	pt_wi_timers_init(&s->runs, s->n + 2);
	s->wanted = r->others;
	for (i = 0; i < TASKS; i++)
		s->cap[i] = 1;
	for (i = 0; i < s->ring; i++)
		s->avail[i] = -1;
	for (i = 0; i < s->n; i++) {
		struct maker *m = &s->m[i];

		m->pool = r->pool[i];
		m->next = i;
		s->cap[i] = r->private_share ? m->pool->share : 1;
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
	free(s.avail);
	return mean;
}
