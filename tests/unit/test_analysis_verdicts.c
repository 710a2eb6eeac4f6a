/* SPDX-License-Identifier: BSD-2-Clause */
/* Each verdict on its own scenario, and on no other's near miss: every
 * threshold from just below and just above. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "stream_case.h"

/* Two workers and no core left for a third. */
static struct job_opts full_host(void)
{
	struct job_opts o = job_defaults();

	o.cores = 2;
	return o;
}

/* The root is `id`; starving has gpu_starved as its consequence, and
 * nothing beside is more than information. Three seeds. */
static void expect(struct job_opts o, const char *id)
{
	bool starves = strcmp(id, "balanced") && strcmp(id, "sync_bound") &&
		       strcmp(id, "insufficient_data");
	uint64_t seed;
	size_t i;

	for (seed = 1; seed <= 3; seed++) {
		struct st_case c;
		const struct pt_r_verdict *g;
		char buf[160];
		const char *trouble;

		o.seed = seed;
		if (seed == 1)
			case_open(&c, &o, 0, 0);
		else
			case_figures(&c, &o);
		trouble = case_trouble(c.r, buf, sizeof(buf));
		if (trouble)
			fail_msg("%s", trouble);
		if (strcmp(case_root(c.r), id))
			fail_msg("seed %d: %s, expected %s: %s", (int)seed,
				 case_root(c.r), id,
				 c.r->n_verdicts ? c.r->verdicts[0].title : "");
		g = case_verdict(c.r, "gpu_starved");
		assert_true(starves == (g != NULL));
		/* findings beside are weighed elsewhere; but no false alarm */
		for (i = starves && strcmp(id, "gpu_starved") ? 2 : 1;
		     i < c.r->n_verdicts; i++)
			if (!c.r->verdicts[i].consequence_of &&
			    c.r->verdicts[i].severity > PT_INFO)
				fail_msg("%s beside %s: %s",
					 c.r->verdicts[i].id, id,
					 c.r->verdicts[i].title);
		if (g && g != &c.r->verdicts[0])
			assert_string_equal(g->consequence_of, id);
		assert_null(c.r->verdicts[0].consequence_of);
		if (starves)
			assert_non_null(c.r->verdicts[0].advice);
		case_close(&c);
	}
}

static struct job_opts own_loading(double starved)
{
	struct job_opts o = full_host();

	/* load, then 20 kernels: what the loading takes of the period */
	o.workers = 0;
	o.jitter = 0;
	o.slices = 1;
	o.kernel_ns = 900 * ST_US;
	o.batch_ns = (uint64_t)(starved / (1 - starved) * 18.03e6);
	o.run_s_x10 = 50;
	return o;
}

static void check_severity(double share, const char *id, enum pt_severity sev)
{
	struct job_opts o = own_loading(share);
	struct st_case c;
	double truth;

	case_open(&c, &o, 0, 0);
	truth = (double)job_starved_ns(&c.j) / (double)(c.j.t1 - c.j.t0);
	if (fabs(truth - share) > 0.005) /* the scenario is what it says */
		fail_msg("starves %.4f, meant to %.4f", truth, share);
	if (strcmp(case_root(c.r), id))
		fail_msg("starved %.3f: %s, expected %s", truth,
			 case_root(c.r), id);
	if (c.r->verdicts[0].severity != sev)
		fail_msg("starved %.3f: severity %s", truth,
			 pt_severity_name(c.r->verdicts[0].severity));
	case_close(&c);
}

static void test_starvation_thresholds(void **state)
{
	(void)state;
	check_severity(0.01, "balanced", PT_INFO);
	check_severity(0.09, "balanced", PT_INFO);
	check_severity(0.11, "main_thread_loading", PT_INFO);
	check_severity(0.19, "main_thread_loading", PT_INFO);
	check_severity(0.21, "main_thread_loading", PT_WARNING);
	check_severity(0.29, "main_thread_loading", PT_WARNING);
	check_severity(0.31, "main_thread_loading", PT_CRITICAL);
	check_severity(0.80, "main_thread_loading", PT_CRITICAL);
}

/* Waiting that queued work hides is not starving. */
static void test_hidden_waits(void **state)
{
	struct job_opts o = full_host();
	struct st_case c;

	(void)state;
	o.batch_ns = 36 * ST_MS; /* a batch each 18 ms, 20 ms of kernels */
	o.kernel_ns = ST_MS;
	o.sync_every = 50;
	o.run_s_x10 = 60;
	case_open(&c, &o, 0, 0);
	assert_true(c.r->breakdown.data_wait.share > 0.3);
	assert_true(job_starved_ns(&c.j) * 20 < c.j.t1 - c.j.t0);
	assert_string_equal(case_root(c.r), "balanced");
	assert_int_equal(c.r->verdicts[0].severity, PT_INFO);
	case_close(&c);
}

static void test_own_loading(void **state)
{
	struct job_opts o = own_loading(0.5);

	(void)state;
	expect(o, "main_thread_loading");
	o.mix[JOB_DISK] = 0.8; /* still its own doing */
	expect(o, "main_thread_loading");
	o.mix[JOB_DISK] = 0;
	o.mix[JOB_RUNQ] = 0.5;
	expect(o, "main_thread_loading");
	o = full_host();
	expect(o, "cpu_bound"); /* the same with workers */
}

static void test_io_or_cpu(void **state)
{
	struct job_opts o = full_host();

	(void)state;
	o.workers = 1;
	o.cores = 1; /* none is left for another worker */
	o.slices = 40;
	o.mix[JOB_DISK] = 0.45;
	expect(o, "cpu_bound");
	o.mix[JOB_DISK] = 0.55;
	expect(o, "io_bound");
	o.mix[JOB_DISK] = 0.30;
	o.mix[JOB_FAULT] = 0.25; /* faults read from storage as well */
	expect(o, "io_bound");
	o.mix[JOB_FAULT] = 0.15;
	expect(o, "cpu_bound");
	/* beside two hogs that have nothing to do with it */
	o.hogs = true;
	o.mix[JOB_DISK] = 0.8;
	o.mix[JOB_FAULT] = 0;
	expect(o, "io_bound");
}

/* The largest group is not the root where it is small among many. */
static void test_no_largest(void **state)
{
	struct job_opts o = full_host();

	(void)state;
	o.workers = 1;
	o.slices = 40;
	o.mix[JOB_DISK] = 0.28;
	o.mix[JOB_NET] = 0.26;
	o.mix[JOB_LOCK] = 0.24;
	expect(o, "gpu_starved");
	o.mix[JOB_DISK] = 0.33;
	o.mix[JOB_NET] = 0.23;
	o.mix[JOB_LOCK] = 0.22;
	expect(o, "io_bound");
	memset(o.mix, 0, sizeof(o.mix));
	o.mix[JOB_NET] = 0.8;
	expect(o, "network_bound");
}

static void test_run_queue(void **state)
{
	struct job_opts o = full_host();

	(void)state;
	o.workers = 1;
	o.slices = 60;
	o.mix[JOB_RUNQ] = 0.23;
	expect(o, "cpu_bound");
	o.mix[JOB_RUNQ] = 0.27;
	expect(o, "cpu_oversubscribed");
	o.mix[JOB_RUNQ] = 0.6;
	expect(o, "cpu_oversubscribed");
	/* of the loading's CPU part, not of the whole */
	o.mix[JOB_RUNQ] = 0.2;
	o.mix[JOB_NET] = 0.4; /* 0.2 of 0.6 */
	expect(o, "cpu_oversubscribed");
	o.mix[JOB_RUNQ] = 0.12;
	expect(o, "cpu_bound");
	/* short of cores, but it is the disk that they wait for */
	o.mix[JOB_NET] = 0;
	o.mix[JOB_RUNQ] = 0.2;
	o.mix[JOB_DISK] = 0.6;
	expect(o, "io_bound");
}

static void test_slow_worker(void **state)
{
	struct job_opts o = full_host();
	struct st_case c;

	(void)state;
	o.workers = 3;
	o.jitter = 0.05;
	o.kernel_ns = 100 * ST_US;
	o.run_s_x10 = 50;
	o.factor[1] = 1.4;
	expect(o, "cpu_bound");
	o.factor[1] = 1.6;
	expect(o, "slow_worker");
	o.factor[1] = 6;
	expect(o, "slow_worker");
	case_open(&c, &o, 0, 0);
	assert_int_equal(c.r->verdicts[0].subject_pid, JOB_WORKER(1));
	case_close(&c);
	/* slow because of its disk is still this worker */
	o.mix[JOB_DISK] = 0.7;
	expect(o, "slow_worker");
	/* where all vary widely it is slow all the same: by more than chance */
	o.mix[JOB_DISK] = 0;
	o.factor[1] = 1.8;
	o.jitter = 0.7;
	expect(o, "slow_worker");
	/* hard batches now and then do not make a slow worker: those batches are it */
	o.factor[1] = 0;
	o.heavy_every = 3;
	o.heavy = 6;
	expect(o, "slow_item");
	o.heavy_every = 0;
	/* every worker as slow as the other */
	o.jitter = 0.05;
	o.factor[0] = o.factor[1] = o.factor[2] = 3;
	expect(o, "cpu_bound");
	/* two of three: they are the rule, and the third is fast */
	o.factor[2] = 0.3;
	expect(o, "cpu_bound");
	/* slow, but never waited for */
	o.factor[0] = o.factor[2] = 1;
	o.factor[1] = 2;
	o.batch_ns = 10 * ST_MS;
	o.kernel_ns = ST_MS;
	expect(o, "balanced");
}

/* Worker 0 is slow in most of its batches, and as fast as the others in the
 * rest: what it takes has two peaks, and still ranks behind its peers'. */
static void test_slow_worker_two_peaks(void **state)
{
	struct job_opts o = full_host();

	(void)state;
	o.workers = 3;
	o.jitter = 0.05;
	o.kernel_ns = 100 * ST_US;
	o.run_s_x10 = 60;
	o.factor[0] = 5;
	o.heavy_every = 3; /* a third of them */
	o.heavy = 0.2;
	expect(o, "slow_worker");
	o.factor[0] = 1; /* and the other way round */
	o.heavy = 5;
	expect(o, "slow_item");
	o.heavy = 3; /* not so much slower */
	expect(o, "cpu_bound");
}

/* Share of the blocked waiting that is for worker 1. */
static double waits_for_slow(const struct job_opts *o)
{
	struct st_case c;
	double all = 0, slow = 0;
	size_t i;

	case_open(&c, o, 0, 0);
	for (i = 0; i < c.j.steps.n; i++) {
		const struct job_step *s = &c.j.steps.v[i];

		if (s->wait_begin < c.j.t0 || s->wait_end > c.j.t1)
			continue;
		all += (double)s->blocked;
		slow += s->worker == 1 ? (double)s->blocked : 0;
	}
	case_close(&c);
	return slow / all;
}

/* A slow one that is not what the trainer mostly waits for: another has a
 * very hard batch now and then. */
static void test_slow_worker_share(void **state)
{
	struct job_opts o = full_host();

	(void)state;
	o.workers = 3;
	o.jitter = 0.02;
	o.kernel_ns = 20 * ST_US;
	o.run_s_x10 = 160;
	o.factor[1] = 1.8;
	o.heavy_every = 8;
	o.heavy = 16;
	assert_true(waits_for_slow(&o) < 0.44 && waits_for_slow(&o) > 0.25);
	expect(o, "slow_item");
	o.heavy = 6;
	assert_true(waits_for_slow(&o) > 0.56 && waits_for_slow(&o) < 0.85);
	expect(o, "slow_worker");
}

static void test_balanced(void **state)
{
	struct job_opts o = full_host();

	(void)state;
	o.batch_ns = 8 * ST_MS;
	o.kernel_ns = ST_MS;
	expect(o, "balanced");
	o.sync_every = 20;
	expect(o, "balanced");
	o.sync_every = 1;
	o.loss_item = true; /* it spends nearly all its time in a sync */
	expect(o, "balanced");
}

/* The device idles, and data is not the reason: not balanced. */
static void test_idle_without_waits(void **state)
{
	struct job_opts o = full_host();
	struct st_case c;

	(void)state;
	o.batch_ns = 5 * ST_MS;
	o.kernel_ns = ST_MS;
	o.host_ns = 12 * ST_MS; /* 12 of 32 ms */
	expect(o, "sync_bound");
	o.host_ns = 2 * ST_MS; /* 2 of 22 */
	expect(o, "balanced");
	/* waits for data and idles for another reason beside: both are named */
	o = own_loading(0.2);
	o.host_ns = 2 * ST_MS;
	case_open(&c, &o, 0, 0);
	assert_string_equal(case_root(c.r), "main_thread_loading");
	case_close(&c);
}

/* ---- not enough --------------------------------------------------------- */

static void test_insufficient(void **state)
{
	struct job_opts o = full_host();
	struct st_case c;
	uint64_t at;

	(void)state;
	at = 1500 * ST_MS;
	case_open(&c, &o, at, at + 480 * ST_MS); /* too short */
	assert_string_equal(case_root(c.r), "insufficient_data");
	assert_int_equal(c.r->n_verdicts, 1);
	case_close(&c);
	case_open(&c, &o, at, at + 520 * ST_MS);
	assert_string_equal(case_root(c.r), "cpu_bound");
	case_close(&c);

	o.workers = o.cores = 1; /* one step takes 250 ms */
	o.batch_ns = 250 * ST_MS;
	case_open(&c, &o, at, at + 700 * ST_MS);
	assert_string_equal(case_root(c.r), "insufficient_data");
	case_close(&c);
	case_open(&c, &o, at, at + 1300 * ST_MS);
	assert_string_equal(case_root(c.r), "cpu_bound");
	case_close(&c);
}

/* Exactly so many steps of which both ends lie in the capture. */
static void test_few_whole_steps(void **state)
{
	struct job_opts o = full_host();
	size_t whole;

	(void)state;
	o.workers = o.cores = 1;
	o.batch_ns = 250 * ST_MS;
	for (whole = 2; whole <= 4; whole++) {
		struct st_case c;
		struct job j;
		uint64_t t0, t1;

		job_run(&j, &o);
		/* from the middle of a step's GPU work to that of another's */
		t0 = j.steps.v[3].wait_end + 2 * ST_MS - JOB_BEGIN;
		t1 = j.steps.v[4 + whole].wait_end + 2 * ST_MS - JOB_BEGIN;
		job_free(&j);
		case_open(&c, &o, t0, t1);
		assert_string_equal(case_root(c.r), whole < 3 ?
				    "insufficient_data" : "cpu_bound");
		case_close(&c);
	}
}

static void lose(struct st_case *c, int what, uint64_t n)
{
	struct pt_rec_loss *l = &st_add(&c->j.s, PT_REC_LOSS, sizeof(*l),
					c->j.t1 - 1, 0, 0)->loss;

	l->count[what] = n;
	pt_report_free(c->r);
	pt_model_free(c->m);
	c->r = st_analyze(&c->j.s, &c->m);
}

static void test_losses(void **state)
{
	struct job_opts o = full_host();
	struct st_case c;
	uint64_t n;

	(void)state;
	case_open(&c, &o, 0, 0);
	n = c.j.s.recs.n;
	lose(&c, PT_LOSS_RING_FULL, n * 9 / 1000);
	assert_string_equal(case_root(c.r), "cpu_bound");
	assert_int_equal(c.r->capture.lost_total, n * 9 / 1000);
	lose(&c, PT_LOSS_RING_FULL, n * 12 / 1000);
	assert_string_equal(case_root(c.r), "insufficient_data");
	/* exact times of the device say for themselves what they lack */
	case_close(&c);
	case_open(&c, &o, 0, 0);
	lose(&c, PT_LOSS_ACTIVITY, n * 12 / 1000);
	assert_string_equal(case_root(c.r), "cpu_bound");
	case_close(&c);
}

/* No call of a GPU library: no trainer, and no guess. */
static void test_no_gpu(void **state)
{
	struct job_opts o = full_host();
	struct st_case c;
	size_t i, n = 0;

	(void)state;
	case_open(&c, &o, 0, 0);
	for (i = 0; i < c.j.s.recs.n; i++)
		if (c.j.s.recs.v[i].r.hdr.kind != PT_REC_GPU_ENTER &&
		    c.j.s.recs.v[i].r.hdr.kind != PT_REC_GPU_RETURN)
			c.j.s.recs.v[n++] = c.j.s.recs.v[i];
	c.j.s.recs.n = n;
	pt_report_free(c.r);
	pt_model_free(c.m);
	c.r = st_analyze(&c.j.s, &c.m);
	assert_string_equal(case_root(c.r), "insufficient_data");
	assert_int_equal(c.r->n_verdicts, 1);
	assert_int_equal(c.r->n_gpu, 0);
	case_close(&c);
}

/* Without any sync nobody knows when the device ran dry: low certainty. */
static void test_certainty(void **state)
{
	struct job_opts o = full_host();
	struct st_case c;

	(void)state;
	o.sync_every = 0;
	case_open(&c, &o, 0, 0);
	assert_string_equal(case_root(c.r), "cpu_bound");
	assert_int_equal(c.r->verdicts[0].certainty, PT_CONF_LOW);
	assert_true(isnan(c.r->gpu->idle_share));
	case_close(&c);
	o.sync_every = 20; /* solved, not seen */
	o.kernel_ns = 500 * ST_US;
	case_open(&c, &o, 0, 0);
	assert_int_equal(c.r->verdicts[0].certainty, PT_CONF_MEDIUM);
	case_close(&c);
	o.sync_every = 1;
	case_open(&c, &o, 0, 0);
	assert_int_equal(c.r->verdicts[0].certainty, PT_CONF_HIGH);
	case_close(&c);
}

/* The gain is a bound: no fix wins more than the starved time. */
static void test_speedup_bound(void **state)
{
	struct job_opts o = own_loading(0.4);
	struct st_case c;
	double most;

	(void)state;
	case_open(&c, &o, 0, 0);
	most = c.r->verdicts[0].expected_speedup.high;
	assert_true(most >= 1 / (1 - 0.4) - 0.02);
	assert_true(most <= 1 / (1 - 0.46));
	case_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_starvation_thresholds),
		cmocka_unit_test(test_hidden_waits),
		cmocka_unit_test(test_own_loading),
		cmocka_unit_test(test_io_or_cpu),
		cmocka_unit_test(test_no_largest),
		cmocka_unit_test(test_run_queue),
		cmocka_unit_test(test_slow_worker),
		cmocka_unit_test(test_slow_worker_two_peaks),
		cmocka_unit_test(test_slow_worker_share),
		cmocka_unit_test(test_balanced),
		cmocka_unit_test(test_idle_without_waits),
		cmocka_unit_test(test_insufficient),
		cmocka_unit_test(test_few_whole_steps),
		cmocka_unit_test(test_losses),
		cmocka_unit_test(test_no_gpu),
		cmocka_unit_test(test_certainty),
		cmocka_unit_test(test_speedup_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
