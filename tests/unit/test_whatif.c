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

#include "analysis/whatif.h"
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
	o.workers = 1;
	to_workers(o, 2, true);
	to_workers(o, 3, true);
	to_workers(o, 8, true);
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
	o.workers = 1;
	o.pin = true;
	to_workers(o, 3, true);
	o.pin = false;
	o.loop = JOB_AHEAD;
	to_workers(o, 3, true);
	o.loop = JOB_PLAIN;
	o.direct = true; /* only mean times are known */
	o.jitter = 0.1;
	to_workers(o, 3, false);
}

static void test_queued_device(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.mix[JOB_NET] = 0.9;
	o.workers = 1;
	o.sync_every = 10;
	to_workers(o, 2, true);
	to_workers(o, 8, true);
	o.sync_every = 0; /* the device's speed is not known */
	to_workers(o, 2, false);
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

/* A quarter of a core each, and one core more or less for the next: only a
 * replay of the quotas knows. */
static void test_quota(void **state)
{
	struct job_opts o = job_defaults();
	const struct pt_r_whatif *w;
	struct st_case c;

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
	/* no run computes for exactly as long as another did */
	o.run_s_x10 = 60;
	o.jitter = 0;
	case_open(&c, &o, 0, 0);
	w = row(c.r, "workers", 3);
	assert_non_null(w);
	assert_true(w->speedup.high > 1.12 * 1.05 * w->speedup.low);
	case_close(&c);
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
	to_workers(o, 1, true);
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

/* Readers that are woken together queue for moments: that is the disk's. */
static void test_woken_together(void **state)
{
	struct job_opts o = job_defaults(), then;

	(void)state;
	o.cores = 2;
	o.batch_ns = 100 * ST_MS;
	o.mix[JOB_DISK] = 0.9;
	o.mix[JOB_RUNQ] = 0.05;
	then = o;
	then.batch_ns = 5 * ST_MS;
	then.mix[JOB_DISK] = then.mix[JOB_RUNQ] = 0;
	predict(o, then, "no_disk_wait", PT_NULL, true);
}

/* The smallest count that is as good as the best, and the root of the list. */
static void test_best(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;

	(void)state;
	o.workers = 1;
	o.batch_ns = 18 * ST_MS; /* the device takes 4 ms and a bit */
	o.mix[JOB_NET] = 0.9;
	o.jitter = 0;
	o.run_s_x10 = 60;
	case_open(&c, &o, 0, 0);
	assert_true(c.r->n_whatif > 4);
	assert_true(c.r->best_workers >= 4 && c.r->best_workers <= 6);
	assert_string_equal(c.r->whatif[0].change, "workers");
	assert_true(c.r->whatif[0].value == c.r->best_workers);
	case_close(&c);
}

/* The replay alone: made-up jobs whose step time is known by arithmetic. */
static double replay_of(struct pt_wi_run r, struct pt_wi_obs o,
			struct pt_wi_batch b, struct pt_wi_step p)
{
	struct pt_wi_pool pool = { .share = 1 };
	const struct pt_wi_pool *pools[16];
	double ms;
	unsigned i;
	int err;

	r.o = &o;
	r.pool = pools;
	r.n = 200;
	r.held_up = 1;
	o.readers = 1;
	assert_int_equal(pt_vec_push(&pool.b, b), 0);
	assert_int_equal(pt_vec_push(&o.steps, p), 0);
	for (i = 0; i < 16; i++)
		pools[i] = &pool;
	ms = pt_wi_replay(&r, &err);
	assert_int_equal(err, 0);
	pt_vec_free(&pool.b);
	pt_vec_free(&o.steps);
	return ms;
}

static double replay(unsigned workers, double cpu, double other, double cores,
		     double host)
{
	struct pt_wi_run r = { .workers = workers, .prefetch = 2,
			       .cores = cores };

	return replay_of(r, (struct pt_wi_obs){ 0 },
			 (struct pt_wi_batch){ .cpu = cpu, .other = other },
			 (struct pt_wi_step){ .blocked = host });
}

static void test_arithmetic_quota(void **state)
{
	struct pt_wi_obs o = { .quota = { PT_WI_QUOTA_EACH, 100, 25 } };
	struct pt_wi_batch b = { .cpu = 10 };
	struct pt_wi_step p = { .blocked = 1 };
	struct pt_wi_run r = { .workers = 1, .prefetch = 2, .cores = 2,
			       .runq = PT_WI_QUOTAS };

	(void)state;
	assert_float_equal(replay_of(r, o, b, p), 40, 0.5);
	r.workers = 3;
	assert_float_equal(replay_of(r, o, b, p), 40.0 / 3, 0.5);
	o.quota.of = PT_WI_QUOTA_ALL;
	assert_float_equal(replay_of(r, o, b, p), 40, 0.5);
	o.quota.budget = 300; /* more than there is */
	assert_float_equal(replay_of(r, o, b, p), 5, 0.1);
}

static void test_arithmetic_lock(void **state)
{
	struct pt_wi_obs o = { .pin = 0 };
	struct pt_wi_batch b = { .other = 30 };
	struct pt_wi_step p = { .blocked = 1 };
	struct pt_wi_run r = { .workers = 1, .prefetch = 2, .cores = 2,
			       .lock_hold = 10 };

	(void)state;
	assert_float_equal(replay_of(r, o, b, p), 30, 0.5);
	r.workers = 2;
	assert_float_equal(replay_of(r, o, b, p), 15, 0.5);
	r.workers = 6; /* one after the other */
	assert_float_equal(replay_of(r, o, b, p), 10, 0.1);
	r.lock_hold = 0;
	assert_float_equal(replay_of(r, o, b, p), 5, 0.1);
	r.cores = 0;
	r.add_made = 6; /* and something more to do per batch */
	assert_float_equal(replay_of(r, o, b, p), 6, 0.1);
}

/* A batch that is there is taken quicker; copies take turns on the bus. */
static void test_arithmetic_trainer(void **state)
{
	struct pt_wi_obs o = { .transfer = 8, .blocked = 8 };
	struct pt_wi_batch b = { .other = 2 };
	struct pt_wi_step p = { .take = 4, .blocked = 8, .gpu_wait = 10 };
	struct pt_wi_run r = { .workers = 1, .prefetch = 2, .ready = 0.5 };

	(void)state;
	assert_float_equal(replay_of(r, o, b, p), 20, 0.1);
	r.ready = 1;
	assert_float_equal(replay_of(r, o, b, p), 22, 0.1);
	r.cut_transfer = 8;
	assert_float_equal(replay_of(r, o, b, p), 14, 0.1);
	o.blocked = 16; /* this step's are half of the others' */
	assert_float_equal(replay_of(r, o, b, p), 18, 0.1);
	o.blocked = 8;
	p.gpu_wait = 1;
	assert_float_equal(replay_of(r, o, b, p), 8, 0.1);
	r.cut_transfer = 0;
	r.device_queue = r.no_sync = true;
	r.gpu = 14; /* the device's, however far the host could run ahead */
	assert_float_equal(replay_of(r, o, b, p), 14, 0.1);
	r.copies_block = true; /* 8 of them are the copy's */
	assert_float_equal(replay_of(r, o, b, p), 14, 0.1);
	r.launch_late = true;
	assert_float_equal(replay_of(r, o, b, p), 18, 0.1);
}

static void test_arithmetic(void **state)
{
	(void)state;
	/* loads by itself: the sum */
	assert_float_equal(replay(0, 20, 10, 4, 5), 35, 1e-6);
	/* one worker: the slower of the two sides */
	assert_float_equal(replay(1, 20, 10, 4, 5), 30, 1e-6);
	assert_float_equal(replay(1, 20, 10, 4, 50), 50, 1e-6);
	/* three that sleep: a third, but for the ends of the count */
	assert_float_equal(replay(3, 0, 30, 2, 5), 10, 0.1);
	/* four that compute on two cores: the cores' */
	assert_float_equal(replay(4, 20, 0, 2, 1), 10, 0.1);
	assert_float_equal(replay(4, 20, 0, 0, 1), 5, 0.1);
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
		cmocka_unit_test(test_arithmetic_quota),
		cmocka_unit_test(test_arithmetic_lock),
		cmocka_unit_test(test_arithmetic_trainer),
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
		cmocka_unit_test(test_woken_together),
		cmocka_unit_test(test_best),
		cmocka_unit_test(test_too_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
