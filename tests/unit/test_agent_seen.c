/* SPDX-License-Identifier: BSD-2-Clause */
/* Which processes a search for jobs looks into, and how often. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/seen.h"

struct look {
	pid_t job, of_job; /* interesting; of a job that is known */
	unsigned looked;
};

static bool known(void *ctx, const struct pt_process *p)
{
	return p->pid == ((struct look *)ctx)->of_job;
}

static bool interesting(void *ctx, const struct pt_process *p)
{
	struct look *l = ctx;

	l->looked++;
	return p->pid == l->job;
}

static int news(struct pt_seen *s, struct pt_process *p, size_t n, double boot,
		struct look *l)
{
	struct pt_tree t = { .p = p, .n = n };

	l->looked = 0;
	return pt_seen_news(s, &t, boot, known, interesting, l);
}

static void once_and_again(void **state)
{
	uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
	struct pt_process p[4] = { { .pid = 10, .start_ticks = 1 * hz },
				   { .pid = 20, .start_ticks = 2000 * hz },
				   { .pid = 30, .start_ticks = 2000 * hz },
				   { .pid = 40, .start_ticks = 2100 * hz } };
	struct look l = { .job = 30, .of_job = 20 };
	struct pt_seen s = { 0 };

	(void)state;
	assert_int_equal(news(&s, p, 3, 2010, &l), 1);
	assert_int_equal(l.looked, 2); /* not at the known job's */
	/* the old one was looked at, the other one was told */
	assert_int_equal(news(&s, p, 3, 2020, &l), 0);
	assert_int_equal(l.looked, 0);
	/* a young one each time: it may load a library yet */
	assert_int_equal(news(&s, p, 4, 2110, &l), 0);
	assert_int_equal(l.looked, 1);
	l.job = 40;
	assert_int_equal(news(&s, p, 4, 2120, &l), 1);
	assert_int_equal(news(&s, p, 4, 2130, &l), 0);
	/* the job is not known any more: its processes are looked at again */
	l.of_job = 0;
	assert_int_equal(news(&s, p, 4, 2140, &l), 0);
	assert_int_equal(l.looked, 1);
	/* until they are old */
	assert_int_equal(news(&s, p, 4, 2800, &l), 0);
	assert_int_equal(l.looked, 1);
	assert_int_equal(news(&s, p, 4, 2810, &l), 0);
	assert_int_equal(l.looked, 0);
	/* another process with the number of one that was told */
	l.job = 30;
	p[2].start_ticks = 2805 * hz;
	assert_int_equal(news(&s, p, 4, 2815, &l), 1);
	/* all are gone, and come back as others */
	assert_int_equal(news(&s, p, 0, 2820, &l), 0);
	assert_int_equal(news(&s, p, 4, 2820, &l), 1);
	assert_int_equal(l.looked, 4);
	pt_seen_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(once_and_again) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
