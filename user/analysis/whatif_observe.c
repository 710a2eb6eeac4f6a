/* SPDX-License-Identifier: BSD-2-Clause */
/* What-if: the queueing model of the job, taken from the trace. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/whatif.h"

/* The kernel's default period of a CPU quota (and that of container
 * runtimes): a thread that used its quota up runs again when one begins. */
#define QUOTA_PERIOD_NS (100 * NS_PER_MS)
#define QUOTA_BINS 20
/* Shorter queueing is the scheduler's, not a quota's. */
#define QUOTA_MIN_NS (5 * NS_PER_MS)
/* CPython's thread switch interval: a thread that computes lets another have
 * the interpreter after so long at the latest. */
#define SWITCH_MS 5.0
/* A loop that waits for the device in so many of its steps does so in each:
 * the cut ends of a capture and a first step may differ. */
#define SYNC_EACH 0.8

static double ms(uint64_t ns)
{
	return (double)ns / NS_PER_MS;
}

struct split {
	const struct pt_an *an;
	const struct pt_worker *w; /* NULL: the trainer */
	uint64_t cpu, runq, disk, other, idle;
	uint64_t socks; /* times that a socket was waited for */
	double rest;	/* integral of the rest of stretches on the CPU, ms^2 */
};

static int split_piece(void *ctx, uint64_t b, uint64_t e,
		       const struct pt_iv *iv, bool queued)
{
	struct split *k = ctx;

	if (!iv) {
		double l = fmin(ms(e - b), SWITCH_MS);

		k->cpu += e - b;
		k->rest += l * l / 2 + (ms(e - b) - l) * SWITCH_MS / 2;
		return 0;
	}
	if (queued) {
		k->runq += e - b;
		return 0;
	}
	k->socks += iv->wait == PT_WAIT_SOCK;
	switch (pt_piece_cause(k->an, k->w, iv)) {
	case PT_CAUSE_WORKER_IDLE:
		k->idle += e - b;
		break;
	case PT_CAUSE_DISK:
	case PT_CAUSE_PAGE_FAULT:
		k->disk += e - b;
		break;
	default:
		k->other += e - b;
	}
	return 0;
}

static struct pt_wi_batch to_batch(const struct split *k, double n)
{
	struct pt_wi_batch b = { ms(k->cpu) / n, ms(k->runq) / n,
				 ms(k->disk) / n, ms(k->other) / n };

	return b;
}

/* Between two batches made lies the work on the second. */
static int sample_marks(const struct pt_an *an, const struct pt_worker *w,
			struct pt_wi_obs *o, pt_wi_batches *out)
{
	size_t i;

	for (i = 1; i < w->done.n; i++) {
		struct split k = { .an = an, .w = w };

		pt_walk(w->main, w->done.v[i - 1], w->done.v[i], split_piece,
			&k);
		o->hold += k.rest;
		if (pt_vec_push(out, to_batch(&k, 1)))
			return -ENOMEM;
	}
	return 0;
}

/* A worker that sends by itself is seen to finish only when somebody waits
 * for it: only its mean is known. */
static int sample_mean(const struct pt_an *an, const struct pt_worker *w,
		       pt_wi_batches *out)
{
	struct split k = { .an = an, .w = w };
	uint64_t b = pt_max64(an->t0, w->main->first);
	uint64_t e = pt_min64(an->t1, pt_thread_end(an, w->main));

	if (w->delivered < PT_WI_MIN_SAMPLES || e <= b)
		return 0;
	pt_walk(w->main, b, e, split_piece, &k);
	return pt_vec_push(out, to_batch(&k, (double)w->delivered));
}

static int observe_workers(const struct pt_an *an, const struct pt_trainer *t,
			   struct pt_wi_obs *o)
{
	double cpu = 0;
	size_t i, j;
	int err;

	for (i = 0; i < t->workers.n; i++) {
		const struct pt_worker *w = &t->workers.v[i];
		struct pt_wi_pool *p = NULL;

		/* those of an earlier epoch and their successors share one */
		if (!t->respawned || !o->pools.n) {
			struct pt_wi_pool empty = { .slow = w->slow };

			if (pt_vec_push(&o->pools, empty))
				return -ENOMEM;
		}
		p = &o->pools.v[o->pools.n - 1];
		err = w->feeder != w->main ? sample_marks(an, w, o, &p->b) :
					     sample_mean(an, w, &p->b);
		if (err)
			return err;
	}
	for (i = 0; i < o->pools.n; i++)
		for (j = 0; j < o->pools.v[i].b.n; j++)
			cpu += o->pools.v[i].b.v[j].cpu;
	o->hold = cpu > 0 ? o->hold / cpu : 0;
	o->workers = t->concurrent ? t->concurrent : t->workers.n;
	if (!t->respawned && o->pools.n != o->workers)
		o->unfit = "workers came and went";
	for (i = 0; i < o->pools.n; i++)
		if (!o->pools.v[i].b.n)
			o->unfit = "a worker delivered too few batches to know its pace";
	return 0;
}

/* Was a worker started in this step? Such a step has its own price. */
static bool is_restart(const struct pt_trainer *t, const struct pt_step *s)
{
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		uint64_t born = t->workers.v[i].proc->born;

		if (born && born >= s->begin && born < s->end)
			return true;
	}
	return false;
}

static int observe_step(const struct pt_an *an, const struct pt_trainer *t,
			const struct pt_step *s, struct pt_wi_obs *o)
{
	struct split wait = { .an = an }, host = { .an = an };
	struct pt_wi_step p = { 0 };
	double asleep;

	pt_walk(t->main, s->wait_begin, s->wait_end, split_piece, &wait);
	pt_walk(t->main, s->wait_end, s->end, split_piece, &host);
	asleep = ms(host.disk + host.other + host.idle);
	p.gpu_wait = ms(s->gpu_wait_ns);
	p.cpu = ms(host.cpu);
	p.runq = ms(host.runq);
	/* a wait for the device may spin: that is no work of the host */
	p.blocked = fmax(0, asleep - p.gpu_wait);
	p.cpu -= fmin(p.cpu, fmax(0, p.gpu_wait - asleep));
	if (o->own_loading) {
		if (pt_vec_push(&o->pools.v[0].b, to_batch(&wait, 1)))
			return -ENOMEM;
	} else {
		uint64_t slept = wait.disk + wait.other + wait.idle;

		o->answers += (double)wait.socks;
		p.cpu += ms(wait.cpu);
		p.runq += ms(wait.runq);
		p.handover = ms(slept - pt_min64(slept, s->blocked_ns));
	}
	return pt_vec_push(&o->steps, p);
}

static int observe_steps(const struct pt_an *an, const struct pt_trainer *t,
			 struct pt_wi_obs *o)
{
	struct pt_wi_pool empty = { 0 };
	size_t i, syncs = 0;
	double sum = 0;
	int err = 0;

	if (o->own_loading && pt_vec_push(&o->pools, empty))
		return -ENOMEM;
	for (i = 0; i < t->steps.n && !err; i++) {
		const struct pt_step *s = &t->steps.v[i];

		if (s->partial)
			continue;
		if (is_restart(t, s)) {
			o->restarted = true;
			continue;
		}
		sum += ms(s->end - s->begin);
		syncs += s->gpu_wait_ns > 0;
		err = observe_step(an, t, s, o);
	}
	if (o->steps.n) {
		o->mean_ms = sum / (double)o->steps.n;
		o->answers /= (double)o->steps.n;
		o->sync_each = (double)syncs >= SYNC_EACH * (double)o->steps.n;
	}
	return err;
}

static uint64_t run_ns(const struct pt_thread *th)
{
	return th->totals_known ? th->t1.run_ns - th->t0.run_ns : 0;
}

/* CPU time of all other threads of the job: senders, autograd, the rest. They
 * want cores too. */
static void observe_extra(const struct pt_an *an, const struct pt_trainer *t,
			  struct pt_wi_obs *o)
{
	uint64_t all = 0, known = run_ns(t->main);
	size_t i;

	for (i = 0; i < an->m->all_threads.n; i++)
		all += run_ns(an->m->all_threads.v[i]);
	for (i = 0; i < t->workers.n; i++)
		known += run_ns(t->workers.v[i].main);
	o->extra_cpu = ms(all - pt_min64(all, known)) / (double)t->steps.n;
}

/* Work of the pin thread per batch: all that it does but wait for batches and
 * for room in its queue. */
static void observe_pin(const struct pt_an *an, const struct pt_trainer *t,
			struct pt_wi_obs *o)
{
	struct split k = { .an = an };

	if (!t->pin)
		return;
	pt_walk(t->pin, an->t0, an->t1, split_piece, &k);
	o->pin = ms(k.cpu) / (double)t->steps.n;
}

static void observe_device(const struct pt_an *an, const struct pt_trainer *t,
			   struct pt_wi_obs *o)
{
	uint64_t wall = an->t1 - an->t0;
	double n = (double)t->steps.n;

	o->gpu_known = t->gpu_known;
	o->gpu[0] = ms(wall - pt_min64(wall, t->idle_likely_ns)) / n;
	o->gpu[1] = ms(t->busy_hard_ns) / n;
	o->gpu[2] = ms(wall - pt_min64(wall, t->idle_hard_ns)) / n;
	o->launches = (double)t->kernels / n;
	o->transfer = ms(t->transfer_ns) / n;
	o->handed_bytes = (double)t->copy_bytes / n;
}

static int cmp_span(const void *a, const void *b)
{
	const struct pt_span *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* How many workers wait for the disk, while any does. */
static int observe_readers(const struct pt_an *an, const struct pt_trainer *t,
			   struct pt_wi_obs *o)
{
	uint64_t sum = 0, cover = 0, end = 0;
	pt_spans s = { 0 };
	size_t i, j;
	int err = 0;

	for (i = 0; i < t->workers.n && !err; i++) {
		const struct pt_thread *th = t->workers.v[i].main;

		for (j = pt_iv_after(th, an->t0); j < th->iv.n && !err; j++) {
			const struct pt_iv *iv = &th->iv.v[j];
			struct pt_span x = { iv->begin, iv->ready };

			if (iv->begin >= an->t1)
				break;
			if (x.end > x.begin && (iv->wait == PT_WAIT_DISK ||
						iv->wait == PT_WAIT_FAULT))
				err = pt_vec_push(&s, x);
		}
	}
	if (s.n)
		qsort(s.v, s.n, sizeof(*s.v), cmp_span);
	for (i = 0; i < s.n; i++) {
		sum += s.v[i].end - s.v[i].begin;
		if (s.v[i].end > end) {
			cover += s.v[i].end - pt_max64(s.v[i].begin, end);
			end = s.v[i].end;
		}
	}
	o->readers = cover ? (double)sum / (double)cover : 1;
	pt_vec_free(&s);
	return err;
}

/*
 * Long stretches on the run queue that all end at the same point of a period
 * are a quota's. Returns their time; adds all queueing to *all.
 */
static uint64_t quota_time(const struct pt_an *an, const struct pt_thread *th,
			   uint64_t *all)
{
	uint64_t bin[QUOTA_BINS] = { 0 }, best = 0;
	size_t i;

	for (i = pt_iv_after(th, an->t0); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];
		uint64_t q = iv->end - iv->ready;

		if (iv->begin >= an->t1)
			break;
		*all += q;
		if (q >= QUOTA_MIN_NS)
			bin[iv->end % QUOTA_PERIOD_NS /
			    (QUOTA_PERIOD_NS / QUOTA_BINS)] += q;
	}
	for (i = 0; i < QUOTA_BINS; i++) /* the point may lie on a border */
		best = pt_max64(best, bin[i] + bin[(i + 1) % QUOTA_BINS]);
	return best;
}

static void observe_cores(const struct pt_an *an, const struct pt_trainer *t,
			  struct pt_wi_obs *o)
{
	uint64_t quota = 0, all = 0;
	size_t i;

	if (an->m->host_known && an->m->host.cores) {
		o->cores = an->m->host.cores;
		if (an->m->host.quota_mcores) {
			o->shared_quota = true;
			o->cores = fmin(o->cores,
				(double)an->m->host.quota_mcores / 1000);
		}
	}
	for (i = 0; i < t->workers.n; i++)
		quota += quota_time(an, t->workers.v[i].main, &all);
	if (!t->workers.n)
		quota = quota_time(an, t->main, &all);
	o->throttled = all ? (double)quota / (double)all : 0;
}

int pt_wi_observe(const struct pt_an *an, const struct pt_trainer *t,
		  struct pt_wi_obs *o)
{
	int err = 0;

	memset(o, 0, sizeof(*o));
	o->own_loading = !t->handoffs;
	if (!t->steps.n) {
		o->unfit = "no steps were seen";
		return 0;
	}
	if (!o->own_loading)
		err = observe_workers(an, t, o);
	if (!err)
		err = observe_steps(an, t, o);
	if (!err)
		err = observe_readers(an, t, o);
	if (err)
		return err;
	observe_extra(an, t, o);
	observe_pin(an, t, o);
	observe_device(an, t, o);
	observe_cores(an, t, o);
	if (o->steps.n < PT_WI_MIN_SAMPLES)
		o->unfit = "too few whole steps were seen";
	return 0;
}

void pt_wi_obs_free(struct pt_wi_obs *o)
{
	size_t i;

	for (i = 0; i < o->pools.n; i++)
		pt_vec_free(&o->pools.v[i].b);
	pt_vec_free(&o->pools);
	pt_vec_free(&o->steps);
}
