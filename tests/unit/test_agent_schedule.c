/* SPDX-License-Identifier: BSD-2-Clause */
/* When jobs are sampled, and how the agent keeps to its budget. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "agent/schedule.h"

static void aligned_nodes_sample_together(void **state)
{
	struct pt_schedule a = { .interval = 60, .sample = 5, .aligned = true,
				 .node = pt_schedule_hash("a") }, b = a;

	(void)state;
	b.node = pt_schedule_hash("b");
	assert_true(pt_schedule_next(&a, 1, 1000.5) == 1020);
	assert_true(pt_schedule_next(&b, 2, 1019.9) == 1020);
	assert_true(pt_schedule_next(&a, 1, 1020) == 1080);
}

/* 2,000 nodes: each tenth of the interval has about a tenth of them. */
static void others_spread(void **state)
{
	unsigned bin[10] = { 0 }, i;

	(void)state;
	for (i = 0; i < 2000; i++) {
		char name[32];
		struct pt_schedule s = { .interval = 60, .sample = 5 };
		double t, again;

		snprintf(name, sizeof(name), "node%u", i);
		s.node = pt_schedule_hash(name);
		t = pt_schedule_next(&s, 7, 6000);
		assert_true(t > 6000 && t <= 6055);
		/* one in each interval, inside it, at another place each time */
		again = pt_schedule_next(&s, 7, t);
		assert_true(again > 6060 && again <= 6115);
		assert_true(fabs(again - t - 60) > 1e-9);
		assert_true(pt_schedule_next(&s, 7, t - 1e-3) == t);
		bin[(unsigned)((t - 6000) / 5.5001)]++;
	}
	for (i = 0; i < 10; i++)
		assert_true(bin[i] > 140 && bin[i] < 260);
}

static void the_budget_holds(void **state)
{
	struct pt_budget b = PT_BUDGET_OPEN(0.01);
	double cpu_of_a_sample = 0.3, spent = 0, wall = 0;
	int i;

	(void)state;
	/* 8 jobs, 0.3 s of CPU each in a minute: 4 % of a core */
	for (i = 0; i < 200; i++) {
		double span = 60 * b.stretch;

		pt_budget_spent(&b, 8 * cpu_of_a_sample, span);
		if (i > 100) {
			spent += 8 * cpu_of_a_sample;
			wall += 60 * b.stretch;
		}
	}
	assert_true(spent / wall <= 0.0105);
	assert_true(spent / wall > 0.006); /* and is not left unused */
	/* the jobs go: back to the rate that was asked for */
	for (i = 0; i < 100; i++)
		pt_budget_spent(&b, 0.01, 60 * b.stretch);
	assert_true(b.stretch == 1);
	/* one dear sample cannot stop it for ever */
	pt_budget_spent(&b, 1e9, 60);
	assert_true(b.stretch == b.stretch_max);
	assert_false(pt_budget_spent(&b, NAN, 60));
	assert_false(pt_budget_spent(&b, 1, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(aligned_nodes_sample_together),
		cmocka_unit_test(others_spread),
		cmocka_unit_test(the_budget_holds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
