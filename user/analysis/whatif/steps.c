/* SPDX-License-Identifier: BSD-2-Clause */
/* What-if: the trainer's steps, the device and the cores, as the trace has them. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/waits/look.h"
#include "analysis/whatif/job.h"

/* A loop that waits for the device in so many of its steps does so in each:
 * the cut ends of a capture and a first step may differ. */
#define SYNC_EACH 0.8
/* Batches come in turn when so many are of the worker whose turn it is. */
#define IN_TURN 0.9
/* A quota is each worker's own when so much of the queueing shows it. */
#define THROTTLED 0.5
/* No room for a batch for so much of the work's time: a rule, not chance. */
#define FULL 0.02

/* ---- steps ----------------------------------------------------------------------------- */

struct split {
	uint64_t cpu, runq, asleep, timer;
	uint64_t answers; /* asleep until a worker answered on a socket */
	uint64_t wakes;	  /* on the run queue, no longer than a wake-up takes */
};

static int split_piece(void *ctx, uint64_t b, uint64_t e,
		       const struct pt_iv *iv, bool queued)
{
	struct split *k = ctx;

	if (!iv) {
		k->cpu += e - b;
	} else if (queued) {
		k->runq += e - b;
		k->wakes += e - b < NS_PER_MS ? e - b : 0;
	} else {
		k->asleep += e - b;
		k->timer += iv->wait == PT_WAIT_SLEEP ? e - b : 0;
		k->answers += iv->wait == PT_WAIT_SOCK ? e - b : 0;
	}
	return 0;
}

/* When workers were started, in order. */
static int find_starts(const struct pt_trainer *t, pt_times *out)
{
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		uint64_t born = t->workers.v[i].proc->born;

		if (born && pt_vec_push(out, born))
			return -ENOMEM;
	}
	pt_sort_times(out);
	return 0;
}

/* Was a worker started in this step? Such a step has its own price. */
static bool is_restart(const pt_times *starts, const struct pt_step *s)
{
	size_t n = pt_bisect(starts->n, i, starts->v[i] < s->begin);

	return n < starts->n && starts->v[n] < s->end;
}

/* What is slept while a batch is taken, as far as it would be were it there: for the
 * workers' answers, where memory is handed over by asking for it; else behind the
 * moment at which it was made. Batches that come while another is waited for are
 * taken then: it is the mean that counts. */
static uint64_t handover(const struct pt_trainer *t, const struct pt_step *s,
			 const struct split *wait)
{
	struct split late = { 0 };
	uint64_t made = s->n_waits ? t->waits.v[s->wait0 + s->n_waits - 1].made :
				     UINT64_MAX;

	if (t->fd_sharing)
		return wait->answers + wait->wakes;
	if (made == UINT64_MAX || made >= s->wait_end)
		return wait->asleep - pt_min64(wait->asleep, s->blocked_ns);
	pt_walk(t->main, pt_max64(made, s->wait_begin), s->wait_end, split_piece,
		&late);
	return late.asleep + late.wakes;
}

static int take_step(const struct pt_trainer *t, const struct pt_step *s,
		     struct pt_wi_job *o)
{
	struct split wait = { 0 }, host = { 0 };
	struct pt_wi_step p = { 0 };
	double rest;

	pt_walk(t->main, s->wait_begin, s->wait_end, split_piece, &wait);
	pt_walk(t->main, s->wait_end, s->end, split_piece, &host);
	pt_walk(t->main, s->begin, s->wait_begin, split_piece, &host);
	p.gpu_wait = pt_ms(s->gpu_wait_ns);
	p.cpu = pt_ms(host.cpu);
	p.runq = pt_ms(host.runq);
	/* a wait for the device may spin: that is no work of the host */
	p.blocked = fmax(0, pt_ms(host.asleep) - p.gpu_wait);
	p.cpu -= fmin(p.cpu, fmax(0, p.gpu_wait - pt_ms(host.asleep)));
	p.pause = fmin(p.blocked, pt_ms(host.timer));
	/* one that yields while it waits for the device is on the run queue again and again */
	rest = pt_ms(host.cpu + host.runq + host.asleep) - p.gpu_wait - p.cpu;
	p.blocked = fmax(0, fmin(p.blocked + pt_ms(host.wakes), rest));
	p.runq -= pt_ms(host.wakes);
	if (!o->own_loading) {
		p.take = pt_ms(wait.cpu);
		p.slept = s->blocked_ns > 0;
		p.runq += pt_ms(wait.runq - wait.wakes);
		p.handover = pt_ms(handover(t, s, &wait));
	}
	o->queued += p.runq;
	o->cpu += p.cpu + p.take;
	o->blocked += p.blocked;
	o->pause += p.pause;
	o->gpu_wait += p.gpu_wait;
	return pt_vec_push(&o->steps, p);
}

static bool in_turn(const struct pt_trainer *t, size_t workers)
{
	size_t i, seen = 0, good = 0;

	for (i = workers; i < t->steps.n && workers; i++) {
		int a = t->steps.v[i - workers].worker, b = t->steps.v[i].worker;

		if (a < 0 || b < 0 || t->steps.v[i].batches > 1)
			continue;
		seen++;
		good += a == b;
	}
	return (double)good >= IN_TURN * (double)seen;
}

static int take_steps(const struct pt_trainer *t, struct pt_wi_job *o)
{
	size_t syncs = 0;
	pt_times starts = { 0 };
	double sum = 0, n;
	int err = find_starts(t, &starts);

	pt_each_ok(const struct pt_step, s, &t->steps, err) {
		if (s->partial || is_restart(&starts, s))
			continue;
		sum += pt_ms(s->end - s->begin);
		syncs += s->gpu_wait_ns > 0;
		err = take_step(t, s, o);
	}
	pt_vec_free(&starts);
	n = (double)o->steps.n;
	if (err || !o->steps.n)
		return err;
	o->mean_ms = sum / n;
	o->queued /= n;
	o->cpu /= n;
	o->blocked /= n;
	o->pause /= n;
	o->gpu_wait /= n;
	o->sync_each = (double)syncs >= SYNC_EACH * n;
	o->in_order = in_turn(t, o->workers);
	return 0;
}

/* ---- cores -------------------------------------------------------------------------------- */

/* A thread begins or ends to run, or to queue: when, since the window's begin, and in
 * the two lowest bits which of it. */
#define TURN_ENDS 1
#define TURN_QUEUES 2
struct turns {
	uint64_t t0;
	pt_times v;
};

static int turn_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		      bool queued)
{
	uint64_t what = queued ? TURN_QUEUES : 0;
	struct turns *k = ctx;

	/* a wake-up takes its moment; that is no want of cores */
	if (iv && (!queued || e - b < NS_PER_MS))
		return 0;
	return pt_vec_push(&k->v, (b - k->t0) << 2 | what) ||
	       pt_vec_push(&k->v, (e - k->t0) << 2 | what | TURN_ENDS) ? -ENOMEM : 0;
}

#define CORES_MAX 256
/* What is wanted for less of the time says nothing. */
#define WANTED 0.02
#define MASK_WANTED 0.1
/* More threads ran at once for less than so much of that: they cannot. */
#define NEVER 0.03
#define FULLY 0.6 /* ... and all those do: else somebody else is in the way */

struct use {
	uint64_t wanted, had; /* while one more was wanted; and threads times that */
	uint64_t short_of[CORES_MAX]; /* so many more than k wanted one, and one
				       * lacked it */
	uint64_t full[CORES_MAX];     /* ... while k ran */
	uint64_t ran[CORES_MAX];      /* more than k ran */
};

static void count_use(struct use *u, long runs, long queues, uint64_t ns)
{
	long k;

	if (queues > 0) {
		u->wanted += ns;
		u->had += ns * (uint64_t)runs;
	}
	for (k = 0; k < CORES_MAX && k < runs; k++)
		u->ran[k] += ns;
	for (k = 0; queues > 0 && k < CORES_MAX && k < runs + queues; k++) {
		u->short_of[k] += ns;
		u->full[k] += k == runs ? ns : 0;
	}
}

/* How many threads of the job ran while another of them wanted a core: what it may
 * use, with all that the trace cannot know: quotas, masks, others on the machine. And
 * how many ran at once at most, though more wanted to: a mask. */
static void judge_use(const struct pt_an *an, const struct use *u,
		      struct pt_wi_job *o)
{
	double wall = (double)(an->t1 - an->t0);
	size_t k;

	o->cores_had = (double)u->wanted > WANTED * wall ?
			       (double)u->had / (double)u->wanted : NAN;
	for (k = 1; k < CORES_MAX && (double)k < o->cores; k++)
		if ((double)u->short_of[k] > MASK_WANTED * wall &&
		    (double)u->full[k] > FULLY * (double)u->short_of[k] &&
		    (double)u->ran[k] < NEVER * (double)u->short_of[k])
			o->cores = (double)k;
}

static int cores_had(const struct pt_an *an, struct pt_wi_job *o)
{
	long running = 0, queueing = 0, more;
	struct use *u = calloc(1, sizeof(*u));
	struct turns k = { .t0 = an->t0 };
	size_t i;
	int err = u ? 0 : -ENOMEM;

	for (i = 0; i < an->m->all_threads.n && !err; i++) {
		const struct pt_thread *th = an->m->all_threads.v[i];
		uint64_t b = pt_max64(an->t0, th->first);
		uint64_t e = pt_min64(an->t1, pt_thread_end(an, th));

		if (e > b && !th->proc->outside)
			err = pt_walk(th, b, e, turn_piece, &k);
	}
	pt_sort_times(&k.v);
	for (i = 0; i < k.v.n && !err; i++) {
		uint64_t x = k.v.v[i], last = i ? k.v.v[i - 1] : x;

		count_use(u, running, queueing, (x >> 2) - (last >> 2));
		more = x & TURN_ENDS ? -1 : 1;
		*(x & TURN_QUEUES ? &queueing : &running) += more;
	}
	if (!err)
		judge_use(an, u, o);
	free(u);
	pt_vec_free(&k.v);
	return err;
}

/* Each worker is held back by a quota, and not all by one. */
static bool own_quotas(const struct pt_an *an, const struct pt_trainer *t)
{
	size_t i, k, held = 0;

	if (an->m->host_known && an->m->host.quota_mcores)
		return false;
	for (i = 0; i < t->workers.n; i++)
		for (k = 0; k < t->quotas.n; k++)
			if (t->quotas.v[k].tgid == t->workers.v[i].proc->tgid) {
				held++;
				break;
			}
	return held && (double)held >= THROTTLED * (double)t->workers.n;
}

/* ---- the rest ------------------------------------------------------------------------------ */

/* CPU time of all other threads of the job: senders, autograd, the rest. They
 * want cores too. */
static void other_threads(const struct pt_an *an, const struct pt_trainer *t,
			  struct pt_wi_job *o)
{
	uint64_t all = 0, known = pt_run_ns(an, t->main), programs = 0, ns;
	size_t i;

	for (i = 0; i < an->m->all_threads.n; i++) {
		const struct pt_thread *th = an->m->all_threads.v[i];

		ns = th->proc->outside ? 0 : pt_run_ns(an, th);
		all += ns;
		programs += th->proc->born ? ns : 0;
	}
	for (i = 0; i < t->workers.n; i++)
		known += pt_run_ns(an, t->workers.v[i].main);
	o->programs_cpu = o->own_loading ? pt_ms(programs) / (double)t->steps.n : 0;
	o->extra_cpu = pt_ms(all - pt_min64(all, known)) / (double)t->steps.n;
}

static void pin_thread(const struct pt_an *an, const struct pt_trainer *t,
		       struct pt_wi_job *o)
{
	struct split k = { 0 };

	if (!t->relays.n)
		return;
	pt_walk(t->relays.v[0], an->t0, an->t1, split_piece, &k);
	o->pin = pt_ms(k.cpu) / (double)t->steps.n;
}

static void device(const struct pt_an *an, const struct pt_trainer *t,
		   struct pt_wi_job *o)
{
	uint64_t wall = an->t1 - an->t0;
	double n = (double)t->steps.n;

	o->kernels = pt_ms(t->busy_driver_ns) / n;
	o->gpu_known = t->gpu_known;
	o->gpu[0] = fmax(o->kernels, pt_ms(wall - pt_min64(wall, t->idle_likely_ns)) / n);
	o->gpu[1] = fmax(o->kernels, pt_ms(t->busy_hard_ns) / n);
	o->gpu[2] = fmax(o->kernels, pt_ms(wall - pt_min64(wall, t->idle_hard_ns)) / n);
	o->launches = (double)t->counts.kernels / n;
	o->transfer = pt_ms(t->transfer_ns) / n;
}

static int observe_steps(const struct pt_an *an, const struct pt_trainer *t,
			struct pt_wi_job *o)
{
	int err = take_steps(t, o);

	o->cores = pt_cores(an->m);
	err = err ?: cores_had(an, o);
	if (err)
		return err;
	o->throttled = own_quotas(an, t);
	other_threads(an, t, o);
	pin_thread(an, t, o);
	device(an, t, o);
	/* who cannot put a batch anywhere makes no other one meanwhile */
	o->prefetch = o->full_ms > FULL * o->work_ms ? 1 : PT_WI_PREFETCH;
	return 0;
}

static void finish_pools(struct pt_wi_job *o)
{
	size_t k, j;

	pt_each(struct pt_wi_pool, p, &o->pools) {
		double cpu = 0, runq = 0;

		for (k = 0; k < p->items.n; k++)
			runq += p->items.v[k].runq;
		for (j = 0; j < p->phases.n; j++)
			cpu += p->phases.v[j].cpu ? p->phases.v[j].ms : 0;
		p->share = cpu > 0 ? cpu / (cpu + runq) : 1;
		if (!p->items.n)
			o->unfit = "a worker delivered too few batches to know its pace";
		else
			o->queued += runq / (double)p->items.n / (double)o->pools.n;
		if (p->items.n)
			o->cpu += cpu / (double)p->items.n / (double)o->pools.n;
	}
}

int pt_wi_find_usual(struct pt_wi_pool *p)
{
	pt_doubles v = { 0 };
	size_t i;
	int err = 0;

	for (i = 0; i < p->items.n && !err; i++)
		err = pt_vec_push(&v, p->items.v[i].ms);
	p->usual = err ? NAN : pt_median(v.v, v.n);
	pt_vec_free(&v);
	return err;
}

/* Its usual batch takes so many times those of most others. */
#define SLOW 1.5

static int find_slow(struct pt_wi_job *o)
{
	pt_doubles v = { 0 };
	double others;
	size_t i;
	int err = 0;

	for (i = 0; i < o->pools.n && !err; i++) {
		err = pt_wi_find_usual(&o->pools.v[i]);
		err = err ?: pt_vec_push(&v, o->pools.v[i].usual);
	}
	others = err ? NAN : pt_median(v.v, v.n);
	if (v.n > 1 && v.n % 2 == 0) /* sorted: not half way to a slow one */
		others = v.v[v.n / 2 - 1];
	for (i = 0; i < o->pools.n && v.n > 1; i++)
		if (o->pools.v[i].items.n >= PT_WI_MIN_SAMPLES)
			o->pools.v[i].slow = o->pools.v[i].usual > SLOW * others;
	pt_vec_free(&v);
	return err;
}

int pt_wi_observe(const struct pt_an *an, const struct pt_trainer *t,
		  struct pt_wi_job *o)
{
	size_t i, made = 0;
	int err;

	memset(o, 0, sizeof(*o));
	for (i = 0; i < t->workers.n; i++)
		made += pt_makes_batches(t, &t->workers.v[i]);
	o->own_loading = !t->handoffs || !made;
	o->workers = o->own_loading ? 0 : t->respawned && t->concurrent ?
						  t->concurrent : made;
	o->cores_had = NAN;
	if (!t->steps.n) {
		o->unfit = "no steps were seen";
		return 0;
	}
	o->batch_bytes = (double)t->counts.copy_bytes / (double)t->steps.n;
	o->reading = pt_reading_part(t);
	err = pt_wi_observe_workers(an, t, o);
	err = err ?: observe_steps(an, t, o);
	if (err)
		return err;
	finish_pools(o);
	err = find_slow(o);
	if (err)
		return err;
	if (o->steps.n < PT_WI_MIN_SAMPLES)
		o->unfit = "too few whole steps were seen";
	return 0;
}

void pt_wi_job_free(struct pt_wi_job *o)
{
	size_t i;

	for (i = 0; i < o->pools.n; i++) {
		pt_vec_free(&o->pools.v[i].phases);
		pt_vec_free(&o->pools.v[i].items);
	}
	pt_vec_free(&o->pools);
	pt_vec_free(&o->steps);
}
