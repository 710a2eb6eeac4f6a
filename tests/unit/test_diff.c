/* SPDX-License-Identifier: BSD-2-Clause */
/* Comparisons of made-up reports: figures, answers, ranking, and both forms
 * in which they are shown. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "analysis/compare/bootstrap.h"
#include "analysis/compare/compare.h"
#include "base/str.h"
#include "report/json.h"
#include "test_report_fixture.h"
#include "view/text/text.h"

#define CHECKER "tests/unit/schema_check.py"
#define STEPS 200
#define GAP_NS 1000000

/* A job of STEPS whole steps around `ms`, with `wait` of each spent waiting
 * for data, and as much of it idle; the same `seed` gives the same noise. */
static struct pt_report *job(double ms, double wait, unsigned seed)
{
	static const struct pt_r_verdict root = {
		.id = "cpu_bound", .severity = PT_WARNING,
		.certainty = PT_CONF_HIGH, .title = "Loading is CPU-bound.",
		.subject_pid = PT_NULL, .subject_rank = PT_NULL,
		.subject_line = PT_NULL,
	};
	struct pt_report *r = pt_report_new();
	struct pt_r_step *s;
	struct pt_r_charge *c;
	struct pt_r_gpu *g;
	double sum = 0;
	int64_t t = GAP_NS;

	assert_non_null(r);
	s = pt_arena_calloc(r->arena, STEPS, sizeof(*s));
	c = pt_arena_calloc(r->arena, 2, sizeof(*c));
	g = pt_arena_alloc(r->arena, sizeof(*g));
	assert_true(s && c && g);
	for (int i = 0; i < STEPS; i++) {
		seed = seed * 1664525u + 1013904223u;
		s[i].period_ms = ms * (0.9 + 0.2 * (seed >> 8) / (1 << 24));
		s[i].index = i;
		s[i].begin_ns = t;
		t += (int64_t)(1e6 * s[i].period_ms);
		s[i].end_ns = t;
		sum += s[i].period_ms;
	}
	r->steps.list = s;
	r->steps.n_list = STEPS;
	r->steps.count = STEPS;
	r->steps.certainty = PT_CONF_HIGH;
	r->steps.period_ms = (struct pt_dist){ .n = STEPS, .mean = sum / STEPS };
	r->capture.begin_ns = 0;
	r->capture.end_ns = t + GAP_NS;
	r->capture.duration = 1e-9 * (double)r->capture.end_ns;
	r->capture.complete = true;
	r->capture.lost_total = 0;
	r->breakdown = (struct pt_r_breakdown){
		.known = true,
		.data_wait = { wait * r->capture.duration, wait },
		.gpu_wait = { (1 - wait) * r->capture.duration, 1 - wait },
	};
	c[0] = (struct pt_r_charge){ .cause = PT_CAUSE_CPU, .share = 0.75,
				     .seconds = 0.75 * wait *
						r->capture.duration };
	c[1] = (struct pt_r_charge){ .cause = PT_CAUSE_DISK, .share = 0.25,
				     .seconds = 0.25 * wait *
						r->capture.duration };
	r->data_wait.causes = c;
	r->data_wait.n_causes = 2;
	g->idle_share = wait;
	g->idle_hard[0] = fmax(0, wait - 0.03);
	g->idle_hard[1] = fmin(1, wait + 0.03);
	r->gpu = g;
	r->n_gpu = 1;
	r->verdicts = &root;
	r->n_verdicts = 1;
	return r;
}

static struct pt_diff *compare(struct pt_report *const *r, size_t n)
{
	static const char *const paths[] = { "x/a.json", "x/b.json", "x/c.json",
					     "x/d.json" };
	struct pt_d_source src[4];
	struct pt_diff *d = NULL;

	for (size_t i = 0; i < n; i++)
		src[i] = (struct pt_d_source){ paths[i], false, r[i] };
	assert_int_equal(pt_compare(src, n, &d), 0);
	assert_non_null(d);
	return d;
}

static void done(struct pt_diff *d, struct pt_report **r, size_t n)
{
	pt_diff_free(d);
	for (size_t i = 0; i < n; i++)
		pt_report_free(r[i]);
}

static char *text_of(const struct pt_diff *d, bool unicode)
{
	struct pt_text_opts o = { .unicode = unicode };
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	assert_non_null(f);
	assert_int_equal(pt_diff_text(d, f, &o), 0);
	assert_int_equal(fclose(f), 0);
	return text;
}

static void says(const struct pt_diff *d, const char *what)
{
	char *text = text_of(d, false);

	/* lines are broken at spaces: compare without */
	for (char *c = text; *c; c++)
		if (*c == '\n')
			*c = ' ';
	for (char *from = text, *to = text;; from++) {
		if (from[0] != ' ' || to == text || to[-1] != ' ')
			*to++ = *from;
		if (!*from)
			break;
	}
	if (!strstr(text, what))
		fail_msg("\"%s\" is not in: %s", what, text);
	free(text);
}

static bool near(double a, double b)
{
	return fabs(a - b) <= 1e-9 + 1e-6 * fabs(b);
}

/* ---- figures -------------------------------------------------------------- */

static void figures_add_up(void **state)
{
	struct pt_report *r[] = { job(60, 0.8, 1), job(40, 0.5, 2) };
	struct pt_diff *d = compare(r, 2);
	const struct pt_d_pair *p = &d->pairs[0];

	(void)state;
	assert_int_equal(d->n_pairs, 1);
	assert_int_equal(d->by, PT_D_BY_STEPS);
	for (size_t i = 0; i < 2; i++) {
		const struct pt_d_input *in = &d->inputs[i];
		double parts = 0, causes = 0;

		for (int k = 0; k < PT_D_PART_NR; k++)
			parts += in->part_ms[k];
		for (int k = 0; k < PT_CAUSE_NR; k++)
			causes += in->cause_ms[k];
		assert_true(near(parts, in->step_ms));
		assert_true(near(causes, in->part_ms[PT_D_DATA_WAIT]));
		assert_true(near(1000 / in->step_ms, in->per_second));
		assert_true(isnan(in->samples_per_second));
		assert_int_equal(in->n_periods, STEPS);
	}
	assert_true(near(p->speedup.value, r[0]->steps.period_ms.mean /
						   r[1]->steps.period_ms.mean));
	assert_true(p->speedup.low > 1.45 && p->speedup.high < 1.55);
	assert_true(p->significant);
	assert_int_equal(p->result, PT_D_FASTER);
	assert_int_equal(p->idle, PT_D_IDLE_LOWER);
	assert_string_equal(d->inputs[0].name, "a.json");
	says(d, "B is faster: 1.4");
	says(d, "more than noise");
	says(d, "CPU 36.");
	done(d, r, 2);
}

static void noise_is_no_difference(void **state)
{
	struct pt_report *r[] = { job(60, 0.8, 1), job(60, 0.8, 77),
				  job(60.3, 0.81, 1) };
	struct pt_diff *d = compare(r, 3);

	(void)state;
	assert_int_equal(d->pairs[0].result, PT_D_NO_DIFFERENCE);
	assert_false(d->pairs[0].significant);
	assert_int_equal(d->pairs[0].idle, PT_D_IDLE_CANNOT_TELL);
	says(d, "No difference beyond noise: B");
	/* steady steps: half a percent is real, and too little to speak of */
	for (size_t i = 0; i < STEPS; i++) {
		((struct pt_r_step *)r[0]->steps.list)[i].period_ms = 60;
		((struct pt_r_step *)r[1]->steps.list)[i].period_ms = 60.3;
	}
	r[0]->steps.period_ms.mean = 60;
	r[1]->steps.period_ms.mean = 60.3;
	pt_diff_free(d);
	d = compare(r, 2);
	assert_true(d->pairs[0].significant);
	assert_int_equal(d->pairs[0].result, PT_D_NO_DIFFERENCE);
	says(d, "A and B differ by less than 1 %");
	done(d, r, 3);
}

static void samples_count_where_known(void **state)
{
	struct pt_report *r[] = { job(60, 0.8, 1), job(90, 0.8, 2) };
	struct pt_diff *d;

	(void)state;
	r[0]->steps.batch_size = 32;
	d = compare(r, 2);
	assert_int_equal(d->by, PT_D_BY_STEPS);
	assert_int_equal(d->pairs[0].result, PT_D_SLOWER);
	says(d, "not every batch size is known");
	pt_diff_free(d);
	/* steps that take half as long again and hold twice as much */
	r[1]->steps.batch_size = 64;
	d = compare(r, 2);
	assert_int_equal(d->by, PT_D_BY_SAMPLES);
	assert_int_equal(d->pairs[0].result, PT_D_FASTER);
	assert_true(d->pairs[0].speedup.low > 1.30 &&
		    d->pairs[0].speedup.high < 1.36);
	says(d, "times the samples/s of A");
	says(d, "batch size 32 -> 64");
	pt_diff_free(d);
	/* a loop that fetches four batches for a step; the ends are cut */
	r[0]->steps.batches = 4 * STEPS - 3;
	r[1]->steps.batches = STEPS + 1;
	d = compare(r, 2);
	assert_true(d->inputs[0].batches_per_step == 4);
	assert_true(d->inputs[1].batches_per_step == 1);
	assert_int_equal(d->pairs[0].result, PT_D_SLOWER);
	assert_true(near(d->inputs[0].samples_per_second,
			 d->inputs[0].per_second * 4 * 32));
	pt_diff_free(d);
	r[0]->steps.batch_size = PT_NULL;
	d = compare(r, 2);
	says(d, "steps are compared that hold different numbers of batches");
	done(d, r, 2);
}

static void idle_needs_disjoint_bounds(void **state)
{
	struct pt_report *r[] = { job(60, 0.5, 1), job(60, 0.55, 2),
				  job(60, 0.57, 3), job(60, 0.9, 4) };
	struct pt_diff *d;

	(void)state;
	r[3]->n_gpu = 0;
	d = compare(r, 4);
	assert_int_equal(d->pairs[0].idle, PT_D_IDLE_CANNOT_TELL);
	assert_int_equal(d->pairs[1].idle, PT_D_IDLE_HIGHER);
	assert_int_equal(d->pairs[2].idle, PT_D_IDLE_UNKNOWN);
	done(d, r, 4);
}

/* ---- what cannot be told -------------------------------------------------- */

static void gaps_are_said(void **state)
{
	struct pt_report *r[] = { job(60, 0.8, 1), job(40, 0.5, 2) };
	static double periods[200];
	struct pt_diff *d;

	(void)state;
	r[1]->steps.n_list = 0;
	d = compare(r, 2);
	assert_non_null(d->pairs[0].untested);
	assert_int_equal(d->pairs[0].result, PT_D_UNKNOWN);
	assert_false(d->pairs[0].significant);
	assert_true(d->pairs[0].speedup.value > 1.4);
	assert_true(isnan(d->pairs[0].speedup.low));
	says(d, "cannot be told: b.json: it has no list of steps");
	pt_diff_free(d);

	r[1]->steps.n_list = 50; /* the first ones only */
	d = compare(r, 2);
	says(d, "b.json: it lists 50 of 200 steps");
	pt_diff_free(d);

	/* ... but all of their periods */
	r[1]->steps.periods_ms = periods;
	r[1]->steps.n_periods = sizeof(periods) / sizeof(*periods);
	for (size_t i = 0; i < r[1]->steps.n_periods; i++)
		periods[i] = 40 + (double)(i % 7) / 10;
	d = compare(r, 2);
	assert_null(d->pairs[0].untested);
	assert_true(d->pairs[0].significant);
	pt_diff_free(d);
	r[1]->steps.n_periods = 0;

	r[1]->steps.n_list = 12;
	r[1]->steps.count = 12;
	d = compare(r, 2);
	says(d, "it has only 12 whole steps, 20 are needed");
	pt_diff_free(d);

	/* nothing known at all, and a capture that broke off */
	pt_report_free(r[1]);
	r[1] = pt_report_new();
	assert_non_null(r[1]);
	d = compare(r, 2);
	assert_true(isnan(d->pairs[0].speedup.value));
	assert_int_equal(d->ranking[1].input, 1);
	says(d, "The throughput of B against A is unknown.");
	says(d, "b.json: the capture broke off");
	done(d, r, 2);
}

/* Steps that the capture cuts are no whole steps. */
static void cut_steps_are_left_out(void **state)
{
	struct pt_report *r[] = { job(60, 0.8, 1), job(60, 0.8, 2) };
	struct pt_r_step *s = (struct pt_r_step *)r[1]->steps.list;
	struct pt_diff *d;

	(void)state;
	s[0].begin_ns = r[1]->capture.begin_ns;
	s[0].period_ms = 5000;
	s[STEPS - 1].end_ns = r[1]->capture.end_ns;
	s[STEPS - 1].period_ms = 5000;
	d = compare(r, 2);
	assert_int_equal(d->inputs[1].n_periods, STEPS - 2);
	assert_int_equal(d->pairs[0].result, PT_D_NO_DIFFERENCE);
	done(d, r, 2);
}

/* ---- several -------------------------------------------------------------- */

static void ranking_and_names(void **state)
{
	struct pt_report *r[] = { job(60, 0.8, 1), job(30, 0.5, 2),
				  job(30, 0.5, 3), pt_report_new() };
	static const char *const workers[] = { "1", "4", "8", "16" };
	struct pt_diff *d;

	(void)state;
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pt_report_label(r[i], "workers", workers[i]),
				 0);
	r[0]->loader.pinned.value = "false";
	r[1]->loader.pinned.value = "true";
	d = compare(r, 4);
	assert_int_equal(d->ranking[0].input + d->ranking[1].input, 3);
	assert_int_equal(d->ranking[1].against_best, PT_D_NO_DIFFERENCE);
	assert_int_equal(d->ranking[2].input, 0);
	assert_int_equal(d->ranking[2].against_best, PT_D_SLOWER);
	assert_int_equal(d->ranking[3].input, 3);
	assert_int_equal(d->ranking[3].against_best, PT_D_UNKNOWN);
	assert_string_equal(d->inputs[2].name, "workers=8");
	assert_int_equal(d->pairs[0].n_settings, 2);
	assert_string_equal(d->pairs[0].settings[0].name, "label workers");
	assert_string_equal(d->pairs[0].settings[1].name, "loader.pinned");
	says(d, "as good");
	says(d, "unknown");
	says(d, "B: label workers 1 -> 4");
	pt_diff_free(d);
	/* equal names are told apart by their files */
	assert_int_equal(pt_report_label(r[2], "workers", "4"), 0);
	d = compare(r, 4);
	assert_string_equal(d->inputs[1].name, "workers=4 (x/b.json)");
	assert_string_equal(d->inputs[2].name, "workers=4 (x/c.json)");
	assert_string_equal(d->inputs[0].name, "workers=1");
	done(d, r, 4);
}

static void too_few_and_too_many(void **state)
{
	struct pt_d_source src[PT_D_INPUTS_MAX + 1];
	struct pt_report *r = pt_report_new();
	struct pt_diff *d;

	(void)state;
	for (size_t i = 0; i <= PT_D_INPUTS_MAX; i++)
		src[i] = (struct pt_d_source){ "same", true, r };
	assert_int_equal(pt_compare(src, 1, &d), -EINVAL);
	assert_null(d);
	assert_int_equal(pt_compare(src, PT_D_INPUTS_MAX + 1, &d), -EINVAL);
	assert_int_equal(pt_compare(src, PT_D_INPUTS_MAX, &d), 0);
	done(d, &r, 1);
}

/* ---- how it is shown ------------------------------------------------------ */

static void text_is_safe(void **state)
{
	struct pt_report *r[] = { fixture_hostile(), fixture_full(),
				  job(60, 0.8, 1) };
	struct pt_diff *d;

	(void)state;
	assert_true(r[0] && r[1]);
	assert_int_equal(pt_report_label(r[0], "k", NASTY), 0);
	for (size_t n = 2; n <= 3; n++) {
		d = compare(r, n);
		for (int unicode = 0; unicode < 2; unicode++) {
			char *text = text_of(d, unicode);
			char *save = NULL, *l;

			for (char *c = text; *c; c++)
				assert_true(*c == '\n' ||
					    (unsigned char)*c >= ' ');
			for (l = strtok_r(text, "\n", &save); l;
			     l = strtok_r(NULL, "\n", &save)) {
				assert_true(pt_str_cols(l) <= 80);
				assert_true(l[strlen(l) - 1] != ' ');
			}
			free(text);
		}
		pt_diff_free(d);
	}
	done(NULL, r, 3);
}

static int validate(const struct pt_diff *d)
{
	char path[] = "/tmp/pt_diff_XXXXXX";
	char *argv[] = { "/usr/bin/python3", CHECKER, path, NULL };
	int fd = mkstemp(path), status = -1;
	FILE *f;
	pid_t pid;

	assert_true(fd >= 0);
	f = fdopen(fd, "w");
	assert_non_null(f);
	assert_int_equal(pt_diff_json(d, f, 1), 0);
	assert_int_equal(fclose(f), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		execv(argv[0], argv);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	unlink(path);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void json_keeps_its_schema(void **state)
{
	struct pt_report *r[] = { fixture_full(), fixture_hostile(),
				  pt_report_new(), job(60, 0.8, 1) };
	struct pt_diff *d;
	int status;

	(void)state;
	assert_int_equal(pt_report_label(r[1], "k", NASTY), 0);
	d = compare(r, 4);
	status = validate(d);
	done(d, r, 4);
	if (status == 77 || status == 127) {
		print_message("skipped: no python3-jsonschema\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static void full_disk(void **state)
{
	struct pt_report *r[] = { job(60, 0.8, 1), job(60, 0.8, 2) };
	struct pt_diff *d = compare(r, 2);
	FILE *f = fopen("/dev/full", "w");

	(void)state;
	assert_non_null(f);
	assert_int_equal(pt_diff_text(d, f, NULL), -EIO);
	fclose(f);
	f = fopen("/dev/full", "w");
	assert_non_null(f);
	assert_int_equal(pt_diff_json(d, f, 0), -EIO);
	fclose(f);
	done(d, r, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(figures_add_up),
		cmocka_unit_test(noise_is_no_difference),
		cmocka_unit_test(samples_count_where_known),
		cmocka_unit_test(idle_needs_disjoint_bounds),
		cmocka_unit_test(gaps_are_said),
		cmocka_unit_test(cut_steps_are_left_out),
		cmocka_unit_test(ranking_and_names),
		cmocka_unit_test(too_few_and_too_many),
		cmocka_unit_test(text_is_safe),
		cmocka_unit_test(json_keeps_its_schema),
		cmocka_unit_test(full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
