/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What-if: which ways of running the model reproduce the observed step time? What
 * the trace leaves open stays open: each way that fits is a variant, and the
 * answers span them all.
 */
#include <errno.h>
#include <math.h>

#include "analysis/whatif/study.h"

/* The run may miss the observed step time by this much, with a range so much
 * wider; beyond it the model is not this job's. */
#define VALID_MAX 0.10
/* Enough to see the spread, few enough to ask many questions. */
#define STEPS_MIN 80
#define STEPS_MAX 400
/* Queueing beyond what the run has, as a share of the step and of the computing, that
 * asks for somebody else: less is a scheduler's. */
#define UNEXPLAINED 0.02
#define UNEXPLAINED_CPU 0.1
#define OTHERS_MAX 64.0
#define FIT_ROUNDS 10

struct pt_wi_run pt_wi_base_run(const struct pt_wi_study *s,
				const struct pt_wi_variant *v, uint64_t seed)
{
	const struct pt_wi_job *o = &s->o;
	size_t i, n = o->steps.n;
	struct pt_wi_run r = {
		.o = o, .pool = s->pool, .workers = o->workers,
		.prefetch = o->prefetch, .handover = o->handover, .warm = 1,
		.cores = v->cores, .others = v->others,
		.private_share = v->private_share, .in_order = o->in_order,
		.gpu = v->gpu, .device_queue = !o->sync_each && v->gpu > 0,
		.seed = seed,
		.n = n < STEPS_MIN ? STEPS_MIN : n > STEPS_MAX ? STEPS_MAX : n,
	};

	for (i = PT_WI_CORES; i < o->n_places; i++) {
		uint8_t w = o->place[i].v.what;

		r.in_turn[i] = w == PT_WI_SERIAL || w == PT_WI_IN_TURN ||
			       (w == PT_WI_UNKNOWN && v->unknown_in_turn &&
				i != PT_WI_CORES && !o->place[i].is_lock);
	}
	return r;
}

void pt_wi_todays_pools(struct pt_wi_study *s)
{
	size_t i, n = s->o.workers ? s->o.workers : 1;

	for (i = 0; i < n && i < PT_WI_MAX_WORKERS; i++)
		s->pool[i] = &s->o.pools.v[i % s->o.pools.n];
}

/* ---- pools -------------------------------------------------------------------------- */

static int join(struct pt_wi_pool *to, const struct pt_wi_pool *from)
{
	size_t i, first = to->phases.n;

	for (i = 0; i < from->phases.n; i++)
		if (pt_vec_push(&to->phases, from->phases.v[i]))
			return -ENOMEM;
	for (i = 0; i < from->items.n; i++) {
		struct pt_wi_item it = from->items.v[i];

		it.first += first;
		if (pt_vec_push(&to->items, it))
			return -ENOMEM;
	}
	/* quotas are alike; the one that is used up most shows it best */
	to->share = to->share > 0 ? fmin(to->share, from->share) : from->share;
	return 0;
}

static int make_pools(struct pt_wi_study *s)
{
	int err = 0;

	pt_each_ok(const struct pt_wi_pool, p, &s->o.pools, err) {
		err = join(&s->all, p);
		if (!err && !p->slow)
			err = join(&s->peers, p);
	}
	pt_wi_todays_pools(s);
	err = err ?: pt_wi_find_usual(&s->all);
	return err ? err : pt_wi_find_usual(&s->peers);
}

/* ---- does it reproduce the job? -------------------------------------------------------- */

static int simulate_base(struct pt_wi_study *s, struct pt_wi_variant *v, size_t most,
			 double *queued)
{
	struct pt_wi_run r = pt_wi_base_run(s, v, 0);
	int err;

	r.n = s->o.steps.n > most ? most : s->o.steps.n;
	r.queued = queued;
	v->miss = pt_wi_simulate(&r, &err) / s->o.mean_ms - 1;
	return err;
}

/* Keep a variant that reproduces the step time. */
static int try_variant(struct pt_wi_study *s, struct pt_wi_variant v)
{
	double queued;
	int err = simulate_base(s, &v, STEPS_MAX, &queued);

	if (err || !(fabs(v.miss) <= VALID_MAX) ||
	    s->n_variants == PT_WI_MAX_VARIANTS)
		return err;
	s->v[s->n_variants++] = v;
	return 0;
}

/* Somebody else uses the cores, too: as many threads as it takes for ours to queue
 * as long as they did, or so much of the capacity. */
static int fit(struct pt_wi_study *s, struct pt_wi_variant *v, bool threads)
{
	double lo = threads ? 0 : 0.05, hi = threads ? OTHERS_MAX : v->cores, q = 0;
	double *x = threads ? &v->others : &v->cores;
	int i, err = 0;

	for (i = 0; i < FIT_ROUNDS && !err; i++) {
		*x = (lo + hi) / 2;
		err = simulate_base(s, v, STEPS_MIN, &q);
		if ((q > s->o.queued) == threads)
			hi = *x;
		else
			lo = *x;
	}
	return err;
}

/* What queueing for cores comes of: quotas; sharing them with one another, where
 * that explains it; else somebody else, who may take his share per thread or per
 * job (control groups). */
static int variants_of_cores(struct pt_wi_study *s, struct pt_wi_variant v)
{
	struct pt_wi_variant group;
	double own = 0;
	int err;

	v.cores = s->o.cores;
	v.private_share = s->o.throttled || !(v.cores > 0);
	if (v.private_share)
		return try_variant(s, v);
	group = v;
	err = simulate_base(s, &v, STEPS_MIN, &own);
	if (err || !(s->o.queued - own > fmax(UNEXPLAINED * s->o.mean_ms,
					      UNEXPLAINED_CPU * s->o.cpu)))
		return err ? err : try_variant(s, v);
	err = fit(s, &v, true);
	err = err ?: try_variant(s, v);
	err = err ?: fit(s, &group, false);
	return err ? err : try_variant(s, group);
}

static int variants_of(struct pt_wi_study *s)
{
	const struct pt_wi_job *o = &s->o;
	bool device = !o->sync_each;
	size_t i;
	int d, g, err = 0;

	for (i = PT_WI_CORES + 1; i < o->n_places; i++)
		s->open |= o->place[i].v.what == PT_WI_UNKNOWN &&
			   !o->place[i].is_lock;
	for (d = 0; d <= s->open && !err; d++)
		for (g = 0; g <= (device && !o->gpu_known) && !err; g++) {
			struct pt_wi_variant v = { .unknown_in_turn = d };

			v.gpu = !device ? 0 : o->gpu_known ? o->gpu[0] :
						      o->gpu[1 + g];
			err = variants_of_cores(s, v);
		}
	return err;
}

/* How far workers may run ahead is not seen: as PyTorch lets them, or else as far as
 * it takes to reproduce the job. Nor is how much of a worker's late answer comes of
 * what else it does. */
static int find_variants(struct pt_wi_study *s)
{
	static const uint8_t ahead[] = { 0, 2, 1, 4, 6, 16 };
	size_t i, n = s->o.workers ? sizeof(ahead) : 1;
	unsigned first = s->o.prefetch;
	int err = 0, part;

	for (part = 1; part >= 0 && !s->n_variants && !err; part--)
		for (i = 0; i < n && !s->n_variants && !err; i++) {
			s->o.handover = part;
			s->o.prefetch = ahead[i] ? ahead[i] : first;
			err = variants_of(s);
		}
	if (!err && !s->n_variants)
		s->unfit = "the replay does not reproduce the observed step time";
	return err;
}

int pt_wi_fit(struct pt_wi_study *s)
{
	size_t i, k;
	int err = make_pools(s);

	err = err ?: find_variants(s);
	for (i = 0; i < s->n_variants; i++)
		for (k = 0; k < PT_WI_SEEDS && !err; k++) {
			struct pt_wi_run r = pt_wi_base_run(s, &s->v[i], k + 1);

			s->v[i].base[k] = pt_wi_simulate(&r, &err);
		}
	return err;
}
