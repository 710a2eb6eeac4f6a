/* SPDX-License-Identifier: BSD-2-Clause */
/* Which descriptors of another process are taken for memory files that may be written
 * and mapped: of those that SIGBUS can come of, none. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi.h"
#include "inject/agent/agent.h"
#include "inject/memfd.h"
#include "inject/ring.h"

#define HUGE_BYTES (2ul << 20)

/* Our own process stands for the other one. */
static int take(int fd, bool fresh)
{
	return pt_memfd_take(getpid(), fd, fresh, geteuid());
}

static void refused(int fd)
{
	assert_true(fd >= 0);
	assert_int_equal(take(fd, true), -EMEDIUMTYPE);
	assert_int_equal(take(fd, false), -EMEDIUMTYPE);
	close(fd);
}

static int memory(unsigned flags)
{
	return memfd_create("pt-test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
}

static void one_of_ours(void **state)
{
	int fd = memory(0), mine = take(fd, true);

	(void)state;
	assert_true(mine >= 0);
	/* an open file description of its own: a lock of ours is not theirs */
	assert_int_equal(lseek(fd, 7, SEEK_SET), 7);
	assert_int_equal(lseek(mine, 0, SEEK_CUR), 0);
	assert_true(fcntl(mine, F_GETFD) & FD_CLOEXEC);
	close(mine);
	assert_int_equal(pt_memfd_take(getpid(), fd, true, geteuid() + 1), -EMEDIUMTYPE);
	/* no longer new */
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(take(fd, true), -EMEDIUMTYPE);
	mine = take(fd, false);
	assert_true(mine >= 0);
	close(mine);
	close(fd);
	assert_int_equal(take(1 << 20, true), -EBADF);
}

static void others(void **state)
{
	char path[64];
	int fd = memory(0), i;

	(void)state;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	refused(open(path, O_RDONLY | O_CLOEXEC));
	refused(open(path, O_PATH | O_CLOEXEC));
	refused(open(path, O_RDWR | O_APPEND | O_CLOEXEC));
	close(fd);
	refused(memfd_create("pt-test", MFD_CLOEXEC)); /* takes no seals */
	refused(open("/dev/null", O_RDWR | O_CLOEXEC));
	/* without a name, and the second one of tmpfs, but no memory files */
	for (i = 0; i < 2; i++) {
		fd = open(i ? "/dev/shm" : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (fd >= 0)
			refused(fd);
	}
}

/* Whether touching the first page of the file is a SIGBUS, in a child. */
static bool is_a_trap(int fd)
{
	volatile char *p;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		signal(SIGBUS, SIG_DFL);
		p = mmap(NULL, HUGE_BYTES, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_NORESERVE, fd, 0);
		_exit(p == MAP_FAILED ? 1 : p[0]);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
}

/* Its holes are filled from a pool, which the other process can empty, after it was
 * sealed as well as before. */
static void of_huge_pages(void **state)
{
	int fd = memory(MFD_HUGETLB), sealed;

	(void)state;
	if (fd < 0) {
		print_message("no huge pages here\n");
		skip();
	}
	sealed = memory(MFD_HUGETLB);
	assert_int_equal(ftruncate(sealed, HUGE_BYTES), 0);
	assert_int_equal(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	print_message("a hole of a huge file is %s here\n",
		      is_a_trap(sealed) ? "a SIGBUS" : "filled");
	refused(sealed);
	refused(fd);
}

/* A file of ordinary pages has no such holes: they are filled with zeros. */
static void holes(void **state)
{
	int fd = memory(0), mine = take(fd, true);
	struct pt_ring_status status;
	struct pt_ring *ring;

	(void)state;
	assert_true(mine >= 0);
	assert_int_equal(pt_ring_setup(mine, NULL), 0);
	assert_int_equal(pt_ring_open(mine, 1, &ring), 0);
	/* what the seals let the other process do to it, while we have it mapped */
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   PT_AGENT_RING_AT + PT_AGENT_RING), 0);
	assert_false(is_a_trap(fd));
	pt_ring_beat(ring);
	pt_ring_status(ring, &status);
	assert_int_equal(status.state, PT_AGENT_NEW);
	assert_int_equal(pt_ring_drain(ring, NULL, NULL), 0);
	pt_ring_close(ring);
	close(mine);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_of_ours),
		cmocka_unit_test(others),
		cmocka_unit_test(of_huge_pages),
		cmocka_unit_test(holes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
