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

#include "analysis/whatif_sim.h"

#define EPS PT_WI_EPS
#define set pt_wi_set

/* A stream takes about this many launches before a launch waits. */
#define LAUNCH_QUEUE 1024
#define AHEAD 4 /* steps */

enum stage { WAITING, LOADING, HOSTWORK, HOSTSLEEP, DEVICE };

struct sim {
	const struct pt_wi_run *r;
	struct pt_wi_makers w;
	struct pt_wi_task main, extra;
	struct pt_wi_draw d, own;
	struct pt_wi_batch load;
	struct pt_wi_step step;
	enum stage stage;
	bool waited;   /* for this step's batch */
	double cap;    /* of the trainer when it loads by itself */
	double *avail; /* ring: when batch k may be taken; -1 not yet */
	size_t ring, taken, done;
	double now, pin_free, dev_free, warm_at;
	double bus_free, copied; /* the batch that this step computes with */
	size_t warm;
	double queued; /* since warm_at */
};

/* Start what an idle worker may start. */
static void feed(struct sim *s)
{
	pt_wi_makers_feed(&s->w, s->taken + s->r->workers * s->r->prefetch);
}

static void made(void *ctx, struct pt_wi_maker *w)
{
	struct sim *s = ctx;
	double at = s->now;

	if (s->r->o->pin > 0) {
		s->pin_free = fmax(s->pin_free, at) + s->r->o->pin;
		at = s->pin_free;
	}
	s->avail[w->next % s->ring] = at;
}

static void begin_host(struct sim *s)
{
	const struct pt_wi_run *r = s->r;
	struct pt_wi_step *p = &s->step;
	double taking = s->waited && !r->pinned ? 1 : r->ready;

	s->waited = false;
	*p = r->o->steps.v[pt_wi_draw_next(&s->d, r->o->steps.n, r->seed != 0)];
	p->cpu += taking * p->take;
	if (r->cut_transfer > 0) /* of each step alike */
		p->blocked *= 1 - fmin(1, r->cut_transfer / r->o->blocked);
	p->blocked += taking * r->held_up * p->handover;
	p->blocked += r->add_sleep;
	if (!r->device_queue)
		p->blocked += p->gpu_wait;
	s->stage = HOSTWORK;
	set(&s->main, PT_WI_CPU, p->cpu + r->add_cpu, 1);
	s->extra.left += r->o->extra_cpu;
	if (s->extra.left > EPS)
		s->extra.phase = PT_WI_CPU;
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
		s->load = pt_wi_sample(s->r, s->r->pool[0], &s->own);
		s->stage = LOADING;
		if (!pt_wi_next_part(s->r, &s->load, &s->main, s->cap))
			begin_host(s);
		return;
	}
	at = s->avail[s->taken % s->ring];
	s->waited |= at < 0 || at > s->now + EPS;
	if (at < 0)
		return;
	/* a worker without CPU time left cannot hand out its descriptors */
	if (!(s->r->o->pin > 0))
		at = fmax(at, s->now + pt_wi_makers_throttled(
				&s->w, s->taken % s->r->workers, s->now));
	if (at > s->now + EPS) { /* made, still in the pin thread */
		set(&s->main, PT_WI_LAT, at - s->now, 1);
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
	/* without syncs there is no end to how far; a few steps show the rate */
	ahead = fmin(fmax(1, ahead), r->no_sync ? AHEAD : ahead) * r->gpu;
	return owed > ahead ? owed - ahead : 0;
}

static void step_done(struct sim *s)
{
	s->done++;
	if (s->done == s->warm)
		s->warm_at = s->now;
	s->stage = WAITING;
	set(&s->main, PT_WI_IDLE, 0, 1);
	try_take(s);
}

static void main_ready(struct sim *s)
{
	double owed;

	switch (s->stage) {
	case WAITING:
		set(&s->main, PT_WI_IDLE, 0, 1);
		try_take(s);
		break;
	case LOADING:
		if (!pt_wi_next_part(s->r, &s->load, &s->main, s->cap))
			begin_host(s);
		break;
	case HOSTWORK:
		s->stage = HOSTSLEEP;
		set(&s->main, PT_WI_LAT,
		    fmax(s->step.blocked, s->copied - s->now), 1);
		break;
	case HOSTSLEEP:
		owed = device_debt(s);
		s->stage = DEVICE;
		set(&s->main, PT_WI_LAT, owed, 1);
		break;
	case DEVICE:
		step_done(s);
		break;
	}
}

static void share_out(struct sim *s)
{
	double cores = s->r->cores, scale = 1;
	size_t readers = 0;
	double wanted = s->r->others +
			pt_wi_makers_want(&s->w, s->now, &readers);

	if (s->main.phase == PT_WI_CPU)
		wanted += s->main.cap;
	if (s->extra.phase == PT_WI_CPU)
		wanted += s->extra.cap;
	if (cores > 0 && wanted > cores)
		scale = cores / wanted;
	s->main.rate = s->main.phase == PT_WI_CPU ? s->main.cap * scale : 1;
	s->extra.rate = s->extra.cap * scale;
	pt_wi_makers_rate(&s->w, scale, readers);
}

static double soonest(const struct pt_wi_task *t, double dt)
{
	return t->phase == PT_WI_IDLE ? dt : fmin(dt, t->left / t->rate);
}

/* What a thread that wants `cap` of a core lacks of it in `dt`. */
static double lacked(const struct pt_wi_task *t, double dt)
{
	return t->phase == PT_WI_CPU && t->cap > 0 ? dt * (1 - t->rate / t->cap) : 0;
}

static void count_queued(struct sim *s, double dt)
{
	if (s->done >= s->warm)
		s->queued += lacked(&s->main, dt) +
			     pt_wi_makers_lack(&s->w, dt);
}

/* Pass `dt`; true when the task's part is over. */
static bool pass(struct pt_wi_task *t, double dt)
{
	if (t->phase == PT_WI_IDLE)
		return false;
	t->left -= dt * t->rate;
	return t->left <= EPS;
}

/* To the next event. False when nothing can happen any more. */
static bool advance(struct sim *s)
{
	double dt;

	share_out(s);
	dt = soonest(&s->main, pt_wi_makers_soonest(&s->w, s->now));
	dt = soonest(&s->extra, dt);
	if (!isfinite(dt))
		return false;
	s->now += dt;
	count_queued(s, dt);
	pt_wi_makers_pass(&s->w, dt, s->now, made, s);
	if (pass(&s->extra, dt))
		set(&s->extra, PT_WI_IDLE, 0, 1);
	if (pass(&s->main, dt))
		main_ready(s);
	else if (s->stage == WAITING && s->main.phase == PT_WI_IDLE)
		try_take(s);
	feed(s);
	return true;
}

static int init(struct sim *s, const struct pt_wi_run *r)
{
	size_t i;
	int err;

	memset(s, 0, sizeof(*s));
	s->r = r;
	err = pt_wi_makers_init(&s->w, r);
	if (err)
		return err;
	s->ring = r->workers * r->prefetch + r->workers + 1;
	s->avail = malloc(s->ring * sizeof(*s->avail));
	if (!s->avail)
		return -ENOMEM;
	for (i = 0; i < s->ring; i++)
		s->avail[i] = -1;
	s->cap = r->runq == PT_WI_PRIVATE ? r->pool[0]->share : 1;
	s->d.rnd = r->seed;
	s->own.rnd = r->seed ^ 0x5bd1e995u;
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
	pt_wi_makers_free(&s.w);
	free(s.avail);
	return mean;
}
