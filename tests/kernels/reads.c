// SPDX-License-Identifier: BSD-2-Clause
/*
 * A job that reads files in every way there is and counts what it did.
 *
 *   reads DIR FILES CALLS THREADS SEED TRUTH [WAYS]
 *
 * Makes FILES files in DIR, says "ready", waits for a byte, reads until CALLS
 * calls are done, writes TRUTH, says "done", and ends when its input does.
 * File i is read in way i modulo the number of ways, the first WAYS of which are
 * used. A line of TRUTH:
 *
 *   kind dev inode calls bytes empty name
 *
 * calls: those that returned 0 or more; empty: of them, those that returned 0;
 * dev as the kernel has it. A way that this system lacks: "skip kind reason".
 * And "cpu calls ns": the process's CPU time for all of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define KINDS 10
#define MAX_FILES 4096
#define MAX_THREADS 64
#define BUF 65536
#define RING 4

static const char *const kinds[KINDS] = {
	"read", "readv", "pread", "preadv2", "mmap", "io_uring", "sendfile",
	"splice", "copy_file_range", "o_direct",
};

struct file {
	char path[512];
	size_t size;
	struct stat st;
	atomic_ullong calls, bytes, empty;
};

static struct file files[MAX_FILES];
static unsigned n_files, ways = KINDS;
static long n_calls;
static uint64_t cpu_ns; /* of this process, while it reads */
static atomic_long left; /* calls still to do */
static atomic_int lacks[KINDS]; /* errno of a way that is not there */
static const char *dir;

struct ring {
	int fd; /* -1: none */
	uint32_t *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

struct worker {
	pthread_t thread;
	uint64_t seed;
	unsigned number;
	int null, out, pipe[2];
	unsigned char *buf;
	struct ring ring;
	volatile unsigned sum; /* so that mapped pages are looked at */
};

static void die(const char *what)
{
	fprintf(stderr, "reads: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t draw(struct worker *w, uint64_t below)
{
	/* xorshift64 */
	w->seed ^= w->seed << 13;
	w->seed ^= w->seed >> 7;
	w->seed ^= w->seed << 17;
	return w->seed % below;
}

static void count(struct file *f, ssize_t n)
{
	if (n < 0)
		die(f->path);
	atomic_fetch_add(&f->calls, 1);
	atomic_fetch_add(&f->bytes, (unsigned long long)n);
	if (!n)
		atomic_fetch_add(&f->empty, 1);
	atomic_fetch_sub(&left, 1);
}

static void ring_open(struct ring *r)
{
	struct io_uring_params p;
	unsigned char *sq, *cq;

	memset(&p, 0, sizeof(p));
	r->fd = (int)syscall(SYS_io_uring_setup, RING, &p);
	if (r->fd < 0) {
		atomic_store(&lacks[5], errno);
		return;
	}
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(*r->cqes),
		  PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
		  IORING_OFF_CQ_RING);
	r->sqes = mmap(NULL, p.sq_entries * sizeof(*r->sqes),
		       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
		       IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || r->sqes == MAP_FAILED)
		die("io_uring");
	r->sq_tail = (uint32_t *)(sq + p.sq_off.tail);
	r->sq_mask = (uint32_t *)(sq + p.sq_off.ring_mask);
	r->sq_array = (uint32_t *)(sq + p.sq_off.array);
	r->cq_head = (uint32_t *)(cq + p.cq_off.head);
	r->cq_tail = (uint32_t *)(cq + p.cq_off.tail);
	r->cq_mask = (uint32_t *)(cq + p.cq_off.ring_mask);
	r->cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

/* One to RING reads of the file at once. */
static void by_ring(struct worker *w, struct file *f, int fd)
{
	unsigned n = 1 + (unsigned)draw(w, RING), i, head, done = 0;
	struct ring *r = &w->ring;

	for (i = 0; i < n; i++) {
		uint32_t tail = *r->sq_tail, at = tail & *r->sq_mask;
		struct io_uring_sqe *s = &r->sqes[at];

		memset(s, 0, sizeof(*s));
		s->opcode = IORING_OP_READ;
		s->fd = fd;
		s->addr = (uint64_t)(uintptr_t)(w->buf + i * (BUF / RING));
		s->len = 1 + (uint32_t)draw(w, BUF / RING);
		s->off = draw(w, f->size + 100);
		/* some are handed to the kernel's workers */
		s->flags = draw(w, 8) ? 0 : IOSQE_ASYNC;
		r->sq_array[at] = at;
		__atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
	}
	if (syscall(SYS_io_uring_enter, r->fd, n, n, IORING_ENTER_GETEVENTS,
		    NULL, 0) < 0)
		die("io_uring_enter");
	while (done < n) {
		head = *r->cq_head;
		if (head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE)) {
			syscall(SYS_io_uring_enter, r->fd, 0, 1,
				IORING_ENTER_GETEVENTS, NULL, 0);
			continue;
		}
		errno = -r->cqes[head & *r->cq_mask].res;
		count(f, r->cqes[head & *r->cq_mask].res);
		__atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
		done++;
	}
}

static void by_map(struct worker *w, struct file *f, int fd)
{
	unsigned char *m = mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0);
	size_t i;

	if (m == MAP_FAILED)
		die(f->path);
	for (i = 0; i < f->size; i += 4096)
		w->sum += m[i];
	munmap(m, f->size);
	atomic_fetch_sub(&left, 1); /* no call */
}

static void by_splice(struct worker *w, struct file *f, int fd, size_t len)
{
	off64_t off = (off64_t)draw(w, f->size);
	ssize_t n = splice(fd, &off, w->pipe[1], NULL, len, 0), k;

	count(f, n);
	while (n > 0) {
		k = splice(w->pipe[0], NULL, w->null, NULL, (size_t)n, 0);
		if (k <= 0)
			die("splice");
		n -= k;
	}
}

static void visit(struct worker *w, struct file *f, unsigned kind)
{
	int fd = open(f->path, O_RDONLY | O_CLOEXEC | (kind == 9 ? O_DIRECT : 0));
	size_t len = 1 + draw(w, BUF / 4);
	struct iovec v[2] = { { w->buf, len / 2 }, { w->buf + BUF / 2, len } };
	off_t off = (off_t)draw(w, f->size);
	unsigned i, n;

	if (fd < 0) {
		if (kind != 9 || errno != EINVAL)
			die(f->path);
		atomic_store(&lacks[kind], errno);
		return;
	}
	n = 1 + (unsigned)draw(w, 4);
	switch (kind) {
	case 0: /* up to the end, and once more */
		for (i = 0; i < n; i++)
			count(f, read(fd, w->buf, len));
		break;
	case 1:
		for (i = 0; i < n; i++)
			count(f, readv(fd, v, 2));
		break;
	case 2:
		count(f, pread(fd, w->buf, len, off));
		break;
	case 3:
		count(f, preadv2(fd, v, 2, off, 0));
		break;
	case 4:
		by_map(w, f, fd);
		break;
	case 5:
		by_ring(w, f, fd);
		break;
	case 6:
		count(f, sendfile(w->null, fd, &off, len));
		break;
	case 7:
		by_splice(w, f, fd, len);
		break;
	case 8: {
		off64_t from = off, to = 0;

		count(f, copy_file_range(fd, &from, w->out, &to, len, 0));
		break;
	}
	case 9:
		count(f, pread(fd, w->buf, 4096 * (1 + draw(w, 4)),
			       4096 * (off_t)draw(w, f->size / 4096)));
		break;
	}
	close(fd);
}

static uint64_t cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (atomic_load(&left) > 0) {
		unsigned i = (unsigned)draw(w, n_files), kind = i % ways;

		if (!atomic_load(&lacks[kind]))
			visit(w, &files[i], kind);
	}
	return NULL;
}

static void make_files(void)
{
	unsigned char *b = malloc(17 * 4096);
	unsigned i;
	int fd;

	if (!b)
		die("malloc");
	memset(b, 'x', 17 * 4096);
	for (i = 0; i < n_files; i++) {
		struct file *f = &files[i];

		f->size = 4096 * (1 + i / KINDS % 16) + i * 37 % 4096;
		snprintf(f->path, sizeof(f->path), "%s/item%05u", dir, i);
		fd = open(f->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (fd < 0 || write(fd, b, f->size) != (ssize_t)f->size ||
		    fsync(fd) || fstat(fd, &f->st))
			die(f->path);
		close(fd);
	}
	free(b);
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
	ring_open(&w->ring);
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

		fprintf(o, "%s %u %llu %llu %llu %llu item%05u\n",
			kinds[i % ways],
			major(f->st.st_dev) << 20 | minor(f->st.st_dev),
			(unsigned long long)f->st.st_ino,
			atomic_load(&f->calls), atomic_load(&f->bytes),
			atomic_load(&f->empty), i);
	}
	if (fclose(o))
		die(path);
}

int main(int argc, char **argv)
{
	static struct worker workers[MAX_THREADS];
	unsigned n, i;
	char c;

	if (argc != 7 && argc != 8) {
		fprintf(stderr, "usage: reads DIR FILES CALLS THREADS SEED TRUTH "
				"[WAYS]\n");
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
	make_files();
	for (i = 0; i < n; i++)
		setup(&workers[i], i, strtoul(argv[5], NULL, 10));
	printf("ready\n");
	fflush(stdout);
	if (read(0, &c, 1) != 1)
		return 1;
	cpu_ns = cpu_now();
	for (i = 0; i < n; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			die("pthread_create");
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
