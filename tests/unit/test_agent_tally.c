/* SPDX-License-Identifier: BSD-2-Clause */
/* A report becomes a sample, samples become counters. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/tally.h"

#define NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-6)

static const char two_gpus[] =
	"{\"schema\":\"pipetrace.report/1\",\"capture\":{\"duration\":5.0,"
	"\"events\":100,\"lost\":{\"total\":3},\"tracer_cpu_s\":0.05,\"complete\":true},"
	"\"gpu\":[{\"busy\":{\"share\":0.4,\"hard\":[0.3,0.9],\"likely\":[0.35,0.5]},"
	"\"idle\":{\"starved\":[0.1,0.5]},\"idle_causes\":["
	"{\"cause\":\"disk\",\"seconds\":2.0,\"share\":0.4},"
	"{\"cause\":\"of_tomorrow\",\"seconds\":1.0,\"share\":0.2}]},"
	"{\"busy\":{\"share\":0.8,\"hard\":[0.7,1.0],\"likely\":[0.75,0.9]},"
	"\"idle\":{\"starved\":[0.0,0.1]},\"idle_causes\":["
	"{\"cause\":\"disk\",\"seconds\":1.0,\"share\":0.2}]}],"
	"\"breakdown\":{\"data_wait\":{\"seconds\":2.5,\"share\":0.5}},"
	"\"steps\":{\"count\":4,\"list\":[{\"begin_ns\":0,\"end_ns\":20000000},"
	"{\"begin_ns\":0,\"end_ns\":30000000}]},"
	"\"workers\":[{\"slowdown\":null,\"read_bytes\":100},"
	"{\"slowdown\":1.5,\"read_bytes\":50},{\"slowdown\":1.1,\"read_bytes\":null}],"
	"\"files\":[{\"read_s\":0.5},{\"read_s\":null}],"
	"\"verdicts\":[{\"id\":\"io_bound\",\"severity\":\"critical\","
	"\"consequence_of\":null},{\"id\":\"gpu_starved\",\"severity\":\"warning\","
	"\"consequence_of\":\"io_bound\"},{\"id\":\"x\\\"} 1\",\"severity\":\"info\"},"
	"{\"id\":\"balanced\",\"severity\":\"loud\"},{\"severity\":\"info\"}]}";

static int sample(const char *text, struct pt_sample *s)
{
	json_t *j = json_loads(text, 0, NULL);
	const char *why = "";
	int err;

	assert_non_null(j);
	err = pt_sample_read(j, s, &why);
	assert_int_equal(!err, !why);
	json_decref(j);
	return err;
}

static void a_report_is_read(void **state)
{
	struct pt_sample s;

	(void)state;
	assert_int_equal(sample(two_gpus, &s), 0);
	NEAR(s.gpus, 2);
	NEAR(s.busy_s, 6);
	NEAR(s.busy_hard_s[0], 5);
	NEAR(s.busy_hard_s[1], 9.5);
	NEAR(s.busy_likely_s[1], 7);
	NEAR(s.starved_s[1], 3);
	NEAR(s.idle_s[PT_CAUSE_DISK], 3);
	NEAR(s.idle_s[PT_CAUSE_UNKNOWN], 1);
	NEAR(s.data_wait_share, 0.5);
	NEAR(s.slowdown, 1.5);
	NEAR(s.read_bytes, 150);
	NEAR(s.read_s, 0.5);
	NEAR(s.lost, 3);
	assert_int_equal(s.n_step_s, 2);
	assert_int_equal(s.n_verdicts, 2); /* no label of somebody's making */
	assert_string_equal(s.verdict[0].id, "io_bound");
	assert_int_equal(s.verdict[0].severity, PT_CRITICAL);
	assert_true(s.verdict[0].root);
	assert_false(s.verdict[1].root);
}

static void others_are_refused(void **state)
{
	static const char *const bad[] = {
		"{}", "[]", "{\"schema\":1}", "{\"schema\":\"pipetrace.diff/1\"}",
		"{\"schema\":\"pipetrace.report/1\"}",
		"{\"schema\":\"pipetrace.report/1\",\"capture\":{\"duration\":-1}}",
		"{\"schema\":\"pipetrace.report/1\",\"capture\":{\"duration\":\"5\"}}",
		"{\"schema\":\"pipetrace.report/1\",\"capture\":{\"duration\":1e300}}",
	};
	struct pt_sample s;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(sample(bad[i], &s), -EINVAL);
	/* nothing known is not nothing */
	assert_int_equal(sample("{\"schema\":\"pipetrace.report/1\",\"capture\":"
				"{\"duration\":2}}", &s), 0);
	assert_true(isnan(s.busy_s) && isnan(s.slowdown) && isnan(s.steps));
	assert_true(isnan(s.data_wait_share));
}

/* Five seconds in each sixty stand for the sixty. */
static void samples_are_scaled(void **state)
{
	struct pt_tally t = { 0 };
	struct pt_sample s;

	(void)state;
	assert_int_equal(sample(two_gpus, &s), 0);
	pt_tally_add(&t, &s, 1000, 1010, 120); /* born 10 s before */
	NEAR(t.covered_s, 10);
	NEAR(t.observed_s, 5);
	NEAR(t.gpu_s, 20);
	NEAR(t.lost_s[PT_CAUSE_DISK], 6);
	pt_tally_add(&t, &s, 1000, 1070, 120);
	NEAR(t.covered_s, 70);
	NEAR(t.lost_s[PT_CAUSE_DISK], 42);
	NEAR(t.read_bytes, 150 * 14);
	NEAR(t.steps, 4 * 14);
	NEAR(t.busy_low_s, 5.5 * 14);
	/* two of four steps were listed: 20 and 30 ms */
	NEAR(t.step_bucket[2], 28);
	NEAR(t.step_bucket[3], 28);
	NEAR(t.step_sum_s, 0.05 * 28);
	pt_tally_failed(&t);
	NEAR(t.failed, 1);
	/* the agent slept for an hour: that stays uncovered */
	pt_tally_add(&t, &s, 1000, 4670, 120);
	NEAR(t.covered_s, 190);
	NEAR(t.observed_s, 15);
	/* a sample that saw nothing adds nothing */
	s.duration = 0;
	pt_tally_add(&t, &s, 1000, 4730, 120);
	NEAR(t.covered_s, 190);
	NEAR(t.samples, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_report_is_read),
		cmocka_unit_test(others_are_refused),
		cmocka_unit_test(samples_are_scaled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
