/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device times that were measured: what they settle, and what they do not:
 * work from before, work under way at the end, and records that were lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "stream.h"

#define PID 1000u
#define T0 (1000 * ST_S)
#define STEPS 20
#define STEP (50 * ST_MS)
#define T1 (T0 + STEPS * STEP)
#define EPS 1e-6

struct one {
	struct stream s;
	struct pt_model *m;
	struct pt_report *r;
	uint32_t number; /* the last correlation */
};

static struct pt_rec_act *act(struct one *o, uint16_t what, uint64_t begin,
			      uint64_t end)
{
	union pt_rec_any *u = st_add(&o->s, PT_REC_ACT, sizeof(struct pt_rec_act),
				 end < T1 ? end : T1 - 1, PID, PID);
	struct pt_rec_act *a = (void *)u;

	a->begin = begin;
	a->end = end;
	a->what = what;
	a->stream = 7;
	a->correlation = what == PT_ACT_COVER ? 0 : ++o->number;
	return a;
}

static void name(struct one *o, uint64_t key, const char *text)
{
	struct pt_rec_name *n = (void *)st_add(&o->s, PT_REC_NAME, sizeof(*n),
					       T0, PID, PID);

	n->key = key;
	n->space = PT_NAME_ACT;
	strncpy(n->name, text, sizeof(n->name) - 1);
}

/* A step: 5 ms of copying, 10 ms of computing, 4 ms of a collective, and a wait
 * for it all; the device idles for the rest. */
static void step(struct one *o, uint64_t t, bool told)
{
	struct pt_rec_act *a;

	st_gpu(&o->s, "cudaMemcpyAsync", PID, PID, t, t + 1000, 0, 1, 4096, 1);
	st_gpu(&o->s, "cudaLaunchKernel", PID, PID, t + 2000, 0, 0, 1, 0, 0);
	st_gpu(&o->s, "cudaLaunchKernel", PID, PID, t + 3000, 0, 0, 2, 0, 0);
	st_gpu(&o->s, "cudaDeviceSynchronize", PID, PID, t + 4000,
	       t + 19 * ST_MS + 10000, 0, 0, 0, 0);
	if (!told)
		return;
	a = act(o, PT_ACT_COPY, t + 3000, t + 3000 + 5 * ST_MS);
	a->bytes = 4096;
	a->detail = 1;
	a->flags = PT_ACT_F_PAGEABLE;
	a = act(o, PT_ACT_KERNEL, t + 5 * ST_MS + 3000, t + 15 * ST_MS + 3000);
	a->name = 11;
	a = act(o, PT_ACT_KERNEL, t + 15 * ST_MS + 3000, t + 19 * ST_MS + 3000);
	a->name = 12;
}

static void open_one(struct one *o)
{
	memset(o, 0, sizeof(*o));
	st_host(&o->s, T0, 2, PID);
	st_task(&o->s, T0, PID, PID, 1, "gpu");
	name(o, 11, "_Z6matmulPf");
	name(o, 12, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
}

static void cover(struct one *o, uint64_t begin, uint64_t end, uint64_t lost)
{
	struct pt_rec_act *a = act(o, PT_ACT_COVER, begin, end);

	a->bytes = lost;
	a->detail = 1;
}

static const struct pt_r_gpu *analyse(struct one *o)
{
	st_window(&o->s, T0, T1);
	st_seal(&o->s);
	o->r = st_analyze(&o->s, &o->m);
	assert_true(o->r->n_gpu >= 1);
	return &o->r->gpu[0];
}

static void close_one(struct one *o)
{
	pt_report_free(o->r);
	pt_model_free(o->m);
	st_free(&o->s);
}

static bool limited(const struct one *o, const char *what)
{
	for (size_t i = 0; i < o->r->capture.n_limits; i++)
		if (!strcmp(o->r->capture.limits[i].what, what))
			return true;
	return false;
}

static void test_whole(void **state)
{
	const struct pt_r_gpu *g;
	struct one o;

	(void)state;
	open_one(&o);
	for (uint64_t t = T0; t < T1; t += STEP)
		step(&o, t, true);
	cover(&o, T0 - ST_MS, T1, 0);
	g = analyse(&o);
	assert_int_equal(g->certainty, PT_MEASURED);
	assert_true(fabs(g->busy_share - 19.0 / 50) < 1e-4);
	assert_true(g->busy_hard[1] - g->busy_hard[0] < 1e-3);
	assert_true(fabs(g->compute - 10.0 / 50) < EPS);
	assert_true(fabs(g->copy - 5.0 / 50) < EPS);
	assert_true(fabs(g->collective - 4.0 / 50) < EPS);
	assert_true(fabs(g->pageable_share - 1) < EPS);
	assert_int_equal(g->kernels, 2 * STEPS);
	assert_false(limited(&o, "gpu.compute"));
	close_one(&o);
}

/* The same without a record: nothing is called measured. */
static void test_none(void **state)
{
	const struct pt_r_gpu *g;
	struct one o;

	(void)state;
	open_one(&o);
	for (uint64_t t = T0; t < T1; t += STEP)
		step(&o, t, false);
	g = analyse(&o);
	assert_int_not_equal(g->certainty, PT_MEASURED);
	assert_true(isnan(g->pageable_share));
	assert_false(limited(&o, "gpu.activity"));
	close_one(&o);
}

/* Records were lost: what came is busy, and idle is nowhere certain by it. */
static void test_lost(void **state)
{
	const struct pt_r_gpu *g;
	struct one o;
	uint64_t i = 0;

	(void)state;
	open_one(&o);
	for (uint64_t t = T0; t < T1; t += STEP, i++)
		step(&o, t, i % 2);
	cover(&o, T0 - ST_MS, T1, 3 * STEPS / 2);
	g = analyse(&o);
	assert_int_not_equal(g->certainty, PT_MEASURED);
	assert_true(g->busy_hard[0] <= 19.0 / 50 + EPS);
	assert_true(g->busy_hard[1] >= 19.0 / 50 - EPS);
	assert_true(limited(&o, "gpu.activity"));
	close_one(&o);
}

/* A quarter was measured: shares are of the whole time all the same. */
static void test_part(void **state)
{
	const struct pt_r_gpu *g;
	struct one o;

	(void)state;
	open_one(&o);
	for (uint64_t t = T0; t < T1; t += STEP)
		step(&o, t, t < T0 + STEPS / 4 * STEP);
	cover(&o, T0 - ST_MS, T0 + STEPS / 4 * STEP, 0);
	g = analyse(&o);
	assert_int_not_equal(g->certainty, PT_MEASURED);
	assert_true(fabs(g->busy_share - 19.0 / 50) < 0.05);
	assert_true(fabs(g->compute + g->copy + g->collective - g->busy_share) < 0.05);
	close_one(&o);
}

/* The last launch ran when the measuring ended: it has no record, and the time
 * behind it is not called idle. */
static void test_under_way(void **state)
{
	const struct pt_r_gpu *g;
	uint64_t at = T1 - 10 * ST_MS;
	struct one o;

	(void)state;
	open_one(&o);
	for (uint64_t t = T0; t < T1; t += STEP)
		step(&o, t, true);
	st_gpu(&o.s, "cudaLaunchKernel", PID, PID, at, 0, 0, 1, 0, 0);
	cover(&o, T0 - ST_MS, T1, 0);
	g = analyse(&o);
	assert_true(g->busy_hard[1] >= 19.0 / 50 + 0.01 - EPS);
	assert_true(g->busy_hard[0] <= 19.0 / 50 + 1e-4);
	close_one(&o);
}

/* What began later on another stream is over and has its record: what is under
 * way on this one has none, and hides behind it no less. */
static void test_under_way_beside(void **state)
{
	const struct pt_r_gpu *g;
	uint64_t at = T1 - 10 * ST_MS, t;
	struct pt_rec_act *a;
	struct one o;

	(void)state;
	open_one(&o);
	for (t = T0; t < T1; t += STEP) {
		bool last = t + STEP == T1;
		uint64_t beside = last ? at + ST_MS : t + 30 * ST_MS;

		step(&o, t, true);
		if (last) {
			st_gpu(&o.s, "cudaLaunchKernel", PID, PID, at, 0, 0, 1,
			       0, 0);
			o.number++;
		}
		st_gpu(&o.s, "cudaLaunchKernel", PID, PID, beside, 0, 0xaaa0, 1,
		       0, 0);
		a = act(&o, PT_ACT_KERNEL, beside + 1000, beside + ST_MS);
		a->stream = 9;
	}
	cover(&o, T0 - ST_MS, T1, 0);
	g = analyse(&o);
	/* 19 ms a step, 999 us beside it, and the last 10 ms */
	assert_true(g->busy_hard[1] >= 20 * 0.019 + 19 * 0.000999 + 0.010 - EPS);
	close_one(&o);
}

/* Measuring began in the middle of a launch storm on two streams: until each
 * has told its first record, older work may run. */
static void test_from_before(void **state)
{
	const struct pt_r_gpu *g;
	struct pt_rec_act *a;
	struct one o;

	(void)state;
	open_one(&o);
	st_gpu(&o.s, "cudaLaunchKernel", PID, PID, T0 + 1000, 0, 0, 1, 0, 0);
	st_gpu(&o.s, "cudaLaunchKernel", PID, PID, T0 + 2000, 0, 0xaaa0, 1, 0, 0);
	/* from here on it is measured */
	for (int i = 0; i < 10; i++) {
		uint64_t t = T0 + ST_MS + (uint64_t)i * 1000;

		st_gpu(&o.s, "cudaLaunchKernel", PID, PID, t, 0,
		       i % 2 ? 0xaaa0 : 0, 1, 0, 0);
		a = act(&o, PT_ACT_KERNEL,
			T0 + (i % 2 ? 700 : 300) * ST_MS + (uint64_t)i * ST_MS,
			T0 + (i % 2 ? 700 : 300) * ST_MS + ((uint64_t)i + 1) * ST_MS);
		a->stream = i % 2 ? 9 : 7;
	}
	cover(&o, T0 + ST_MS, T1, 0);
	g = analyse(&o);
	/* 5 ms of the first stream lie before; behind, 5 ms of 300 */
	assert_true(g->busy_hard[0] >= 0.010 - EPS);
	assert_true(g->busy_hard[1] >= 0.70);
	assert_true(g->busy_hard[1] <= 0.71);
	assert_int_not_equal(g->certainty, PT_MEASURED);
	close_one(&o);
}

/* Graphs from before the trace show their kernels. */
static void test_graphs(void **state)
{
	const struct pt_r_gpu *g;
	struct one o;

	(void)state;
	open_one(&o);
	for (uint64_t t = T0; t < T1; t += STEP) {
		st_gpu(&o.s, "cudaGraphLaunch", PID, PID, t, 0, 0, 0xfeed, 0, 0);
		st_gpu(&o.s, "cudaDeviceSynchronize", PID, PID, t + 1000,
		       t + 31 * ST_MS, 0, 0, 0, 0);
		for (uint64_t i = 0; i < 3; i++) {
			struct pt_rec_act *a =
				act(&o, PT_ACT_KERNEL, t + 2000 + i * 10 * ST_MS,
				    t + 2000 + (i + 1) * 10 * ST_MS);

			a->flags = PT_ACT_F_GRAPH;
			/* the nodes have the number of the launch */
			a->correlation = (uint32_t)((t - T0) / STEP) + 1;
		}
	}
	cover(&o, T0 - ST_MS, T1, 0);
	g = analyse(&o);
	assert_int_equal(g->certainty, PT_MEASURED);
	assert_int_equal(g->kernels, 3 * STEPS);
	assert_int_equal(g->graph_launches, STEPS);
	assert_true(fabs(g->busy_share - 0.6) < 1e-3);
	close_one(&o);
}

/* The last one's first piece is over, the second is not: one call has both. */
static void test_graph_under_way(void **state)
{
	const struct pt_r_gpu *g;
	uint64_t at = T1 - 10 * ST_MS;
	struct pt_rec_act *a;
	struct one o;

	(void)state;
	open_one(&o);
	for (uint64_t t = T0; t < T1; t += STEP)
		step(&o, t, true);
	st_gpu(&o.s, "cudaGraphLaunch", PID, PID, at, 0, 0, 0xfeed, 0, 0);
	a = act(&o, PT_ACT_KERNEL, at + 1000, at + 2 * ST_MS);
	a->flags = PT_ACT_F_GRAPH;
	cover(&o, T0 - ST_MS, T1, 0);
	g = analyse(&o);
	assert_true(g->busy_hard[0] <= 19.0 / 50 + 0.002 + EPS);
	assert_true(g->busy_hard[1] >= 19.0 / 50 + 0.009999 - EPS);
	close_one(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_none),
		cmocka_unit_test(test_part),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_under_way),
		cmocka_unit_test(test_under_way_beside),
		cmocka_unit_test(test_from_before),
		cmocka_unit_test(test_graphs),
		cmocka_unit_test(test_graph_under_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
