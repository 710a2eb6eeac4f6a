/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A slow disk for tests: a read-only file system in user space that shows the
 * files of one directory and serves reads at a given rate, one at a time, as
 * a single spindle would.
 *
 *	slowfs DIRECTORY MOUNTPOINT KIB_PER_SECOND [LATENCY_US [NAME US]]
 *
 * LATENCY_US passes before each read's turn, of all reads at once, as on a
 * network; US more before those of the file NAME.
 *
 * Runs in the foreground; SIGTERM unmounts.
 */
#define FUSE_USE_VERSION 312

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int top = -1;
static long kib_per_s, latency_us, slow_us;
static const char *slow_name = "";
static pthread_mutex_t spindle = PTHREAD_MUTEX_INITIALIZER;

/* The name inside the one directory, "." for itself; NULL: not ours. */
static const char *inside(const char *path)
{
	if (!strcmp(path, "/"))
		return ".";
	path++;
	if (!*path || strchr(path, '/') || !strcmp(path, ".."))
		return NULL;
	return path;
}

static int slow_getattr(const char *path, struct stat *st,
			struct fuse_file_info *fi)
{
	const char *name = inside(path);

	(void)fi;
	if (!name)
		return -ENOENT;
	return fstatat(top, name, st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static int slow_readdir(const char *path, void *buf, fuse_fill_dir_t fill,
			off_t offset, struct fuse_file_info *fi,
			enum fuse_readdir_flags flags)
{
	struct dirent *e;
	DIR *d;
	int fd;

	(void)offset;
	(void)fi;
	(void)flags;
	if (strcmp(path, "/"))
		return -ENOTDIR;
	/* A descriptor of its own: the offset of `top` is shared. */
	fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	d = fdopendir(fd);
	if (!d) {
		int err = -errno;

		close(fd);
		return err;
	}
	while ((e = readdir(d)))
		if (fill(buf, e->d_name, NULL, 0, 0))
			break;
	closedir(d);
	return 0;
}

static int slow_open(const char *path, struct fuse_file_info *fi)
{
	const char *name = inside(path);
	int fd;

	if (!name)
		return -ENOENT;
	if ((fi->flags & O_ACCMODE) != O_RDONLY)
		return -EROFS;
	fd = openat(top, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	return 0;
}

static int slow_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	close((int)fi->fh);
	return 0;
}

static void pass(uint64_t ns)
{
	struct timespec left = { (time_t)(ns / 1000000000ull),
				 (long)(ns % 1000000000ull) };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static int slow_read(const char *path, char *buf, size_t size, off_t offset,
		     struct fuse_file_info *fi)
{
	ssize_t n;

	n = pread((int)fi->fh, buf, size, offset);
	if (n < 0)
		return -errno;
	pass((uint64_t)latency_us * 1000);
	if (!strcmp(path + 1, slow_name))
		pass((uint64_t)slow_us * 1000);
	pthread_mutex_lock(&spindle);
	pass((uint64_t)n * 1000000000ull / 1024 / (uint64_t)kib_per_s);
	pthread_mutex_unlock(&spindle);
	return (int)n;
}

static const struct fuse_operations slow_ops = {
	.getattr = slow_getattr,
	.readdir = slow_readdir,
	.open = slow_open,
	.release = slow_release,
	.read = slow_read,
};

int main(int argc, char **argv)
{
	char name[] = "slowfs", foreground[] = "-f";
	char readonly[] = "-oro";
	char *args[5];
	char *end;

	if (argc != 4 && argc != 5 && argc != 7) {
		fprintf(stderr, "usage: slowfs DIRECTORY MOUNTPOINT "
				"KIB_PER_SECOND [LATENCY_US [NAME US]]\n");
		return 2;
	}
	errno = 0;
	kib_per_s = strtol(argv[3], &end, 10);
	if (errno || *end || kib_per_s < 1) {
		fprintf(stderr, "slowfs: bad rate %s\n", argv[3]);
		return 2;
	}
	latency_us = argc > 4 ? strtol(argv[4], &end, 10) : 0;
	if (!errno && !*end && latency_us >= 0 && argc == 7) {
		slow_name = argv[5];
		slow_us = strtol(argv[6], &end, 10);
	}
	if (errno || *end || latency_us < 0 || slow_us < 0) {
		fprintf(stderr, "slowfs: bad latency\n");
		return 2;
	}
	top = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (top < 0) {
		fprintf(stderr, "slowfs: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	/* A test that is killed must not leave the mount behind. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	args[0] = name;
	args[1] = foreground;
	args[2] = readonly;
	args[3] = argv[2];
	args[4] = NULL;
	return fuse_main(4, args, &slow_ops, NULL);
}
