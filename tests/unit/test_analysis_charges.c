/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the time of simulated jobs went, against the truth: charges of the
 * waits, the trainer's breakdown, the workers' parts. */
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

static const enum pt_cause cause_of[JOB_SEG_NR] = {
	[JOB_CPU] = PT_CAUSE_CPU, [JOB_RUNQ] = PT_CAUSE_RUN_QUEUE,
	[JOB_DISK] = PT_CAUSE_DISK, [JOB_FAULT] = PT_CAUSE_PAGE_FAULT,
	[JOB_NET] = PT_CAUSE_NETWORK, [JOB_LOCK] = PT_CAUSE_LOCK,
	[JOB_SEND] = PT_CAUSE_IPC, [JOB_IDLE] = PT_CAUSE_WORKER_IDLE,
	[JOB_QUOTA] = PT_CAUSE_THROTTLE,
};

/* ---- charges -------------------------------------------------------------- */

/* Each cause gets its share of the waits, to 1 % of them. */
static void check_causes(const struct job_opts *o)
{
	struct st_case c;
	double wait, edge;
	int seg;

	case_open(&c, o, 0, 0);
	wait = c.r->breakdown.data_wait.seconds;
	/* the cut waits of both ends have no truth here */
	edge = 2.5 * (double)o->batch_ns / 1e9;
	if (o->quota_ns) /* of each tenth of a second */
		edge *= 1e8 / (double)o->quota_ns;
	for (seg = 0; seg < JOB_SEG_NR; seg++) {
		double truth = (double)job_cause_ns(&c.j, (enum job_seg)seg) / 1e9;
		double told = case_charged(c.r, cause_of[seg]);

		if (fabs(told - truth) > 0.01 * wait + edge)
			fail_msg("%s: charged %.4f s, truth %.4f s of %.4f s",
				 pt_cause_name(cause_of[seg]), told, truth, wait);
	}
	case_close(&c);
}

static void test_charges(void **state)
{
	struct job_opts o = job_defaults();
	unsigned seg;

	(void)state;
	o.workers = 3;
	o.jitter = 0.4;
	o.run_s_x10 = 80;
	o.hogs = true;
	check_causes(&o);
	for (seg = JOB_RUNQ; seg < JOB_SEND; seg++) {
		memset(o.mix, 0, sizeof(o.mix));
		o.mix[seg] = 0.7;
		check_causes(&o);
	}
	for (seg = JOB_RUNQ; seg < JOB_SEND; seg++)
		o.mix[seg] = 0.15;
	check_causes(&o);
	o.pin = true;
	check_causes(&o);
	o.pin = false;
	o.direct = true;
	check_causes(&o);
}

/* The batch is made, and its sender takes long: hand-over, not loading. */
static void test_slow_sender(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.send_ns = 12 * ST_MS;
	o.run_s_x10 = 60;
	check_causes(&o);
	o.pin = true;
	check_causes(&o);
	/* ... so long that a wait begins in the midst of it */
	o.pin = false;
	o.send_ns = 30 * ST_MS;
	o.jitter = 0.4;
	check_causes(&o);
}

/* Stretches on the run queue that end when a quota's period does are the
 * quota's; others, as long as they may be, are not. */
static void test_quota(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;

	(void)state;
	o.run_s_x10 = 80;
	o.jitter = 0.4;
	o.quota_ns = 25 * ST_MS;
	check_causes(&o);
	case_open(&c, &o, 0, 0);
	assert_string_equal(case_root(c.r), "cpu_oversubscribed");
	assert_non_null(strstr(c.r->verdicts[0].title, "quota"));
	assert_true(case_charged(c.r, PT_CAUSE_THROTTLE) > 2);
	assert_true(c.r->workers[0].throttle > 3);
	case_close(&c);
	o.quota_ns = 0;
	o.slices = 1;
	o.mix[JOB_RUNQ] = 0.7; /* 28 ms, give or take */
	check_causes(&o);
}

/* Waiting for one worker's batch is charged to that worker, not to whoever
 * woke the trainer in between. */
static void test_charged_worker(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	double by_worker[2] = { 0 }, truth[2] = { 0 };
	size_t i;

	(void)state;
	o.jitter = 0.5;
	o.run_s_x10 = 60;
	case_open(&c, &o, 0, 0);
	for (i = 0; i < c.r->data_wait.n_causes; i++) {
		const struct pt_r_charge *k = &c.r->data_wait.causes[i];

		if (k->subject_pid >= JOB_WORKER(0))
			by_worker[(k->subject_pid - JOB_WORKER(0)) / 100] +=
				k->seconds;
	}
	for (i = 0; i < c.j.steps.n; i++) {
		const struct job_step *s = &c.j.steps.v[i];

		if (s->wait_begin >= c.j.t0 && s->wait_end <= c.j.t1)
			truth[s->worker] += (double)s->blocked / 1e9;
	}
	for (i = 0; i < 2; i++)
		if (fabs(by_worker[i] - truth[i]) > 0.05)
			fail_msg("worker %zu: charged %.4f s, truth %.4f s", i,
				 by_worker[i], truth[i]);
	case_close(&c);
}

/* Interrupts that hit two spinning processes of the same tree are nobody's
 * doing: the hogs deliver nothing and are charged with nothing. */
static void test_interrupt_victims(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	const char *trouble;
	char buf[160];
	size_t i;

	(void)state;
	o.mix[JOB_DISK] = 0.8;
	o.hogs = true;
	case_open(&c, &o, 0, 0);
	trouble = case_trouble(c.r, buf, sizeof(buf));
	if (trouble)
		fail_msg("%s", trouble);
	assert_int_equal(c.r->n_workers, 2);
	for (i = 0; i < c.r->data_wait.n_causes; i++)
		assert_true(c.r->data_wait.causes[i].subject_pid !=
				    JOB_HOG &&
			    c.r->data_wait.causes[i].subject_pid != JOB_HOG + 1);
	case_close(&c);
}

/* ---- breakdown ------------------------------------------------------------- */

static void test_breakdown(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	int loss;

	(void)state;
	/* starving: the idle time is the data wait's, not the sync's */
	case_open(&c, &o, 0, 0);
	assert_true(c.r->breakdown.sync.share < 0.03);
	assert_true(c.r->breakdown.gpu_wait.share > 0.1);
	case_close(&c);
	/* ... nor where the host takes long to launch what keeps it busy */
	o.launch_gap_ns = 190 * ST_US;
	case_open(&c, &o, 0, 0);
	assert_true(c.r->breakdown.sync.share < 0.03);
	assert_true(c.r->breakdown.other.share > 0.15);
	case_close(&c);
	o.launch_gap_ns = 12 * ST_US;
	/* busy: nearly all of it is waiting for the device, however */
	o.batch_ns = 8 * ST_MS;
	o.kernel_ns = ST_MS;
	for (loss = 0; loss <= 1; loss++) {
		double truth;

		o.loss_item = loss;
		case_open(&c, &o, 1000 * ST_MS, 2900 * ST_MS);
		truth = (double)c.j.synced / 1e9 *
			(double)(c.j.t1 - c.j.t0) /
			(double)(c.j.now - JOB_BEGIN - ST_S);
		if (fabs(c.r->breakdown.gpu_wait.seconds - truth) > 0.05)
			fail_msg("gpu_wait %.3f s, truth %.3f s",
				 c.r->breakdown.gpu_wait.seconds, truth);
		assert_true(c.r->breakdown.sync.share < 0.03);
		case_close(&c);
	}
	/* the host's own work behind a sync, with nothing queued */
	o.loss_item = false;
	o.host_ns = 10 * ST_MS;
	case_open(&c, &o, 0, 0);
	assert_true(c.r->breakdown.sync.share > 0.25);
	case_close(&c);
}

/* ---- workers --------------------------------------------------------------- */

static void test_workers(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	unsigned w;

	(void)state;
	o.workers = 3;
	o.mix[JOB_DISK] = 0.3;
	o.mix[JOB_RUNQ] = 0.1;
	o.factor[1] = 0.5;
	case_open(&c, &o, 0, 0);
	assert_int_equal(c.r->n_workers, 3);
	for (w = 0; w < 3; w++) {
		const struct job_worker *k = &c.j.worker[w];
		double ns[JOB_SEG_NR] = { 0 };
		const struct pt_r_worker *o2 = NULL;
		size_t i, made = 0;

		for (i = 0; i < c.r->n_workers; i++)
			if (c.r->workers[i].pid == JOB_WORKER(w))
				o2 = &c.r->workers[i];
		assert_non_null(o2);
		for (i = 0; i < k->pieces.n; i++) {
			const struct job_piece *p = &k->pieces.v[i];
			uint64_t b = p->begin > c.j.t0 ? p->begin : c.j.t0;
			uint64_t e = p->end < c.j.t1 ? p->end : c.j.t1;

			if (e > b)
				ns[p->seg] += (double)(e - b) / 1e9;
		}
		for (i = 0; i < k->made.n; i++)
			made += k->made.v[i] >= c.j.t0 && k->made.v[i] < c.j.t1;
		assert_true(fabs(o2->disk - ns[JOB_DISK]) < 1e-5);
		assert_true(fabs(o2->run_queue - ns[JOB_RUNQ]) < 1e-5);
		assert_true(fabs(o2->worker_idle + o2->prefetch_full -
				 ns[JOB_IDLE]) < 1e-5);
		assert_true(llabs(o2->batches - (int64_t)made) <= 1);
		assert_true(fabs(o2->batch_ms.p50 / (w == 1 ? 20 : 40) - 1) <
			    0.08);
	}
	case_close(&c);
}

/* Idle while the trainer waits: nobody gave it work; idle while it does not:
 * it had made all that it may. */
static void test_idle_workers(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	size_t i;

	(void)state;
	o.batch_ns = 6 * ST_MS;
	o.kernel_ns = ST_MS;
	case_open(&c, &o, 0, 0);
	for (i = 0; i < c.r->n_workers; i++) {
		assert_true(c.r->workers[i].prefetch_full >
			    0.6 * c.r->capture.duration);
		assert_true(c.r->workers[i].worker_idle <
			    0.02 * c.r->capture.duration);
		/* idling is not working: a batch takes 6 ms, not 40 */
		assert_true(fabs(c.r->workers[i].batch_ms.p50 - 6) < 1);
	}
	case_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_charges),
		cmocka_unit_test(test_slow_sender),
		cmocka_unit_test(test_quota),
		cmocka_unit_test(test_charged_worker),
		cmocka_unit_test(test_interrupt_victims),
		cmocka_unit_test(test_breakdown),
		cmocka_unit_test(test_workers),
		cmocka_unit_test(test_idle_workers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
