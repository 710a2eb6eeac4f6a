/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What-if: which ways of running the model reproduce the observed step time?
 * What the trace leaves open stays open: each way that fits is a variant, and
 * the answers span them all.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/whatif.h"

/* The replay may miss the observed step time by this much, with a range so
 * much wider; beyond it the model is not this job's. */
#define VALID_MAX 0.10
/* Enough to see the spread, few enough to ask many questions. */
#define STEPS_MIN 120
#define STEPS_MAX 300
/* Queueing up to this share of the CPU time is any scheduler's. */
#define RUNQ_SMALL 0.10
/* Waiting for each other's lock below this share of a batch is chance: workers
 * out of step with one another. */
#define LOCK_SMALL 0.002
/* The replay may be off the job's step time by so much, for a hold to be
 * possible. */
#define LOCK_OFF 0.05
/* Holds that differ by less are one. */
#define LOCK_SAME 1.02
/* Queueing beyond what the replay has, as a share of the step, that asks for
 * somebody else. */
#define UNEXPLAINED 0.02
#define OTHERS_MAX 64.0
#define FIT_ROUNDS 12

struct pt_wi_run pt_wi_base_run(const struct pt_wi_study *s,
				const struct pt_wi_variant *v, uint64_t seed)
{
	const struct pt_wi_obs *o = &s->o;
	size_t n = o->steps.n;

	n = n < STEPS_MIN ? STEPS_MIN : n > STEPS_MAX ? STEPS_MAX : n;
	return (struct pt_wi_run){
		.o = o, .pool = s->pool, .workers = o->workers,
		.prefetch = o->prefetch ? o->prefetch : PT_WI_PREFETCH, .runq = v->runq, .cores = v->cores,
		.others = v->others,
		.disk_shared = v->disk_shared, .gpu = v->gpu,
		.device_queue = !o->sync_each && v->gpu > 0, .ready = 1, .held_up = 1,
		.lock_hold = v->lock_hold, .seed = seed,
		.n = n,
	};
}

void pt_wi_todays_pools(struct pt_wi_study *s)
{
	size_t i, n = s->o.workers ? s->o.workers : 1;

	for (i = 0; i < n && i < PT_WI_MAX_WORKERS; i++)
		s->pool[i] = &s->o.pools.v[i % s->o.pools.n];
}

static int join(struct pt_wi_pool *to, const struct pt_wi_pool *from)
{
	size_t i;

	for (i = 0; i < from->b.n; i++)
		if (pt_vec_push(&to->b, from->b.v[i]))
			return -ENOMEM;
	return 0;
}

static void find_share(struct pt_wi_pool *p)
{
	double cpu = 0, runq = 0;
	size_t i;

	for (i = 0; i < p->b.n; i++) {
		cpu += p->b.v[i].cpu;
		runq += p->b.v[i].runq;
	}
	p->share = cpu > 0 ? cpu / (cpu + runq) : 1;
}

int pt_wi_make_pools(struct pt_wi_study *s)
{
	size_t i, peers = 0;
	int err = 0;

	for (i = 0; i < s->o.pools.n; i++)
		find_share(&s->o.pools.v[i]);

	for (i = 0; i < s->o.pools.n && !err; i++) {
		const struct pt_wi_pool *p = &s->o.pools.v[i];

		err = join(&s->all, p);
		s->all.aux += p->aux / (double)s->o.pools.n;
		if (err || p->slow)
			continue;
		err = join(&s->peers, p);
		s->peers.aux += p->aux;
		peers++;
	}
	if (peers)
		s->peers.aux /= (double)peers;
	find_share(&s->all);
	find_share(&s->peers);
	pt_wi_todays_pools(s);
	return err;
}

/* ---- does the replay reproduce the job? ----------------------------------- */

static int miss(struct pt_wi_study *s, struct pt_wi_variant *v)
{
	struct pt_wi_run r = pt_wi_base_run(s, v, 0);
	int err;

	r.n = s->o.steps.n;
	if (r.n > 4 * STEPS_MAX)
		r.n = 4 * STEPS_MAX;
	v->miss = pt_wi_replay(&r, &err) / s->o.mean_ms - 1;
	return err;
}

/* Time in the queue for a core that the replay has, per step. */
static int queued(struct pt_wi_study *s, const struct pt_wi_variant *v,
		  double *out)
{
	struct pt_wi_run r = pt_wi_base_run(s, v, 0);
	int err;

	*out = NAN;
	r.queued = out;
	pt_wi_replay(&r, &err);
	return err;
}

/* Somebody else uses the cores, too: as many threads as it takes for ours to
 * queue as long as they did (`fit_others`), or so much of the capacity. */
static int fit(struct pt_wi_study *s, struct pt_wi_variant *v, double seen,
	       bool fit_others)
{
	double lo = fit_others ? 0 : 0.05;
	double hi = fit_others ? OTHERS_MAX : v->cores, q;
	double *x = fit_others ? &v->others : &v->cores;
	int i, err = 0;

	for (i = 0; i < FIT_ROUNDS && !err; i++) {
		*x = (lo + hi) / 2;
		err = queued(s, v, &q);
		if ((q > seen) == fit_others)
			hi = *x;
		else
			lo = *x;
	}
	return err;
}

/*
 * How long may a batch hold the lock that the workers share? Its takers show
 * only where one waits for another, and workers that fall into step hardly
 * wait. At least: the share of time in which somebody waited, of a step. At
 * most: as long as the job would still be as fast as it was. Bisects to where
 * the replay is slower than the job by `most`.
 */
static int hold_until(struct pt_wi_study *s, struct pt_wi_variant *v, double lo,
		      double hi, double most)
{
	int i, err = 0;

	for (i = 0; i < FIT_ROUNDS && !err && lo < hi; i++) {
		v->lock_hold = (lo + hi) / 2;
		err = miss(s, v);
		if (v->miss > most)
			hi = v->lock_hold;
		else
			lo = v->lock_hold;
	}
	v->lock_hold = lo;
	return err;
}

/* Keep a variant that reproduces the step time. */
static int try_variant(struct pt_wi_study *s, struct pt_wi_variant v)
{
	int err = miss(s, &v);

	/* others on the cores stretch the hold, too */
	if (!err && v.lock_hold > 0 && v.miss > LOCK_OFF)
		err = hold_until(s, &v, 0, v.lock_hold, LOCK_OFF);
	if (err || !(fabs(v.miss) <= VALID_MAX) ||
	    s->n_variants == PT_WI_MAX_VARIANTS)
		return err;
	s->v[s->n_variants++] = v;
	return 0;
}

struct pt_wi_batch pt_wi_mean_batch(const struct pt_wi_study *s)
{
	struct pt_wi_batch m = { 0 };
	double n = (double)s->all.b.n;
	size_t i;

	for (i = 0; i < s->all.b.n; i++) {
		m.cpu += s->all.b.v[i].cpu / n;
		m.runq += s->all.b.v[i].runq / n;
		m.disk += s->all.b.v[i].disk / n;
		m.lock += s->all.b.v[i].lock / n;
		m.other += s->all.b.v[i].other / n;
	}
	return m;
}

/* Time in the queue for a core that was seen, per step. */
static double queued_seen(const struct pt_wi_study *s)
{
	double sum = pt_wi_mean_batch(s).runq;
	size_t i;

	for (i = 0; i < s->o.steps.n; i++)
		sum += s->o.steps.v[i].runq / (double)s->o.steps.n;
	return sum;
}

/* Somebody else, who may take his share per thread or per job (control groups):
 * both are replayed. None where the replay's own queueing is all that was seen. */
static int variants_of_others(struct pt_wi_study *s, struct pt_wi_variant v)
{
	double seen = queued_seen(s), own;
	struct pt_wi_variant group = v;
	int err = queued(s, &v, &own);

	if (!err && !(seen - own > UNEXPLAINED * s->o.mean_ms))
		return try_variant(s, v);
	if (!err)
		err = fit(s, &v, seen, true);
	if (!err)
		err = try_variant(s, v);
	if (!err)
		err = fit(s, &group, seen, false);
	return err ? err : try_variant(s, group);
}

/* What queueing for cores comes of: a quota, where its mark is seen; sharing
 * them with one another, where that explains it; else somebody else. */
static int variants_of_cores(struct pt_wi_study *s, struct pt_wi_variant v)
{
	struct pt_wi_batch m = pt_wi_mean_batch(s);
	size_t before = s->n_variants;
	int err;

	v.cores = s->o.cores;
	if (s->o.quota.of != PT_WI_QUOTA_NONE) {
		v.runq = PT_WI_QUOTAS;
		err = try_variant(s, v);
		if (err || s->n_variants > before)
			return err;
		return variants_of_others(s, v); /* quotas are not all */
	}
	v.runq = PT_WI_PRIVATE;
	if (!(v.cores > 0) || (m.runq > RUNQ_SMALL * m.cpu &&
			       s->o.throttled > 0.5 && !s->o.shared_quota))
		return try_variant(s, v);
	v.runq = PT_WI_SHARED;
	return variants_of_others(s, v);
}

/* Both ends of what the hold of a shared lock may be. */
static int variants_of_locks(struct pt_wi_study *s, struct pt_wi_variant v)
{
	struct pt_wi_batch m = pt_wi_mean_batch(s);
	double work = m.cpu + m.runq + m.disk + m.lock + m.other, least;
	double most = s->o.mean_ms * (1 + LOCK_OFF);
	int err;

	v.cores = s->o.cores;
	if (!(m.lock > LOCK_SMALL * work))
		return variants_of_cores(s, v);
	least = v.lock_hold = s->o.lock_taken * s->o.mean_ms;
	err = miss(s, &v);
	if (!err && v.miss < -LOCK_OFF) /* that little would be too fast */
		err = hold_until(s, &v, least, most, -LOCK_OFF);
	if (!err && v.miss > LOCK_OFF) /* who waits may just be waking up */
		err = hold_until(s, &v, 0, least, LOCK_OFF);
	if (!err)
		err = variants_of_cores(s, v);
	least = v.lock_hold;
	if (!err)
		err = hold_until(s, &v, least, most, LOCK_OFF);
	if (err || v.lock_hold < LOCK_SAME * least)
		return err;
	return variants_of_cores(s, v);
}

int pt_wi_find_variants(struct pt_wi_study *s)
{
	const struct pt_wi_obs *o = &s->o;
	struct pt_wi_batch m = pt_wi_mean_batch(s);
	double work = m.cpu + m.runq + m.disk + m.lock + m.other;
	bool disk = work > 0 && m.disk > PT_WI_WORTH * work;
	bool device = !o->sync_each;
	int d, g, err = 0;

	for (d = 0; d <= disk && !err; d++) {
		for (g = 0; g <= (device && !o->gpu_known) && !err; g++) {
			struct pt_wi_variant v = { .disk_shared = d };

			v.gpu = !device ? 0 : o->gpu_known ? o->gpu[0] :
						      o->gpu[1 + g];
			err = variants_of_locks(s, v);
		}
	}
	if (!err && !s->n_variants)
		s->unfit = "the replay does not reproduce the observed step time";
	return err;
}

int pt_wi_replay_bases(struct pt_wi_study *s)
{
	size_t i, k;
	int err = 0;

	for (i = 0; i < s->n_variants; i++)
		for (k = 0; k < PT_WI_SEEDS && !err; k++) {
			struct pt_wi_run r = pt_wi_base_run(s, &s->v[i], k + 1);

			s->v[i].base += pt_wi_replay(&r, &err) / PT_WI_SEEDS;
		}
	return err;
}
