/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A job that reads files under awkward names and circumstances, and logs what it
 * read by which path.
 *
 *   namejob DIR FILES THREADS TRUTH [mounts]
 *
 * DIR/small holds FILES files already (name: their number, in one of 64
 * folders). Opens one, says "ready", waits for a byte, then THREADS threads open,
 * read and close each of them once; then the special cases, each by itself. Writes
 * TRUTH, a line per file: "case bytes faulted path" (hexadecimal digits), says
 * "done" and ends when its input does. With `mounts` also, in a process that has
 * a mount namespace of its own, a tmpfs and an overlay.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_LEN 2048
#define REUSED 200
#define SPECIAL 50000 /* bytes of a special file */

static const char *dir;
static FILE *truth;
static unsigned n_files;
static atomic_uint next_file;
static unsigned *sizes;

static void die(const char *what)
{
	fprintf(stderr, "namejob: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* faulted: bytes that were touched through a mapping */
static void tell(const char *name, size_t bytes, size_t faulted, const char *path)
{
	fprintf(truth, "%s %zu %zu ", name, bytes, faulted);
	for (; *path; path++)
		fprintf(truth, "%02x", (unsigned char)*path);
	fputc('\n', truth);
	fflush(truth);
}

static char *join(char *out, const char *a, const char *b)
{
	if (snprintf(out, PATH_LEN, "%s/%s", a, b) >= PATH_LEN)
		die("too long a path");
	return out;
}

static size_t read_fd(int fd)
{
	char buf[16384];
	size_t sum = 0;
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		sum += (size_t)n;
	if (n < 0)
		die("read");
	return sum;
}

static size_t read_path(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t n;

	if (fd < 0)
		die(path);
	n = read_fd(fd);
	close(fd);
	return n;
}

static void make(const char *path, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	char *buf = malloc(size);

	if (fd < 0 || !buf)
		die(path);
	memset(buf, 'x', size);
	if (write(fd, buf, size) != (ssize_t)size)
		die(path);
	free(buf);
	close(fd);
}

static void flush(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fsync(fd))
		die(path);
	close(fd);
}

/* ---- the small files --------------------------------------------------------- */

static void small_path(char *out, unsigned i)
{
	snprintf(out, PATH_LEN, "%s/small/%02u/%06u", dir, i % 64, i);
}

static void *small(void *arg)
{
	char path[PATH_LEN];
	unsigned i;

	(void)arg;
	while ((i = atomic_fetch_add(&next_file, 1)) < n_files) {
		small_path(path, i);
		sizes[i] = (unsigned)read_path(path);
	}
	return NULL;
}

static void read_small(unsigned threads)
{
	pthread_t t[64];
	char path[PATH_LEN];
	unsigned i;

	if (threads > 64)
		threads = 64;
	for (i = 0; i < threads; i++)
		if (pthread_create(&t[i], NULL, small, NULL))
			die("thread");
	for (i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < n_files; i++) {
		small_path(path, i);
		tell("small", sizes[i], 0, path);
	}
}

/* ---- special cases ----------------------------------------------------------- */

static void renamed(void)
{
	char a[PATH_LEN], b[PATH_LEN];
	size_t n;

	make(join(a, dir, "before-the-rename"), SPECIAL);
	n = read_path(a);
	tell("renamed", n, 0, a);
	if (rename(a, join(b, dir, "after-the-rename")))
		die("rename");
	n = read_path(b);
	tell("renamed", n, 0, b);
}

static void deleted(void)
{
	char a[PATH_LEN];
	int fd;

	make(join(a, dir, "deleted"), SPECIAL);
	fd = open(a, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || unlink(a))
		die(a);
	tell("deleted", read_fd(fd), 0, a);
	close(fd);
}

/* A file system hands the number of a deleted file out again. */
static void reused(void)
{
	char a[PATH_LEN], name[64];
	int i;

	for (i = 0; i < REUSED; i++) {
		snprintf(name, sizeof(name), "temporary-%03d", i);
		make(join(a, dir, name), 1000 + (size_t)i);
		tell("reused", read_path(a), 0, a);
		unlink(a);
	}
}

static void linked(void)
{
	char a[PATH_LEN], b[PATH_LEN];
	size_t n = 0, k = 0;
	int i;

	make(join(a, dir, "link-one"), SPECIAL);
	if (link(a, join(b, dir, "link-two")))
		die("link");
	for (i = 0; i < 5; i++) {
		n += read_path(a);
		k += read_path(b);
	}
	tell("linked", n, 0, a);
	tell("linked", k, 0, b);
}

static void hostile(void)
{
	static const char *const names[] = {
		"new\nline", "escape\x1b[31mred\x1b[0m", "quote\"'`$(id)",
		"back\\slash \\n \\x41", "tab\tbell\a", "not-utf8-\xff\xfe\x80",
		"overlong-\xc0\xaf", "caf\xc3\xa9-\xe6\x95\xb0\xe6\x8d\xae", "...", "&lt;&amp;",
		"<script>alert(1);", "%s%n%p", "-rf", " ", "{\"a\":1}",
	};
	char a[PATH_LEN], longest[256];
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		make(join(a, dir, names[i]), SPECIAL);
		tell("hostile", read_path(a), 0, a);
	}
	memset(longest, 'n', 255);
	longest[255] = 0;
	make(join(a, dir, longest), SPECIAL);
	tell("longest", read_path(a), 0, a);
}

/* A path longer than a record of old had room for, of many components. */
static void deep(void)
{
	char a[PATH_LEN], b[PATH_LEN];
	int i;

	snprintf(a, sizeof(a), "%s", dir);
	for (i = 0; i < 18; i++) {
		char name[32];

		snprintf(name, sizeof(name), "level-%02d-of-a-deep-tree", i);
		join(b, a, name);
		if (mkdir(b, 0755) && errno != EEXIST)
			die(b);
		memcpy(a, b, sizeof(a));
		if (strlen(a) > 400)
			break;
	}
	make(join(b, a, "leaf"), SPECIAL);
	tell("deep", read_path(b), 0, b);
}

/* Fault every page in, with nothing of it in the page cache. */
static size_t touch(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	volatile unsigned char sum = 0;
	unsigned char *p;
	struct stat st;
	off_t i;

	if (fd < 0 || fstat(fd, &st))
		die(path);
	fdatasync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die(path);
	close(fd);
	for (i = 0; i < st.st_size; i += 4096)
		sum ^= p[i];
	munmap(p, (size_t)st.st_size);
	return (size_t)(st.st_size + 4095) / 4096 * 4096;
}

static void mapped(void)
{
	char a[PATH_LEN];

	make(join(a, dir, "mapped\nfile"), 4 * SPECIAL);
	tell("mapped", 0, touch(a), a);
	/* the same bytes by both ways */
	make(join(a, dir, "mapped-and-read"), 4 * SPECIAL);
	tell("mapped", read_path(a), touch(a), a);
}

static void shared_memory(void)
{
	char a[PATH_LEN];
	int fd;

	snprintf(a, sizeof(a), "/dev/shm/pipetrace-names-%d", getpid());
	make(a, SPECIAL);
	tell("tmpfs", read_path(a), 0, a);
	unlink(a);
	fd = memfd_create("pipetrace-names", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, SPECIAL))
		die("memfd");
	tell("tmpfs", read_fd(fd), 0, "/memfd:pipetrace-names");
	close(fd);
}

/* ---- in a mount namespace of its own ----------------------------------------- */

static void overlay(const char *at)
{
	char lower[PATH_LEN], upper[PATH_LEN], work[PATH_LEN], merged[PATH_LEN],
		a[PATH_LEN], options[4 * PATH_LEN];

	join(lower, at, "lower");
	join(upper, at, "upper");
	join(work, at, "work");
	join(merged, at, "merged");
	if (mkdir(lower, 0755) || mkdir(upper, 0755) || mkdir(work, 0755) ||
	    mkdir(merged, 0755))
		die("mkdir");
	make(join(a, lower, "from-below"), SPECIAL);
	make(join(a, lower, "mapped-below"), 4 * SPECIAL);
	flush(a); /* an overlay does not write its lower files back */
	make(join(a, upper, "from-above"), SPECIAL);
	snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s",
		 lower, upper, work);
	if (mount("overlay", merged, "overlay", 0, options)) {
		fprintf(stderr, "no overlay: %s\n", strerror(errno));
		return;
	}
	tell("overlay", read_path(join(a, merged, "from-below")), 0, a);
	tell("overlay", read_path(join(a, merged, "from-above")), 0, a);
	tell("overlay", 0, touch(join(a, merged, "mapped-below")), a);
}

/* Its paths are those that the namespace has. */
static void in_namespace(void)
{
	char disk[PATH_LEN], a[PATH_LEN], b[PATH_LEN];

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		fprintf(stderr, "no mount namespace: %s\n", strerror(errno));
		return;
	}
	/* a folder of the disk at another place, and a tmpfs in that */
	join(disk, dir, "disk");
	if (mkdir(disk, 0755) || mkdir(join(a, disk, "inner"), 0755) ||
	    mkdir(join(b, dir, "elsewhere"), 0755) ||
	    mount(disk, b, NULL, MS_BIND, NULL))
		die("bind mount");
	make(join(a, b, "bound"), SPECIAL);
	tell("namespace", read_path(a), 0, a);
	join(a, b, "inner");
	if (mount("tmpfs", a, "tmpfs", 0, NULL))
		die("tmpfs");
	make(join(b, a, "in-tmpfs"), SPECIAL);
	tell("tmpfs", read_path(b), 0, b);
	join(b, dir, "layers");
	if (mkdir(b, 0755))
		die(b);
	overlay(b);
}

static void mounts(void)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		die("fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		in_namespace();
		exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		die("the process with the mounts");
}

int main(int argc, char **argv)
{
	char a[PATH_LEN], b;
	int fd, end;

	if (argc < 5) {
		fprintf(stderr, "usage: %s DIR FILES THREADS TRUTH [mounts]\n",
			argv[0]);
		return 2;
	}
	dir = argv[1];
	n_files = (unsigned)strtoul(argv[2], NULL, 10);
	sizes = calloc(n_files + 1, sizeof(*sizes));
	truth = fopen(argv[4], "we");
	if (!truth || !sizes)
		die(argv[4]);
	make(join(a, dir, "opened-before"), SPECIAL);
	fd = open(a, O_RDONLY | O_CLOEXEC);
	puts("ready");
	fflush(stdout);
	if (read(0, &b, 1) != 1)
		return 2;
	tell("before", read_fd(fd), 0, a);
	close(fd);
	read_small((unsigned)strtoul(argv[3], NULL, 10));
	renamed();
	deleted();
	reused();
	linked();
	hostile();
	deep();
	mapped();
	shared_memory();
	if (argc > 5)
		mounts();
	fclose(truth);
	puts("done");
	fflush(stdout);
	end = (int)read(0, &b, 1);
	return end < 0;
}
