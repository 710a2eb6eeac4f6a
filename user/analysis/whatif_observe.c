/* SPDX-License-Identifier: BSD-2-Clause */
/* What-if: the queueing model of the job, taken from the trace. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/whatif.h"

/* CPython's thread switch interval: a thread that computes lets another have
 * the interpreter after so long at the latest. */
#define SWITCH_MS 5.0
/* Readers are woken together, on one core while another is idle, and by kernel
 * threads that want it too: where a batch is mostly sleep for the disk, less than
 * this (two of the scheduler's time slices) on the run queue goes when the sleep
 * goes, and speaks for nobody else on the cores. */
#define TOGETHER_NS (3 * NS_PER_MS)
/* A loop that waits for the device in so many of its steps does so in each:
 * the cut ends of a capture and a first step may differ. */
#define SYNC_EACH 0.8

static double ms(uint64_t ns)
{
	return (double)ns / NS_PER_MS;
}

struct split {
	const struct pt_an *an;
	const struct pt_trainer *t;
	const struct pt_worker *w; /* NULL: the trainer */
	uint64_t cpu, runq, disk, lock, other, idle;
	uint64_t together; /* of runq, in short stretches */
	uint64_t socks; /* times that a socket was waited for */
	uint64_t throttled; /* ... while who answers had no CPU time left */
	double rest;	/* integral of the rest of stretches on the CPU, ms^2 */
};

/* A worker sleeps for a lock that another process of the job had. */
static bool is_shared_lock(const struct pt_an *an, const struct pt_worker *w,
			   const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_FUTEX && iv->valid_wake &&
	       iv->waker_tgid != w->proc->tgid &&
	       pt_model_proc(an->m, iv->waker_tgid);
}

static int queued_piece(void *ctx, uint64_t b, uint64_t e,
			const struct pt_iv *iv, bool queued)
{
	(void)iv;
	*(uint64_t *)ctx += queued ? e - b : 0;
	return 0;
}

/* While the trainer slept in [b,e) for an answer, a thread of the process that
 * gave it was on the run queue for so long: the one that answers, or another
 * that had the interpreter. */
static uint64_t answerer_queued(const struct pt_an *an, uint64_t b, uint64_t e,
				const struct pt_iv *iv)
{
	const struct pt_proc *peer;
	uint64_t most = 0;
	size_t i;

	peer = iv->valid_wake ? pt_model_proc(an->m, iv->waker_tgid) : NULL;
	if (!peer || iv->wait != PT_WAIT_SOCK)
		return 0;
	for (i = 0; i < peer->threads.n; i++) {
		uint64_t sum = 0;

		pt_walk(peer->threads.v[i], b, e, queued_piece, &sum);
		most = pt_max64(most, sum);
	}
	return most;
}

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
		k->together += e - b < TOGETHER_NS ? e - b : 0;
		return 0;
	}
	k->socks += iv->wait == PT_WAIT_SOCK;
	if (!k->w)
		k->throttled += answerer_queued(k->an, b, e, iv);
	switch (pt_piece_cause(k->an, k->t, k->w, iv)) {
	case PT_CAUSE_WORKER_IDLE:
		k->idle += e - b;
		break;
	case PT_CAUSE_DISK:
	case PT_CAUSE_PAGE_FAULT:
		k->disk += e - b;
		break;
	case PT_CAUSE_LOCK:
		if (k->w && is_shared_lock(k->an, k->w, iv)) {
			k->lock += e - b;
			break;
		}
		/* fall through */
	default:
		k->other += e - b;
	}
	return 0;
}

static struct pt_wi_batch to_batch(const struct split *k, double n)
{
	bool reads = k->disk > k->cpu + k->runq + k->lock + k->other;
	uint64_t moved = reads ? k->together : 0;
	struct pt_wi_batch b = { ms(k->cpu) / n, ms(k->runq - moved) / n,
				 ms(k->disk + moved) / n, ms(k->lock) / n,
				 ms(k->other) / n };

	return b;
}

/* Between two batches made lies the work on the second. */
static int sample_marks(const struct pt_an *an, const struct pt_trainer *t,
			const struct pt_worker *w,
			struct pt_wi_obs *o, pt_wi_batches *out)
{
	size_t i;

	for (i = 1; i < w->done.n; i++) {
		struct split k = { .an = an, .t = t, .w = w };

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
static int sample_mean(const struct pt_an *an, const struct pt_trainer *t,
		       const struct pt_worker *w,
		       pt_wi_batches *out)
{
	struct split k = { .an = an, .t = t, .w = w };
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
		err = w->feeder != w->main ? sample_marks(an, t, w, o, &p->b) :
					     sample_mean(an, t, w, &p->b);
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
	struct split wait = { .an = an, .t = t }, host = { .an = an, .t = t };
	struct pt_wi_step p = { 0 };
	double asleep;

	pt_walk(t->main, s->wait_begin, s->wait_end, split_piece, &wait);
	pt_walk(t->main, s->wait_end, s->end, split_piece, &host);
	asleep = ms(host.disk + host.lock + host.other + host.idle);
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
		uint64_t slept = wait.disk + wait.lock + wait.other + wait.idle;

		o->answers += (double)wait.socks;
		p.take = ms(wait.cpu);
		p.runq += ms(wait.runq);
		slept -= pt_min64(slept, s->blocked_ns);
		/* replayed with the quotas */
		if (o->quota.of != PT_WI_QUOTA_NONE)
			slept -= pt_min64(slept, wait.throttled);
		p.handover = ms(slept);
		o->waited += s->blocked_ns > 0;
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
		o->waited /= (double)o->steps.n;
		for (i = 0; i < o->steps.n; i++)
			o->blocked += o->steps.v[i].blocked /
				      (double)o->steps.n;
		for (i = 0; i < o->steps.n; i++)
			o->handover += o->steps.v[i].handover /
				       (double)o->steps.n;
		o->sync_each = (double)syncs >= SYNC_EACH * (double)o->steps.n;
	}
	return err;
}

/* CPU time of all other threads of the job: senders, autograd, the rest. They
 * want cores too. */
static void observe_extra(const struct pt_an *an, const struct pt_trainer *t,
			  struct pt_wi_obs *o)
{
	uint64_t all = 0, known = pt_run_ns(an, t->main);
	size_t i;

	for (i = 0; i < an->m->all_threads.n; i++)
		if (!an->m->all_threads.v[i]->proc->outside)
			all += pt_run_ns(an, an->m->all_threads.v[i]);
	for (i = 0; i < t->workers.n; i++)
		known += pt_run_ns(an, t->workers.v[i].main);
	o->extra_cpu = ms(all - pt_min64(all, known)) / (double)t->steps.n;
}

/* Work of the pin thread per batch: all that it does but wait for batches and
 * for room in its queue. */
static void observe_pin(const struct pt_an *an, const struct pt_trainer *t,
			struct pt_wi_obs *o)
{
	struct split k = { .an = an, .t = t };

	if (!t->relays.n)
		return;
	pt_walk(t->relays.v[0], an->t0, an->t1, split_piece, &k);
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
	o->launches = (double)t->counts.kernels / n;
	o->transfer = ms(t->transfer_ns) / n;
	o->handed_bytes = (double)t->counts.copy_bytes / n;
}

static int cmp_span(const void *a, const void *b)
{
	const struct pt_span *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

typedef bool (*iv_fn)(const struct pt_an *an, const struct pt_worker *w,
		      const struct pt_iv *iv);

static bool is_disk(const struct pt_an *an, const struct pt_worker *w,
		    const struct pt_iv *iv)
{
	(void)an, (void)w;
	return iv->wait == PT_WAIT_DISK || iv->wait == PT_WAIT_FAULT;
}

/* Sleeps of the workers that `fn` picks: their sum, and the time in which at
 * least one slept so. */
static int sum_sleeps(const struct pt_an *an, const struct pt_trainer *t,
		      iv_fn fn, uint64_t *sum, uint64_t *cover)
{
	uint64_t end = 0;
	pt_spans s = { 0 };
	size_t i, j;
	int err = 0;

	*sum = *cover = 0;
	for (i = 0; i < t->workers.n && !err; i++) {
		const struct pt_worker *w = &t->workers.v[i];
		const struct pt_thread *th = w->main;

		for (j = pt_iv_after(th, an->t0); j < th->iv.n && !err; j++) {
			const struct pt_iv *iv = &th->iv.v[j];
			struct pt_span x = { iv->begin, iv->ready };

			if (iv->begin >= an->t1)
				break;
			if (x.end > x.begin && fn(an, w, iv))
				err = pt_vec_push(&s, x);
		}
	}
	if (s.n)
		qsort(s.v, s.n, sizeof(*s.v), cmp_span);
	for (i = 0; i < s.n; i++) {
		*sum += s.v[i].end - s.v[i].begin;
		if (s.v[i].end > end) {
			*cover += s.v[i].end - pt_max64(s.v[i].begin, end);
			end = s.v[i].end;
		}
	}
	pt_vec_free(&s);
	return err;
}

/* How many workers wait for the disk, while any does; and the share of time in
 * which one waits for a lock that another has. */
static int observe_sharing(const struct pt_an *an, const struct pt_trainer *t,
			   struct pt_wi_obs *o)
{
	uint64_t sum, cover;
	int err = sum_sleeps(an, t, is_disk, &sum, &cover);

	if (err)
		return err;
	o->readers = cover ? (double)sum / (double)cover : 1;
	err = sum_sleeps(an, t, is_shared_lock, &sum, &cover);
	o->lock_taken = (double)cover / (double)(an->t1 - an->t0);
	return err;
}

static void observe_cores(const struct pt_an *an, struct pt_wi_obs *o)
{
	if (an->m->host_known && an->m->host.cores) {
		o->cores = an->m->host.cores;
		if (an->m->host.quota_mcores) {
			o->shared_quota = true;
			o->cores = fmin(o->cores,
				(double)an->m->host.quota_mcores / 1000);
		}
	}
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
		err = pt_wi_observe_quota(an, t, o);
	if (!err)
		err = pt_wi_observe_prefetch(an, t, o);
	if (!err)
		err = observe_steps(an, t, o);
	if (!err)
		err = observe_sharing(an, t, o);
	if (err)
		return err;
	observe_extra(an, t, o);
	observe_pin(an, t, o);
	observe_device(an, t, o);
	observe_cores(an, o);
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
