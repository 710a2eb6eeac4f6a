/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Meetings of ranks: three ranks whose collectives are made by hand, each step of
 * 20 ms one, and what is found about who was late. Times are in us.
 */
#include <math.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/ranks/meets.h"

#define RANKS 3
#define STEPS 60
#define STEP 20000ull /* us */
#define US 1000ull
#define BASE (1000 * 1000 * US)

struct job {
	struct pt_an an;
	struct pt_meets meets;
	struct pt_model m;
	struct pt_proc p[RANKS];
	struct pt_thread th[RANKS];
};

static void call(struct pt_proc *p, uint8_t cls, uint64_t at, uint64_t us,
		 uint64_t bytes)
{
	struct pt_gpu_call c = { .begin = BASE + at * US, .cls = cls,
				 .end = BASE + (at + us) * US, .tid = p->tgid };

	c.v[0] = cls == PT_API_COLLECTIVE ? 0x1000 + p->tgid : 0;
	c.v[1] = bytes;
	assert_int_equal(pt_vec_push(&p->gpu, c), 0);
}

static void make(struct job *j)
{
	memset(j, 0, sizeof(*j));
	j->an.m = &j->m;
	j->an.meets = &j->meets;
	j->an.t0 = BASE;
	j->an.t1 = BASE + STEPS * STEP * US;
	for (unsigned r = 0; r < RANKS; r++) {
		struct pt_trainer t = { .proc = &j->p[r], .main = &j->th[r],
					.gpu_known = true };
		struct pt_dev d = { .known = true };

		j->p[r].tgid = j->th[r].tid = 100 + r;
		assert_int_equal(pt_vec_push(&t.devs, d), 0);
		assert_int_equal(pt_vec_push(&j->an.trainers, t), 0);
	}
}

static void drop(struct job *j)
{
	for (unsigned r = 0; r < RANKS; r++) {
		pt_vec_free(&j->p[r].gpu);
		pt_vec_free(&j->p[r].acts);
		pt_vec_free(&j->p[r].covers);
		pt_vec_free(&j->an.trainers.v[r].steps);
		pt_vec_free(&j->an.trainers.v[r].waits);
		pt_vec_free(&j->an.trainers.v[r].devs.v[0].idle_likely);
		pt_vec_free(&j->an.trainers.v[r].devs);
	}
	pt_vec_free(&j->an.trainers);
	pt_meets_free(&j->meets);
}

/* Rank r comes `late[r]` us behind the step's begin, having waited for data so
 * long (`data`) or idled; the device then works until all have come and 5 ms
 * more. `from[r]`: its first step that is seen. */
static void steps(struct job *j, const uint64_t late[RANKS], bool data,
		  const unsigned from[RANKS])
{
	for (unsigned r = 0; r < RANKS; r++) {
		struct pt_trainer *t = &j->an.trainers.v[r];

		for (unsigned s = from ? from[r] : 0; s < STEPS; s++) {
			uint64_t at = s * STEP + 100;
			struct pt_step step = {
				.begin = BASE + at * US,
				.wait_begin = BASE + at * US,
				.wait_end = BASE + (at + (data ? late[r] : 0)) * US,
				.end = BASE + (at + STEP) * US };
			struct pt_fetch wait = { .begin = step.wait_begin,
						 .end = step.wait_end,
						 .worker = -1 };
			struct pt_span idle = { step.begin, step.begin + late[r] * US };

			call(&j->p[r], PT_API_COLLECTIVE, at + late[r], 5, 4096);
			call(&j->p[r], PT_API_SYNC_STREAM, at + late[r] + 10,
			     STEP - late[r] - 300, 0);
			assert_int_equal(pt_vec_push(&t->steps, step), 0);
			assert_int_equal(pt_vec_push(&t->waits, wait), 0);
			if (late[r])
				assert_int_equal(pt_vec_push(
					&t->devs.v[0].idle_likely, idle), 0);
		}
	}
}

/* It never waits long for its device. */
static void sync_at_once(struct pt_proc *p)
{
	for (size_t i = 0; i < p->gpu.n; i++)
		if (pt_call_is_sync(&p->gpu.v[i]))
			p->gpu.v[i].begin = p->gpu.v[i].end;
}

static void test_late_for_data(void **state)
{
	struct job j;
	uint64_t excess;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 8000, 50 }, true, NULL);
	assert_int_equal(pt_find_meets(&j.an), 0);
	assert_true(j.meets.known && j.meets.sure && !j.meets.measured);
	assert_int_equal(j.meets.n, STEPS);
	assert_int_equal(pt_meets_worst(&j.an, &excess), 1);
	/* 7.95 ms behind the last but one, at each meeting but the first */
	assert_int_equal(excess, (STEPS - 1) * 7950 * US);
	assert_int_equal(j.meets.rank[1].last, STEPS - 1);
	assert_int_equal(j.meets.rank[1].held_ns, (STEPS - 1) * 7950 * US);
	assert_int_equal(pt_late_reason(&j.meets.rank[1]), PT_LATE_DATA);
	assert_int_equal(j.meets.rank[0].waits_ns, (STEPS - 1) * 8000 * US);
	assert_int_equal(j.meets.rank[1].waits_ns, 0);
	assert_true(fabs(j.meets.rank[1].late_ms.p50 - 8) < 1e-9);
	drop(&j);
}

/* 5 of the 8 ms are a wait for data. From one meeting to the next the late rank waits
 * for its device for 11.7 ms, and the others for 11.71 ms of 12. A wait for the device
 * in the midst of the one for data is for data. */
static void test_parts_of_being_late(void **state)
{
	const int64_t n = STEPS - 1;
	struct pt_meet_rank *r;
	struct pt_trainer *t;
	struct job j;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 8000, 0 }, true, NULL);
	t = &j.an.trainers.v[1];
	for (size_t s = 0; s < STEPS; s++) {
		t->waits.v[s].end -= 3000 * US;
		t->steps.v[s].wait_end -= 3000 * US;
		call(&j.p[1], PT_API_SYNC_STREAM, s * STEP + 2000, 1000, 0);
	}
	assert_int_equal(pt_find_meets(&j.an), 0);
	r = &j.meets.rank[1];
	assert_int_equal(r->part_ns[PT_LATE_DATA], n * 5000 * (int64_t)US);
	assert_int_equal(r->part_ns[PT_LATE_GPU], n * -10 * (int64_t)US);
	assert_int_equal(r->part_ns[PT_LATE_WRITE], 0);
	assert_int_equal(r->part_ns[PT_LATE_HOST], n * 3010 * (int64_t)US);
	assert_int_equal(pt_late_reason(r), PT_LATE_DATA);
	assert_int_equal(r->cost_ns, n * 8000 * US);
	assert_string_equal(pt_late_part_name(PT_LATE_DATA), "data_wait");
	drop(&j);
}

/* Two come late, by other times: the later one holds the others up for what lies between. */
static void test_late_behind_another(void **state)
{
	struct job j;
	uint64_t excess;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 3000, 7000 }, false, NULL);
	assert_int_equal(pt_find_meets(&j.an), 0);
	assert_int_equal(pt_meets_worst(&j.an, &excess), 2);
	assert_int_equal(j.meets.rank[2].held_ns, (STEPS - 1) * 4000 * US);
	assert_int_equal(j.meets.rank[1].held_ns, 0);
	assert_int_equal(excess, (STEPS - 1) * 4000 * US);
	assert_int_equal(j.meets.rank[0].waits_ns, (STEPS - 1) * 7000 * US);
	assert_int_equal(j.meets.rank[1].waits_ns, (STEPS - 1) * 4000 * US);
	assert_true(fabs(j.meets.rank[1].late_ms.p50 - 3) < 1e-9);
	drop(&j);
}

/* What the device has to do is not known: what the rank holds up is lost. */
static void test_device_not_known(void **state)
{
	struct job j;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 8000, 0 }, true, NULL);
	for (unsigned r = 0; r < RANKS; r++) {
		j.an.trainers.v[r].gpu_known = false;
		j.an.trainers.v[r].devs.v[0].idle_likely.n = 0;
	}
	sync_at_once(&j.p[1]);
	assert_int_equal(pt_find_meets(&j.an), 0);
	assert_int_equal(j.meets.rank[1].held_ns, (STEPS - 1) * 8000 * US);
	assert_int_equal(j.meets.rank[1].cost_ns, (STEPS - 1) * 8000 * US);
	drop(&j);
}

/* The late rank writes its weights meanwhile. */
static void test_late_for_a_checkpoint(void **state)
{
	struct job j;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 0, 6000 }, false, NULL);
	for (size_t s = 0; s < STEPS; s++) {
		struct pt_span w = { BASE + (s * STEP + 100) * US,
				     BASE + (s * STEP + 6100) * US };

		assert_int_equal(pt_vec_push(&j.an.trainers.v[2].writing, w), 0);
	}
	assert_int_equal(pt_find_meets(&j.an), 0);
	assert_int_equal(pt_late_reason(&j.meets.rank[2]), PT_LATE_WRITE);
	assert_int_equal(j.meets.rank[2].part_ns[PT_LATE_WRITE],
			 (STEPS - 1) * 6000 * (int64_t)US);
	assert_int_equal(j.meets.rank[2].part_ns[PT_LATE_DATA], 0);
	pt_vec_free(&j.an.trainers.v[2].writing);
	drop(&j);
}

static void test_late_for_its_host(void **state)
{
	struct job j;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 0, 6000 }, false, NULL);
	assert_int_equal(pt_find_meets(&j.an), 0);
	assert_int_equal(pt_late_reason(&j.meets.rank[2]), PT_LATE_HOST);
	assert_int_equal(j.meets.rank[2].cost_ns, (STEPS - 1) * 6000 * US);
	drop(&j);
}

/* Calls are late, but the device has work: nobody loses anything. */
static void test_late_calls_that_cost_nothing(void **state)
{
	struct job j;
	uint64_t excess;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 8000, 0 }, true, NULL);
	j.an.trainers.v[1].devs.v[0].idle_likely.n = 0;
	sync_at_once(&j.p[1]);
	assert_int_equal(pt_find_meets(&j.an), 0);
	assert_int_equal(j.meets.rank[1].held_ns, (STEPS - 1) * 8000 * US);
	assert_true(j.meets.rank[1].cost_ns < STEPS * 200 * US);
	pt_meets_worst(&j.an, &excess);
	assert_true(excess < STEPS * 200 * US);
	drop(&j);
}

static void test_last_by_nothing(void **state)
{
	struct job j;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 10, 40 }, false, NULL);
	assert_int_equal(pt_find_meets(&j.an), 0);
	assert_true(j.meets.known);
	assert_int_equal(j.meets.clear, 0);
	assert_int_equal(j.meets.rank[2].last, 0);
	assert_int_equal(j.meets.rank[2].late_ms.n, 0);
	drop(&j);
}

/* Each rank was seen from another step on. */
static void test_other_begins(void **state)
{
	struct job j;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 0, 9000 }, true, (unsigned[]){ 3, 0, 7 });
	assert_int_equal(pt_find_meets(&j.an), 0);
	assert_true(j.meets.known && j.meets.sure);
	assert_int_equal(j.meets.n, STEPS - 7);
	assert_int_equal(j.meets.rank[2].last, STEPS - 8);
	assert_int_equal(j.meets.rank[0].last + j.meets.rank[1].last, 0);
	drop(&j);
}

static void test_other_calls(void **state)
{
	struct job j;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 0, 0 }, true, NULL);
	for (size_t i = 0; i < j.p[1].gpu.n; i += 4) /* every second one */
		j.p[1].gpu.v[i].v[1] = 8192;
	assert_int_equal(pt_find_meets(&j.an), 0);
	assert_false(j.meets.known);
	assert_non_null(j.meets.why);
	drop(&j);
}

static void test_lost_records(void **state)
{
	struct job j;
	struct pt_thread *th;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 0, 5000 }, true, NULL);
	th = &j.th[1];
	th->lost = 1;
	assert_int_equal(pt_vec_push(&j.p[1].threads, th), 0);
	assert_int_equal(pt_find_meets(&j.an), 0);
	assert_false(j.meets.known);
	assert_non_null(strstr(j.meets.why, "lost"));
	pt_vec_free(&j.p[1].threads);
	drop(&j);
}

/* Without a wait for the device nothing tells which shift is right. */
static void test_never_waits(void **state)
{
	struct job j;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 0, 9000 }, true, NULL);
	for (unsigned r = 0; r < RANKS; r++)
		for (size_t i = 0; i < j.p[r].gpu.n; i++)
			if (pt_call_is_sync(&j.p[r].gpu.v[i]))
				j.p[r].gpu.v[i].cls = PT_API_QUERY;
	assert_int_equal(pt_find_meets(&j.an), 0);
	assert_true(j.meets.known);
	assert_false(j.meets.sure);
	drop(&j);
}

/* A slow GPU: calls in time, the kernel begins late, and all end together. */
static void test_slow_device(void **state)
{
	static const char name[] = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
	static const uint64_t late[RANKS] = { 0, 0, 7000 };
	struct pt_name n[RANKS];
	struct job j;
	uint64_t excess;

	(void)state;
	make(&j);
	steps(&j, (uint64_t[]){ 0, 0, 0 }, true, NULL);
	memset(n, 0, sizeof(n));
	for (unsigned r = 0; r < RANKS; r++) {
		struct pt_act_cover c = { j.an.t0, j.an.t1, 0, true };
		struct pt_span idle;

		n[r].key.key = 7;
		n[r].key.tgid = j.p[r].tgid;
		n[r].key.space = PT_NAME_ACT;
		n[r].name = name;
		HASH_ADD(hh, j.m.names, key, sizeof(n[r].key), &n[r]);
		assert_int_equal(pt_vec_push(&j.p[r].covers, c), 0);
		for (unsigned s = 0; s < STEPS; s++) {
			uint64_t at = BASE + (s * STEP + 5000) * US;
			struct pt_act a = { .begin = at + late[r] * US,
					    .end = at + 8000 * US, .name = 7,
					    .what = PT_ACT_KERNEL };

			assert_int_equal(pt_vec_push(&j.p[r].acts, a), 0);
			idle.begin = a.end;
			idle.end = a.end + 2000 * US;
			assert_int_equal(pt_vec_push(
				&j.an.trainers.v[r].devs.v[0].idle_likely,
				idle), 0);
		}
	}
	assert_int_equal(pt_find_meets(&j.an), 0);
	assert_true(j.meets.known && j.meets.measured && j.meets.sure);
	assert_int_equal(pt_meets_worst(&j.an, &excess), 2);
	assert_int_equal(excess, (STEPS - 1) * 7000 * US);
	assert_int_equal(pt_late_reason(&j.meets.rank[2]), PT_LATE_GPU);
	HASH_CLEAR(hh, j.m.names);
	drop(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late_for_data),
		cmocka_unit_test(test_parts_of_being_late),
		cmocka_unit_test(test_late_behind_another),
		cmocka_unit_test(test_device_not_known),
		cmocka_unit_test(test_late_for_a_checkpoint),
		cmocka_unit_test(test_late_for_its_host),
		cmocka_unit_test(test_late_calls_that_cost_nothing),
		cmocka_unit_test(test_last_by_nothing),
		cmocka_unit_test(test_other_begins),
		cmocka_unit_test(test_other_calls),
		cmocka_unit_test(test_lost_records),
		cmocka_unit_test(test_never_waits),
		cmocka_unit_test(test_slow_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
