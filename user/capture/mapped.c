/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

const char *pt_fd_path(int fd, char buf[PT_FD_PATH])
{
	snprintf(buf, PT_FD_PATH, "/proc/self/fd/%d", fd);
	return buf;
}

/* What our own maps say of the mapping at `at`. */
static bool own_mapping(const void *at, uint32_t *dev, uint64_t *inode)
{
	unsigned int major, minor;
	char *line = NULL;
	uintptr_t begin;
	bool found = false;
	size_t cap = 0;
	FILE *f = fopen("/proc/self/maps", "re");

	while (f && !found && getline(&line, &cap, f) > 0)
		found = sscanf(line,
			       "%" SCNxPTR "-%*x %*4s %*x %x:%x %" SCNu64,
			       &begin, &major, &minor, inode) == 4 &&
			begin == (uintptr_t)at;
	free(line);
	if (f)
		fclose(f);
	*dev = found ? major << 20 | minor : 0;
	return found;
}

static bool same_numbers(const struct stat *st, const struct pt_mapped *m)
{
	return st->st_ino == m->inode &&
	       (major(st->st_dev) << 20 | minor(st->st_dev)) == m->dev;
}

#ifndef BCACHEFS_SUPER_MAGIC
#define BCACHEFS_SUPER_MAGIC 0xca451a4e
#endif

/* These give stat() other numbers than maps have. To open a file of the kernel's own
 * (/proc, /sys, tracefs) may do something, so no other is opened to be asked. */
static bool other_numbers(int at)
{
	struct statfs fs;

	return !fstatfs(at, &fs) &&
	       (fs.f_type == BTRFS_SUPER_MAGIC || fs.f_type == OVERLAYFS_SUPER_MAGIC ||
		fs.f_type == BCACHEFS_SUPER_MAGIC);
}

/* Is it the file that was mapped? A mapping of ours is asked, in the same words. */
static bool same_mapping(int fd, const struct pt_mapped *m)
{
	uint64_t inode;
	uint32_t dev;
	bool same;
	void *p;

	p = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return false;
	same = own_mapping(p, &dev, &inode) && dev == m->dev &&
	       inode == m->inode;
	munmap(p, 1);
	return same;
}

static int open_same(const char *path, const struct pt_mapped *m)
{
	int at = open(path, O_PATH | O_CLOEXEC), fd;
	bool plain, same;
	char own[PT_FD_PATH];
	struct stat st;

	if (at < 0)
		return -errno;
	/* Only now that it is known to be a plain file, and the mapped one, is it really
	 * opened; and not waited for: its owner may have a lease on it. */
	fd = -ESTALE;
	plain = !fstat(at, &st) && S_ISREG(st.st_mode);
	same = plain && same_numbers(&st, m);
	if (same || (plain && other_numbers(at))) {
		fd = open(pt_fd_path(at, own), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0)
			fd = -errno;
	}
	close(at);
	if (fd >= 0 && !same && !same_mapping(fd, m)) {
		close(fd);
		fd = -ESTALE;
	}
	return fd;
}

int pt_mapped_open(const struct pt_mapped *m)
{
	char path[PATH_MAX + 64];
	int fd, n;

	/* The mapping itself: also for files that were deleted or replaced. It
	 * may have been moved or split meanwhile, and needs a capability. */
	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64,
		 (int)m->pid, m->start, m->end);
	fd = open_same(path, m);
	if (fd >= 0)
		return fd;
	n = snprintf(path, sizeof(path), "/proc/%d/root%s", (int)m->pid,
		     m->name);
	return n < (int)sizeof(path) ? open_same(path, m) : -ENAMETOOLONG;
}
