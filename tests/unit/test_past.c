/* SPDX-License-Identifier: BSD-2-Clause */
/* What threads did before the part that a model still holds: as much of each state
 * in each stretch of time as when all of it is held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>

#include "model/past.h"
#include "stream_case.h"

#define ROWS 64
#define RECORDS 256

struct rows {
	uint64_t begin, width;
	double v[ROWS][PT_PAST_STATES]; /* ns */
};

static void put(void *ctx, uint64_t begin, uint64_t end, unsigned state)
{
	struct rows *r = ctx;
	uint64_t at = begin > r->begin ? begin : r->begin, next;
	size_t i;

	assert_true(state < PT_PAST_STATES);
	for (; at < end; at = next) {
		i = (size_t)((at - r->begin) / r->width);
		assert_true(i < ROWS);
		next = r->begin + (i + 1) * r->width;
		next = next < end ? next : end;
		r->v[i][state] += (double)(next - at);
	}
}

static void add_past(struct rows *r, const struct pt_past *p, pt_past_row *v)
{
	uint64_t at = p->begin;
	size_t i, k;

	for (i = 0; i < PT_PAST_BUCKETS; i++, at += p->width)
		for (k = 0; k < PT_PAST_STATES; k++)
			if (v[i][k] > 0)
				r->v[(at - r->begin) / r->width][k] += (double)v[i][k];
}

static void same(const struct rows *a, const struct rows *b, uint32_t tid)
{
	size_t i, k;

	for (i = 0; i < ROWS; i++)
		for (k = 0; k < PT_PAST_STATES; k++)
			if (fabs(a->v[i][k] - b->v[i][k]) > 1e-4 * (double)a->width)
				fail_msg("thread %u, row %zu, state %zu: %.0f ns of the whole, %.0f of the pieces",
					 tid, i, k, a->v[i][k], b->v[i][k]);
}

/* Fed and dropped as a long file is; `m` holds the rest. */
static void read_in_pieces(const struct stream *s, struct pt_model *m,
			   struct pt_past *p, uint64_t most)
{
	uint64_t begin, before;
	size_t i;

	for (i = 0; i < s->recs.n; i++) {
		const struct pt_hdr *h = &s->recs.v[i].r.hdr;

		pt_model_feed(m, h, h->size);
		if (i % RECORDS || pt_model_timelines(m) <= most)
			continue;
		begin = m->begin ? m->begin : m->first_ts;
		before = begin + (m->last_ts - begin) / 3 * 2;
		assert_int_equal(pt_model_settle(m), 0);
		assert_int_equal(pt_past_take(p, m, before), 0);
		assert_int_equal(pt_model_cut(m, before), 0);
	}
	assert_int_equal(pt_model_finish(m), 0);
}

static void check(unsigned workers, uint64_t run_s, double disk)
{
	struct job_opts o = job_defaults();
	struct pt_model *m = pt_model_new();
	struct pt_past p = { 0 };
	struct rows all = { 0 }, sum = { 0 };
	struct st_case c;
	size_t i, with_past = 0;

	assert_non_null(m);
	o.run_s_x10 = run_s * 10;
	o.workers = workers;
	o.mix[JOB_DISK] = disk;
	case_open(&c, &o, 0, 0);
	read_in_pieces(&c.j.s, m, &p, pt_model_timelines(c.m) / 6);
	assert_non_null(p.sum);
	all.begin = sum.begin = p.begin;
	all.width = sum.width = PT_PAST_BUCKETS / ROWS * p.width;
	for (i = 0; i < c.m->all_threads.n; i++) {
		const struct pt_thread *a = c.m->all_threads.v[i];
		const struct pt_thread *b = pt_model_thread(m, a->tid);
		const struct pt_past_thread *t = pt_past_of(&p, a->tid);
		struct rows whole = { p.begin, all.width, { { 0 } } };
		struct rows pieces = whole;

		assert_non_null(b);
		pt_thread_states(a, NULL, put, &whole);
		if (t)
			add_past(&pieces, &p, t->v);
		pt_thread_states(b, t, put, &pieces);
		same(&whole, &pieces, a->tid);
		with_past += t != NULL;
		pt_thread_states(a, NULL, put, &all);
		pt_thread_states(b, t, put, &sum);
	}
	add_past(&sum, &p, p.sum);
	assert_true(with_past > workers);
	same(&all, &sum, 0);
	pt_past_free(&p);
	pt_model_free(m);
	case_close(&c);
}

static void test_past(void **state)
{
	(void)state;
	check(3, 3, 0);    /* 1 ms a bucket */
	check(2, 20, 0.5); /* the buckets were doubled three times */
	check(0, 10, 0.3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_past),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
