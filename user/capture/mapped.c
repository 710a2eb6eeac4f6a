/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
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

/*
 * Is it the file that was mapped? Some file systems (btrfs, overlayfs) give
 * stat() other numbers than maps have: those are asked for a mapping of ours,
 * in the same words.
 */
static bool same_file(int fd, const struct stat *st, const struct pt_mapped *m)
{
	uint64_t inode;
	uint32_t dev;
	bool same;
	void *p;

	if (st->st_ino == m->inode &&
	    (major(st->st_dev) << 20 | minor(st->st_dev)) == m->dev)
		return true;
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
	char own[PT_FD_PATH];
	struct stat st;

	if (at < 0)
		return -errno;
	/* only now that it is known to be a plain file is it really opened */
	fd = -ESTALE;
	if (!fstat(at, &st) && S_ISREG(st.st_mode)) {
		fd = open(pt_fd_path(at, own), O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			fd = -errno;
	}
	close(at);
	if (fd >= 0 && !same_file(fd, &st, m)) {
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
