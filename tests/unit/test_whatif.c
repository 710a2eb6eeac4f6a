/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What-if against jobs that are simulated twice: once as they are traced, once
 * with the change made. The simulation of the job is not the replay's: it
 * knows threads, pipes and a device, and was written for other tests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "analysis/whatif/job.h"
#include "stream_case.h"

#define WIDEST 1.25

static const struct pt_r_whatif *row(const struct pt_report *r,
				     const char *change, int64_t value)
{
	size_t i;

	for (i = 0; i < r->n_whatif; i++)
		if (!strcmp(r->whatif[i].change, change) &&
		    r->whatif[i].value == value)
			return &r->whatif[i];
	return NULL;
}

/* Mean step of the simulated job, its start left out. */
static double true_ms(const struct job_opts *o)
{
	struct job j;
	double ms;
	size_t a, b;

	memset(&j, 0, sizeof(j));
	job_run(&j, o);
	a = j.steps.n / 5;
	b = j.steps.n - 1;
	assert_true(b > a + 10);
	ms = (double)(j.steps.v[b].wait_begin - j.steps.v[a].wait_begin) / 1e6 /
	     (double)(b - a);
	job_free(&j);
	return ms;
}

/* What every row must be, whatever was recorded. */
static void check_rows(const struct pt_report *r)
{
	size_t i;

	for (i = 0; i < r->n_whatif; i++) {
		const struct pt_r_whatif *w = &r->whatif[i];

		assert_non_null(w->change);
		if (!isfinite(w->speedup.value)) {
			assert_true(isnan(w->step_ms));
			assert_non_null(w->note);
			continue;
		}
		assert_true(w->speedup.low <= w->speedup.value);
		assert_true(w->speedup.high >= w->speedup.value);
		assert_true(w->speedup.high <= WIDEST * w->speedup.low + 1e-9);
	}
}

/* Predict `change` from `now`; compare with `then` simulated. The truth must
 * lie in the range; the range must be told where `must`. */
static void predict(struct job_opts now, struct job_opts then,
		    const char *change, int64_t value, bool must)
{
	uint64_t seed;

	now.run_s_x10 = then.run_s_x10 = 60;
	for (seed = 1; seed <= 3; seed++) {
		const struct pt_r_whatif *w;
		struct st_case c;
		double real;

		now.seed = seed;
		then.seed = seed + 100;
		case_open(&c, &now, 0, 0);
		check_rows(c.r);
		w = row(c.r, change, value);
		if (!w)
			fail_msg("%s was not asked", change);
		real = true_ms(&now) / true_ms(&then);
		if (!isfinite(w->speedup.value)) {
			if (must)
				fail_msg("%s %lld: %s", change,
					 (long long)value, w->note);
		} else if (real < w->speedup.low || real > w->speedup.high) {
			fail_msg("%s %lld: %.3f [%.3f %.3f], real %.3f", change,
				 (long long)value, w->speedup.value,
				 w->speedup.low, w->speedup.high, real);
		}
		case_close(&c);
	}
}

static void to_workers(struct job_opts o, unsigned n, bool must)
{
	struct job_opts then = o;

	then.workers = n;
	predict(o, then, "workers", n, must);
}

static void test_workers(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.mix[JOB_NET] = 0.9; /* so that cores are not what is short */
	o.workers = 1; /* can two wait at once? One does not show it */
	to_workers(o, 2, false);
	to_workers(o, 8, false);
	o.workers = 2;
	o.batch_ns = 60 * ST_MS;
	to_workers(o, 1, true);
	to_workers(o, 3, true);
	to_workers(o, 4, true);
	o.jitter = 0.5;
	to_workers(o, 4, true);
	to_workers(o, 6, true);
	o.sockets = true;
	to_workers(o, 4, true);
}

static void test_forms(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.mix[JOB_NET] = 0.9;
	o.workers = 2;
	o.batch_ns = 60 * ST_MS;
	o.pin = true;
	to_workers(o, 4, true);
	o.pin = false;
	o.loop = JOB_AHEAD;
	to_workers(o, 4, true);
	o.loop = JOB_PLAIN;
	o.direct = true; /* only mean times are known */
	o.jitter = 0.1;
	to_workers(o, 4, false);
}

static void test_queued_device(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.mix[JOB_NET] = 0.9;
	o.workers = 2;
	o.batch_ns = 50 * ST_MS;
	o.sync_every = 10;
	to_workers(o, 3, true);
	to_workers(o, 8, true);
	o.sync_every = 0; /* the device's speed is not known */
	to_workers(o, 3, false);
	to_workers(o, 8, false);
}

static void test_slow(void **state)
{
	struct job_opts o = job_defaults(), then;

	(void)state;
	o.mix[JOB_NET] = 0.9;
	o.workers = 3;
	o.batch_ns = 20 * ST_MS;
	then = o;
	o.factor[1] = 4;
	predict(o, then, "slow_worker_fixed", PT_NULL, true);
}

static void test_disk(void **state)
{
	struct job_opts o = job_defaults(), then;

	(void)state;
	o.batch_ns = 50 * ST_MS;
	o.mix[JOB_DISK] = 0.8;
	then = o;
	then.batch_ns = 10 * ST_MS;
	then.mix[JOB_DISK] = 0;
	predict(o, then, "no_disk_wait", PT_NULL, true);
}

static void test_syncs(void **state)
{
	struct job_opts o = job_defaults(), then;

	(void)state;
	o.workers = 0;
	o.batch_ns = 8 * ST_MS;
	o.launches = 40;
	then = o;
	then.sync_every = 0;
	predict(o, then, "fewer_syncs", PT_NULL, true);
}

/* The driver counts a kernel in all the time: no change of the host's wins anything.
 * And who has no input is not told of workers. */
static void test_full_device(void **state)
{
	struct job_opts o = job_defaults();
	struct pt_rec_device *d;
	struct st_case c;
	unsigned i;

	(void)state;
	o.workers = 0;
	o.batch_ns = 20 * ST_US;
	o.launches = 40;
	o.run_s_x10 = 60;
	memset(&c, 0, sizeof(c));
	job_run(&c.j, &o);
	for (i = 2; i < 24; i++) {
		d = (struct pt_rec_device *)st_add(&c.j.s, PT_REC_DEVICE, sizeof(*d),
						   JOB_BEGIN + i * 250 * ST_MS, 0, 0);
		d->util = 100;
		d->procs = d->traced = 1;
		d->pid = JOB_TRAINER;
		/* another rank's device, which rests */
		d = (struct pt_rec_device *)st_add(&c.j.s, PT_REC_DEVICE, sizeof(*d),
						   JOB_BEGIN + i * 250 * ST_MS, 0, 0);
		d->index = 1;
		d->procs = d->traced = 1;
		d->pid = JOB_TRAINER + 1;
	}
	job_window(&c.j, JOB_BEGIN + 400 * ST_MS, JOB_BEGIN + 5900 * ST_MS);
	c.r = st_analyze(&c.j.s, &c.m);
	assert_non_null(row(c.r, "fewer_syncs", PT_NULL));
	assert_true(c.r->best_workers == PT_NULL);
	assert_null(row(c.r, "workers", 1));
	for (i = 0; i < c.r->n_whatif; i++)
		assert_true(c.r->whatif[i].speedup.high < 1.09);
	case_close(&c);
}

/* A quarter of a core each, and one core more or less for the next: only a
 * replay of the quotas knows. */
static void test_quota(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.quota_ns = 25 * ST_MS;
	o.batch_ns = 9 * ST_MS;
	o.workers = 1; /* of whose quota only its control group tells */
	to_workers(o, 2, true);
	to_workers(o, 4, true);
	o.workers = 2;
	o.batch_ns = 15 * ST_MS;
	to_workers(o, 1, true);
	to_workers(o, 4, true);
	to_workers(o, 6, true);
}

/* A quota that hardly shows today: with a worker less it would. */
static void test_quota_in_reserve(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.quota_ns = 25 * ST_MS;
	o.batch_ns = 9 * ST_MS;
	o.workers = 2;
	o.jitter = 0.3;
	o.kernel_ns = 1040 * ST_US;
	to_workers(o, 1, false);
	o.kernel_ns = 1080 * ST_US; /* too little to know it by */
	to_workers(o, 1, false);
}

/* One lock for all workers: the more wait for it, the less another wins. */
static void test_lock(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.batch_ns = 25 * ST_MS;
	o.mix[JOB_NET] = 0.9;
	o.lock_ns = 12 * ST_MS;
	o.workers = 4;
	to_workers(o, 8, true);
	o.workers = 2; /* in step, they hardly wait for each other: who knows */
	o.jitter = 0.4;
	to_workers(o, 4, false);
}

/* How far the workers may run ahead is seen where they both wait and are waited
 * for: with two batches each, as many loaders have, this job would be slower, and
 * its replay no replay of it. */
static void test_prefetch(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.mix[JOB_NET] = 0.9;
	o.workers = 2;
	o.prefetch = 6;
	o.batch_ns = 5 * ST_MS;
	o.heavy_every = 16;
	o.heavy = 12;
	to_workers(o, 2, true);
}

/* Busy workers answer late today already: no reason not to tell. */
static void test_busy_answers(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.workers = 1;
	o.sockets = true;
	o.batch_ns = 22 * ST_MS;
	to_workers(o, 2, true);
}

/* The smallest count that is as good as the best, and the root of the list. */
static void test_best(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	size_t i;

	(void)state;
	o.workers = 2;
	o.batch_ns = 18 * ST_MS; /* the device takes 4 ms and a bit */
	o.mix[JOB_NET] = 0.9;
	o.jitter = 0.1;
	o.run_s_x10 = 60;
	case_open(&c, &o, 0, 0);
	assert_true(c.r->n_whatif > 4);
	assert_true(c.r->best_workers >= 4 && c.r->best_workers <= 6);
	for (i = 0; strcmp(c.r->whatif[i].change, "workers"); i++)
		;
	assert_true(c.r->whatif[i].value == c.r->best_workers);
	case_close(&c);
}

/* The simulation alone: made-up jobs whose step time is known by arithmetic. */
struct made_up {
	struct pt_wi_phase phase[4];
	size_t n;
	struct pt_wi_step step;
	double share;
};

static double simulate_of(struct pt_wi_run r, struct pt_wi_job o,
			  const struct made_up *u)
{
	struct pt_wi_pool pool = { .share = u->share };
	const struct pt_wi_pool *pools[16];
	struct pt_wi_item it = { .n = u->n };
	size_t i;
	double ms;
	int err;

	r.o = &o;
	r.pool = pools;
	r.n = 200;
	r.in_order = true;
	r.handover = 1;
	for (i = 0; i < u->n; i++)
		assert_int_equal(pt_vec_push(&pool.phases, u->phase[i]), 0);
	assert_int_equal(pt_vec_push(&pool.items, it), 0);
	assert_int_equal(pt_vec_push(&o.steps, u->step), 0);
	for (i = 0; i < 16; i++)
		pools[i] = &pool;
	ms = pt_wi_simulate(&r, &err);
	assert_int_equal(err, 0);
	pt_vec_free(&pool.phases);
	pt_vec_free(&pool.items);
	pt_vec_free(&o.steps);
	return ms;
}

static double simulate(unsigned workers, double cpu, double other, double cores,
		       double host)
{
	struct pt_wi_run r = { .workers = workers, .prefetch = 2,
			       .cores = cores };
	struct made_up u = { .n = 2, .step.blocked = host };

	u.phase[0] = (struct pt_wi_phase){ .cpu = true, .ms = cpu };
	u.phase[1] = (struct pt_wi_phase){ .ms = other };
	return simulate_of(r, (struct pt_wi_job){ 0 }, &u);
}

/* Programs that are waited for compute: 30 ms a batch on two cores take 15, with one more
 * worker or with fifteen. */
static void test_arithmetic_programs(void **state)
{
	struct pt_wi_run r = { .prefetch = 2, .cores = 2 };
	struct made_up u = { .n = 1, .phase = { { .ms = 30 } } };
	struct pt_wi_job o = { .programs_cpu = 30 };

	(void)state;
	r.workers = 1;
	assert_true(fabs(simulate_of(r, o, &u) - 30) < 0.5);
	r.workers = 15;
	assert_true(fabs(simulate_of(r, o, &u) - 15) < 0.5);
	r.cores = 0; /* not known */
	assert_true(simulate_of(r, o, &u) < 3);
}

/* One at a time: behind a lock, and where it is served in turn. */
static void test_arithmetic_lock(void **state)
{
	struct pt_wi_run r = { .workers = 1, .prefetch = 2, .cores = 2 };
	struct made_up u = { .n = 2, .step.blocked = 1 };
	struct pt_wi_job o = { 0 };

	(void)state;
	u.phase[0] = (struct pt_wi_phase){ .ms = 20 };
	u.phase[1] = (struct pt_wi_phase){ .place = 3, .lock = 2, .ms = 10, .own = 4 };
	assert_float_equal(simulate_of(r, o, &u), 30, 0.5);
	r.workers = 2;
	assert_float_equal(simulate_of(r, o, &u), 15, 0.5);
	r.workers = 6; /* one after the other */
	assert_float_equal(simulate_of(r, o, &u), 10, 0.1);
	r.no_locks = true;
	assert_float_equal(simulate_of(r, o, &u), 5, 0.1);
	r.workers = 12; /* each its own time, without the others' */
	r.in_turn[3] = true;
	u.phase[1].lock = 0;
	assert_float_equal(simulate_of(r, o, &u), 4, 0.1);
	r.gone = 1u << PT_CAUSE_DISK;
	o.place[3].cause = PT_CAUSE_DISK;
	assert_float_equal(simulate_of(r, o, &u), 20.0 / 12, 0.1);
	r.cores = 0;
	r.add_made = 28; /* and something more to do per batch */
	assert_float_equal(simulate_of(r, o, &u), 4, 0.2);
}

static void test_arithmetic_share(void **state)
{
	struct pt_wi_run r = { .workers = 3, .prefetch = 2, .cores = 2,
			       .private_share = true };
	struct made_up u = { .n = 1, .step.blocked = 1, .share = 0.25 };

	(void)state;
	u.phase[0] = (struct pt_wi_phase){ .cpu = true, .ms = 10 };
	assert_float_equal(simulate_of(r, (struct pt_wi_job){ 0 }, &u), 40.0 / 3, 0.5);
}

/* Copies take turns on the bus; the device is a queue. */
static void test_arithmetic_trainer(void **state)
{
	struct pt_wi_job o = { .transfer = 8, .blocked = 8 };
	struct made_up u = { .n = 1 };
	struct pt_wi_run r = { .workers = 1, .prefetch = 2 };

	(void)state;
	u.phase[0] = (struct pt_wi_phase){ .ms = 2 };
	u.step = (struct pt_wi_step){ .take = 4, .blocked = 8, .gpu_wait = 10,
				      .pause = 3 };
	assert_float_equal(simulate_of(r, o, &u), 22, 0.1);
	r.no_pause = true;
	assert_float_equal(simulate_of(r, o, &u), 19, 0.1);
	r.no_pause = false;
	u.step.take = 2;
	r.cut_transfer = 8;
	assert_float_equal(simulate_of(r, o, &u), 12, 0.1);
	o.blocked = 16; /* this step's are half of the others' */
	assert_float_equal(simulate_of(r, o, &u), 16, 0.1);
	o.blocked = 8;
	u.step.gpu_wait = 1;
	assert_float_equal(simulate_of(r, o, &u), 8, 0.1);
	r.cut_transfer = 0;
	r.device_queue = r.no_sync = true;
	r.gpu = 14; /* the device's, however far the host could run ahead */
	assert_float_equal(simulate_of(r, o, &u), 14, 0.1);
	r.copies_block = true; /* 8 of them are the copy's */
	assert_float_equal(simulate_of(r, o, &u), 14, 0.1);
	r.launch_late = true;
	assert_float_equal(simulate_of(r, o, &u), 16, 0.1);
	/* no sync at all, and few launches: its queue has been full for long */
	r = (struct pt_wi_run){ .workers = 1, .prefetch = 2, .device_queue = true,
				.gpu = 14 };
	o = (struct pt_wi_job){ .launches = 4 };
	u.step = (struct pt_wi_step){ .take = 4 };
	assert_float_equal(simulate_of(r, o, &u), 14, 0.1);
}

static void test_arithmetic(void **state)
{
	(void)state;
	/* loads by itself: the sum */
	assert_float_equal(simulate(0, 20, 10, 4, 5), 35, 1e-6);
	/* one worker: the slower of the two sides */
	assert_float_equal(simulate(1, 20, 10, 4, 5), 30, 1e-6);
	assert_float_equal(simulate(1, 20, 10, 4, 50), 50, 1e-6);
	/* three that sleep: a third, but for the ends of the count */
	assert_float_equal(simulate(3, 0, 30, 2, 5), 10, 0.1);
	/* four that compute on two cores: the cores' */
	assert_float_equal(simulate(4, 20, 0, 2, 1), 10, 0.1);
	assert_float_equal(simulate(4, 20, 0, 0, 1), 5, 0.1);
}

/* ---- places: made-up stays ------------------------------------------------------------ */

enum form { FREE, FREE_ABREAST, LOCKED, SERVED, SERVED_EVENLY };

/* `workers` that each think and then stay, `n` times; judged. */
static enum pt_wi_place_class place_of(enum form form, unsigned workers, unsigned n,
				       double think, double stay, double jitter,
				       bool timer)
{
	struct pt_wi_visit *v = calloc((size_t)workers * n, sizeof(*v));
	struct pt_wi_work *w = calloc(workers, sizeof(*w));
	double at[8] = { 0 }, until = 0;
	struct pt_wi_verdict out;
	unsigned i, k;
	size_t m = 0;

	assert_non_null(v);
	assert_non_null(w);
	srand(7);
	for (i = 0; i < workers; i++)
		at[i] = (form == FREE_ABREAST ? think + stay : think) * i / workers;
	for (k = 0; k < workers * n; k++) {
		double r = 1 + jitter * (2.0 * rand() / RAND_MAX - 1);
		double begin, end;

		for (m = 0, i = 1; i < workers; i++)
			m = at[i] < at[m] ? i : m;
		begin = at[m] + think * (form == SERVED_EVENLY ? 1 : r);
		if (form == LOCKED)
			begin = fmax(begin, until + 0.05);
		end = (form >= SERVED ? fmax(begin, until) : begin) +
		      stay * (form == SERVED_EVENLY ? 1 : r);
		until = fmax(until, end);
		v[k] = (struct pt_wi_visit){ begin, end, (uint32_t)m, 0 };
		at[m] = end;
	}
	for (i = 0; i < workers; i++)
		w[i] = (struct pt_wi_work){ 0, at[i], i };
	assert_int_equal(pt_wi_judge_place(v, (size_t)workers * n, w, workers, timer,
					   &out), 0);
	free(v);
	free(w);
	return out.what;
}

static void test_places(void **state)
{
	(void)state;
	assert_int_equal(place_of(FREE, 2, 100, 5, 10, 0.3, true), PT_WI_INDEPENDENT);
	assert_int_equal(place_of(FREE, 4, 100, 1, 10, 0.3, false), PT_WI_INDEPENDENT);
	assert_int_equal(place_of(FREE, 3, 200, 5, 10, 0.1, false), PT_WI_INDEPENDENT);
	assert_int_equal(place_of(LOCKED, 2, 100, 1, 10, 0.3, true), PT_WI_SERIAL);
	assert_int_equal(place_of(LOCKED, 4, 50, 8, 10, 0, true), PT_WI_SERIAL);
	assert_int_equal(place_of(SERVED, 2, 100, 2, 10, 0.3, false), PT_WI_IN_TURN);
	assert_int_equal(place_of(SERVED, 4, 100, 2, 10, 0.2, false), PT_WI_IN_TURN);
	assert_int_equal(place_of(SERVED_EVENLY, 3, 60, 1, 10, 0, false), PT_WI_IN_TURN);
	/* two of one pace that never meet: as even as if they were served in turn */
	assert_int_equal(place_of(FREE_ABREAST, 2, 100, 2, 10, 0, false), PT_WI_UNKNOWN);
	/* too few, or only one */
	assert_int_equal(place_of(FREE, 2, 5, 5, 10, 0.3, true), PT_WI_UNKNOWN);
	assert_int_equal(place_of(LOCKED, 2, 4, 5, 10, 0.3, true), PT_WI_UNKNOWN);
	assert_int_equal(place_of(FREE, 1, 200, 5, 10, 0.3, true), PT_WI_UNKNOWN);
	/* hardly ever in it: chance says nothing either */
	assert_int_equal(place_of(LOCKED, 2, 100, 300, 10, 0.3, true), PT_WI_UNKNOWN);
}

/* Too little to go by: nothing is claimed, and it says why. */
static void test_too_little(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	bool said = false;
	size_t i;

	(void)state;
	case_open(&c, &o, 400 * ST_MS, 550 * ST_MS);
	assert_int_equal(c.r->n_whatif, 0);
	assert_true(c.r->best_workers == PT_NULL);
	for (i = 0; i < c.r->capture.n_limits; i++)
		said |= !strcmp(c.r->capture.limits[i].what, "whatif");
	assert_true(said);
	case_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arithmetic),
		cmocka_unit_test(test_arithmetic_share),
		cmocka_unit_test(test_arithmetic_programs),
		cmocka_unit_test(test_arithmetic_lock),
		cmocka_unit_test(test_arithmetic_trainer),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_workers),
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_queued_device),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_disk),
		cmocka_unit_test(test_syncs),
		cmocka_unit_test(test_quota),
		cmocka_unit_test(test_quota_in_reserve),
		cmocka_unit_test(test_lock),
		cmocka_unit_test(test_prefetch),
		cmocka_unit_test(test_busy_answers),
		cmocka_unit_test(test_full_device),
		cmocka_unit_test(test_best),
		cmocka_unit_test(test_too_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
