/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of a capture, by time, by steps and by a schedule, against the truth of
 * simulated jobs; and how they are asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>

#include "analysis/analysis.h"
#include "cmd/options.h"
#include "cmd/parts.h"
#include "cmd/pieces.h"
#include "model/timeline.h"
#include "stream_case.h"

/* ---- how they are asked for ------------------------------------------------- */

static void test_parse_window(void **state)
{
	static const struct {
		const char *text;
		uint64_t from, until;
	} good[] = { { "12s..20s", 12 * ST_S, 20 * ST_S },
		     { "500ms..1.5s", ST_S / 2, 3 * ST_S / 2 },
		     { "0.5..2", ST_S / 2, 2 * ST_S },
		     { "3..", 3 * ST_S, 0 },
		     { "..1m", 0, 60 * ST_S },
		     { "1h..2h", 3600 * ST_S, 7200 * ST_S } };
	static const char *const bad[] = { "", "..", "5", "5..3", "5..5", "a..b",
					   "1s...2s", "-1..2", "1..2x", "1 ..2",
					   "1..1e9", "0..", "99999999999h..",
					   ".s..2" };
	uint64_t from, until;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(*good); i++) {
		if (pt_parse_window(good[i].text, &from, &until))
			fail_msg("%s is refused", good[i].text);
		assert_int_equal(from, good[i].from);
		assert_int_equal(until, good[i].until);
	}
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (!pt_parse_window(bad[i], &from, &until))
			fail_msg("%s is taken", bad[i]);
}

static void test_parse_steps(void **state)
{
	static const char *const bad[] = { "", "..", "5", "5..3", "a..b",
					   "1..2x", "-1..2", "1.5..2",
					   "99999999999.." };
	int64_t a, b;
	size_t i;

	(void)state;
	assert_int_equal(pt_parse_steps("100..200", &a, &b), 0);
	assert_int_equal(a, 100);
	assert_int_equal(b, 200);
	assert_int_equal(pt_parse_steps("7..7", &a, &b), 0);
	assert_int_equal(pt_parse_steps("..9", &a, &b), 0);
	assert_int_equal(a, 0);
	assert_int_equal(pt_parse_steps("9..", &a, &b), 0);
	assert_true(b > INT32_MAX);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (!pt_parse_steps(bad[i], &a, &b))
			fail_msg("%s is taken", bad[i]);
}

static void test_parse_schedule(void **state)
{
	static const char *const bad[] = {
		"", "active=0", "active=0s", "wait=5", "active=", "active=x",
		"active=5,", "active=5,pause=3", "active=5,repeat=1s",
		"active=-5", "active=5 ,wait=1", "repeat=3,active=1e3" };
	struct pt_schedule_opt o;
	uint64_t ns;
	bool aligned;
	size_t i;

	(void)state;
	assert_int_equal(pt_parse_schedule("wait=10s,warmup=5,active=500ms,"
					   "repeat=3", &o), 0);
	assert_int_equal(o.wait.ns, 10 * ST_S);
	assert_int_equal(o.wait.steps, 0);
	assert_int_equal(o.warmup.steps, 5);
	assert_int_equal(o.warmup.ns, 0);
	assert_int_equal(o.active.ns, ST_S / 2);
	assert_int_equal(o.repeat, 3);
	assert_true(o.set);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (!pt_parse_schedule(bad[i], &o))
			fail_msg("%s is taken", bad[i]);
	assert_int_equal(pt_parse_at("+30s", &ns, &aligned), 0);
	assert_int_equal(ns, 30 * ST_S);
	assert_false(aligned);
	assert_int_equal(pt_parse_at("/10s", &ns, &aligned), 0);
	assert_true(aligned);
	assert_int_equal(pt_parse_at("10s", &ns, &aligned), -EINVAL);
	assert_int_equal(pt_parse_size("64K", &ns), 0);
	assert_int_equal(ns, 65536);
	assert_int_equal(pt_parse_size("2G", &ns), 0);
	assert_int_equal(ns, 2ull << 30);
	assert_int_equal(pt_parse_size("1000000", &ns), 0);
	assert_int_equal(pt_parse_size("63K", &ns), -EINVAL);
	assert_int_equal(pt_parse_size("", &ns), -EINVAL);
	assert_int_equal(pt_parse_size("M", &ns), -EINVAL);
	assert_int_equal(pt_parse_size("1MM", &ns), -EINVAL);
	assert_int_equal(pt_parse_size("9999999999T", &ns), -EINVAL);
	assert_int_equal(pt_parse_at("+0", &ns, &aligned), -EINVAL);
	assert_int_equal(pt_parse_at("/", &ns, &aligned), -EINVAL);
}

/* ---- what they hold ------------------------------------------------------------ */

static struct pt_report *look(struct pt_model *m,
			      const struct pt_analysis_opts *o, int want)
{
	struct pt_report *r = pt_report_new();

	assert_non_null(r);
	assert_int_equal(pt_analyze(m, o, r), want);
	return r;
}

/* CPU time of a worker's main thread in the window, by its pieces. */
static double cpu_s(const struct job *j, unsigned w)
{
	uint64_t ns = 0;
	size_t i;

	for (i = 0; i < j->worker[w].pieces.n; i++) {
		const struct job_piece *p = &j->worker[w].pieces.v[i];
		uint64_t b = p->begin > j->t0 ? p->begin : j->t0;
		uint64_t e = p->end < j->t1 ? p->end : j->t1;

		if (p->seg == JOB_CPU && e > b)
			ns += e - b;
	}
	return (double)ns / 1e9;
}

static void test_window(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	uint64_t begin, k;
	size_t w;

	(void)state;
	o.run_s_x10 = 60;
	case_open(&c, &o, 0, 0);
	begin = c.j.t0;
	for (k = 0; k < 4; k++) {
		struct pt_analysis_opts a = { .from_ns = k * 900 * ST_MS + 77,
					      .until_ns = k * 900 * ST_MS +
							  1700 * ST_MS };
		struct pt_report *r = look(c.m, &a, 0);
		char buf[160];
		const char *trouble = case_trouble(r, buf, sizeof(buf));
		double slack;

		if (trouble)
			fail_msg("%s", trouble);
		c.j.t0 = begin + a.from_ns;
		c.j.t1 = begin + a.until_ns;
		assert_int_equal(r->capture.begin_ns, (int64_t)c.j.t0);
		assert_int_equal(r->capture.end_ns, (int64_t)c.j.t1);
		assert_true(llabs(r->steps.count - (int64_t)job_count(&c.j)) <= 1);
		slack = 100e-6 * (double)r->steps.count + 1e-3;
		assert_true(fabs(r->breakdown.data_wait.seconds -
				 (double)job_wait_ns(&c.j) / 1e9) < slack);
		assert_int_equal(r->n_workers, 2);
		for (w = 0; w < 2; w++)
			if (fabs(r->workers[w].cpu -
				 cpu_s(&c.j, r->workers[w].pid ==
						     (int64_t)JOB_WORKER(1))) >
			    slack)
				fail_msg("worker %zu: %g s of CPU", w,
					 r->workers[w].cpu);
		pt_report_free(r);
	}
	case_close(&c);
}

static void test_no_such_window(void **state)
{
	struct pt_analysis_opts a = { .from_ns = 100 * ST_S };
	struct job_opts o = job_defaults();
	struct pt_report *r;
	struct st_case c;

	(void)state;
	case_open(&c, &o, 0, 0);
	r = look(c.m, &a, -ERANGE);
	assert_true(fabs(r->capture.duration - c.r->capture.duration) < 1e-6);
	pt_report_free(r);
	case_close(&c);
}

/* Exactly these steps, as the whole capture's report has them. */
static void test_steps(void **state)
{
	struct pt_analysis_opts a = { .by_steps = true };
	struct job_opts o = job_defaults();
	struct pt_report *r;
	struct st_case c;
	int64_t i;

	(void)state;
	o.run_s_x10 = 60;
	case_open(&c, &o, 0, 0);
	assert_true(c.r->steps.count > 60);
	for (a.first_step = 0; a.first_step < 60; a.first_step += 13) {
		a.last_step = a.first_step + 7;
		r = look(c.m, &a, 0);
		assert_int_equal(r->steps.count, 8);
		for (i = 0; i < 8; i++) {
			const struct pt_r_step *x = &r->steps.list[i];
			const struct pt_r_step *y =
				&c.r->steps.list[a.first_step + i];

			assert_int_equal(x->index, a.first_step + i);
			assert_int_equal(x->begin_ns, y->begin_ns);
			assert_int_equal(x->end_ns, y->end_ns);
			assert_true(fabs(x->data_wait_ms - y->data_wait_ms) <
				    1e-9);
			assert_int_equal(x->worker, y->worker);
		}
		/* of whole steps: the first may be cut by the capture's begin */
		assert_true(r->steps.period_ms.n >= 7);
		c.j.t0 = (uint64_t)r->capture.begin_ns;
		c.j.t1 = (uint64_t)r->capture.end_ns;
		assert_int_equal(r->capture.begin_ns, r->steps.list[0].begin_ns);
		assert_int_equal(r->capture.end_ns, r->steps.list[7].end_ns);
		assert_true(fabs(r->breakdown.data_wait.seconds -
				 (double)job_wait_ns(&c.j) / 1e9) < 2e-3);
		pt_report_free(r);
	}
	a.first_step = c.r->steps.count - 3;
	a.last_step = a.first_step + 100;
	r = look(c.m, &a, 0);
	assert_int_equal(r->steps.count, 3);
	pt_report_free(r);
	a.first_step = c.r->steps.count;
	r = look(c.m, &a, -ERANGE);
	assert_int_equal(r->steps.count, c.r->steps.count);
	pt_report_free(r);
	case_close(&c);
}

/* ---- schedules -------------------------------------------------------------------- */

static void window(struct stream *s, uint64_t ts, uint32_t index, bool ended)
{
	struct pt_rec_window *w = (void *)st_add(s, PT_REC_WINDOW, sizeof(*w),
						 ts, JOB_TRAINER, JOB_TRAINER);

	w->index = index;
	w->ended = ended;
}

static void test_parts(void **state)
{
	static const uint64_t at[][2] = { { 1500, 2500 }, { 3100, 4000 } };
	struct job_opts o = job_defaults();
	struct pt_analysis_opts a = { 0 };
	struct pt_parts p = { 0 };
	struct pt_long l = { 0 };
	struct pt_model *m = pt_model_new();
	struct pt_report *r;
	struct job j;
	size_t i;

	(void)state;
	o.run_s_x10 = 60;
	job_run(&j, &o);
	for (i = 0; i < 2; i++) {
		window(&j.s, JOB_BEGIN + at[i][0] * ST_MS, (uint32_t)i, false);
		window(&j.s, JOB_BEGIN + at[i][1] * ST_MS, (uint32_t)i, true);
	}
	job_window(&j, JOB_BEGIN + 500 * ST_MS, JOB_BEGIN + 5000 * ST_MS);
	for (i = 0; i < j.s.recs.n; i++) {
		const void *rec = j.s.recs.v[i].r.bytes;

		assert_int_equal(pt_model_feed(m, rec, PT_REC_MAX), 0);
		assert_int_equal(pt_parts_see(&p, m, &a, rec), 0);
	}
	assert_int_equal(p.rows.n, 2);
	for (i = 0; i < 2; i++) {
		const struct pt_r_window *w = &p.rows.v[i];

		j.t0 = JOB_BEGIN + at[i][0] * ST_MS;
		j.t1 = JOB_BEGIN + at[i][1] * ST_MS;
		assert_int_equal(w->begin_ns, (int64_t)j.t0);
		assert_int_equal(w->end_ns, (int64_t)j.t1);
		assert_true(llabs(w->steps - (int64_t)job_count(&j)) <= 1);
		assert_true(fabs(w->data_wait_share - (double)job_wait_ns(&j) /
				 (double)(j.t1 - j.t0)) < 0.02);
		assert_true(fabs(w->at - ((double)at[i][0] / 1e3 - 0.5)) < 1e-6);
	}
	/* the report is of the last; what is older is gone */
	r = pt_report_new();
	assert_int_equal(pt_parts_report(&p, &l, m, &a, r), 0);
	assert_int_equal(r->capture.begin_ns, p.rows.v[1].begin_ns);
	assert_int_equal(r->capture.end_ns, p.rows.v[1].end_ns);
	assert_int_equal(r->n_windows, 2);
	assert_true(r->windows[1].reported && !r->windows[0].reported);
	assert_int_equal(r->steps.count, r->windows[1].steps);
	assert_true(fabs(r->breakdown.data_wait.share -
			 r->windows[1].data_wait_share) < 1e-9);
	assert_true(m->begin == (uint64_t)p.rows.v[1].begin_ns);
	pt_report_free(r);
	pt_parts_free(&p);
	pt_model_free(m);
	job_free(&j);
}

/* Ends without begins, twice, backwards: none of them counts. */
static void test_bad_windows(void **state)
{
	static const struct {
		uint64_t ts;
		uint32_t index;
		bool ended, good;
	} rec[] = { { 5, 0, true, false },  { 10, 0, false, true },
		    { 12, 1, true, false }, { 9, 0, true, false },
		    { 20, 0, true, true },  { 21, 0, true, false },
		    { 15, 1, false, false }, { 30, 1, false, true } };
	struct pt_model *m = pt_model_new();
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rec) / sizeof(*rec); i++) {
		struct pt_rec_window w = {
			.hdr = { .size = sizeof(w), .kind = PT_REC_WINDOW,
				 .ts = rec[i].ts * ST_S },
			.index = rec[i].index, .ended = rec[i].ended };

		assert_int_equal(pt_model_feed(m, &w, sizeof(w)),
				 rec[i].good ? 0 : -EINVAL);
	}
	assert_int_equal(m->windows.n, 2);
	assert_int_equal(m->windows.v[0].end, 20 * ST_S);
	assert_int_equal(m->windows.v[1].end, 0);
	pt_model_free(m);
}

/* ---- more than memory holds ---------------------------------------------------------- */

static void test_spill(void **state)
{
	struct job_opts o = job_defaults();
	struct pt_analysis_opts a = { 0 };
	struct pt_long l = { 0 };
	struct pt_model *m = pt_model_new();
	struct pt_report *r = pt_report_new();
	int64_t steps = 0, begin = INT64_MAX, end = 0;
	struct job j;
	size_t i;

	(void)state;
	o.run_s_x10 = 100;
	job_run(&j, &o);
	job_window(&j, JOB_BEGIN + 500 * ST_MS, JOB_BEGIN + 9500 * ST_MS);
	for (i = 0; i < j.s.recs.n; i++) {
		assert_int_equal(pt_model_feed(m, j.s.recs.v[i].r.bytes,
					       PT_REC_MAX), 0);
		if (i % 1000 == 0)
			assert_int_equal(pt_long_spill(&l, m, &a, 400000), 0);
	}
	assert_int_equal(pt_model_finish(m), 0);
	assert_int_equal(pt_long_report(&l, m, &a, r), 0);
	assert_true(r->n_windows >= 4);
	for (i = 0; i < r->n_windows; i++) {
		const struct pt_r_window *w = &r->windows[i];

		if (i) /* one begins where the other ends */
			assert_int_equal(w->begin_ns, end);
		else
			begin = w->begin_ns;
		end = w->end_ns;
		steps += w->steps;
		j.t0 = (uint64_t)w->begin_ns;
		j.t1 = (uint64_t)w->end_ns;
		assert_true(fabs(w->data_wait_share - (double)job_wait_ns(&j) /
				 (double)(j.t1 - j.t0)) < 0.03);
		assert_true(w->reported);
	}
	j.t0 = (uint64_t)begin;
	j.t1 = (uint64_t)end;
	assert_int_equal(begin, (int64_t)(JOB_BEGIN + 500 * ST_MS));
	assert_int_equal(end, (int64_t)(JOB_BEGIN + 9500 * ST_MS));
	/* no step is cut, and none is told twice */
	assert_int_equal(steps, r->steps.count);
	assert_true(llabs(steps - (int64_t)job_count(&j)) <= 1);
	assert_true(fabs(r->breakdown.data_wait.seconds -
			 (double)job_wait_ns(&j) / 1e9) <
		    100e-6 * (double)steps + 1e-3);
	pt_report_free(r);
	pt_long_free(&l);
	pt_model_free(m);
	job_free(&j);
}

/* What is dropped is in no thread's totals any more. */
static void test_cut_totals(void **state)
{
	struct job_opts o = job_defaults();
	struct pt_model *m = pt_model_new();
	uint64_t at = JOB_BEGIN + 3000 * ST_MS;
	struct pt_thread *t;
	struct job j;
	double run;
	size_t i;

	(void)state;
	o.run_s_x10 = 60;
	o.mix[JOB_DISK] = 0.4;
	o.slices = 8;
	job_run(&j, &o);
	job_window(&j, JOB_BEGIN + 500 * ST_MS, JOB_BEGIN + 5500 * ST_MS);
	for (i = 0; i < j.s.recs.n; i++)
		assert_int_equal(pt_model_feed(m, j.s.recs.v[i].r.bytes,
					       PT_REC_MAX), 0);
	assert_int_equal(pt_model_cut(m, at), 0);
	assert_int_equal(m->begin, at);
	assert_int_equal(pt_model_finish(m), 0);
	j.t0 = at;
	t = pt_model_thread(m, JOB_WORKER(0));
	assert_non_null(t);
	run = (double)(t->t1.run_ns - t->t0.run_ns) / 1e9;
	if (fabs(run - cpu_s(&j, 0)) > 0.06)
		fail_msg("%.4f s of CPU, in truth %.4f", run, cpu_s(&j, 0));
	pt_model_free(m);
	job_free(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse_window),
		cmocka_unit_test(test_parse_steps),
		cmocka_unit_test(test_parse_schedule),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_no_such_window),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_bad_windows),
		cmocka_unit_test(test_spill),
		cmocka_unit_test(test_cut_totals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
