/* SPDX-License-Identifier: BSD-2-Clause */
/* Activity records in the model: order, covers, which call, sums, nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "model/acts.h"
#include "model/names.h"
#include "stream.h"

#define T0 (100 * ST_S)
#define P 500u
#define P2 501u /* its second thread */

static struct pt_rec_act act(uint16_t what, uint64_t begin, uint64_t end,
			     uint32_t correlation)
{
	struct pt_rec_act a = {
		.hdr = { .size = sizeof(a), .kind = PT_REC_ACT, .ts = end,
			 .tid = P, .tgid = P },
		.begin = begin, .end = end, .correlation = correlation,
		.what = what,
	};

	return a;
}

static int feed(struct pt_model *m, struct pt_rec_act a)
{
	return pt_model_feed(m, &a, sizeof(a));
}

static struct pt_model *begin(void)
{
	struct pt_model *m = pt_model_new();

	assert_non_null(m);
	return m;
}

static void test_order_and_cover(void **state)
{
	struct pt_model *m = begin();
	const struct pt_proc *p;

	(void)state;
	assert_int_equal(feed(m, act(PT_ACT_KERNEL, T0 + 30, T0 + 40, 3)), 0);
	assert_int_equal(feed(m, act(PT_ACT_KERNEL, T0 + 10, T0 + 20, 1)), 0);
	assert_int_equal(feed(m, act(PT_ACT_COPY, T0 + 20, T0 + 30, 2)), 0);
	/* the cover grows; an older word of it changes nothing */
	assert_int_equal(feed(m, act(PT_ACT_COVER, T0, T0 + 50, 0)), 0);
	assert_int_equal(feed(m, act(PT_ACT_COVER, T0, T0 + 30, 0)), 0);
	assert_int_equal(pt_model_finish(m), 0);
	p = pt_model_proc(m, P);
	assert_int_equal(p->acts.n, 3);
	assert_int_equal(p->acts.v[0].correlation, 1);
	assert_int_equal(p->acts.v[1].correlation, 2);
	assert_int_equal(p->acts.v[2].correlation, 3);
	assert_int_equal(p->covers.n, 1);
	assert_int_equal(p->covers.v[0].begin, T0);
	assert_int_equal(p->covers.v[0].end, T0 + 50);
	assert_int_equal(p->covers.v[0].lost, 0);
	assert_false(p->covers.v[0].whole);
	pt_model_free(m);
}

static void test_nonsense(void **state)
{
	struct pt_model *m = begin();
	struct pt_rec_act a = act(PT_ACT_KERNEL, T0 + 2, T0 + 1, 1);

	(void)state;
	assert_int_equal(feed(m, a), -EINVAL); /* ends before it begins */
	a = act(PT_ACT_KERNEL, T0, T0 + 1, 1);
	a.device = UINT32_MAX;
	assert_int_equal(feed(m, a), -EINVAL);
	a = act(PT_ACT_KERNEL, T0, UINT64_MAX, 1);
	a.hdr.ts = T0;
	assert_int_equal(feed(m, a), -EINVAL);
	a = act(PT_ACT_KERNEL, T0, T0 + 1, 1);
	assert_int_equal(pt_model_feed(m, &a, sizeof(a) - 8), -EINVAL);
	a = act(200, T0, T0 + 1, 1); /* of a later version */
	assert_int_equal(feed(m, a), 0);
	a = act(PT_ACT_SYNC, T0, T0 + 1, 1);
	a.device = UINT32_MAX; /* CUPTI does not say, and it is no loss */
	assert_int_equal(feed(m, a), 0);
	assert_int_equal(m->malformed, 4);
	assert_int_equal(pt_model_finish(m), 0);
	assert_int_equal(pt_model_proc(m, P)->acts.n, 0);
	pt_model_free(m);
}

static void test_trim(void **state)
{
	struct pt_model *m = begin();
	struct pt_rec_mark mark = {
		.hdr = { .size = sizeof(mark), .kind = PT_REC_MARK, .ts = T0 },
		.mark = PT_MARK_BEGIN,
	};
	uint64_t before;

	(void)state;
	pt_model_feed(m, &mark, sizeof(mark));
	for (uint64_t i = 0; i < 1000; i++)
		feed(m, act(PT_ACT_KERNEL, T0 + i * 100, T0 + i * 100 + 50,
			    (uint32_t)i + 1));
	/* what is alive makes the model's time go on */
	struct pt_rec_exit e = {
		.hdr = { .size = sizeof(e), .kind = PT_REC_EXIT,
			 .ts = T0 + 100000, .tid = P2, .tgid = P },
	};
	pt_model_feed(m, &e, sizeof(e));
	before = pt_model_bytes(m);
	assert_int_equal(pt_model_trim(m, before / 2), 0);
	assert_true(pt_model_bytes(m) < before * 3 / 4);
	assert_in_range(pt_model_proc(m, P)->acts.n, 490, 510);
	assert_int_equal(pt_model_finish(m), 0);
	pt_model_free(m);
}

/* Two threads launch by turns; one launch fails, one call copies nothing, and
 * the first launch came before the agent. */
static void test_join(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m = begin();
	const struct pt_proc *p;
	struct pt_rec_act a;

	(void)state;
	st_task(&s, T0, P, P, 1, "job");
	st_task(&s, T0, P, P2, 1, "job");
#define LAUNCH(tid, at, f)                                                     \
	st_gpu(&s, "cudaLaunchKernel", P, tid, at, 0, 0, f, 0, 0)
#define COPY(tid, at, bytes)                                                   \
	st_gpu(&s, "cudaMemcpyAsync", P, tid, at, 0, 0, 0, bytes, 1)
	LAUNCH(P, T0 + 1000, 0xa);
	LAUNCH(P, T0 + 3000, 0xb);
	COPY(P2, T0 + 4000, 0);	   /* of nothing */
	COPY(P2, T0 + 5000, 4096);
	LAUNCH(P2, T0 + 6000, 0xc);
	LAUNCH(P, T0 + 7000, 0xd);
	st_window(&s, T0, T0 + ST_MS);
	st_seal(&s);
	assert_int_equal(st_feed(&s, m), 0);
	assert_int_equal(feed(m, act(PT_ACT_COVER, T0 + 2000, T0 + 90000, 0)), 0);
	feed(m, act(PT_ACT_KERNEL, T0 + 20000, T0 + 30000, 7));
	a = act(PT_ACT_COPY, T0 + 5100, T0 + 9000, 9);
	a.bytes = 4096;
	feed(m, a);
	feed(m, act(PT_ACT_KERNEL, T0 + 30000, T0 + 31000, 10));
	feed(m, act(PT_ACT_KERNEL, T0 + 31000, T0 + 32000, 11));
	assert_int_equal(pt_model_finish(m), 0);
	p = pt_model_proc(m, P);
	assert_int_equal(p->acts.n, 4);
	for (size_t i = 0; i < p->acts.n; i++) {
		const struct pt_act *x = &p->acts.v[i];
		uint32_t tid = pt_act_tid(p, x);
		uint64_t v = x->call < p->gpu.n ? p->gpu.v[x->call].v[0] : 0;

		switch (x->correlation) {
		case 7:
			assert_int_equal(tid, P);
			assert_int_equal(v, 0xb);
			break;
		case 9:
			assert_int_equal(tid, P2);
			break;
		case 10:
			assert_int_equal(tid, P2);
			assert_int_equal(v, 0xc);
			break;
		case 11:
			assert_int_equal(tid, P);
			assert_int_equal(v, 0xd);
			break;
		default:
			fail();
		}
	}
	pt_model_free(m);
	st_free(&s);
}

static void test_collective_names(void **state)
{
	(void)state;
	assert_true(pt_name_is_collective(
		"_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LLv"));
	assert_false(pt_name_is_collective("_Z6matmulPf"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_and_cover),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_trim),
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_collective_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
