/* SPDX-License-Identifier: BSD-2-Clause */
/* Filters of another process, instruction by instruction, read by one that has its own. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "capture/seccomp.h"

#define RET(v) BPF_STMT(BPF_RET | BPF_K, v)
static const struct sock_filter allow[] = { RET(SECCOMP_RET_ALLOW) };
static struct sock_filter longest[BPF_MAXINSNS];

/* A child that has set these filters, one after the other; it waits to be killed. */
static pid_t filtered(const struct sock_filter *const *f, const size_t *len, size_t n)
{
	struct sock_fprog p;
	int ready[2];
	char byte = 1;
	pid_t pid;
	size_t i;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
			byte = 0;
		for (i = 0; i < n; i++) {
			p.len = (unsigned short)len[i];
			p.filter = (struct sock_filter *)(uintptr_t)f[i];
			if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
				byte = 0;
		}
		if (write(ready[1], &byte, 1) == 1)
			pause();
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static struct pt_seccomp *reader(void)
{
	struct pt_seccomp *s = pt_seccomp_open();

	if (!s) {
		print_message("# %s\n", strerror(errno));
		skip();
	}
	return s;
}

static void last_one_first(void **state)
{
	const struct sock_filter *const f[] = { longest, allow };
	const size_t len[] = { BPF_MAXINSNS, 1 };
	struct pt_seccomp *s = reader();
	const struct sock_filter *code;
	size_t i;
	pid_t pid;

	(void)state;
	for (i = 0; i < BPF_MAXINSNS - 1; i++)
		longest[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, (uint32_t)i);
	longest[i] = allow[0];
	pid = filtered(f, len, 2);
	assert_int_equal(pt_seccomp_filter(s, pid, 0, &code), 1);
	assert_memory_equal(code, allow, sizeof(allow));
	assert_int_equal(pt_seccomp_filter(s, pid, 1, &code), BPF_MAXINSNS);
	assert_memory_equal(code, longest, sizeof(longest));
	assert_int_equal(pt_seccomp_filter(s, pid, 2, &code), 0);
	assert_int_equal(pt_seccomp_filter(s, pid, 1000, &code), -E2BIG);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(pt_seccomp_filter(s, pid, 0, &code), -ESRCH);
	pt_seccomp_close(s);
}

static void one_without(void **state)
{
	struct pt_seccomp *s = reader();
	const struct sock_filter *code;
	pid_t pid = filtered(NULL, NULL, 0);

	(void)state;
	assert_int_equal(pt_seccomp_filter(s, pid, 0, &code), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	pt_seccomp_close(s);
}

/* As pipetrace is itself: ptrace() would tell it nothing. */
static void by_one_that_is_filtered(void **state)
{
	const struct sock_filter *const f[] = { allow };
	const size_t len[] = { 1 };
	const struct sock_fprog own = { 1, (struct sock_filter *)(uintptr_t)allow };
	const struct sock_filter *code;
	struct pt_seccomp *s;
	int status, bad = 0;
	pid_t pid, child;

	(void)state;
	pt_seccomp_close(reader());
	pid = filtered(f, len, 1);
	child = fork();
	if (!child) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &own))
			_exit(2);
		s = pt_seccomp_open();
		bad = !s || pt_seccomp_filter(s, pid, 0, &code) != 1 ||
		      memcmp(code, allow, sizeof(allow));
		pt_seccomp_close(s);
		_exit(bad);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(last_one_first),
		cmocka_unit_test(one_without),
		cmocka_unit_test(by_one_that_is_filtered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
