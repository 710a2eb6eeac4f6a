/* SPDX-License-Identifier: BSD-2-Clause */
/* Sleeps until a function of the host has run behind a stream's work: which of them are
 * waits for the device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/timeline.h"
#include "stream.h"

/* The loop's thread, two of the library's, and the driver's. */
#define PID 100u
#define QUEUE 101u
#define CALLBACK 102u
#define DRIVER 103u

#define WORK 0x10ull
#define TOLD 0x20ull /* the stream that functions run on */
#define EVENT 0x30ull

/* A turn that begins at `t`: launches, asks to be told, and sleeps for 10 ms. `by`: who runs the
 * function; `event`: the stream of it waits for the work. */
static void turn(struct stream *s, uint64_t t, uint32_t by, bool event)
{
	uint64_t done = t + 10 * ST_MS;

	st_gpu(s, "cuLaunchKernel", PID, PID, t, 0, WORK, 1, 1, 0);
	st_gpu(s, "cuEventRecord", PID, PID, t + 10 * ST_US, 0, WORK, EVENT, 0, 0);
	if (event)
		st_gpu(s, "cuStreamWaitEvent", PID, PID, t + 20 * ST_US, 0, TOLD, EVENT, 0, 0);
	st_gpu(s, "cuLaunchHostFunc", PID, PID, t + 30 * ST_US, 0, TOLD, 0, 0, 0);
	st_off(s, PID, DRIVER, t + 5 * ST_MS, done, done + 10 * ST_US);
	st_futex(s, PID, QUEUE, t + 50 * ST_US, done + 30 * ST_US, done + 40 * ST_US, 0x1000, PID,
		 by);
	st_futex(s, PID, CALLBACK, t + 50 * ST_US, done + 60 * ST_US, done + 70 * ST_US, 0x2000,
		 PID, QUEUE);
	st_futex(s, PID, PID, t + 100 * ST_US, done + 90 * ST_US, done + 100 * ST_US, 0x3000, PID,
		 CALLBACK);
}

static struct pt_model *model(struct stream *s)
{
	struct pt_model *m = pt_model_new();

	assert_non_null(m);
	st_window(s, ST_S, 2 * ST_S);
	st_seal(s);
	assert_int_equal(st_feed(s, m), 0);
	assert_int_equal(pt_model_finish(m), 0);
	st_free(s);
	return m;
}

static void begin(struct stream *s, const char *driver)
{
	*s = (struct stream){ 0 };
	st_task(s, ST_S, PID, PID, 1, "python3");
	st_task(s, ST_S, PID, QUEUE, 1, "python3");
	st_task(s, ST_S, PID, CALLBACK, 1, "py_xla_callback");
	st_task(s, ST_S, PID, DRIVER, 1, driver);
}

/* Of the process: how many; *last: the last one. */
static size_t implied(const struct pt_model *m, struct pt_gpu_call *last)
{
	const struct pt_proc *p = pt_model_proc(m, PID);
	size_t i, n = 0;

	assert_non_null(p);
	for (i = 0; i < p->gpu.n; i++) {
		if (i)
			assert_true(p->gpu.v[i - 1].begin <= p->gpu.v[i].begin);
		if (!p->gpu.v[i].implied)
			continue;
		*last = p->gpu.v[i];
		n++;
	}
	return n;
}

static void a_chain_from_the_driver_is_a_sync(void **state)
{
	struct pt_gpu_call c = { 0 };
	struct pt_model *m;
	struct stream s;
	int i;

	(void)state;
	begin(&s, "cuda-EvtHandlr");
	for (i = 0; i < 5; i++)
		turn(&s, ST_S + (uint64_t)i * 20 * ST_MS + ST_MS, DRIVER, true);
	m = model(&s);
	assert_int_equal(implied(m, &c), 5);
	assert_int_equal(c.begin, ST_S + 81 * ST_MS + 100 * ST_US);
	assert_int_equal(c.end, ST_S + 91 * ST_MS + 100 * ST_US);
	assert_int_equal(c.cls, PT_API_SYNC_EVENT);
	assert_int_equal(c.v[0], EVENT);
	assert_int_equal(c.tid, PID);
	pt_model_free(m);
}

static void without_an_event_it_is_the_streams(void **state)
{
	struct pt_gpu_call c = { 0 };
	struct pt_model *m;
	struct stream s;

	(void)state;
	begin(&s, "cuda-EvtHandlr");
	turn(&s, ST_S + ST_MS, DRIVER, false);
	m = model(&s);
	assert_int_equal(implied(m, &c), 1);
	assert_int_equal(c.cls, PT_API_SYNC_STREAM);
	assert_int_equal(c.stream, TOLD);
	pt_model_free(m);
}

/* A turn in a process with a thread of that name, and, where there is one, another call. */
static size_t found_with(const char *driver, const char *symbol, uint32_t tid, uint64_t b,
			 uint64_t e)
{
	struct pt_gpu_call c = { 0 };
	struct pt_model *m;
	struct stream s;
	size_t n;

	begin(&s, driver);
	turn(&s, ST_S + ST_MS, DRIVER, true);
	if (symbol)
		st_gpu(&s, symbol, PID, tid, b, e, WORK, 1, 1, 0);
	m = model(&s);
	n = implied(m, &c);
	pt_model_free(m);
	return n;
}

static void other_sleeps_are_none(void **state)
{
	(void)state;
	assert_int_equal(found_with("cuda-EvtHandlr", NULL, 0, 0, 0), 1);
	/* by a thread that is not the driver's; by one that feeds the device itself; in a call */
	assert_int_equal(found_with("loader", NULL, 0, 0, 0), 0);
	assert_int_equal(found_with("cuda-EvtHandlr", "cuLaunchKernel", CALLBACK,
				    ST_S + 500 * ST_US, 0), 0);
	assert_int_equal(found_with("cuda-EvtHandlr", "cuStreamSynchronize", PID,
				    ST_S + ST_MS + 40 * ST_US, ST_S + 11 * ST_MS + 200 * ST_US), 0);
}

/* A live trace orders what it has again and again: each sleep is found once. */
static void what_comes_in_parts_is_found_once(void **state)
{
	struct pt_model *m = pt_model_new();
	struct pt_gpu_call c = { 0 };
	struct stream s;
	size_t i;

	(void)state;
	assert_non_null(m);
	begin(&s, "cuda-EvtHandlr");
	for (i = 0; i < 20; i++)
		turn(&s, ST_S + i * 20 * ST_MS + ST_MS, DRIVER, true);
	st_window(&s, ST_S, 2 * ST_S);
	st_seal(&s);
	for (i = 0; i < s.recs.n; i++) {
		assert_true(pt_model_feed(m, &s.recs.v[i].r, s.recs.v[i].r.hdr.size) >= 0);
		if (i % 7 == 0)
			assert_int_equal(pt_model_settle(m), 0);
	}
	assert_int_equal(pt_model_finish(m), 0);
	assert_int_equal(implied(m, &c), 20);
	pt_model_free(m);
	st_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chain_from_the_driver_is_a_sync),
		cmocka_unit_test(without_an_event_it_is_the_streams),
		cmocka_unit_test(other_sleeps_are_none),
		cmocka_unit_test(what_comes_in_parts_is_found_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
