/* SPDX-License-Identifier: BSD-2-Clause */
/* What each filter of system calls refuses, and what it leaves: tried in a child. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/privileges.h"
#include "capture/elf.h"

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
#define CHANGE 2048u
#define SIGNAL 4096u
#define OWN_SIGNAL 8192u
#define ASK_MAPS 16384u
#define TURN 32768u
#define OWN_TURN 65536u

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

/* Is one of them let be? They get nothing that they could work on. */
static bool any_of(const long *nr, size_t n)
{
	bool any = false;
	size_t i;

	for (i = 0; i < n; i++)
		any |= !(syscall(nr[i], -1, -1, -1, -1, -1, -1) < 0 && errno == EPERM);
	return any;
}

/* Beside opening: what changes a file's times, mode, owner, attributes, flags and names. */
static bool changes(void)
{
	static const long nr[] = {
#ifdef SYS_utime
		SYS_utime, SYS_utimes, SYS_futimesat, SYS_chmod, SYS_chown, SYS_lchown, SYS_link,
		SYS_symlink, SYS_rename, SYS_mkdir, SYS_rmdir, SYS_creat,
#endif
		SYS_utimensat, SYS_fchmodat, SYS_fchmod, SYS_fchownat, SYS_fchown, SYS_setxattr,
		SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr,
		SYS_fremovexattr, SYS_truncate, SYS_linkat, SYS_symlinkat, SYS_renameat2,
		SYS_mkdirat, SYS_unlinkat, SYS_bind, SYS_ioctl, 452, 463, 466, 469,
	};

	return any_of(nr, sizeof(nr) / sizeof(*nr));
}

/* ... others, by any call (with signal 0, which does nothing). */
static bool signals(int fd)
{
	struct f_owner_ex to = { F_OWNER_PID, getppid() };
	static const long nr[] = { SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo };

	return !kill(getppid(), 0) || !syscall(SYS_tkill, getppid(), 0) ||
	       !syscall(SYS_tgkill, getppid(), getppid(), 0) || any_of(nr, 2) ||
	       !fcntl(fd, F_SETOWN, getppid()) || !fcntl(fd, F_SETOWN_EX, &to);
}

/* When and where the parent, or more than this thread, runs. */
static bool turns(void)
{
	const struct sched_param none = { 0 };
	int usual = getpriority(PRIO_PROCESS, getppid());
	cpu_set_t cpus;
	static const long nr[] = { SYS_ioprio_set, SYS_move_pages, SYS_migrate_pages };

	return !setpriority(PRIO_PROCESS, getppid(), usual) || !setpriority(PRIO_PGRP, 0, usual) ||
	       !sched_setscheduler(getppid(), SCHED_OTHER, &none) ||
	       !sched_setparam(getppid(), &none) || any_of(nr, 3) ||
	       (!sched_getaffinity(getppid(), sizeof(cpus), &cpus) &&
		!sched_setaffinity(getppid(), sizeof(cpus), &cpus));
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
	can |= changes() ? CHANGE : 0;
	can |= signals(0) ? SIGNAL : 0;
	can |= syscall(SYS_tgkill, getpid(), getpid(), 0) ? 0 : OWN_SIGNAL;
	can |= turns() ? TURN : 0;
	can |= setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0)) ? 0 : OWN_TURN;
	/* PROCMAP_QUERY; EBADF where it is let be */
	can |= syscall(SYS_ioctl, -1, 0xc0686611ul, 0) && errno == EPERM ? 0 : ASK_MAPS;
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
		       REMOVE | SOCKET | PAIR | FORK | CHANGE | SIGNAL | OWN_SIGNAL |
		       ASK_MAPS | OWN_TURN;

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
	assert_int_equal(behind(PT_FILTER_LOOK), READ_MEMORY | OPEN_READ | PAIR | FORK |
						 OWN_SIGNAL | ASK_MAPS | OWN_TURN);
	assert_int_equal(behind(PT_FILTER_PARSER), 0);
	unlink(path);
}

/* The reader's own reader of ELF files hangs: the one may not kill the other, and goes on. */
static void hung_elf_reader(void **state)
{
	const char *const none[] = { "pt_no_such_function" };
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), ends[2], ret[3], status;
	struct pt_err err;
	char text[64];
	uint64_t at;
	pid_t p, elf = 0;
	FILE *f;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	p = fork();
	assert_true(p >= 0);
	if (!p) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || pt_filter_set(PT_FILTER_LOOK, &err))
			_exit(1);
		ret[0] = pt_elf_symbols(fd, none, 1, &at, &err);
		if (write(ends[1], ret, sizeof(*ret)) < 0 || read(ends[1], &ret[1], sizeof(*ret)) < 0)
			_exit(1);
		ret[1] = pt_elf_symbols(fd, none, 1, &at, &err);
		ret[2] = pt_elf_symbols(fd, none, 1, &at, &err);
		syscall(SYS_exit_group, write(ends[1], ret, sizeof(ret)) != sizeof(ret));
	}
	assert_int_equal(read(ends[0], ret, sizeof(*ret)), sizeof(*ret));
	assert_true(ret[0] >= 0);
	snprintf(text, sizeof(text), "/proc/%d/task/%d/children", (int)p, (int)p);
	f = fopen(text, "re");
	if (f) {
		assert_int_equal(fscanf(f, "%d", &elf), 1);
		fclose(f);
		assert_int_equal(kill(elf, SIGSTOP), 0);
		assert_int_equal(write(ends[0], ret, sizeof(*ret)), sizeof(*ret));
		assert_int_equal(read(ends[0], ret, sizeof(ret)), sizeof(ret));
		assert_int_equal(ret[1], -ETIMEDOUT);
		assert_true(ret[2] < 0);
	}
	kill(p, SIGKILL);
	assert_int_equal(waitpid(p, &status, 0), p);
	close(ends[0]);
	close(ends[1]);
	close(fd);
	if (!f) {
		print_message("this kernel does not tell of a process's children\n");
		skip();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(each_filter),
					    cmocka_unit_test(hung_elf_reader) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
