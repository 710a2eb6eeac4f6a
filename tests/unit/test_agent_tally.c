/* SPDX-License-Identifier: BSD-2-Clause */
/* A report becomes a sample, samples become counters. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/schedule.h"
#include "agent/tally.h"
#include "report/readjson.h"

#define NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-6)

static const char two_gpus[] =
	"{\"schema\":\"pipetrace.report/1\",\"capture\":{\"duration\":5.0,"
	"\"events\":100,\"lost\":{\"total\":3},\"tracer_cpu_s\":0.05,\"complete\":true},"
	"\"gpu\":[{\"busy\":{\"share\":0.4,\"hard\":[0.3,0.9],\"likely\":[0.35,0.5]},"
	"\"idle\":{\"starved\":[0.1,0.5]},\"idle_causes\":["
	"{\"cause\":\"disk\",\"seconds\":2.0,\"share\":0.4},"
	"{\"cause\":\"unknown\",\"seconds\":1.0,\"share\":0.2}]},"
	"{\"busy\":{\"share\":0.8,\"hard\":[0.7,1.0],\"likely\":[0.75,0.9]},"
	"\"idle\":{\"starved\":[0.0,0.1]},\"idle_causes\":["
	"{\"cause\":\"disk\",\"seconds\":1.0,\"share\":0.2}]}],"
	"\"breakdown\":{\"data_wait\":{\"seconds\":2.5,\"share\":0.5},"
	"\"gpu_wait\":{\"seconds\":1},\"transfer\":{\"seconds\":0},"
	"\"sync\":{\"seconds\":0.5},\"launch\":{\"seconds\":0.25},"
	"\"collective\":{\"seconds\":0},\"checkpoint\":{\"seconds\":0},"
	"\"other\":{\"seconds\":0.75}},"
	"\"steps\":{\"count\":4,\"list\":[{\"begin_ns\":0,\"end_ns\":20000000},"
	"{\"begin_ns\":0,\"end_ns\":30000000}]},"
	"\"workers\":[{\"slowdown\":null,\"read_bytes\":100},"
	"{\"slowdown\":1.5,\"read_bytes\":50},{\"slowdown\":1.1,\"read_bytes\":null}],"
	"\"files\":[{\"read_s\":0.5},{\"read_s\":null}],"
	"\"verdicts\":[{\"id\":\"io_bound\",\"severity\":\"critical\","
	"\"title\":\"-\",\"consequence_of\":null},{\"id\":\"gpu_starved\","
	"\"severity\":\"warning\",\"title\":\"-\",\"consequence_of\":\"io_bound\"},"
	"{\"id\":\"x\\\"} 1\",\"severity\":\"info\",\"title\":\"-\"}]}";

static int sample(const char *text, struct pt_sample *s)
{
	struct pt_report *r = pt_report_new();
	struct pt_read_error what = { "" };
	const char *why = "";
	int err;

	assert_non_null(r);
	err = pt_report_read_json(text, strlen(text), r, &what);
	if (!err) {
		err = pt_sample_of(r, s, &why);
		assert_int_equal(!err, !why);
	}
	pt_report_free(r);
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
	NEAR(s.phase_s[PT_PHASE_DATA_WAIT], 2.5);
	NEAR(s.phase_s[PT_PHASE_GPU_WAIT], 1.5);
	NEAR(s.phase_s[PT_PHASE_HOST], 1);
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

/* A later version may know more: the sample counts all the same. */
static void a_later_version_is_read(void **state)
{
	struct pt_sample s;

	(void)state;
	assert_int_equal(sample(
		"{\"schema\":\"pipetrace.report/1\",\"capture\":{\"duration\":5},"
		"\"more\":{},\"gpu\":[{\"index\":0,\"busy\":{\"share\":0.5,"
		"\"certainty\":\"weighed\"},\"idle_causes\":[{\"cause\":\"moonlight\","
		"\"seconds\":2.0,\"share\":0.4}]}],\"verdicts\":[{\"id\":\"moon_bound\","
		"\"severity\":\"warning\",\"certainty\":\"sure\",\"title\":\"-\"}]}", &s), 0);
	NEAR(s.idle_s[PT_CAUSE_UNKNOWN], 2);
	NEAR(s.busy_s, 2.5);
	assert_int_equal(s.n_verdicts, 1);
	assert_string_equal(s.verdict[0].id, "moon_bound");
	assert_int_equal(s.verdict[0].severity, PT_WARNING);
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
	struct pt_tally *t = calloc(1, sizeof(*t));
	struct pt_sample s;

	(void)state;
	assert_non_null(t);
	assert_int_equal(sample(two_gpus, &s), 0);
	pt_tally_add(t, &s, 1000, 1010, 120); /* born 10 s before */
	NEAR(t->covered_s, 10);
	NEAR(t->observed_s, 5);
	NEAR(t->gpu_s, 20);
	NEAR(t->lost_s[PT_CAUSE_DISK], 6);
	NEAR(t->starved_high_s, 6);
	pt_tally_add(t, &s, 1000, 1070, 120);
	NEAR(t->covered_s, 70);
	NEAR(t->lost_s[PT_CAUSE_DISK], 42);
	NEAR(t->read_bytes, 150 * 14);
	NEAR(t->steps, 4 * 14);
	NEAR(t->busy_low_s, 5.5 * 14);
	/* two of four steps were listed: 20 and 30 ms */
	NEAR(t->step_bucket[1], 56);
	NEAR(t->step_sum_s, 0.05 * 28);
	pt_tally_failed(t);
	NEAR(t->failed, 1);
	/* the agent slept for an hour: that stays uncovered */
	pt_tally_add(t, &s, 1000, 4670, 120);
	NEAR(t->covered_s, 190);
	NEAR(t->observed_s, 15);
	NEAR(t->lost_s[PT_CAUSE_DISK], 114);
	/* a sample that saw nothing adds nothing */
	s.duration = 0;
	pt_tally_add(t, &s, 1000, 4730, 120);
	NEAR(t->covered_s, 190);
	NEAR(t->samples, 4);
	free(t);
}

/* Between two samples it is half like the one and half like the other. */
static void the_time_between_is_shared(void **state)
{
	struct pt_tally *t = calloc(1, sizeof(*t));
	struct pt_sample s;

	(void)state;
	assert_non_null(t);
	assert_int_equal(sample(two_gpus, &s), 0);
	pt_tally_add(t, &s, 1000, 1005, 120);
	s.idle_s[PT_CAUSE_DISK] = 0;
	pt_tally_add(t, &s, 1000, 1065, 120);
	NEAR(t->lost_s[PT_CAUSE_DISK], 3 + 3.0 / 5 * 30);
	/* too long ago: that one says nothing of it */
	s.idle_s[PT_CAUSE_DISK] = 5;
	pt_tally_add(t, &s, 1000, 2000, 120);
	NEAR(t->lost_s[PT_CAUSE_DISK], 21 + 120);
	free(t);
}

/* ---- is it right on average? ---- */

static uint64_t rng;
static double uniform(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (double)(rng >> 11) / 9007199254740992.0;
}

#define PHASES 4000
struct process { /* idle and busy in turns; ends[i]: of phase i */
	double ends[PHASES];
};

static double idle_in(const struct process *p, double from, double to)
{
	double sum = 0, begin = 0;
	int i;

	for (i = 0; i < PHASES && begin < to; begin = p->ends[i++])
		if (i % 2)
			sum += fmax(0, fmin(to, p->ends[i]) - fmax(from, begin));
	return sum;
}

/* The error of the estimate for `span` s of the job, as a share of the span. */
static double error_of(const struct process *p, uint64_t job, double span)
{
	const struct pt_schedule s = { .interval = 60, .sample = 5, .node = job };
	struct pt_tally *t = calloc(1, sizeof(*t));
	struct pt_sample x = { .duration = 5, .gpus = 1 };
	double at, truth, err;

	assert_non_null(t);
	for (at = pt_schedule_next(&s, job, 0); at < span;
	     at = pt_schedule_next(&s, job, at)) {
		x.idle_s[PT_CAUSE_DISK] = idle_in(p, at, at + 5);
		pt_tally_add(t, &x, 0, at + 5, 120);
	}
	NEAR(t->covered_s, t->last_end);
	truth = idle_in(p, 0, t->last_end);
	err = (t->lost_s[PT_CAUSE_DISK] - truth) / t->last_end;
	free(t);
	return err;
}

enum kind { RANDOM, MINUTES, EVERY_MINUTE, KINDS };

/* Phases of random length; of minutes; and one that is as long as the interval. */
static void make(struct process *p, enum kind kind)
{
	double at = kind == EVERY_MINUTE ? 60 * uniform() : 0, x;
	int i;

	for (i = 0; i < PHASES; i++) {
		x = -log(1 - uniform());
		at += kind == RANDOM ? (i % 2 ? 7 : 13) * x :
		      kind == MINUTES ? (i % 2 ? 200 : 300) * x : i % 2 ? 20 : 40;
		p->ends[i] = at;
	}
}

static void unbiased(void **state)
{
	enum { SEEDS = 400 };
	struct process *p = calloc(1, sizeof(*p));
	double rms[KINDS][2];
	int kind, length, seed;

	(void)state;
	assert_non_null(p);
	for (kind = 0; kind < KINDS; kind++) {
		for (length = 0; length < 2; length++) {
			double sum = 0, squares = 0, e, mean, se;

			rng = 88172645463325252ull + (uint64_t)kind;
			for (seed = 0; seed < SEEDS; seed++) {
				make(p, (enum kind)kind);
				e = error_of(p, 1 + (uint64_t)seed,
					     length ? 14400 : 1800);
				sum += e;
				squares += e * e;
			}
			mean = sum / SEEDS;
			se = sqrt((squares / SEEDS - mean * mean) / SEEDS);
			rms[kind][length] = sqrt(squares / SEEDS);
			print_message("kind %d, %s: bias %+.4f +- %.4f, rms %.4f\n",
				      kind, length ? "4 h" : "30 min", mean, se,
				      rms[kind][length]);
			assert_true(fabs(mean) < 4 * se + 0.002);
		}
		/* Eight times the samples: by the root of eight, or nearly. Phases as
		 * long as the interval keep an error: samples lie inside it, so its
		 * ends are seen less often. */
		assert_true(rms[kind][1] < rms[kind][0] *
			    (kind == EVERY_MINUTE ? 0.7 : 0.5));
		assert_true(rms[kind][1] < 0.06);
	}
	free(p);
}

static void mounts_are_told_apart(void **state)
{
	static const char report[] =
		"{\"schema\":\"pipetrace.report/1\",\"capture\":{\"duration\":5},\"files\":["
		"{\"path\":\"/mnt/data set/a\",\"read_s\":1,\"bytes\":10,\"fs\":\"ext4\",\"device\":\"sda\"},"
		"{\"path\":\"/mnt/data set/b\",\"read_s\":2,\"bytes\":10,\"fs\":\"ext4\",\"device\":\"sda\"},"
		"{\"path\":\"/mnt/data settings\",\"read_s\":4,\"bytes\":1,\"fs\":\"overlay\",\"device\":null},"
		"{\"path\":\"/nfs/x/y\",\"read_s\":8,\"bytes\":5},"
		"{\"path\":null,\"read_s\":16}]}";
	static const char info[] =
		"22 1 0:21 / / rw - overlay overlay rw\n"
		"broken\n\n23 22 8:1 / /mnt/data\\040set rw,x shared:5 master:1 - ext4 /dev/sda1 rw\n"
		"24 22 0:50 / /nfs rw - autofs none rw\n"
		"25 24 0:51 / /nfs/x rw - nfs4 store:/export rw";
	struct pt_sample s;
	struct pt_tally *t = calloc(1, sizeof(*t));
	size_t top[3], i;
	struct pt_report *r = pt_report_new();
	struct pt_read_error why;

	(void)state;
	assert_non_null(r);
	assert_int_equal(pt_report_read_json(report, sizeof(report) - 1, r, &why),
			 0);
	assert_int_equal(sample(report, &s), 0);
	assert_int_equal(s.n_mounts, 2);
	assert_string_equal(s.mount[0].name, "ext4 on sda");
	assert_string_equal(s.mount[1].name, "overlay");
	pt_sample_mounts(r, info, &s);
	assert_int_equal(s.n_mounts, 3);
	assert_string_equal(s.mount[0].name, "/mnt/data set");
	NEAR(s.mount[0].read_s, 3);
	NEAR(s.mount[0].bytes, 20);
	assert_string_equal(s.mount[1].name, "/");
	assert_string_equal(s.mount[2].name, "store:/export");
	pt_report_free(r);
	pt_tally_add(t, &s, 0, 5, 120);
	assert_int_equal(pt_tally_top_mounts(t, top, 2), 2);
	assert_string_equal(t->mount[top[0]].name, "store:/export");
	assert_string_equal(t->mount[top[1]].name, "/");
	/* more than there is room for become one */
	for (i = 0; i < 2 * PT_TALLY_MOUNTS; i++) {
		s.n_mounts = 1;
		snprintf(s.mount[0].name, sizeof(s.mount[0].name), "/%zu", i);
		pt_tally_add(t, &s, 0, 10 + (double)i, 120);
	}
	assert_int_equal(t->n_mounts, PT_TALLY_MOUNTS);
	assert_string_equal(t->mount[PT_TALLY_MOUNTS - 1].name, "other");
	free(t);
}

/* A sample brings "other" itself: there is one of it, and no counter gets another name. */
static void one_other_mount(void **state)
{
	struct pt_tally *t = calloc(1, sizeof(*t)), *was = calloc(1, sizeof(*was));
	struct pt_sample *s = calloc(1, sizeof(*s));
	unsigned others = 0;
	size_t i, k, n;

	(void)state;
	assert_true(t && was && s);
	s->duration = 5;
	for (i = 0; i < 2 * PT_TALLY_MOUNTS; i++) {
		*was = *t;
		n = s->n_mounts = 0;
		pt_sample_mount_of(s->mount, &n, PT_SAMPLE_MOUNTS, i ? "other" : "/")->read_s = 1;
		for (k = 0; k < PT_SAMPLE_MOUNTS; k++) {
			char name[16];

			snprintf(name, sizeof(name), "/%zu/%zu", i, k);
			pt_sample_mount_of(s->mount, &n, PT_SAMPLE_MOUNTS, name)->read_s += 1;
		}
		assert_true(n <= PT_SAMPLE_MOUNTS);
		s->n_mounts = n;
		pt_tally_add(t, s, 0, 5 + (double)i, 120);
		for (k = 0; k < was->n_mounts; k++) {
			assert_string_equal(t->mount[k].name, was->mount[k].name);
			assert_true(t->mount[k].read_s >= was->mount[k].read_s);
		}
	}
	for (k = 0; k < t->n_mounts; k++)
		others += !strcmp(t->mount[k].name, "other");
	assert_int_equal(others, 1);
	free(s);
	free(was);
	free(t);
}

/* A counter never changes what it counts. */
static void causes_keep_their_counters(void **state)
{
	struct pt_tally *t = calloc(1, sizeof(*t));
	struct pt_sample s = { .duration = 1, .gpus = 1 };
	double other = 0, sum = 0;
	int i, k;

	(void)state;
	assert_non_null(t);
	for (i = PT_CAUSE_NR - 1; i >= 0; i--) {
		memset(s.idle_s, 0, sizeof(s.idle_s));
		s.idle_s[i] = 1;
		t->has_last = false;
		pt_tally_add(t, &s, 0, 100 - i, 1);
		assert_true(pt_tally_other_s(t) >= other);
		other = pt_tally_other_s(t);
	}
	assert_int_equal(t->n_causes, PT_TALLY_CAUSES);
	for (k = 0; k < PT_TALLY_CAUSES; k++)
		sum += t->lost_s[t->cause[k]];
	NEAR(sum + other + t->lost_s[PT_CAUSE_NO_DEMAND], PT_CAUSE_NR);
	NEAR(other, PT_CAUSE_NR - PT_TALLY_CAUSES - 1);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_report_is_read),
		cmocka_unit_test(a_later_version_is_read),
		cmocka_unit_test(others_are_refused),
		cmocka_unit_test(samples_are_scaled),
		cmocka_unit_test(the_time_between_is_shared),
		cmocka_unit_test(unbiased),
		cmocka_unit_test(mounts_are_told_apart),
		cmocka_unit_test(one_other_mount),
		cmocka_unit_test(causes_keep_their_counters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
