/* SPDX-License-Identifier: BSD-2-Clause */
/* Is one file slower than others of its size? On made-up visits whose truth is how
 * they were drawn. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"
#include "model/model.h"

#define DEV 0x800001u
#define FILES 20u
#define VISITS 12u
#define SLOW 7u /* the inode that is not like the others */

struct world {
	struct pt_model *m;
	struct pt_an an;
	struct pt_trainer t;
	pt_visits v;
	struct pt_item item;
	uint64_t seed, now;
};

static double rnd(struct world *w)
{
	w->seed = w->seed * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(w->seed >> 11) / 9007199254740992.0;
}

/* exp of a normal deviate: times of storage have a long tail. */
static double tail(struct world *w, double sigma)
{
	return exp(sigma * sqrt(-2 * log(1 - rnd(w))) *
		   cos(6.283185307179586 * rnd(w)));
}

static void begin(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->m = pt_model_new();
	assert_non_null(w->m);
	w->an.m = w->m;
	w->an.th = &pt_thresholds_default;
	w->seed = seed * 977 + 5;
}

static void end(struct world *w)
{
	pt_vec_free(&w->v);
	pt_vec_free(&w->t.charges);
	pt_model_free(w->m);
}

static void visit(struct world *w, uint64_t inode, uint64_t bytes, double ms)
{
	struct pt_visit x = { w->now, w->now + (uint64_t)(ms * 1e6),
			      (uint64_t)(ms * 1e6), inode, bytes, DEV };
	struct pt_charge c = { .ns = x.ns, .pid = 2, .tid = 2, .dev = DEV,
			       .inode = inode, .cause = PT_CAUSE_DISK };

	w->now = x.end + 1000;
	assert_int_equal(pt_vec_push(&w->v, x), 0);
	assert_int_equal(pt_vec_push(&w->t.charges, c), 0);
}

/* Each file so often, of one size; SLOW `times` as large and `slower`. */
static void draw(struct world *w, double ms, double sigma, double times,
		 double slower, unsigned slow_visits)
{
	unsigned f, k;

	for (k = 0; k < VISITS; k++)
		for (f = 1; f <= FILES; f++) {
			if (f == SLOW && k >= slow_visits)
				continue;
			visit(w, f, f == SLOW ? (uint64_t)(100000 * times) : 100000,
			      ms * tail(w, sigma) *
			      (f == SLOW ? slower * times : 1));
		}
}

static void ask(struct world *w)
{
	assert_int_equal(pt_compare_files(&w->an, &w->t, &w->v, &w->item), 0);
}

static void test_slow(void **state)
{
	struct world w;
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= 5; seed++) {
		begin(&w, seed);
		draw(&w, 5, 0.5, 1, 8, VISITS);
		ask(&w);
		assert_true(w.item.repeated);
		assert_int_equal(w.item.inode, SLOW);
		assert_int_equal(w.item.dev, DEV);
		assert_int_equal(w.item.waits, VISITS);
		assert_null(w.item.thread);
		assert_true(w.item.slower > 4 && w.item.slower < 16);
		assert_true(w.item.ms >= w.item.usual_ms);
		/* 8 of 27 parts of the waiting */
		assert_true(w.item.slow_share > 0.15 && w.item.slow_share < 0.5);
		end(&w);
	}
}

/* Fifty times as large and as long. */
static void test_large(void **state)
{
	struct world w;
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= 20; seed++) {
		begin(&w, seed);
		draw(&w, 5, 0.5, 50, 1, VISITS);
		ask(&w);
		assert_false(w.item.repeated);
		end(&w);
		/* ... above a second: named, and found to be as fast */
		begin(&w, seed);
		draw(&w, 5, 0.2, 400, 1, 1);
		w.item.thread = (const struct pt_thread *)&w;
		w.item.inode = SLOW;
		w.item.dev = DEV;
		w.item.ms = 2000;
		ask(&w);
		assert_non_null(w.item.thread);
		assert_true(w.item.slower > 0.5 && w.item.slower < 2);
		assert_true(w.item.bytes == 4e7);
		end(&w);
	}
}

/* A small one among large ones is slow when it takes no less than they do. */
static void test_small(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 3);
	draw(&w, 5, 0.3, 0.01, 100, VISITS);
	ask(&w);
	assert_false(w.item.repeated);
	end(&w);
	begin(&w, 3);
	draw(&w, 5, 0.3, 0.01, 800, VISITS);
	ask(&w);
	assert_true(w.item.repeated);
	assert_int_equal(w.item.inode, SLOW);
	end(&w);
}

/* No file is slow; the times have a long tail. */
static void test_chance(void **state)
{
	struct world w;
	uint64_t seed;
	unsigned found = 0;

	(void)state;
	for (seed = 1; seed <= 300; seed++) {
		begin(&w, seed);
		draw(&w, 20, 1.0, 1, 1, seed % VISITS + 1);
		ask(&w);
		found += w.item.repeated;
		end(&w);
	}
	assert_true(found <= 3);
}

static void test_too_little(void **state)
{
	struct world w;
	size_t i;

	(void)state;
	begin(&w, 1); /* twice is no habit */
	draw(&w, 5, 0.3, 1, 20, 2);
	ask(&w);
	assert_false(w.item.repeated);
	end(&w);
	begin(&w, 1); /* slower, and still below 10 ms: nobody's concern */
	draw(&w, 0.2, 0.3, 1, 20, VISITS);
	ask(&w);
	assert_false(w.item.repeated);
	end(&w);
	begin(&w, 1); /* how much was read is not known */
	draw(&w, 5, 0.3, 1, 20, VISITS);
	for (i = 0; i < w.v.n; i++)
		w.v.v[i].bytes = 0;
	ask(&w);
	assert_false(w.item.repeated);
	assert_true(isnan(w.item.slower));
	end(&w);
	begin(&w, 1); /* no other file */
	for (i = 0; i < 30; i++)
		visit(&w, SLOW, 100000, 50);
	ask(&w);
	assert_false(w.item.repeated);
	end(&w);
	begin(&w, 1); /* no file at all */
	ask(&w);
	assert_false(w.item.repeated);
	assert_int_equal(w.item.waits, 0);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_chance),
		cmocka_unit_test(test_too_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
