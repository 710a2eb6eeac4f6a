/* SPDX-License-Identifier: BSD-2-Clause */
/* What tracing cost a job, from records of known figures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "analysis/analysis.h"
#include "cmd/options.h"
#include "model/timeline.h"
#include "stream.h"

#define JOB 100
#define BEGIN (5 * ST_S)

/* So much of a second, each second: ns. */
struct second {
	uint64_t run, low, ns, high, tracer;
};

static void cost(struct stream *s, uint64_t ts, const struct second *one, uint64_t n,
		 uint32_t saved)
{
	struct pt_rec_cost *r = &st_add(s, PT_REC_COST, sizeof(*r), ts, JOB, JOB)->cost;

	r->run_ns = n * one->run;
	r->low_ns = n * one->low;
	r->cost_ns = n * one->ns;
	r->high_ns = n * one->high;
	r->tracer_ns = n * one->tracer;
	r->budget = saved ? 5000 : 0;
	r->saved = saved;
}

/* A process on `cores` cores that waits for nothing, for four seconds. */
static void job(struct stream *s, uint32_t cores)
{
	memset(s, 0, sizeof(*s));
	st_host(s, BEGIN, cores, JOB);
	st_mark(s, BEGIN, PT_MARK_BEGIN);
	st_task(s, BEGIN, JOB, JOB, 1, "job");
	st_mark(s, BEGIN + 4 * ST_S, PT_MARK_END);
}

static struct pt_range told(struct stream *s)
{
	struct pt_report *r;
	struct pt_range got;
	struct pt_model *m;

	st_seal(s);
	r = st_figures(s, &m);
	got = r->capture.target_overhead;
	pt_report_free(r);
	pt_model_free(m);
	st_free(s);
	return got;
}

static void is(double got, double want)
{
	if (!(fabs(got - want) <= 1e-9))
		fail_msg("%.9f, not %.9f", got, want);
}

/* Half of a core busy, of two: the low end is what cannot have fallen into the job's own
 * waits, the high end has the tracer's time, too. */
static void test_one_of_two(void **state)
{
	const struct second one = { ST_S / 2, 2 * ST_MS, 4 * ST_MS, 8 * ST_MS, 10 * ST_MS };
	struct pt_range got;
	struct stream s;
	uint64_t i;

	(void)state;
	job(&s, 2);
	for (i = 0; i <= 4; i++)
		cost(&s, BEGIN + i * ST_S, &one, i, 0);
	got = told(&s);
	is(got.value, 0.004);
	is(got.low, 0.002 * 0.5);
	is(got.high, 0.018);
}

/* Both busy: nothing falls into waits, and the tracer's time is the job's. */
static void test_all_busy(void **state)
{
	const struct second one = { 2 * ST_S, 2 * ST_MS, 4 * ST_MS, 8 * ST_MS, 10 * ST_MS };
	struct pt_range got;
	struct stream s;
	uint64_t i;

	(void)state;
	job(&s, 2);
	for (i = 0; i <= 4; i++)
		cost(&s, BEGIN + i * ST_S, &one, i, 0);
	got = told(&s);
	is(got.low, 0.001);
	is(got.value, 0.007);
	is(got.high, 0.018);
}

/* Between two records what came between them is shared out by time. */
static void test_between(void **state)
{
	const struct second one = { ST_S, ST_MS, ST_MS, ST_MS, 0 };
	struct pt_range got;
	struct stream s;

	(void)state;
	job(&s, 8);
	cost(&s, BEGIN - ST_S, &one, 0, 0);
	cost(&s, BEGIN + ST_S, &one, 2, 0);
	cost(&s, BEGIN + 4 * ST_S + ST_MS, &one, 5, 0);
	got = told(&s);
	assert_true(got.value > 0.00099 && got.value < 0.00101);
}

/* A job that launches short kernels one behind the other, and waits for the last: the device
 * may have run all of the time meanwhile, or hardly. The bounds allow for both. */
static void test_device_hides(void **state)
{
	const struct second one = { ST_S, 700 * ST_MS, 800 * ST_MS, 900 * ST_MS, 0 };
	const uint64_t step = 2 * ST_MS;
	const struct pt_r_gpu *g;
	struct pt_range got;
	struct pt_report *r;
	struct pt_model *m;
	struct stream s;
	uint64_t i, k, at;

	(void)state;
	job(&s, 2);
	for (i = 0; i <= 4; i++)
		cost(&s, BEGIN + i * ST_S, &one, i, 0);
	for (at = BEGIN + ST_MS; at + step < BEGIN + 4 * ST_S; at += step) {
		for (k = 0; k < 50; k++)
			st_gpu(&s, "cudaLaunchKernel", JOB, JOB, at + k * 20 * ST_US, 0, 0, 7, 0,
			       0);
		st_gpu(&s, "cudaDeviceSynchronize", JOB, JOB, at + ST_MS, at + ST_MS + 200 * ST_US,
		       0, 0, 0, 0);
	}
	st_seal(&s);
	r = st_figures(&s, &m);
	got = r->capture.target_overhead;
	assert_int_equal(r->n_gpu, 1);
	g = &r->gpu[0];
	assert_true(g->busy_hard[0] < g->busy_share && g->busy_share < g->busy_hard[1]);
	is(got.high, fmin(0.9, 1 - g->busy_hard[0]));
	assert_true(got.low > 0 && got.low <= 0.7 - g->busy_hard[1]);
	assert_true(got.low < got.value && got.value < got.high);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

/* Recordings of before have none, and one alone says nothing. */
static void test_none(void **state)
{
	const struct second one = { ST_S, ST_MS, ST_MS, ST_MS, 0 };
	struct pt_range got;
	struct stream s;

	(void)state;
	job(&s, 2);
	got = told(&s);
	assert_true(isnan(got.value) && isnan(got.low) && isnan(got.high));
	job(&s, 2);
	cost(&s, BEGIN, &one, 0, 0);
	assert_true(isnan(told(&s).value));
}

/* What a budget did without is told, with the second from which it did. */
static void test_budget(void **state)
{
	const struct second one = { ST_S, ST_MS, ST_MS, ST_MS, 0 };
	const struct pt_r_capture *c;
	struct pt_report *r;
	struct pt_model *m;
	bool found = false;
	struct stream s;
	size_t i;

	(void)state;
	job(&s, 2);
	cost(&s, BEGIN, &one, 0, 0);
	cost(&s, BEGIN + ST_S, &one, 1, PT_SAVE_LINES);
	cost(&s, BEGIN + 2 * ST_S, &one, 2, PT_SAVE_LINES);
	cost(&s, BEGIN + 3 * ST_S, &one, 3, PT_SAVE_LINES | PT_SAVE_WAITS);
	st_seal(&s);
	r = st_figures(&s, &m);
	c = &r->capture;
	for (i = 0; i < c->n_limits; i++) {
		if (strcmp(c->limits[i].what, "budget"))
			continue;
		found = true;
		assert_string_equal(c->limits[i].reason,
				    "To stay within 0.5 % of the job's time pipetrace did "
				    "without: lines of Python (from 1 s on), single waits below "
				    "20 us (from 3 s on).");
	}
	assert_true(found);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

/* A counter that goes back is damage. */
static void test_back(void **state)
{
	const struct second one = { ST_S, ST_MS, ST_MS, ST_MS, 0 };
	struct pt_model *m = pt_model_new();
	struct stream s;

	(void)state;
	assert_non_null(m);
	job(&s, 2);
	cost(&s, BEGIN, &one, 2, 0);
	cost(&s, BEGIN + ST_S, &one, 1, 0);
	st_seal(&s);
	assert_int_equal(st_feed(&s, m), 1);
	assert_int_equal(m->costs.n, 1);
	pt_model_free(m);
	st_free(&s);
}

static void test_option(void **state)
{
	static char *good[] = { "pipetrace", "-p", "1", "--budget", "0.5%", NULL };
	static char *const bad[] = { "0", "0%", "-1", "101", "x", "" };
	char *words[] = { "pipetrace", "-p", "1", "--budget", NULL, NULL };
	struct pt_opts o;
	size_t i;

	(void)state;
	assert_int_equal(pt_opts_parse(&o, PT_OPTS_TRACE, "", 5, good), 0);
	is(o.budget, 0.005);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		words[4] = bad[i];
		if (!pt_opts_parse(&o, PT_OPTS_TRACE, "", 5, words))
			fail_msg("%s is taken", bad[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_of_two),
		cmocka_unit_test(test_all_busy),
		cmocka_unit_test(test_between),
		cmocka_unit_test(test_device_hides),
		cmocka_unit_test(test_none),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_back),
		cmocka_unit_test(test_option),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
