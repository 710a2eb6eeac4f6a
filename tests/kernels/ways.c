// SPDX-License-Identifier: BSD-2-Clause
#include "ways.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

const char *const kinds[KINDS] = {
	"read", "readv", "pread", "preadv2", "mmap", "io_uring", "sendfile",
	"splice", "copy_file_range", "o_direct", "libaio", "fifo",
};

bool cold, fail;
atomic_long left;
atomic_int lacks[KINDS];

void die(const char *what)
{
	fprintf(stderr, "reads: %s: %s\n", what, strerror(errno));
	exit(1);
}

uint64_t draw(struct worker *w, uint64_t below)
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

/* A call that has to fail, with `err`. */
static void count_failed(struct file *f, ssize_t n, int err)
{
	if (n >= 0 || errno != err)
		die("a call that should fail");
	atomic_fetch_add(&f->failed, 1);
	atomic_fetch_sub(&left, 1);
}

static void ring_open(struct ring *r)
{
	struct io_uring_params p;
	unsigned char *sq, *cq;

	memset(&p, 0, sizeof(p));
	r->fd = (int)syscall(SYS_io_uring_setup, RING, &p);
	if (r->fd < 0) {
		atomic_store(&lacks[KIND_RING], errno);
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

/* Pages of the mapping that the page cache has. */
static size_t cached(void *m, size_t size)
{
	unsigned char has[32];
	size_t pages = (size + 4095) / 4096, i, n = 0;

	if (pages > sizeof(has) || mincore(m, size, has))
		die("mincore");
	for (i = 0; i < pages; i++)
		n += has[i] & 1;
	return n;
}

/* No call: its bytes are those of the pages that came into the page cache, by
 * nobody else's doing where the file is the thread's alone. */
static void by_map(struct worker *w, struct file *f, int fd)
{
	unsigned char *m = mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0);
	size_t i, before;

	if (m == MAP_FAILED)
		die(f->path);
	before = cached(m, f->size);
	for (i = 0; i < f->size; i += 4096)
		w->sum += m[i];
	if (cold)
		atomic_fetch_add(&f->bytes,
				 4096 * (cached(m, f->size) - before));
	munmap(m, f->size);
	atomic_fetch_sub(&left, 1);
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

/* One to RING reads of the file at once. */
static void by_aio(struct worker *w, struct file *f, int fd)
{
	unsigned n = 1 + (unsigned)draw(w, RING), i;
	struct iocb cb[RING], *list[RING];
	struct io_event ev[RING];

	memset(cb, 0, sizeof(cb));
	for (i = 0; i < n; i++) {
		cb[i].aio_lio_opcode = IOCB_CMD_PREAD;
		cb[i].aio_fildes = (uint32_t)fd;
		cb[i].aio_buf = (uint64_t)(uintptr_t)(w->buf + i * (BUF / RING));
		cb[i].aio_nbytes = 4096 * (1 + draw(w, 4));
		cb[i].aio_offset = 4096 * (int64_t)draw(w, f->size / 4096);
		list[i] = &cb[i];
	}
	if (syscall(SYS_io_submit, w->aio, n, list) != n ||
	    syscall(SYS_io_getevents, w->aio, n, n, ev, NULL) != n)
		die("io_submit");
	for (i = 0; i < n; i++) {
		errno = (int)-ev[i].res;
		count(f, (ssize_t)ev[i].res);
	}
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* Out of an empty FIFO, until a signal ends the wait. Its next one is kept from other calls: the
 * kernel breaks a splice off for it and starts it anew, which nobody but a tracer sees. */
static void interrupted(struct worker *w, struct file *f, int fd)
{
	sigset_t alarm;
	struct itimerspec t = { { 0, 2000000 }, { 0, 2000000 } };
	struct sigevent e = { .sigev_notify = SIGEV_THREAD_ID,
			      .sigev_signo = SIGUSR1 };
	timer_t timer;

	e._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	if (timer_create(CLOCK_MONOTONIC, &e, &timer) ||
	    timer_settime(timer, 0, &t, NULL))
		die("timer");
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGUSR1);
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
	count_failed(f, read(fd, w->buf, 1), EINTR);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	timer_delete(timer);
}

/* Less than was asked for, and at times a signal before there is anything. */
static void by_fifo(struct worker *w, struct file *f, int fd)
{
	size_t n = 1 + (size_t)draw(w, 4000);

	pthread_mutex_lock(&f->lock);
	if (!draw(w, 8))
		interrupted(w, f, fd);
	if (write(fd, w->buf, n) != (ssize_t)n)
		die("fifo");
	count(f, read(fd, w->buf, BUF));
	pthread_mutex_unlock(&f->lock);
}

/* Calls into memory that is not there; the file has what they ask for. */
static void failing(struct worker *w, struct file *f, unsigned kind, int fd)
{
	void *volatile nowhere = (void *)16; /* the compiler need not know */
	struct iovec v = { nowhere, 100 };

	if (!fail || draw(w, 4))
		return;
	switch (kind) {
	case 0: count_failed(f, read(fd, nowhere, 100), EFAULT); break;
	case 1: count_failed(f, readv(fd, &v, 1), EFAULT); break;
	case 2: count_failed(f, pread(fd, nowhere, 100, 50), EFAULT); break;
	case 3: count_failed(f, preadv2(fd, &v, 1, 50, 0), EFAULT); break;
	}
}

static int open_way(struct worker *w, struct file *f, unsigned kind)
{
	int flags = kind == KIND_FIFO ? O_RDWR : O_RDONLY, fd;
	bool direct = kind == KIND_DIRECT || (kind == KIND_AIO && draw(w, 2));

	fd = open(f->path, flags | O_CLOEXEC | (direct ? O_DIRECT : 0));
	if (fd < 0 && kind == KIND_AIO && direct)
		fd = open(f->path, flags | O_CLOEXEC);
	if (fd < 0 && (kind != KIND_DIRECT || errno != EINVAL))
		die(f->path);
	return fd;
}

static void visit_one(struct worker *w, struct file *f, unsigned kind)
{
	int fd = open_way(w, f, kind);
	size_t len = 1 + draw(w, BUF / 4);
	struct iovec v[2] = { { w->buf, len / 2 }, { w->buf + BUF / 2, len } };
	off_t off = (off_t)draw(w, f->size);
	unsigned i, n;

	if (fd < 0) {
		atomic_store(&lacks[kind], errno);
		return;
	}
	if (cold && !draw(w, 8))
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	failing(w, f, kind, fd);
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
	case KIND_RING:
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
	case KIND_DIRECT:
		count(f, pread(fd, w->buf, 4096 * (1 + draw(w, 4)),
			       4096 * (off_t)draw(w, f->size / 4096)));
		break;
	case KIND_AIO:
		by_aio(w, f, fd);
		break;
	case KIND_FIFO:
		by_fifo(w, f, fd);
		break;
	}
	close(fd);
}

/* Where files are dropped from the cache, nobody else reads this one then: a page
 * that goes between its readahead and its use comes back without an event of the
 * page door's tracepoint (filemap_create_folio). */
void visit(struct worker *w, struct file *f, unsigned kind)
{
	bool alone = cold && kind != KIND_FIFO;

	if (alone)
		pthread_mutex_lock(&f->lock);
	visit_one(w, f, kind);
	if (alone)
		pthread_mutex_unlock(&f->lock);
}

void ways_setup(struct worker *w)
{
	struct sigaction alarm = { .sa_handler = on_alarm };

	sigaction(SIGUSR1, &alarm, NULL);
	sigemptyset(&alarm.sa_mask);
	sigaddset(&alarm.sa_mask, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &alarm.sa_mask, NULL);
	if (syscall(SYS_io_setup, RING, &w->aio))
		atomic_store(&lacks[KIND_AIO], errno);
	ring_open(&w->ring);
}
