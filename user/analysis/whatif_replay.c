/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A discrete-event replay of a loader: workers that make batches in turn, a
 * bounded number in flight, delivery in order, a trainer that obtains a batch
 * and uses it. Threads that compute share the cores evenly (processor
 * sharing); what is neither CPU nor a shared disk takes the time that it took.
 * As PyTorch's DataLoader does it (measured, and its public sources): batch k
 * belongs to worker k mod N, and taking one sends out the next.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/whatif.h"

/* A block is long enough to keep what neighbours have in common. */
#define BLOCK 16
#define EPS 1e-9
/* A stream takes about this many launches before a launch waits. */
#define LAUNCH_QUEUE 1024

enum phase { IDLE, CPU, DISK, LAT };

struct task {
	enum phase phase;
	double left; /* ms of work (CPU, DISK) or of time (LAT) */
	double cap;  /* CPU: at most this share of a core */
	double rate;
};

struct draw { /* position in a pool of samples */
	size_t at, block;
	uint64_t rnd;
};

struct worker {
	struct task t;
	double cap;
	struct draw d;
	struct pt_wi_batch b; /* what is left to do of it */
	size_t next;	      /* its next batch */
};

enum stage { WAITING, LOADING, HOSTWORK, HOSTSLEEP, DEVICE };

struct sim {
	const struct pt_wi_run *r;
	struct worker *w;
	struct task main, extra;
	struct draw d, own;
	struct pt_wi_batch load;
	struct pt_wi_step step;
	enum stage stage;
	double cap;    /* of the trainer when it loads by itself */
	double *avail; /* ring: when batch k may be taken; -1 not yet */
	size_t ring, taken, done;
	double now, pin_free, dev_free, warm_at;
	size_t warm;
	double queued; /* since warm_at */
};

static uint64_t next_random(uint64_t *s)
{
	uint64_t z = *s += 0x9e3779b97f4a7c15ull; /* SplitMix64 */

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Index of the next sample of `n`: in order, or in blocks from random places
 * (moving-block bootstrap: Kuensch 1989). */
static size_t draw(struct draw *d, size_t n, bool random)
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

static void set(struct task *t, enum phase p, double left, double cap)
{
	t->phase = p;
	t->left = left;
	t->cap = cap;
}

static struct pt_wi_batch sample(struct sim *s, const struct pt_wi_pool *p,
				 struct draw *d)
{
	struct pt_wi_batch b = p->b.v[draw(d, p->b.n, s->r->seed != 0)];

	if (s->r->no_disk)
		b.disk = 0;
	return b;
}

/* The next part of a batch; false when it is made. A thread with a quota of its
 * own never has more of a core than `cap`. */
static bool next_part(struct sim *s, struct pt_wi_batch *b, struct task *t,
		      double cap)
{
	if (b->disk > EPS) {
		if (s->r->disk_shared)
			set(t, DISK, b->disk / s->r->o->readers, 1);
		else
			set(t, LAT, b->disk, 1);
		b->disk = 0;
	} else if (b->cpu > EPS) {
		set(t, CPU, b->cpu, cap);
		b->cpu = 0;
	} else if (b->other > EPS) {
		set(t, LAT, b->other, 1);
		b->other = 0;
	} else {
		set(t, IDLE, 0, 1);
		return false;
	}
	return true;
}

/* Start what an idle worker may start. */
static void feed(struct sim *s)
{
	size_t i, limit = s->taken + s->r->workers * s->r->prefetch;

	for (i = 0; i < s->r->workers; i++) {
		struct worker *w = &s->w[i];

		if (w->t.phase != IDLE || w->next >= limit)
			continue;
		w->b = sample(s, s->r->pool[i], &w->d);
		if (!next_part(s, &w->b, &w->t, w->cap)) /* took no time at all */
			set(&w->t, LAT, 0, 1);
	}
}

static void made(struct sim *s, struct worker *w)
{
	double at = s->now;

	if (s->r->o->pin > 0) {
		s->pin_free = fmax(s->pin_free, at) + s->r->o->pin;
		at = s->pin_free;
	}
	s->avail[w->next % s->ring] = at;
	w->next += s->r->workers;
}

static void begin_host(struct sim *s)
{
	const struct pt_wi_run *r = s->r;
	struct pt_wi_step *p = &s->step;

	*p = r->o->steps.v[draw(&s->d, r->o->steps.n, r->seed != 0)];
	p->blocked = fmax(0, p->blocked - r->cut_transfer);
	if (!r->no_handover)
		p->blocked += p->handover;
	p->blocked += r->add_sleep;
	if (!r->device_queue)
		p->blocked += p->gpu_wait;
	s->stage = HOSTWORK;
	set(&s->main, CPU, p->cpu + r->add_cpu, 1);
	s->extra.left += r->o->extra_cpu;
	if (s->extra.left > EPS)
		s->extra.phase = CPU;
	s->extra.cap = 1;
	if (r->device_queue)
		s->dev_free = fmax(s->dev_free, s->now) + r->gpu;
}

/* The trainer wants batch `taken`. */
static void try_take(struct sim *s)
{
	double at;

	if (!s->r->workers) {
		s->load = sample(s, s->r->pool[0], &s->own);
		s->stage = LOADING;
		if (!next_part(s, &s->load, &s->main, s->cap))
			begin_host(s);
		return;
	}
	at = s->avail[s->taken % s->ring];
	if (at < 0)
		return;
	if (at > s->now + EPS) { /* made, still in the pin thread */
		set(&s->main, LAT, at - s->now, 1);
		return;
	}
	s->avail[s->taken % s->ring] = -1;
	s->taken++;
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
	ahead = fmax(1, ahead) * r->gpu;
	return owed > ahead ? owed - ahead : 0;
}

static void step_done(struct sim *s)
{
	s->done++;
	if (s->done == s->warm)
		s->warm_at = s->now;
	s->stage = WAITING;
	set(&s->main, IDLE, 0, 1);
	try_take(s);
}

static void main_ready(struct sim *s)
{
	double owed;

	switch (s->stage) {
	case WAITING:
		set(&s->main, IDLE, 0, 1);
		try_take(s);
		break;
	case LOADING:
		if (!next_part(s, &s->load, &s->main, s->cap))
			begin_host(s);
		break;
	case HOSTWORK:
		s->stage = HOSTSLEEP;
		set(&s->main, LAT, s->step.blocked, 1);
		break;
	case HOSTSLEEP:
		owed = device_debt(s);
		s->stage = DEVICE;
		set(&s->main, LAT, owed, 1);
		break;
	case DEVICE:
		step_done(s);
		break;
	}
}

static void share_out(struct sim *s)
{
	double wanted = s->r->others, cores = s->r->cores, scale = 1;
	size_t i, readers = 0;

	if (s->main.phase == CPU)
		wanted += s->main.cap;
	if (s->extra.phase == CPU)
		wanted += s->extra.cap;
	for (i = 0; i < s->r->workers; i++) {
		if (s->w[i].t.phase == CPU)
			wanted += s->w[i].t.cap;
		readers += s->w[i].t.phase == DISK;
	}
	if (cores > 0 && wanted > cores)
		scale = cores / wanted;
	s->main.rate = s->main.phase == CPU ? s->main.cap * scale : 1;
	s->extra.rate = s->extra.cap * scale;
	for (i = 0; i < s->r->workers; i++) {
		struct task *t = &s->w[i].t;

		t->rate = t->phase == CPU ? t->cap * scale :
			  t->phase == DISK ? 1 / (double)readers : 1;
	}
}

static double soonest(const struct task *t, double dt)
{
	return t->phase == IDLE ? dt : fmin(dt, t->left / t->rate);
}

/* What a thread that wants `cap` of a core lacks of it in `dt`. */
static double lacked(const struct task *t, double dt)
{
	return t->phase == CPU && t->cap > 0 ? dt * (1 - t->rate / t->cap) : 0;
}

static void count_queued(struct sim *s, double dt)
{
	size_t i;

	if (s->done < s->warm)
		return;
	s->queued += lacked(&s->main, dt);
	for (i = 0; i < s->r->workers; i++)
		s->queued += lacked(&s->w[i].t, dt);
}

/* Pass `dt`; true when the task's part is over. */
static bool pass(struct task *t, double dt)
{
	if (t->phase == IDLE)
		return false;
	t->left -= dt * t->rate;
	return t->left <= EPS;
}

/* To the next event. False when nothing can happen any more. */
static bool advance(struct sim *s)
{
	double dt = INFINITY;
	size_t i;

	share_out(s);
	dt = soonest(&s->main, dt);
	dt = soonest(&s->extra, dt);
	for (i = 0; i < s->r->workers; i++)
		dt = soonest(&s->w[i].t, dt);
	if (!isfinite(dt))
		return false;
	s->now += dt;
	count_queued(s, dt);
	for (i = 0; i < s->r->workers; i++) {
		struct worker *w = &s->w[i];

		if (pass(&w->t, dt) && !next_part(s, &w->b, &w->t, w->cap))
			made(s, w);
	}
	if (pass(&s->extra, dt))
		set(&s->extra, IDLE, 0, 1);
	if (pass(&s->main, dt))
		main_ready(s);
	else if (s->stage == WAITING && s->main.phase == IDLE)
		try_take(s);
	feed(s);
	return true;
}

static int init(struct sim *s, const struct pt_wi_run *r)
{
	size_t i;

	memset(s, 0, sizeof(*s));
	s->r = r;
	s->ring = r->workers * r->prefetch + r->workers + 1;
	s->w = calloc(r->workers + 1, sizeof(*s->w));
	s->avail = malloc(s->ring * sizeof(*s->avail));
	if (!s->w || !s->avail)
		return -ENOMEM;
	for (i = 0; i < s->ring; i++)
		s->avail[i] = -1;
	s->cap = r->runq == PT_WI_PRIVATE ? r->pool[0]->share : 1;
	s->d.rnd = r->seed;
	s->own.rnd = r->seed ^ 0x5bd1e995u;
	for (i = 0; i < r->workers; i++) {
		struct worker *w = &s->w[i];

		w->next = i;
		w->cap = r->runq == PT_WI_PRIVATE ? r->pool[i]->share : 1;
		w->d.rnd = r->seed + 0x10001u * (i + 1);
		/* workers that share one pool start at different places */
		w->d.at = i * r->pool[i]->b.n / r->workers;
	}
	/* until the queue has found its level */
	s->warm = 2 * (r->workers * r->prefetch + 1);
	return 0;
}

double pt_wi_replay(const struct pt_wi_run *r, int *err)
{
	struct sim s;
	double mean = NAN;
	size_t i;

	*err = 0;
	if (!r->o->steps.n || !r->n || (r->workers && !r->prefetch))
		return NAN;
	for (i = 0; i < (r->workers ? r->workers : 1); i++)
		if (!r->pool[i] || !r->pool[i]->b.n)
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
	if (r->queued)
		*r->queued = s.queued / (double)r->n;
out:
	free(s.w);
	free(s.avail);
	return mean;
}
