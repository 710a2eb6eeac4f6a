/* SPDX-License-Identifier: BSD-2-Clause */
/* Steps by the function that the user named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "analysis/analysis.h"
#include "stream_case.h"

/* A call of it `lead` before every n-th data wait of the job. */
static size_t mark_steps(struct job *j, size_t every, uint64_t lead)
{
	size_t i, n = 0;

	for (i = 0; i < j->steps.n; i += every) {
		uint64_t ts = j->steps.v[i].wait_begin - lead;
		struct pt_rec_gpu *r;

		if (ts < j->t0 || ts >= j->t1)
			continue;
		r = &st_add(&j->s, PT_REC_GPU_ENTER, sizeof(*r), ts,
			    JOB_TRAINER, JOB_TRAINER)->gpu;
		r->api = PT_API_STEP_MARKER;
		n++;
	}
	st_seal(&j->s);
	return n;
}

static struct job usual(void)
{
	struct job_opts o = job_defaults();
	struct job j;

	job_run(&j, &o);
	job_window(&j, JOB_BEGIN + 400 * ST_MS, JOB_BEGIN + 2800 * ST_MS);
	return j;
}

static void check_marked(size_t every)
{
	struct job j = usual();
	struct pt_model *m0, *m;
	struct pt_report *r0 = st_analyze(&j.s, &m0), *r;
	size_t n = mark_steps(&j, every, 5000), i;
	double waits = 0;
	char buf[160];

	r = st_analyze(&j.s, &m);
	assert_null(case_trouble(r, buf, sizeof(buf)));
	assert_string_equal(r0->steps.source, "handoff");
	assert_string_equal(r->steps.source, "marker");
	assert_int_equal(r->steps.count, n);
	assert_int_equal(r->steps.n_list, n);
	assert_int_equal(r->steps.batches, r0->steps.batches);
	/* boundaries are the calls */
	for (i = 0; i < j.steps.n; i += every)
		if (j.steps.v[i].wait_begin - 5000 >= j.t0 &&
		    j.steps.v[i].wait_begin - 5000 < j.t1)
			assert_non_null(case_step(r, j.steps.v[i].wait_begin -
						  5000, 0));
	/* data waits are as they were, and lie in the steps */
	assert_true(r->breakdown.data_wait.seconds ==
		    r0->breakdown.data_wait.seconds);
	for (i = 0; i < r->steps.n_list; i++)
		waits += r->steps.list[i].data_wait_ms / 1000;
	assert_true(waits <= r->breakdown.data_wait.seconds + 1e-9);
	assert_true(waits > 0.9 * r->breakdown.data_wait.seconds);
	assert_true(fabs(r->steps.period_ms.mean /
			 (r0->steps.period_ms.mean * (double)every) - 1) < 0.05);
	assert_string_equal(case_root(r), case_root(r0));
	pt_report_free(r0);
	pt_report_free(r);
	pt_model_free(m0);
	pt_model_free(m);
	job_free(&j);
}

static void test_every_batch(void **state)
{
	(void)state;
	check_marked(1);
}

static void test_every_third_batch(void **state)
{
	(void)state;
	check_marked(3);
}

static void test_never_called(void **state)
{
	struct job j = usual();
	struct pt_rec_gpu *r;
	struct pt_report *rep;
	struct pt_model *m;
	size_t i;
	bool told = false;

	(void)state;
	r = &st_add(&j.s, PT_REC_GPU_ENTER, sizeof(*r), j.t0 - ST_MS,
		    JOB_TRAINER, JOB_TRAINER)->gpu;
	r->api = PT_API_STEP_MARKER;
	st_seal(&j.s);
	rep = st_analyze(&j.s, &m);
	assert_string_equal(rep->steps.source, "handoff");
	for (i = 0; i < rep->capture.n_limits; i++)
		told |= !strcmp(rep->capture.limits[i].what, "steps");
	assert_true(told);
	pt_report_free(rep);
	pt_model_free(m);
	job_free(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_batch),
		cmocka_unit_test(test_every_third_batch),
		cmocka_unit_test(test_never_called),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
