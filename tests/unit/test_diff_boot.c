/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is the interval of a comparison honest? Series are made with a known ratio
 * of means and known dependence; a nominal 95 % interval must hold the truth
 * about that often, and series of one kind must be told apart about as often
 * as chance allows. Every trial has its own seed, so that a run repeats.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "analysis/compare/bootstrap.h"

#define TRIALS 400
#define N_MAX 1000

static uint64_t state;

/* xorshift64*: another generator than the one under test */
static double uniform(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return ((double)((state * 0x2545f4914f6cdd1dull) >> 11) + 0.5) /
	       9007199254740992.0;
}

static double gauss(void)
{
	return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

enum kind {
	AUTOREGRESSIVE, /* of order one, with correlation phi */
	LOGNORMAL,	/* the same, skewed */
	ALTERNATING,	/* two workers deliver in turn: long, short, long */
	STALLS,		/* short steps, one in twenty takes six times as long */
	BUFFERED,	/* a queue of 4 drains and fills: moving average */
};

struct make {
	enum kind kind;
	double phi;
	size_t n, m; /* lengths of the two series */
};

static void make_series(const struct make *k, double mean, size_t n, double *v)
{
	double e = gauss(), past[4] = { gauss(), gauss(), gauss(), gauss() };
	double tail = sqrt(1 - k->phi * k->phi), sum;
	size_t i;

	for (i = 0; i < n; i++) {
		past[i % 4] = gauss();
		sum = past[0] + past[1] + past[2] + past[3];
		switch (k->kind) {
		case AUTOREGRESSIVE:
			v[i] = mean * (1 + 0.2 * e);
			break;
		case LOGNORMAL:
			v[i] = mean * exp(0.5 * e - 0.125);
			break;
		case ALTERNATING:
			v[i] = mean * (i & 1 ? 0.2 + 0.02 * gauss() :
					       1.8 + 0.3 * gauss());
			break;
		case STALLS:
			v[i] = mean * (uniform() < 0.05 ? 4.8 :
							  0.8 + 0.05 * gauss());
			break;
		case BUFFERED:
			v[i] = mean * (1 + 0.1 * sum);
			break;
		}
		e = k->phi * e + tail * gauss();
	}
}

struct rates { /* of TRIALS */
	int covered, flagged;
};

static struct rates measure(const struct make *k, uint64_t seed)
{
	static double x[N_MAX], y[N_MAX];
	struct rates r = { 0, 0 };
	struct pt_boot b;
	int t;

	for (t = 0; t < TRIALS; t++) {
		state = (seed << 32) + (uint64_t)t + 1;
		state *= 0x9e3779b97f4a7c15ull;
		make_series(k, 65, k->n, x);
		make_series(k, 50, k->m, y);
		assert_int_equal(pt_boot_ratio(x, k->n, y, k->m, &b), 0);
		assert_true(b.low <= b.value && b.value <= b.high);
		r.covered += b.low <= 1.3 && b.high >= 1.3;
		make_series(k, 65, k->m, y);
		assert_int_equal(pt_boot_ratio(x, k->n, y, k->m, &b), 0);
		r.flagged += b.low > 1 || b.high < 1;
	}
	print_message("# kind %d phi %+.1f n %zu/%zu: covers %.1f %%, flags %.1f %%\n",
		      k->kind, k->phi, k->n, k->m, 100.0 * r.covered / TRIALS,
		      100.0 * r.flagged / TRIALS);
	return r;
}

static void intervals_cover(void **unused)
{
	static const struct make k[] = {
		{ AUTOREGRESSIVE, -0.4, 200, 133 },
		{ AUTOREGRESSIVE, 0, 60, 200 },
		{ AUTOREGRESSIVE, 0, 400, 300 },
		{ AUTOREGRESSIVE, 0.4, 100, 66 },
		{ AUTOREGRESSIVE, 0.7, 200, 133 },
		{ AUTOREGRESSIVE, 0.9, 300, 300 },
		{ LOGNORMAL, 0, 100, 200 },
		{ LOGNORMAL, 0.7, 300, 150 },
		{ STALLS, 0, 200, 133 },
	};
	int flagged = 0, kinds = sizeof(k) / sizeof(*k);
	struct rates r;
	int i;

	(void)unused;
	for (i = 0; i < kinds; i++) {
		r = measure(&k[i], (uint64_t)i + 1);
		assert_true(r.covered >= 0.90 * TRIALS);
		assert_true(r.covered <= 0.99 * TRIALS);
		/* 5 %, within what 400 trials can show */
		assert_true(r.flagged <= 0.09 * TRIALS);
		flagged += r.flagged;
	}
	assert_true(flagged >= 0.03 * TRIALS * kinds);
	assert_true(flagged <= 0.07 * TRIALS * kinds);
}

/* Correlation that ends abruptly: the interval is wider than it need be, which
 * only ever hides a difference. */
static void abrupt_ends_are_on_the_safe_side(void **unused)
{
	static const struct make k = { BUFFERED, 0, 200, 133 };
	struct rates r = measure(&k, 98);

	(void)unused;
	assert_true(r.covered >= 0.95 * TRIALS);
	assert_true(r.flagged <= 0.05 * TRIALS);
}

/* Steps that alternate are far steadier than their spread suggests. */
static void alternation_is_no_noise(void **unused)
{
	static const struct make k = { ALTERNATING, 0, 120, 120 };
	static double x[120], y[120];
	struct rates r = measure(&k, 99);
	struct pt_boot b;

	(void)unused;
	assert_true(r.covered >= 0.90 * TRIALS);
	assert_true(r.flagged <= 0.09 * TRIALS);
	state = 4711;
	make_series(&k, 55, k.n, x);
	make_series(&k, 50, k.m, y);
	assert_int_equal(pt_boot_ratio(x, k.n, y, k.m, &b), 0);
	/* independent values of that spread would give 0.8 to 1.4 */
	assert_true(b.low > 1 && b.high < 1.2);
}

static void blocks_follow_the_correlation(void **unused)
{
	static double x[N_MAX];
	struct make k = { AUTOREGRESSIVE, 0, N_MAX, 0 };
	double none, some, much;

	(void)unused;
	state = 12345;
	make_series(&k, 50, N_MAX, x);
	none = pt_block_length(x, N_MAX);
	k.phi = 0.6;
	make_series(&k, 50, N_MAX, x);
	some = pt_block_length(x, N_MAX);
	k.phi = 0.95;
	make_series(&k, 50, N_MAX, x);
	much = pt_block_length(x, N_MAX);
	print_message("# block lengths %g %g %g\n", none, some, much);
	assert_true(none >= 1 && none < some && some < much);
	assert_true(much <= N_MAX / 3);
}

static void the_same_again(void **unused)
{
	static double x[N_MAX], y[N_MAX];
	struct make k = { LOGNORMAL, 0.5, N_MAX, N_MAX };
	struct pt_boot a, b;

	(void)unused;
	state = 77;
	make_series(&k, 50, N_MAX, x);
	make_series(&k, 51, N_MAX, y);
	assert_int_equal(pt_boot_ratio(x, N_MAX, y, 700, &a), 0);
	assert_int_equal(pt_boot_ratio(x, N_MAX, y, 700, &b), 0);
	assert_memory_equal(&a, &b, sizeof(a));
	/* a series is as fast as itself */
	assert_int_equal(pt_boot_ratio(x, N_MAX, x, N_MAX, &a), 0);
	assert_true(a.value == 1 && a.low < 1 && a.high > 1);
}

static void odd_series(void **unused)
{
	static double x[N_MAX], long_one[100001];
	struct pt_boot b;
	size_t i;

	(void)unused;
	for (i = 0; i < N_MAX; i++)
		x[i] = 40;
	for (i = 0; i < 100001; i++)
		long_one[i] = 20 + (double)(i % 7);
	assert_int_equal(pt_boot_ratio(x, PT_BOOT_MIN - 1, x, N_MAX, &b),
			 -ERANGE);
	assert_int_equal(pt_boot_ratio(x, N_MAX, x, 0, &b), -ERANGE);
	assert_int_equal(pt_boot_ratio(x, N_MAX, x, N_MAX, &b), 0);
	assert_true(b.low == 1 && b.high == 1);
	assert_int_equal(pt_boot_ratio(x, PT_BOOT_MIN, long_one, 100001, &b), 0);
	assert_true(b.value > 1.73 && b.value < 1.75);
	assert_true(b.low > 1.7 && b.high < 1.8);
	for (i = 0; i < N_MAX; i++)
		x[i] = 0;
	assert_int_equal(pt_boot_ratio(x, N_MAX, x, N_MAX, &b), -ERANGE);
	x[3] = INFINITY;
	assert_int_equal(pt_boot_ratio(x, N_MAX, x, N_MAX, &b), -ERANGE);
	for (i = 0; i < N_MAX; i++)
		x[i] = i == 500 ? 1e12 : 0;
	assert_int_equal(pt_boot_ratio(x, N_MAX, x, N_MAX, &b), 0);
	assert_true(isfinite(b.low) && isfinite(b.high));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(intervals_cover),
		cmocka_unit_test(abrupt_ends_are_on_the_safe_side),
		cmocka_unit_test(alternation_is_no_noise),
		cmocka_unit_test(blocks_follow_the_correlation),
		cmocka_unit_test(the_same_again),
		cmocka_unit_test(odd_series),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
