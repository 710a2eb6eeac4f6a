/* SPDX-License-Identifier: BSD-2-Clause */
/* Which threads share a device: what is reported of a device holds for that
 * one, though nobody was seen to choose it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "stream_case.h"

#define PID 1000u
#define ROUNDS 60
#define WORK (4 * ST_MS)
#define ROUND (16 * ST_MS)

enum how { BY_STREAM, BY_EVENT, BY_DEVICE };

/* One round of a thread with a device of its own: 4 ms of work, waited for. */
static void work(struct stream *s, unsigned th, uint64_t t, enum how how)
{
	uint32_t tid = PID + th;
	uint64_t stream = 0xcafe00 + 64 * th, event = 0xe000 + 8 * th;
	uint64_t b = t + 20 * ST_US, done = t + WORK, end = done + 2000;

	st_gpu(s, "cudaLaunchKernel", PID, tid, t, 0, stream, 0x4000, 0, 0);
	if (how == BY_EVENT)
		st_gpu(s, "cudaEventRecord", PID, tid, b - 5000, 0, stream,
		       event, 0, 0);
	st_off(s, PID, tid, b + 3000, done, end - 500)->syscall = 16;
	switch (how) {
	case BY_STREAM:
		st_gpu(s, "cudaStreamSynchronize", PID, tid, b, end, stream, 0,
		       0, 0);
		break;
	case BY_EVENT:
		st_gpu(s, "cudaEventSynchronize", PID, tid, b, end, 0, event, 0,
		       0);
		break;
	case BY_DEVICE:
		st_gpu(s, "cudaDeviceSynchronize", PID, tid, b, end, 0, 0, 0, 0);
		break;
	}
}

static struct pt_report *run(enum how how, bool choose, struct pt_model **m,
			     struct stream *s)
{
	unsigned i;

	memset(s, 0, sizeof(*s));
	st_host(s, JOB_BEGIN, 4, PID);
	st_task(s, JOB_BEGIN, PID, PID, 1, "gpu");
	st_task(s, JOB_BEGIN, PID, PID + 1, 1, "gpu");
	for (i = 0; i < ROUNDS; i++) {
		uint64_t t = JOB_BEGIN + ST_MS + i * ROUND;
		unsigned th;

		for (th = 0; th < 2; th++, t += ROUND / 2) {
			if (choose)
				st_gpu(s, "cudaSetDevice", PID, PID + th,
				       t - 50 * ST_US, 0, 0, th, 0, 0);
			work(s, th, t, how);
		}
	}
	st_window(s, JOB_BEGIN + ROUND, JOB_BEGIN + (ROUNDS - 1) * ROUND);
	st_seal(s);
	return st_analyze(s, m);
}

/* Each of the two devices is busy for 4 of 16 ms. */
static void holds(const struct pt_report *r)
{
	const double truth = (double)WORK / (double)ROUND;
	size_t i;

	for (i = 0; i < r->n_gpu; i++) {
		assert_true(r->gpu[i].busy_hard[0] <= truth + 1e-3);
		assert_true(r->gpu[i].busy_hard[1] >= truth - 1e-3);
	}
}

static void nobody_chose(void **state)
{
	enum how how;

	(void)state;
	for (how = BY_STREAM; how <= BY_DEVICE; how++) {
		struct stream s;
		struct pt_model *m;
		struct pt_report *r = run(how, false, &m, &s);

		assert_true(r->n_gpu >= 1 && r->n_gpu <= 2);
		holds(r);
		pt_report_free(r);
		pt_model_free(m);
		st_free(&s);
	}
}

static void each_chose_its_own(void **state)
{
	enum how how;

	(void)state;
	for (how = BY_STREAM; how <= BY_DEVICE; how++) {
		struct stream s;
		struct pt_model *m;
		struct pt_report *r = run(how, true, &m, &s);

		assert_int_equal(r->n_gpu, 2);
		assert_int_equal(r->gpu[0].index, 0);
		assert_int_equal(r->gpu[1].index, 1);
		holds(r);
		/* and that says something */
		assert_true(r->gpu[0].busy_hard[0] > 0.2);
		assert_true(r->gpu[0].busy_hard[1] < 0.3);
		assert_int_equal(r->target.trainer, PID);
		pt_report_free(r);
		pt_model_free(m);
		st_free(&s);
	}
}

/* Launches of a thread that never waits belong to the one that does. */
static void one_waits_for_both(void **state)
{
	struct stream s;
	struct pt_model *m;
	struct pt_report *r;
	unsigned i;

	(void)state;
	memset(&s, 0, sizeof(s));
	st_host(&s, JOB_BEGIN, 4, PID);
	st_task(&s, JOB_BEGIN, PID, PID, 1, "gpu");
	st_task(&s, JOB_BEGIN, PID, PID + 1, 1, "gpu");
	for (i = 0; i < ROUNDS; i++) {
		uint64_t t = JOB_BEGIN + ST_MS + i * ROUND;

		st_gpu(&s, "cudaLaunchKernel", PID, PID + 1, t - 5000, 0, 0xbeef,
		       0x4100, 0, 0);
		work(&s, 0, t, BY_DEVICE);
	}
	st_window(&s, JOB_BEGIN + ROUND, JOB_BEGIN + (ROUNDS - 1) * ROUND);
	st_seal(&s);
	r = st_analyze(&s, &m);
	assert_int_equal(r->n_gpu, 1);
	assert_int_equal(r->gpu[0].kernels, 2 * (ROUNDS - 2));
	holds(r);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

/* Each step has a thread of its own, which chooses a device before it works. */
static void threads_come_and_go(void **state)
{
	struct stream s;
	struct pt_model *m;
	struct pt_report *r;
	unsigned i;

	(void)state;
	memset(&s, 0, sizeof(s));
	st_host(&s, JOB_BEGIN, 4, PID);
	st_task(&s, JOB_BEGIN, PID, PID, 1, "gpu");
	for (i = 0; i < 2 * ROUNDS; i++) {
		uint64_t t = JOB_BEGIN + ST_MS + i * ROUND;

		st_task(&s, JOB_BEGIN, PID, PID + 1 + i, 1, "gpu");
		st_gpu(&s, "cudaSetDevice", PID, PID + 1 + i, t - 50 * ST_US, 0, 0, 0, 0, 0);
		work(&s, 1 + i, t, BY_DEVICE);
	}
	st_window(&s, JOB_BEGIN + ROUND, JOB_BEGIN + (2 * ROUNDS - 1) * ROUND);
	st_seal(&s);
	r = st_analyze(&s, &m);
	assert_int_equal(r->n_gpu, 1);
	holds(r);
	assert_true(r->gpu[0].busy_hard[1] < 0.5);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_come_and_go),
		cmocka_unit_test(nobody_chose),
		cmocka_unit_test(each_chose_its_own),
		cmocka_unit_test(one_waits_for_both),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
