/* SPDX-License-Identifier: BSD-2-Clause */
/* A reader that is behind goes first, and no longer than that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "capture/haste.h"

#define S UINT64_C(1000000000)

static int mine(void)
{
	return getpriority(PRIO_PROCESS, 0);
}

static int in_child(int (*fn)(void))
{
	int status;
	pid_t p = fork();

	assert_true(p >= 0);
	if (!p)
		_exit(fn() + 20);
	assert_int_equal(waitpid(p, &status, 0), p);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status) - 20;
}

static void first_while_behind(void **state)
{
	struct pt_haste h;

	(void)state;
	pt_haste_open(&h);
	pt_haste_read(&h, false, 1 * S);
	assert_int_equal(mine(), 0);
	pt_haste_read(&h, true, 2 * S);
	if (!h.on) {
		print_message("this needs CAP_SYS_NICE, and a priority that nobody chose\n");
		skip();
	}
	assert_int_equal(mine(), -20);
	assert_int_equal(in_child(mine), 0); /* what it starts is in no haste */
	pt_haste_read(&h, false, 6 * S);
	assert_int_equal(mine(), -20);
	pt_haste_read(&h, true, 6 * S); /* behind again: from here */
	pt_haste_read(&h, false, 10 * S);
	assert_int_equal(mine(), -20);
	pt_haste_read(&h, false, 11 * S);
	assert_int_equal(mine(), 0);
	pt_haste_read(&h, true, 12 * S);
	assert_int_equal(mine(), -20);
	pt_haste_close(&h);
	assert_int_equal(mine(), 0);
	pt_haste_close(&h);
	assert_int_equal(mine(), 0);
}

/* A job that writes more than the reader can read takes no core from others by it. */
static void not_for_much(void **state)
{
	struct pt_haste h;
	uint64_t from = pt_clock_ns(CLOCK_THREAD_CPUTIME_ID);

	(void)state;
	pt_haste_open(&h);
	pt_haste_read(&h, true, 1 * S);
	if (!h.on) {
		print_message("this needs CAP_SYS_NICE, and a priority that nobody chose\n");
		skip();
	}
	while (pt_clock_ns(CLOCK_THREAD_CPUTIME_ID) - from < S * 7 / 10)
		;
	pt_haste_read(&h, true, 2 * S); /* 0.8 s would be too much of one */
	assert_int_equal(mine(), -20);
	pt_haste_read(&h, true, 1 * S + S / 2);
	assert_int_equal(mine(), 0);
	pt_haste_read(&h, true, 9 * S);
	assert_int_equal(mine(), 0);
}

static int niced(void)
{
	struct pt_haste h;

	if (setpriority(PRIO_PROCESS, 0, 7))
		return -1;
	pt_haste_open(&h);
	pt_haste_read(&h, true, S);
	pt_haste_close(&h);
	return mine();
}

static void chosen_by_the_user(void **state)
{
	(void)state;
	assert_int_equal(in_child(niced), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(chosen_by_the_user),
					    cmocka_unit_test(first_while_behind),
					    cmocka_unit_test(not_for_much) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
