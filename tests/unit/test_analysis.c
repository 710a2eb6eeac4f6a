/* SPDX-License-Identifier: BSD-2-Clause */
/* Steps, waits and deliverers of simulated jobs against the truth. */
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

#define SLACK (60 * ST_US) /* of a step's begin: a loop's own host work */

/* A loader without sender threads and sockets leaves nothing to tell whose
 * batch it was when it came while the trainer was unpacking another. */
static size_t may_misname(const struct job *j, size_t blocked)
{
	return j->o.direct && !j->o.sockets ? blocked / 20 : 0;
}

/* Steps, each wait, each deliverer, and the sums. `slack_ns` per step. */
static void check_case(const struct st_case *c, uint64_t slack_ns)
{
	const struct job *j = &c->j;
	const struct pt_report *r = c->r;
	size_t i, n = 0, inside = 0, blocked = 0, wrong = 0;
	double told = r->breakdown.data_wait.seconds, true_s;
	/* the gap of a cut end may be told by nothing */
	double edge = j->o.workers ? 0 : (double)j->o.batch_ns / 1e9;
	char buf[160];
	const char *trouble = case_trouble(r, buf, sizeof(buf));

	if (trouble)
		fail_msg("%s", trouble);
	for (i = 0; i < j->steps.n; i++) {
		const struct job_step *s = &j->steps.v[i];
		const struct pt_r_step *o;
		double wait = (double)(s->wait_end - s->wait_begin) / 1e6;

		inside += s->wait_end > j->t0 && s->wait_begin < j->t1;
		if (s->wait_begin < j->t0 || s->wait_end > j->t1)
			continue;
		o = case_step(r, s->wait_begin, SLACK);
		if (!o)
			fail_msg("step %zu was not found", i);
		n++;
		if (fabs(o->data_wait_ms - wait) > (double)slack_ns / 1e6)
			fail_msg("step %zu: waits %.4f ms, reported %.4f ms", i,
				 wait, o->data_wait_ms);
		if (!s->blocked)
			continue;
		blocked++;
		wrong += o->worker != (int64_t)JOB_WORKER((unsigned)s->worker);
	}
	if (wrong > may_misname(j, blocked))
		fail_msg("another worker named in %zu of %zu blocked steps",
			 wrong, blocked);
	/* Whether a gap that the capture's end cuts was the loop's fetch can
	 * be unclear where the trainer loads by itself. */
	if (llabs(r->steps.count - (int64_t)inside) > (j->o.workers ? 0 : 1))
		fail_msg("%lld steps reported, %zu are there",
			 (long long)r->steps.count, inside);
	assert_true(n > 20);
	if (j->o.workers && j->o.batch_ns > 20 * ST_MS)
		assert_true(blocked > 5);
	true_s = (double)job_wait_ns(j) / 1e9;
	if (fabs(told - true_s) > (double)(slack_ns * (inside + 1)) / 1e9 + edge)
		fail_msg("data wait %.6f s, truth %.6f s", told, true_s);
}

static void run_case(struct job_opts o, uint64_t slack_ns)
{
	struct st_case c;
	uint64_t seed;

	for (seed = 1; seed <= 3; seed++) {
		o.seed = seed;
		case_open(&c, &o, 0, 0);
		check_case(&c, slack_ns);
		case_close(&c);
	}
}

/* ---- loops and loaders ---------------------------------------------------- */

static void test_plain(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	run_case(o, 5 * ST_US);
	o.workers = 3;
	o.sockets = true;
	run_case(o, 5 * ST_US);
	o.workers = 1;
	run_case(o, 5 * ST_US);
}

static void test_out_of_order(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	size_t i, early = 0, others = 0;

	(void)state;
	o.workers = 4;
	o.jitter = 0.6;
	o.sockets = true;
	run_case(o, 5 * ST_US);
	case_open(&c, &o, 0, 0);
	for (i = 0; i < c.j.steps.n; i++)
		early += c.j.steps.v[i].early;
	for (i = 0; i < c.j.s.recs.n; i++)
		others += c.j.s.recs.v[i].r.hdr.kind == PT_REC_OFF;
	case_close(&c);
	assert_true(early > 10); /* else this tested nothing */
	assert_true(others > 100);
}

static void test_no_sender_threads(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.direct = true;
	o.workers = 3;
	o.jitter = 0.3;
	run_case(o, 5 * ST_US);
}

static void test_pin_thread(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.pin = true;
	run_case(o, 5 * ST_US);
	o.workers = 3;
	o.jitter = 0.5;
	o.sockets = true;
	run_case(o, 5 * ST_US);
}

static void test_fetch_ahead(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.loop = JOB_AHEAD; /* the gap begins when the copy's call returned */
	run_case(o, 20 * ST_US);
	o.sync_every = 7;
	run_case(o, 20 * ST_US);
}

static void test_second_thread(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.loop = JOB_THREAD;
	run_case(o, 5 * ST_US);
	o.sync_every = 0; /* the last call is an entry without return */
	run_case(o, 20 * ST_US);
	/* The main thread sleeps until the other has launched all: that is no
	 * waiting for data. */
	o.thread_last = true;
	o.launch_gap_ns = 400 * ST_US;
	o.kernel_ns = 20 * ST_US;
	run_case(o, 20 * ST_US);
}

static void test_syncs(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.sync_every = 5;
	run_case(o, 20 * ST_US);
	o.sync_every = 0;
	run_case(o, 20 * ST_US);
	o.sync_every = 1;
	o.loss_item = true;
	run_case(o, 5 * ST_US);
}

static void test_own_loading(void **state)
{
	struct job_opts o = job_defaults();
	unsigned sync;

	(void)state;
	o.workers = 0;
	o.batch_ns = 8 * ST_MS;
	for (sync = 0; sync <= 10; sync += 5) {
		o.sync_every = sync;
		o.loop = JOB_PLAIN;
		o.one_kernel = false;
		run_case(o, 20 * ST_US);
		o.one_kernel = true;
		run_case(o, 20 * ST_US);
		o.loop = JOB_AHEAD;
		o.one_kernel = false;
		run_case(o, 20 * ST_US);
	}
	o.sync_every = 1;
	o.loop = JOB_PLAIN;
	o.mix[JOB_DISK] = 0.5;
	run_case(o, 5 * ST_US);
}

/* The loop's own work between sync and fetch is not waiting for data. */
static void test_host_work(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	double wait, host;

	(void)state;
	o.host_ns = 8 * ST_MS;
	case_open(&c, &o, 0, 0);
	wait = c.r->breakdown.data_wait.seconds;
	host = (double)job_count(&c.j) * 8e-3;
	/* where the wait is seen it is exact; a step that finds its batch
	 * ready may be off by what an unpickling takes */
	if (fabs(wait - (double)job_wait_ns(&c.j) / 1e9) >
	    2.2e-3 * (double)job_count(&c.j))
		fail_msg("data wait %.4f s, truth %.4f s", wait,
			 (double)job_wait_ns(&c.j) / 1e9);
	/* behind a sync, with nothing queued: the device idles meanwhile */
	assert_true(c.r->breakdown.other.seconds +
		    c.r->breakdown.sync.seconds > host * 0.8);
	case_close(&c);
}

/* Six seconds of it at a time: all of them are idle time of the device. */
static void test_long_host_work(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	const struct pt_r_verdict *v;

	(void)state;
	o.host_ns = 6 * ST_S;
	o.run_s_x10 = 600;
	case_open(&c, &o, ST_S, 55 * ST_S);
	v = case_verdict(c.r, "host_bound");
	assert_non_null(v);
	assert_ptr_equal(v, c.r->verdicts);
	assert_string_equal(v->evidence[0].metric, "gpu.idle_host_share");
	if (!(v->evidence[0].value > 0.85))
		fail_msg("idle %.3f of the time", v->evidence[0].value);
	case_close(&c);
}

/* A worker that computes a little on the device is no rank of the job. */
static void test_device_worker(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	uint64_t t;

	(void)state;
	job_run(&c.j, &o);
	for (t = JOB_BEGIN + ST_S; t < JOB_BEGIN + 2 * ST_S; t += 100 * ST_MS)
		st_gpu(&c.j.s, "cudaLaunchKernel", JOB_WORKER(0), JOB_WORKER(0), t, 0, 0, 0x9000,
		       0, 0);
	job_window(&c.j, JOB_BEGIN + 500 * ST_MS, JOB_BEGIN + 2500 * ST_MS);
	c.r = st_figures(&c.j.s, &c.m);
	assert_int_equal(c.r->n_ranks, 0);
	assert_int_equal(c.r->target.trainer, JOB_TRAINER);
	case_close(&c);
}

/* Computing between calls with no sign of loading is the loop's own work. */
static void test_own_work(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;

	(void)state;
	o.workers = 0;
	o.batch_ns = 8 * ST_MS;
	o.no_reads = true;
	case_open(&c, &o, 0, 0);
	assert_true(c.r->breakdown.data_wait.seconds < 1e-9);
	assert_null(c.r->data_wait.evidence);
	assert_true(fabs(c.r->breakdown.host[PT_HOST_COMPUTING].seconds -
			 (double)job_wait_ns(&c.j) / 1e9) < 0.02);
	assert_string_equal(case_root(c.r), "host_bound");
	/* its steps come out the same */
	assert_true(llabs(c.r->steps.count - (int64_t)job_count(&c.j)) <= 1);
	case_close(&c);
	o.no_reads = false;
	case_open(&c, &o, 0, 0);
	assert_string_equal(c.r->data_wait.evidence, "read");
	assert_string_equal(case_root(c.r), "main_thread_loading");
	case_close(&c);
}

/* A thread of the trainer hands a piece of each batch to its main thread over a
 * pipe, on which it works 2 ms: when it is asked to, or ahead. */
static void open_own_threads(struct st_case *c, bool asked)
{
	struct job_opts o = job_defaults();
	size_t i;

	memset(c, 0, sizeof(*c));
	o.workers = 0;
	o.batch_ns = 8 * ST_MS;
	job_run(&c->j, &o);
	st_task(&c->j.s, JOB_BEGIN, JOB_TRAINER, 1050, 1, "helper");
	for (i = 1; i < c->j.steps.n; i++) {
		uint64_t t = c->j.steps.v[i].wait_begin + 2 * ST_MS;
		uint64_t last = c->j.steps.v[i - 1].wait_begin + 4 * ST_MS;

		if (asked)
			st_futex(&c->j.s, JOB_TRAINER, 1050, last + 10000, t,
				 t + 5000, 0x9990000, JOB_TRAINER, JOB_TRAINER);
		st_pipe_in(&c->j.s, JOB_TRAINER, JOB_TRAINER, t + 20000,
			   t + 2 * ST_MS, t + 2 * ST_MS + 5000, 99,
			   JOB_TRAINER, 1050);
	}
	job_window(&c->j, JOB_BEGIN + 400 * ST_MS, JOB_BEGIN + 2900 * ST_MS);
	c->r = st_analyze(&c->j.s, &c->m);
}

/* Who works only when asked helps the trainer, which loads by itself; who works
 * ahead is a loader. */
static void test_own_threads(void **state)
{
	struct st_case c;

	(void)state;
	open_own_threads(&c, true);
	assert_int_equal(c.r->n_workers, 0);
	assert_string_equal(case_root(c.r), "main_thread_loading");
	check_case(&c, 20 * ST_US);
	case_close(&c);
	open_own_threads(&c, false);
	assert_string_equal(c.r->loader.kind.value, "threads");
	assert_int_equal(c.r->n_workers, 1);
	assert_int_equal(c.r->workers[0].tid, 1050);
	case_close(&c);
}

/* A thread that the main thread wakes once a step, and that sends nothing: its
 * wake-ups are no refills, wherever in the step they come. */
static void check_helpers(struct job_opts o)
{
	struct st_case c;
	size_t i;

	memset(&c, 0, sizeof(c));
	job_run(&c.j, &o);
	st_task(&c.j.s, JOB_BEGIN, JOB_TRAINER, 1060, 1, "helper");
	for (i = 1; i < c.j.steps.n; i++) {
		uint64_t from = c.j.steps.v[i - 1].wait_end + 200 * ST_US;
		uint64_t wake = c.j.steps.v[i].wait_end + 100 * ST_US;

		st_futex(&c.j.s, JOB_TRAINER, 1060, from, wake, wake + 5000,
			 0x9990000, JOB_TRAINER, JOB_TRAINER);
	}
	job_window(&c.j, JOB_BEGIN + 400 * ST_MS, JOB_BEGIN + 2900 * ST_MS);
	c.r = st_analyze(&c.j.s, &c.m);
	check_case(&c, 5 * ST_US);
	case_close(&c);
}

static void test_woken_helpers(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	check_helpers(o);
	/* the trainer writes the indices itself: it has no senders at all */
	o.direct = true;
	o.workers = 3;
	o.jitter = 0.3;
	check_helpers(o);
}

/* ---- the capture's ends --------------------------------------------------- */

/* Cut in the middle of a wait at both ends: the parts inside count. */
static void test_partial_waits(void **state)
{
	struct job_opts o = job_defaults();
	int pin;

	(void)state;
	for (pin = 0; pin <= 1; pin++) {
		struct job whole;
		struct st_case c;
		const struct job_step *a = NULL, *b = NULL;
		uint64_t t0, t1;
		double told;
		size_t i;

		o.pin = pin;
		job_run(&whole, &o);
		for (i = 10; i < whole.steps.n; i++) {
			const struct job_step *s = &whole.steps.v[i];

			if (s->blocked < 15 * ST_MS)
				continue;
			if (!a)
				a = s;
			if (s->wait_begin < JOB_BEGIN + 2800 * ST_MS)
				b = s;
		}
		assert_non_null(a);
		assert_non_null(b);
		t0 = (a->wait_begin + a->wait_end) / 2 - JOB_BEGIN;
		t1 = (b->wait_begin + b->wait_end) / 2 - JOB_BEGIN;
		job_free(&whole);
		case_open(&c, &o, t0, t1);
		check_case(&c, 20 * ST_US);
		told = c.r->steps.list[c.r->steps.n_list - 1].data_wait_ms;
		assert_true(told > 5); /* the last wait, cut */
		case_close(&c);
	}
}

/* A trainer that waits from the first to the last moment, for a batch that
 * never comes, is seen to wait. */
static void test_wait_without_end(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	double share;

	(void)state;
	o.workers = 1;
	o.factor[0] = 0;
	o.batch_ns = 30 * ST_MS;
	o.run_s_x10 = 20;
	memset(&c, 0, sizeof(c));
	job_run(&c.j, &o);
	/* nothing more happens: the worker hangs, the trainer sleeps */
	{
		uint64_t t = c.j.now;

		st_off(&c.j.s, JOB_TRAINER, JOB_TRAINER, t + 1000, 0,
		       t + 3600 * ST_S);
		c.j.s.recs.v[c.j.s.recs.n - 1].r.off.syscall = 7;
		c.j.s.recs.v[c.j.s.recs.n - 1].r.off.obj_kind = PT_OBJ_PIPE;
		c.j.s.recs.v[c.j.s.recs.n - 1].r.off.object = JOB_RESULT_PIPE;
		job_window(&c.j, JOB_BEGIN + 500 * ST_MS, t + 6 * ST_S);
	}
	c.r = st_analyze(&c.j.s, &c.m);
	share = c.r->breakdown.data_wait.share;
	if (!(share > 0.9))
		fail_msg("data wait share is %.3f", share);
	case_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_out_of_order),
		cmocka_unit_test(test_no_sender_threads),
		cmocka_unit_test(test_pin_thread),
		cmocka_unit_test(test_fetch_ahead),
		cmocka_unit_test(test_second_thread),
		cmocka_unit_test(test_syncs),
		cmocka_unit_test(test_own_loading),
		cmocka_unit_test(test_host_work),
		cmocka_unit_test(test_long_host_work),
		cmocka_unit_test(test_device_worker),
		cmocka_unit_test(test_own_work),
		cmocka_unit_test(test_own_threads),
		cmocka_unit_test(test_woken_helpers),
		cmocka_unit_test(test_partial_waits),
		cmocka_unit_test(test_wait_without_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
