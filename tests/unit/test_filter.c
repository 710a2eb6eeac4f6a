/* SPDX-License-Identifier: BSD-2-Clause */
/* What each filter of system calls refuses, and what it leaves: tried in a child. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/privileges.h"

#define READ_MEMORY 1u
#define OPEN_READ 2u
#define OPEN_WRITE 4u
#define OPEN_BOTH 8u
#define OPEN_CUT 16u
#define MAKE 32u
#define REMOVE 64u
#define SOCKET 128u
#define PAIR 256u
#define FORK 512u
#define MOUNT 1024u

static char path[] = "/tmp/pt-test-filter-XXXXXX";

static unsigned opens(int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static unsigned reads_memory(void)
{
	char from[4] = "abc", to[4];
	struct iovec a = { to, 4 }, b = { from, 4 };

	return process_vm_readv(getpid(), &a, 1, &b, 1, 0) == 4;
}

static unsigned forks(void)
{
	pid_t p = fork();

	if (!p)
		_exit(0);
	return p > 0 && waitpid(p, NULL, 0) == p;
}

static unsigned may(void)
{
	int pair[2], fd = socket(AF_UNIX, SOCK_STREAM, 0);
	unsigned can = fd >= 0 ? SOCKET : 0;

	can |= reads_memory() ? READ_MEMORY : 0;
	can |= opens(O_RDONLY) ? OPEN_READ : 0;
	can |= opens(O_WRONLY) ? OPEN_WRITE : 0;
	can |= opens(O_RDWR) ? OPEN_BOTH : 0;
	can |= opens(O_RDONLY | O_TRUNC) ? OPEN_CUT : 0;
	can |= opens(O_RDONLY | O_CREAT) ? MAKE : 0;
	can |= socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) ? 0 : PAIR;
	can |= forks() ? FORK : 0;
	/* EINVAL or EFAULT where it is let be, whoever asks */
	can |= syscall(SYS_mount, 0, 0, 0, 0, 0) && errno == EPERM ? 0 : MOUNT;
	can |= unlink(path) ? 0 : REMOVE;
	return can;
}

static unsigned behind(enum pt_filter f)
{
	int fd, ends[2], status;
	struct pt_err err;
	unsigned can = 0;
	pid_t p;

	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(pipe(ends), 0);
	p = fork();
	assert_true(p >= 0);
	if (!p) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || pt_filter_set(f, &err))
			_exit(1);
		can = may();
		/* AddressSanitizer's way out takes more calls */
		syscall(SYS_exit_group, write(ends[1], &can, sizeof(can)) != sizeof(can));
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &can, sizeof(can)), sizeof(can));
	close(ends[0]);
	assert_int_equal(waitpid(p, &status, 0), p);
	assert_int_equal(status, 0);
	return can;
}

static void each_filter(void **state)
{
	unsigned all = READ_MEMORY | OPEN_READ | OPEN_WRITE | OPEN_BOTH | OPEN_CUT | MAKE |
		       REMOVE | SOCKET | PAIR | FORK;

	(void)state;
	close(mkstemp(path));
	if (behind(PT_FILTER_TRACE) & MOUNT) {
		unlink(path);
		print_message("this kernel filters no system calls\n");
		skip();
	}
	assert_int_equal(behind(PT_FILTER_TRACE), all);
	assert_int_equal(behind(PT_FILTER_INJECT), all);
	assert_int_equal(behind(PT_FILTER_FILES), all & ~(READ_MEMORY | SOCKET));
	assert_int_equal(behind(PT_FILTER_LOOK), READ_MEMORY | OPEN_READ | PAIR | FORK);
	assert_int_equal(behind(PT_FILTER_PARSER), 0);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(each_filter) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
