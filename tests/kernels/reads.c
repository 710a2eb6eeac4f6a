// SPDX-License-Identifier: BSD-2-Clause
/*
 * A job that reads files in every way there is and counts what it did.
 *
 *   reads [-o OPTION,...] DIR FILES CALLS THREADS SEED TRUTH [WAYS]
 *
 * Makes FILES files in DIR, says "ready", waits for a byte, reads until CALLS
 * calls are done, writes TRUTH, says "done", and ends when its input does.
 * File i is read in way i modulo the number of ways, the first WAYS of which are
 * used. A line of TRUTH:
 *
 *   kind dev inode calls bytes empty failed name
 *
 * calls: those that returned 0 or more; empty: of them, those that returned 0;
 * failed: the others; dev as the kernel has it. A way that this system lacks:
 * "skip kind reason". And "cpu calls ns": the process's CPU time for all of them.
 *
 * Options: keep: files that are there are read as they are; early: every second
 * thread is there before "ready" (the others start while they are watched); cold:
 * the files are dropped from the page cache, again and again; deleted: they have
 * no name any more when they are read; ns: DIR is another one in a mount namespace
 * of the job's own; fail: some calls fail.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "ways.h"

#define MAX_FILES 4096
#define MAX_THREADS 64

static struct file files[MAX_FILES];
static unsigned n_files, ways = KINDS;
static long n_calls;
static uint64_t cpu_ns; /* of this process, while it reads */
static const char *dir;
static bool keep, early, deleted, ns;
static atomic_bool go; /* threads that are there early may read */

static uint64_t cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (!atomic_load(&go))
		usleep(1000);
	while (atomic_load(&left) > 0) {
		unsigned i = (unsigned)draw(w, n_files), kind = i % ways;

		if (!atomic_load(&lacks[kind]))
			visit(w, &files[i], kind);
	}
	return NULL;
}

/* A file of `size` bytes, or a FIFO. */
static void make_file(struct file *f, unsigned kind, const unsigned char *b)
{
	int fd;

	if (kind == KIND_FIFO) {
		if (mkfifo(f->path, 0600) && errno != EEXIST)
			die(f->path);
		fd = open(f->path, O_RDWR | O_CLOEXEC);
	} else if (keep && !access(f->path, R_OK)) {
		fd = open(f->path, O_RDONLY | O_CLOEXEC);
	} else {
		fd = open(f->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (fd >= 0 &&
		    (write(fd, b, f->size) != (ssize_t)f->size || fsync(fd)))
			die(f->path);
	}
	if (fd < 0 || fstat(fd, &f->st))
		die(f->path);
	if (cold)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (!deleted) {
		close(fd);
		return;
	}
	if (unlink(f->path))
		die(f->path);
	snprintf(f->path, sizeof(f->path), "/proc/self/fd/%d", fd);
}

static void make_files(void)
{
	struct rlimit many = { MAX_FILES + 100, MAX_FILES + 100 };
	unsigned char *b = malloc(17 * 4096);
	unsigned i;

	if (!b || (deleted && setrlimit(RLIMIT_NOFILE, &many)))
		die("files");
	memset(b, 'x', 17 * 4096);
	for (i = 0; i < n_files; i++) {
		struct file *f = &files[i];

		f->size = 4096 * (1 + i / KINDS % 16) + i * 37 % 4096;
		pthread_mutex_init(&f->lock, NULL);
		snprintf(f->path, sizeof(f->path), "%s/item%05u", dir, i);
		make_file(f, i % ways, b);
	}
	free(b);
}

/* Where the job finds DIR, there is another one for everybody else. */
static void own_namespace(void)
{
	char inside[512];

	snprintf(inside, sizeof(inside), "%s/inside", dir);
	if (unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mkdir(inside, 0700) || mount(inside, dir, NULL, MS_BIND, NULL))
		die("mount namespace");
}

static int parse(char *list)
{
	const struct {
		const char *name;
		bool *flag;
	} o[] = { { "keep", &keep }, { "early", &early }, { "cold", &cold },
		  { "deleted", &deleted }, { "ns", &ns }, { "fail", &fail } };
	char *word, *at = NULL;
	size_t i;

	for (word = strtok_r(list, ",", &at); word;
	     word = strtok_r(NULL, ",", &at)) {
		for (i = 0; i < 6 && strcmp(word, o[i].name); i++)
			;
		if (i == 6)
			return -EINVAL;
		*o[i].flag = true;
	}
	return 0;
}

static void setup(struct worker *w, unsigned number, uint64_t seed)
{
	char path[512];

	w->number = number;
	w->seed = (seed * 1000 + number + 1) * 0x9e3779b97f4a7c15u;
	snprintf(path, sizeof(path), "%s/out%02u", dir, number);
	w->out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	w->null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (w->out < 0 || w->null < 0 || pipe2(w->pipe, O_CLOEXEC) ||
	    posix_memalign((void **)&w->buf, 4096, BUF))
		die("setup");
	memset(w->buf, 'y', BUF);
	ways_setup(w);
}

static void write_truth(const char *path)
{
	FILE *o = fopen(path, "we");
	unsigned i, k;

	if (!o)
		die(path);
	for (k = 0; k < KINDS; k++)
		if (atomic_load(&lacks[k]))
			fprintf(o, "skip %s %s\n", kinds[k],
				strerror(atomic_load(&lacks[k])));
	fprintf(o, "cpu %ld %llu\n", n_calls, (unsigned long long)cpu_ns);
	for (i = 0; i < n_files; i++) {
		struct file *f = &files[i];

		fprintf(o, "%s %u %llu %llu %llu %llu %llu item%05u\n",
			kinds[i % ways],
			major(f->st.st_dev) << 20 | minor(f->st.st_dev),
			(unsigned long long)f->st.st_ino,
			atomic_load(&f->calls), atomic_load(&f->bytes),
			atomic_load(&f->empty), atomic_load(&f->failed), i);
	}
	if (fclose(o))
		die(path);
}

static void run_threads(struct worker *w, unsigned n, bool now)
{
	unsigned i;

	for (i = 0; i < n; i++)
		if ((early && i % 2) == now &&
		    pthread_create(&w[i].thread, NULL, work, &w[i]))
			die("pthread_create");
}

int main(int argc, char **argv)
{
	static struct worker workers[MAX_THREADS];
	unsigned n, i;
	char c;

	if (argc > 2 && !strcmp(argv[1], "-o")) {
		if (parse(argv[2]))
			return 2;
		argc -= 2;
		argv += 2;
	}
	if (argc != 7 && argc != 8) {
		fprintf(stderr, "usage: reads [-o OPTION,...] DIR FILES CALLS "
				"THREADS SEED TRUTH [WAYS]\n");
		return 2;
	}
	dir = argv[1];
	n_files = (unsigned)strtoul(argv[2], NULL, 10);
	left = n_calls = strtol(argv[3], NULL, 10);
	if (argc == 8)
		ways = (unsigned)strtoul(argv[7], NULL, 10);
	if (!ways || ways > KINDS)
		return 2;
	n = (unsigned)strtoul(argv[4], NULL, 10);
	if (!n_files || n_files > MAX_FILES || !n || n > MAX_THREADS)
		return 2;
	if (ns)
		own_namespace();
	make_files();
	for (i = 0; i < n; i++)
		setup(&workers[i], i, strtoul(argv[5], NULL, 10));
	run_threads(workers, n, true);
	printf("ready\n");
	fflush(stdout);
	if (read(0, &c, 1) != 1)
		return 1;
	cpu_ns = cpu_now();
	run_threads(workers, n, false);
	atomic_store(&go, true);
	for (i = 0; i < n; i++)
		pthread_join(workers[i].thread, NULL);
	cpu_ns = cpu_now() - cpu_ns;
	write_truth(argv[6]);
	printf("done\n");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
