/* SPDX-License-Identifier: BSD-2-Clause */
#include "inject/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* O_LARGEFILE is 0 here */
#ifdef __aarch64__
#define KERNEL_O_LARGEFILE 0400000
#else
#define KERNEL_O_LARGEFILE 0100000
#endif
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020 /* Linux 6.3; a sysctl sets it on new ones */
#endif

/* All memory files lie on one mount of the kernel's own, which nothing that is
 * opened by a name lies on; those of huge pages lie on others. */
static int own_dev(dev_t *out)
{
	int fd = memfd_create("pipetrace", MFD_CLOEXEC), ret = 0;
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		ret = -errno;
	else
		*out = st.st_dev;
	close(fd);
	return ret;
}

uint32_t pt_memfd_dev(void)
{
	dev_t dev;

	return own_dev(&dev) ? 0 : major(dev) << 20 | minor(dev);
}

static bool is_memfd(int fd, bool fresh, uid_t owner)
{
	int flags = fcntl(fd, F_GETFL), seals;
	struct statfs fs;
	struct stat st;
	dev_t dev;

	/* as memfd_create() opens it, and so none that is only a path, and none
	 * through which the other process could only read */
	if (flags < 0 || (flags & ~KERNEL_O_LARGEFILE) != O_RDWR)
		return false;
	if (own_dev(&dev) || fstat(fd, &st) || fstatfs(fd, &fs) ||
	    !S_ISREG(st.st_mode) || st.st_dev != dev || st.st_nlink ||
	    fs.f_type != TMPFS_MAGIC)
		return false;
	/* shared memory of other kinds lies there too; it takes no seals */
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || seals == F_SEAL_SEAL)
		return false;
	if (fresh && (st.st_size || seals & ~F_SEAL_EXEC))
		return false;
	return owner == PT_MEMFD_ANY || st.st_uid == owner;
}

static int fetch(pid_t pid, int fd)
{
	int proc = (int)syscall(SYS_pidfd_open, pid, 0), got;

	if (proc < 0)
		return -errno;
	got = (int)syscall(SYS_pidfd_getfd, proc, fd, 0);
	if (got < 0)
		got = -errno;
	close(proc);
	return got;
}

int pt_memfd_take(pid_t pid, int fd, bool fresh, uid_t owner)
{
	int theirs = fetch(pid, fd), mine = -EMEDIUMTYPE;
	char path[32];

	if (theirs < 0)
		return theirs;
	if (is_memfd(theirs, fresh, owner)) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", theirs);
		mine = open(path, O_RDWR | O_CLOEXEC);
		if (mine < 0)
			mine = -errno;
	}
	close(theirs);
	return mine;
}
