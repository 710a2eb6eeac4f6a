/* SPDX-License-Identifier: BSD-2-Clause */
/* A part of a capture that is not held whole: as when all of it were. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>

#include "analysis/internal.h"
#include "cmd/reach.h"
#include "model/timeline.h"
#include "stream_case.h"

struct part {
	struct pt_model *m;
	struct pt_report *r;
	uint64_t most; /* bytes held at a time */
	int err;
};

static struct job_opts long_job(void)
{
	struct job_opts o = job_defaults();

	o.run_s_x10 = 200;
	return o;
}

/* As a file is read, a chunk of 256 records at a time. */
static struct part read_part(const struct stream *s,
			     const struct pt_analysis_opts *o, uint64_t stride,
			     uint64_t most)
{
	struct part p = { pt_model_new(), pt_report_new(), 0, 0 };
	struct pt_reach h;
	size_t i;

	assert_true(p.m && p.r);
	pt_reach_set(&h, o);
	for (i = 0; i < s->recs.n && !p.err; i++) {
		struct st_rec rec = s->recs.v[i];

		if (pt_reach_wants(&h, p.m, &rec.r.hdr))
			pt_model_feed(p.m, rec.r.bytes, rec.r.hdr.size);
		if (i % 256 != 255)
			continue;
		p.err = pt_reach_drop(&h, p.m, stride, most);
		p.most = pt_max64(p.most, pt_model_timelines(p.m));
	}
	if (p.err)
		return p;
	assert_int_equal(pt_model_finish(p.m), 0);
	p.err = pt_analyze(p.m, o, p.r);
	return p;
}

static struct part read_whole(const struct stream *s,
			      const struct pt_analysis_opts *o)
{
	struct part p = { pt_model_new(), pt_report_new(), 0, 0 };

	assert_true(p.m && p.r);
	assert_int_equal(st_feed(s, p.m), 0);
	p.most = pt_model_timelines(p.m);
	assert_int_equal(pt_model_finish(p.m), 0);
	p.err = pt_analyze(p.m, o, p.r);
	return p;
}

static void done(struct part *p)
{
	pt_report_free(p->r);
	pt_model_free(p->m);
}

static void same(const struct part *a, const struct part *b)
{
	size_t i;

	assert_int_equal(a->err, 0);
	assert_int_equal(b->err, 0);
	assert_int_equal(a->r->capture.begin_ns, b->r->capture.begin_ns);
	assert_int_equal(a->r->capture.end_ns, b->r->capture.end_ns);
	assert_int_equal(a->r->steps.count, b->r->steps.count);
	assert_true(a->r->steps.count > 5);
	assert_int_equal(a->r->steps.n_list, b->r->steps.n_list);
	for (i = 0; i < a->r->steps.n_list; i++) {
		assert_int_equal(a->r->steps.list[i].index,
				 b->r->steps.list[i].index);
		assert_int_equal(a->r->steps.list[i].begin_ns,
				 b->r->steps.list[i].begin_ns);
	}
	assert_true(fabs(a->r->breakdown.data_wait.seconds -
			 b->r->breakdown.data_wait.seconds) < 1e-6);
	assert_int_equal(a->r->n_workers, b->r->n_workers);
	for (i = 0; i < a->r->n_workers; i++) {
		assert_int_equal(a->r->workers[i].batches,
				 b->r->workers[i].batches);
		assert_true(fabs(a->r->workers[i].cpu - b->r->workers[i].cpu) <
			    1e-6);
	}
	assert_int_equal(a->r->n_verdicts, b->r->n_verdicts);
	for (i = 0; i < a->r->n_verdicts; i++)
		assert_string_equal(a->r->verdicts[i].id, b->r->verdicts[i].id);
}

static void test_window(void **state)
{
	static const struct {
		uint64_t from, until; /* s */
		double held;	      /* with its margins, of the whole */
	} windows[] = { { 12, 14, 0.45 }, { 0, 3, 0.45 }, { 17, 0, 0.75 },
			{ 8, 9, 0.4 }, { 16, 99, 0.8 } };
	struct job_opts o = long_job();
	struct job j;
	size_t i;

	(void)state;
	job_run(&j, &o);
	job_window(&j, JOB_BEGIN + 300 * ST_MS, JOB_BEGIN + 19700 * ST_MS);
	for (i = 0; i < sizeof(windows) / sizeof(*windows); i++) {
		struct pt_analysis_opts a = { .from_ns = windows[i].from * ST_S,
					      .until_ns = windows[i].until * ST_S };
		struct part w = read_whole(&j.s, &a);
		struct part p = read_part(&j.s, &a, w.most / 20, w.most);

		same(&w, &p);
		assert_true((double)p.most < windows[i].held * (double)w.most);
		done(&w);
		done(&p);
	}
	job_free(&j);
}

/* Where they lie was found before. */
static void test_steps(void **state)
{
	struct pt_analysis_opts a = { .by_steps = true, .first_step = 60,
				      .last_step = 75 };
	struct job_opts o = long_job();
	struct part all, w, p;
	struct job j;

	(void)state;
	job_run(&j, &o);
	job_window(&j, JOB_BEGIN + 300 * ST_MS, JOB_BEGIN + 19700 * ST_MS);
	all = read_whole(&j.s, &(struct pt_analysis_opts){ 0 });
	w = read_whole(&j.s, &a);
	assert_true(all.r->steps.n_list > 90);
	a.steps_known = true;
	a.steps_from = (uint64_t)all.r->steps.list[60].begin_ns;
	a.steps_until = (uint64_t)all.r->steps.list[75].end_ns;
	p = read_part(&j.s, &a, w.most / 20, w.most);
	same(&w, &p);
	assert_int_equal(p.r->steps.list[0].index, 60);
	assert_int_equal(p.r->steps.count, 16);
	assert_true(p.most < w.most * 2 / 3);
	done(&all);
	done(&w);
	done(&p);
	job_free(&j);
}

static void test_no_such(void **state)
{
	struct pt_analysis_opts a = { .from_ns = 30 * ST_S, .until_ns = 40 * ST_S };
	struct job_opts o = long_job();
	struct pt_reach h;
	struct part p;
	struct job j;

	(void)state;
	job_run(&j, &o);
	job_window(&j, JOB_BEGIN + 300 * ST_MS, JOB_BEGIN + 19700 * ST_MS);
	p = read_part(&j.s, &a, 100000, UINT64_MAX);
	assert_int_equal(p.err, -ERANGE); /* it is over before that */
	assert_true(fabs(p.r->capture.duration - 19.4) < 1e-6);
	done(&p);
	/* more than may be held */
	a.from_ns = ST_S;
	a.until_ns = 19 * ST_S;
	p = read_part(&j.s, &a, 50000, 100000);
	assert_int_equal(p.err, -E2BIG);
	pt_reach_set(&h, &a);
	assert_true(pt_reach_fits(&h, p.m) < 18 * ST_S);
	done(&p);
	/* nothing of it can overflow */
	a.from_ns = UINT64_MAX - 5;
	a.until_ns = UINT64_MAX;
	p = read_part(&j.s, &a, 50000, UINT64_MAX);
	assert_int_equal(p.err, -ERANGE);
	done(&p);
	job_free(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_no_such),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
