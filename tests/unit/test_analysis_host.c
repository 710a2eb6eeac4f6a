/* SPDX-License-Identifier: BSD-2-Clause */
/* What the training thread waits for between two GPU calls, where that is no data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "stream_case.h"

enum { H2D = 1, D2H, D2D, P = 500, HELPER, STEPS = 60, STEP_MS = 30 };

struct loop {
	struct stream s;
	struct pt_model *m;
	struct pt_report *r;
	uint64_t t0;
};

static void loop_begin(struct loop *l)
{
	memset(l, 0, sizeof(*l));
	l->t0 = 1000 * ST_S;
	st_host(&l->s, l->t0, 4, P);
	st_mark(&l->s, l->t0, PT_MARK_BEGIN);
	st_task(&l->s, l->t0, P, P, 1, "job");
}

static uint64_t step_at(const struct loop *l, int i)
{
	return l->t0 + (uint64_t)i * STEP_MS * ST_MS;
}

/* The device works for 10 ms of a step, from its 2nd ms on, with a copy at its begin; a loss
 * comes back at its end. */
static void device_copies(struct loop *l, uint64_t at, uint64_t copy)
{
	int k;

	st_gpu(&l->s, "cudaMemcpyAsync", P, P, at + 2 * ST_MS, at + 2 * ST_MS + 20 * ST_US, 0, 1,
	       1 << 20, copy);
	for (k = 0; k < 8; k++)
		st_gpu(&l->s, "cudaLaunchKernel", P, P, at + 2 * ST_MS + (uint64_t)(30 + 10 * k) * ST_US,
		       at + 2 * ST_MS + (uint64_t)(34 + 10 * k) * ST_US, 0, (uint64_t)(0x100 + k), 0, 0);
	st_gpu(&l->s, "cudaMemcpy", P, P, at + 3 * ST_MS, at + 12 * ST_MS, 0, 1, 4, D2H);
}

static void device_work(struct loop *l, uint64_t at)
{
	device_copies(l, at, H2D);
}

static void loop_end(struct loop *l)
{
	st_mark(&l->s, step_at(l, STEPS) + ST_MS, PT_MARK_END);
	st_seal(&l->s);
	l->r = st_analyze(&l->s, &l->m);
	assert_in_range(l->r->steps.count, STEPS - 1, STEPS + 1);
}

static void loop_free(struct loop *l)
{
	pt_report_free(l->r);
	pt_model_free(l->m);
	st_free(&l->s);
}

/* Behind the loss the loop sleeps until a thread of its own has computed for 16 ms, which that
 * had begun before; then `bytes` come down, or nothing does before the next batch goes up. */
static void own_thread(struct loop *l, uint64_t bytes)
{
	int i;

	loop_begin(l);
	st_task(&l->s, l->t0, P, HELPER, 1, "average");
	for (i = 0; i < STEPS; i++) {
		uint64_t at = step_at(l, i), done = at + 28 * ST_MS;

		device_work(l, at);
		st_futex(&l->s, P, P, at + 12 * ST_MS + 50 * ST_US, done, done + 10 * ST_US, 0x7000, P,
			 HELPER);
		st_futex(&l->s, P, HELPER, done + 100 * ST_US, done + 300 * ST_US,
			 done + 310 * ST_US, 0x8000, P, P);
		if (bytes)
			st_gpu(&l->s, "cudaMemcpy", P, P, done + 50 * ST_US, done + 90 * ST_US, 0, 1, bytes,
			       D2H);
	}
	loop_end(l);
}

/* Where the results go to is in use: a lock, as nothing goes to the device behind it. */
static void test_lock_before_results(void **state)
{
	struct loop l;

	(void)state;
	own_thread(&l, 1 << 20);
	assert_string_equal(case_root(l.r), "lock_bound");
	assert_true(l.r->breakdown.data_wait.share < 0.02);
	loop_free(&l);
	/* the same, but that a batch goes up next */
	own_thread(&l, 0);
	assert_string_equal(case_root(l.r), "too_few_workers");
	assert_true(l.r->breakdown.data_wait.share > 0.5);
	loop_free(&l);
}

/* Behind the loss the loop sleeps 16 ms, in so many parts. */
static enum pt_confidence sleeps(int parts)
{
	enum pt_confidence sure;
	struct loop l;
	int i, k;

	loop_begin(&l);
	for (i = 0; i < STEPS; i++) {
		uint64_t at = step_at(&l, i), b = at + 12 * ST_MS + 50 * ST_US;

		device_work(&l, at);
		for (k = 0; k < parts; k++) {
			uint64_t e = b + 16 * ST_MS / (uint64_t)parts;
			struct pt_rec_off *o = st_off(&l.s, P, P, b, e - 20 * ST_US, e - 10 * ST_US);

			o->syscall = 230; /* clock_nanosleep */
			b = e;
		}
	}
	loop_end(&l);
	assert_string_equal(case_root(l.r), "host_bound");
	assert_true(l.r->breakdown.host[PT_HOST_SLEEPING].share > 0.5);
	sure = l.r->verdicts[0].certainty;
	loop_free(&l);
	return sure;
}

/* A pause is what it is; what a loop polls for is not seen. */
static void test_polls(void **state)
{
	(void)state;
	assert_int_equal(sleeps(1), PT_CONF_HIGH);
	assert_int_equal(sleeps(2), PT_CONF_HIGH);
	assert_int_equal(sleeps(16), PT_CONF_LOW);
}

/* Behind the loss the loop computes, for the rest of the step or until there is more for the
 * device; does a batch go up each time? */
static void expect_computing(bool more, uint64_t copy, const char *root, enum pt_confidence sure)
{
	struct loop l;
	int i;

	loop_begin(&l);
	for (i = 0; i < STEPS; i++) {
		uint64_t at = step_at(&l, i), b = at + 17 * ST_MS;

		device_copies(&l, at, copy);
		if (!more)
			continue;
		st_gpu(&l.s, "cudaLaunchKernel", P, P, b, b + 4 * ST_US, 0, 0x200, 0, 0);
		st_gpu(&l.s, "cudaStreamSynchronize", P, P, b + 10 * ST_US,
		       at + STEP_MS * ST_MS + ST_MS, 0, 0, 0, 0);
	}
	loop_end(&l);
	assert_string_equal(case_root(l.r), root);
	assert_int_equal(l.r->verdicts[0].certainty, sure);
	assert_true(!strstr(l.r->verdicts[0].title, "next batch") == (copy != H2D));
	loop_free(&l);
}

/* Batches that nobody was seen to make may be made there. */
static void test_may_make_batches(void **state)
{
	(void)state;
	expect_computing(false, D2D, "host_bound", PT_CONF_HIGH);
	expect_computing(false, H2D, "host_bound", PT_CONF_MEDIUM);
	expect_computing(true, D2D, "sync_bound", PT_CONF_MEDIUM);
	expect_computing(true, H2D, "sync_bound", PT_CONF_LOW);
}

/* Kernels are queued before the wait for a batch, which goes up behind it on a stream of its own;
 * then the device is waited for. Whether it worked on the kernels all the time, or is copying
 * only, is not told by that. */
static void test_hidden_by_estimate(void **state)
{
	struct loop l;
	int i, k;

	(void)state;
	loop_begin(&l);
	st_task(&l.s, l.t0, P, HELPER, 1, "reader");
	for (i = 0; i < STEPS; i++) {
		uint64_t at = step_at(&l, i), done = at + 22 * ST_MS;

		for (k = 0; k < 8; k++)
			st_gpu(&l.s, "cudaLaunchKernel", P, P, at + (uint64_t)(10 + 10 * k) * ST_US,
			       at + (uint64_t)(14 + 10 * k) * ST_US, 0, (uint64_t)(0x100 + k), 0, 0);
		st_futex(&l.s, P, P, at + 200 * ST_US, done, done + 10 * ST_US, 0x7000, P, HELPER);
		st_futex(&l.s, P, HELPER, done + 100 * ST_US, done + 300 * ST_US,
			 done + 310 * ST_US, 0x8000, P, P);
		st_gpu(&l.s, "cudaMemcpyAsync", P, P, done + 50 * ST_US, done + 60 * ST_US, 7, 1,
		       48 << 20, H2D);
		st_gpu(&l.s, "cudaLaunchKernel", P, P, done + 80 * ST_US, done + 84 * ST_US, 0, 0x200, 0, 0);
		st_gpu(&l.s, "cudaDeviceSynchronize", P, P, done + 90 * ST_US, done + 7 * ST_MS, 0, 0, 0, 0);
	}
	loop_end(&l);
	assert_true(l.r->breakdown.data_wait.share > 0.6);
	assert_string_equal(case_root(l.r), "balanced");
	assert_int_equal(l.r->verdicts[0].certainty, PT_CONF_LOW);
	assert_non_null(l.r->verdicts[0].advice);
	loop_free(&l);
}

/* 1,000 launches at 20 us and 20 of another kernel, each time with the host late by another part of
 * 4 ms in the midst of it; the sync behind waits 5 ms, but for `made_up` of that delay. */
static void late_host(struct loop *l, double made_up)
{
	int i, k;

	loop_begin(l);
	for (i = 0; i < STEPS; i++) {
		uint64_t at = step_at(l, i) + 200 * ST_US, delay = (uint64_t)(i * 7 % 20) * 200 * ST_US, end;

		st_gpu(&l->s, "cudaMemcpyAsync", P, P, at, at + 20 * ST_US, 0, 1, 1 << 20, H2D);
		for (k = 0; k < 1020; k++) {
			at += 20 * ST_US + (k >= 200 && k < 210 ? delay / 10 : 0);
			st_gpu(&l->s, "cudaLaunchKernel", P, P, at, at + 4 * ST_US, 0,
			       k < 1000 ? 0x100 : 0x200, 0, 0);
		}
		at += 20 * ST_US;
		end = at + 5 * ST_MS - (uint64_t)(made_up * (double)delay);
		st_gpu(&l->s, "cudaMemcpy", P, P, at, end, 0, 1, 4, D2H);
	}
	loop_end(l);
}

/* A device that has work makes up for that; one whose queue was empty does not, and how long its
 * first kernels take is not known. */
static void test_made_up(void **state)
{
	struct loop l;

	(void)state;
	late_host(&l, 0);
	assert_string_equal(case_root(l.r), "launch_bound");
	assert_int_equal(l.r->verdicts[0].certainty, PT_CONF_LOW);
	assert_true(isnan(l.r->gpu[0].busy_share));
	loop_free(&l);
	late_host(&l, 1);
	assert_true(l.r->gpu[0].busy_share > 0);
	loop_free(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lock_before_results),
		cmocka_unit_test(test_polls),
		cmocka_unit_test(test_may_make_batches),
		cmocka_unit_test(test_hidden_by_estimate),
		cmocka_unit_test(test_made_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
