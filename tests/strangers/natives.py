# SPDX-License-Identifier: BSD-2-Clause
"""Jobs whose loaders are native code: threads in C, or C programs that the job starts."""
import array
import ctypes
import itertools
import mmap
import os
import socket
import struct
import subprocess
import threading
import time

import numpy as np

from stranger import CPU, job

COMMON = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double clock_ms(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static uint32_t chance(uint32_t *x)
{
	*x ^= *x << 13, *x ^= *x >> 17, *x ^= *x << 5;
	return *x;
}

static void unpack(long bytes, uint8_t *out, size_t size)
{
	uint32_t x = 2463534242u;
	size_t at = 0;
	for (long i = 0; i < bytes; i++) {
		out[at] = chance(&x);
		at = at + 1 < size ? at + 1 : 0;
	}
}

static double per_ms = 1;

__attribute__((constructor)) static void calibrate(void)
{
	static uint8_t scratch[1 << 16];
	for (int i = 0; i < 8; i++) {
		double t = clock_ms(CLOCK_THREAD_CPUTIME_ID);
		unpack(500000, scratch, sizeof scratch);
		t = 500000 / (clock_ms(CLOCK_THREAD_CPUTIME_ID) - t);
		per_ms = t > per_ms ? t : per_ms;
	}
}

/* Work of so many milliseconds on a core that nobody else uses. */
static inline void decode(double ms, uint8_t *out, size_t size)
{
	unpack(ms * per_ms, out, size);
}

static inline void mortal(const char *parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != atoi(parent))
		_exit(0);
}

static inline void spawn(void *(*f)(void *), long n, const char *name)
{
	pthread_t t;
	pthread_create(&t, NULL, f, (void *)n);
	if (name)
		pthread_setname_np(t, name);
	pthread_detach(t);
}

static inline void *aligned(size_t size)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}
"""

QUEUE = r"""
#define MOST 64
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_ready = PTHREAD_COND_INITIALIZER, is_room = PTHREAD_COND_INITIALIZER;
static uint8_t *ready[MOST], *room[MOST];
static unsigned put, taken;
static int rooms;

void release(uint8_t *slot)
{
	pthread_mutex_lock(&queue_lock);
	room[rooms++] = slot;
	pthread_cond_signal(&is_room);
	pthread_mutex_unlock(&queue_lock);
}

static uint8_t *any_room(void)
{
	pthread_mutex_lock(&queue_lock);
	while (rooms == 0)
		pthread_cond_wait(&is_room, &queue_lock);
	uint8_t *slot = room[--rooms];
	pthread_mutex_unlock(&queue_lock);
	return slot;
}

static void deliver(uint8_t *slot)
{
	pthread_mutex_lock(&queue_lock);
	ready[put++ % MOST] = slot;
	pthread_cond_signal(&is_ready);
	pthread_mutex_unlock(&queue_lock);
}

uint8_t *next_batch(void)
{
	pthread_mutex_lock(&queue_lock);
	while (put == taken)
		pthread_cond_wait(&is_ready, &queue_lock);
	uint8_t *slot = ready[taken++ % MOST];
	pthread_mutex_unlock(&queue_lock);
	return slot;
}

static inline void slots_of(int depth, size_t size)
{
	while (depth--)
		release(aligned(size));
}
"""

# A pool that does as it should; for the jobs whose trouble is elsewhere.
GOOD_POOL = QUEUE + r"""
static double cost;
static size_t batch_size;

static void *prefetch(void *arg)
{
	for (;;) {
		uint8_t *slot = any_room();
		decode(cost, slot, batch_size);
		deliver(slot);
	}
	return arg;
}

void start(int threads, int depth, size_t size, double ms)
{
	batch_size = size, cost = ms;
	slots_of(depth, size);
	while (threads--)
		spawn(prefetch, threads, "prefetch");
}
"""
STARTED = []


def compiled(j, name, source, *flags):
    with open(j.path(name + ".c"), "w", encoding="utf-8") as f:
        f.write(COMMON + source)
    subprocess.run(["cc", "-O2", "-pthread", *flags, "-o", j.path(name), j.path(name + ".c")],
                   check=True)
    return j.path(name)


def library(j, source, name="native.so"):
    lib = ctypes.CDLL(compiled(j, name, source, "-shared", "-fPIC"), use_errno=True)
    if hasattr(lib, "next_batch"):
        lib.next_batch.restype = ctypes.c_void_p
    if hasattr(lib, "release"):
        lib.release.restype, lib.release.argtypes = None, [ctypes.c_void_p]
    return lib


def helper(j, name, source, *args, fds=()):
    """Starts a program in C; its first argument is whose end is its own."""
    p = subprocess.Popen([compiled(j, name, source), str(os.getpid()), *map(str, args)],
                         pass_fds=fds)
    STARTED.append(p)
    return p.pid


def real(x):
    return ctypes.c_double(x)


def long(x):
    return ctypes.c_size_t(x)


def steps(j, gpu, lib, size, after=None):
    """The loop of a library that hands out addresses."""
    j.go()
    for n in itertools.count(1):
        j.mark()
        with j.during("data"):
            batch = lib.next_batch()
        gpu.upload(batch, size)
        lib.release(batch)
        j.train(gpu)
        if after:
            after(n)


# ---- threads of the training process that do not keep up


DECODER = QUEUE + r"""
static pthread_mutex_t codec = PTHREAD_MUTEX_INITIALIZER;
static int images, safe;
static size_t batch_size;
static double inside, around, session;

static void *worker(void *arg)
{
	size_t part = batch_size / images;
	for (;;) {
		uint8_t *slot = any_room();
		for (int i = 0; i < images; i++) {
			decode(around, slot + i * part, part);
			if (!safe)
				pthread_mutex_lock(&codec);
			decode(inside, slot + i * part, part);
			if (session > 0) /* until the decoder chip is done */
				usleep(session * 1e3);
			if (!safe)
				pthread_mutex_unlock(&codec);
		}
		deliver(slot);
	}
	return arg;
}

void start(int threads, size_t size, int count, double held, double waits, double own,
	   int thread_safe)
{
	batch_size = size, images = count, inside = held, around = own, safe = thread_safe;
	session = waits;
	slots_of(2 + threads, size);
	while (threads--)
		spawn(worker, threads, NULL);
}
"""


@job(data="lock_bound", threads=True, rest="sync_bound launch_bound")
def codec_mutex(j):
    """A pool of C threads; the codec that they call is not thread-safe and has one mutex."""
    ms, size = j.ms("gpu_ms", 8, 35), j.int("kib", 300, 3000) << 10
    gpu, images = j.gpu(ms, input_bytes=size), j.int("images", 4, 24)
    threads = j.int("threads", 2, 3)
    held = ms * j.ms("late", 1.6, 2.4) / images
    own = held * j.ms("own_share", 0.03, 0.15)
    lib = library(j, DECODER)
    waits = held * j.one("hardware_share", 0, 0.7)
    lib.start(threads, long(size), images, real(held - waits), real(waits), real(own), j.fix)
    steps(j, gpu, lib, size)


RING = r"""
static _Atomic unsigned long head, tail;
static uint8_t *slots[4];
static size_t batch_size;
static double cost;

static void *produce(void *arg)
{
	for (;;) {
		while (atomic_load(&head) - atomic_load(&tail) == 4)
			sched_yield();
		decode(cost, slots[head % 4], batch_size);
		atomic_fetch_add(&head, 1);
	}
	return arg;
}

uint8_t *next_batch(void)
{
	while (atomic_load(&head) == atomic_load(&tail))
		sched_yield();
	return slots[tail % 4];
}

void release(uint8_t *slot)
{
	(void)slot;
	atomic_fetch_add(&tail, 1);
}

void start(size_t size, double ms)
{
	batch_size = size, cost = ms;
	for (int i = 0; i < 4; i++)
		slots[i] = aligned(size);
	spawn(produce, 0, "simulate");
}
"""


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def yield_ring(j):
    """One C thread simulates and fills a lock-free ring; the trainer spins with sched_yield."""
    ms, size = j.ms("gpu_ms", 6, 40), j.int("kib", 200, 2000) << 10
    gpu, late = j.gpu(ms, input_bytes=size), j.ms("late", 1.5, 3)
    lib = library(j, RING)
    lib.start(long(size), real(ms * (0.2 if j.fix else late)))
    steps(j, gpu, lib, size)


ORDERED = r"""
static _Atomic uint32_t full[8];
static uint8_t *slots[8];
static unsigned long ticket;
static int threads;
static size_t batch_size;
static double cost[4];

static void until(_Atomic uint32_t *word, uint32_t value)
{
	while (atomic_load(word) != value)
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, !value, NULL, NULL, 0);
}

static void become(_Atomic uint32_t *word, uint32_t value)
{
	atomic_store(word, value);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *worker(void *arg)
{
	for (long mine = (long)arg;; mine += threads) {
		int at = mine % (2 * threads);
		until(&full[at], 0);
		decode(cost[(long)arg], slots[at], batch_size);
		become(&full[at], 1);
	}
	return arg;
}

uint8_t *next_batch(void)
{
	until(&full[ticket % (2 * threads)], 1);
	return slots[ticket % (2 * threads)];
}

void release(uint8_t *slot)
{
	(void)slot;
	become(&full[ticket++ % (2 * threads)], 0);
}

void start(int count, size_t size, int slow, double slow_ms, double ms)
{
	threads = count, batch_size = size;
	for (int i = 0; i < 2 * count; i++)
		slots[i] = aligned(size);
	for (int i = 0; i < count; i++) {
		cost[i] = i == slow ? slow_ms : ms;
		spawn(worker, i, "reader");
	}
}
"""


@job(data="slow_worker", threads=True, rest="sync_bound launch_bound")
def ordered_futex(j):
    """C threads deliver in turn, by futexes; one of them runs the decoder's scalar fallback."""
    ms, size = j.ms("gpu_ms", 8, 25), j.int("kib", 200, 2500) << 10
    gpu, threads = j.gpu(ms, input_bytes=size), j.int("threads", 3, 4)
    quick, late = ms * j.ms("quick_share", 0.15, 0.5), ms * j.ms("late", 1.6, 2.8) * threads
    lib = library(j, ORDERED)
    lib.start(threads, long(size), j.int("slow", 0, threads - 1), real(quick if j.fix else late),
              real(quick))
    steps(j, gpu, lib, size)


AIO = r"""
#define PAGE 4096
static int file, room_fd, ready_fd, reads, deep;
static uint32_t pages;
static uint8_t *slots[4];
static unsigned long ticket;

static void add(int fd, uint64_t n)
{
	while (write(fd, &n, 8) < 0 && errno == EINTR)
		;
}

static uint64_t take(int fd)
{
	uint64_t n = 0;
	while (read(fd, &n, 8) < 0 && errno == EINTR)
		;
	return n;
}

static void *reader(void *arg)
{
	aio_context_t context = 0;
	struct iocb blocks[64], *block;
	struct io_event events[64];
	struct epoll_event watch = {.events = EPOLLIN};
	int done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), poll = epoll_create1(EPOLL_CLOEXEC);
	uint32_t x = 88172645u;
	syscall(SYS_io_setup, 64, &context);
	epoll_ctl(poll, EPOLL_CTL_ADD, done, &watch);
	for (long n = 0;; n++) {
		take(room_fd);
		for (int asked = 0, got = 0; got < reads;) {
			for (; asked < reads && asked - got < deep; asked++) {
				block = &blocks[asked % 64];
				memset(block, 0, sizeof *block);
				block->aio_lio_opcode = IOCB_CMD_PREAD;
				block->aio_fildes = file;
				block->aio_buf = (uintptr_t)(slots[n % 4] + (size_t)asked * PAGE);
				block->aio_nbytes = PAGE;
				block->aio_offset = (int64_t)(chance(&x) % pages) * PAGE;
				block->aio_flags = IOCB_FLAG_RESFD;
				block->aio_resfd = done;
				if (syscall(SYS_io_submit, context, 1, &block) != 1)
					break; /* as many as the kernel takes for now */
			}
			if (epoll_wait(poll, &watch, 1, -1) > 0) {
				take(done);
				long some = syscall(SYS_io_getevents, context, 0, 64, events, NULL);
				got += some > 0 ? some : 0;
			}
		}
		add(ready_fd, 1);
	}
	return arg;
}

double prepare(const char *path)
{
	file = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	pages = lseek(file, 0, SEEK_END) / PAGE;
	uint8_t *page = aligned(PAGE);
	uint32_t x = 1;
	double best = 1;
	for (int i = 0; i < 20; i++) {
		double t = clock_ms(CLOCK_MONOTONIC);
		for (int k = 0; k < 20; k++)
			if (pread(file, page, PAGE, (int64_t)(chance(&x) % pages) * PAGE) != PAGE)
				return -1;
		t = (clock_ms(CLOCK_MONOTONIC) - t) / 20;
		best = t < best ? t : best;
	}
	return best;
}

void start(int count, int depth)
{
	reads = count, deep = depth;
	for (int i = 0; i < 4; i++)
		slots[i] = aligned((size_t)count * PAGE);
	room_fd = eventfd(4, EFD_CLOEXEC | EFD_SEMAPHORE);
	ready_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	spawn(reader, 0, "aio");
}

uint8_t *next_batch(void)
{
	take(ready_fd);
	return slots[ticket++ % 4];
}

void release(uint8_t *slot)
{
	(void)slot;
	add(room_fd, 1);
}
"""


@job(data="io_bound too_few_workers", threads=True, rest="sync_bound launch_bound")
def aio_epoll(j):
    """A C thread reads samples with io_submit and O_DIRECT, one at a time, and waits in epoll."""
    ms, late = j.ms("gpu_ms", 6, 20), j.ms("late", 1.5, 2.2)
    lib = library(j, AIO)
    lib.prepare.restype = ctypes.c_double
    each = lib.prepare(j.data_file("natives.bin", 32).encode())
    reads = j.keep("reads", max(50, min(1000, int(ms * late / each))))
    gpu = j.gpu(ms, input_bytes=reads << 12)
    lib.start(reads, 64 if j.fix else 1)
    steps(j, gpu, lib, reads << 12)


GATHER = QUEUE + r"""
#define PAGE 4096
#define ROW 2048
static int file, rows, keep;
static size_t length;
static uint8_t *table;

static void forget(void)
{
	madvise(table, length, MADV_DONTNEED);
	posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
}

static void gather(uint8_t *slot, int n, uint32_t *x)
{
	for (int i = 0; i < n; i++)
		memcpy(slot + (size_t)i * ROW, table + (size_t)(chance(x) % (length / ROW)) * ROW, ROW);
}

static void *worker(void *arg)
{
	uint32_t x = 1234567u + 1000 * (long)arg;
	for (;;) {
		uint8_t *slot = any_room();
		gather(slot, rows, &x);
		if (!keep) /* as on a machine whose memory is small beside the table */
			forget();
		deliver(slot);
	}
	return arg;
}

double prepare(const char *path)
{
	file = open(path, O_RDONLY | O_CLOEXEC);
	length = lseek(file, 0, SEEK_END);
	table = mmap(NULL, length, PROT_READ, MAP_SHARED, file, 0);
	madvise(table, length, MADV_RANDOM);
	forget();
	uint8_t *slot = aligned(20 * ROW);
	uint32_t x = 1;
	double best = 1;
	for (int i = 0; i < 20; i++) {
		double t = clock_ms(CLOCK_MONOTONIC);
		gather(slot, 20, &x);
		t = (clock_ms(CLOCK_MONOTONIC) - t) / 20;
		best = t < best ? t : best;
	}
	return best;
}

void start(int threads, int count, int cached)
{
	rows = count, keep = cached;
	if (cached) {
		madvise(table, length, MADV_NORMAL);
		madvise(table, length, MADV_POPULATE_READ);
	}
	slots_of(2 + threads, (size_t)rows * ROW);
	while (threads--)
		spawn(worker, threads, "gather");
}
"""


@job(data="page_fault_io too_few_workers", threads=True, rest="sync_bound launch_bound")
def mapped_table(j):
    """C threads gather rows from a mapped table of features that memory does not hold."""
    ms, threads, late = j.ms("gpu_ms", 6, 16), j.int("threads", 1, 2), j.ms("late", 1.6, 2.6)
    lib = library(j, GATHER)
    lib.prepare.restype = ctypes.c_double
    each = lib.prepare(j.data_file("natives.bin", 32).encode())
    rows = j.keep("rows", max(100, min(2000, int(ms * late * threads / each))))
    gpu = j.gpu(ms, input_bytes=rows * 2048)
    lib.start(threads, rows, j.fix)
    steps(j, gpu, lib, rows * 2048)


# ---- programs in C that bring the batches


MAILBOX = r"""
static sem_t *made;
static uint8_t *shared;
static mqd_t tasks;
static size_t batch_size;
static unsigned long ticket, depth;

void release(uint8_t *slot)
{
	uint32_t n = (slot - shared - 4096) / batch_size;
	while (mq_send(tasks, (char *)&n, 4, 0) < 0 && errno == EINTR)
		;
}

int prepare(const char *name, size_t size, int slots, int *fds)
{
	struct mq_attr attr = {.mq_maxmsg = slots, .mq_msgsize = 4};
	tasks = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
	if (tasks == (mqd_t)-1)
		return errno;
	mq_unlink(name);
	fds[0] = tasks, fds[1] = memfd_create("batches", 0);
	batch_size = size, depth = slots;
	if (ftruncate(fds[1], 4096 + size * slots))
		return errno;
	shared = mmap(NULL, 4096 + size * slots, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
	made = (sem_t *)shared;
	sem_init(made, 1, 0);
	for (int i = 0; i < slots; i++)
		release(shared + 4096 + i * size);
	return 0;
}

uint8_t *next_batch(void)
{
	while (sem_wait(made))
		;
	return shared + 4096 + ticket++ % depth * batch_size;
}
"""
FETCHER = r"""
int main(int n, char **arg)
{
	(void)n;
	mortal(arg[1]);
	mqd_t tasks = atoi(arg[2]);
	size_t size = atol(arg[4]), length = 4096 + size * atoi(arg[5]);
	uint8_t *shared = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(arg[3]), 0);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(arg[6])),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int link = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
	if (connect(link, (struct sockaddr *)&to, sizeof to))
		return 1;
	setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	for (;;) {
		uint32_t slot, ask = size;
		if (mq_receive(tasks, (char *)&slot, 4, NULL) != 4)
			return 1;
		uint8_t *to = shared + 4096 + slot * size;
		if (send(link, &ask, 4, 0) != 4 || recv(link, to, size, MSG_WAITALL) != (ssize_t)size)
			return 1;
		decode(0.5, to, size);
		sem_post((sem_t *)shared);
	}
}
"""


def shard_store(j):
    """Answers late, or sends slowly to each connection."""
    late, how = j.told("late").split()
    wait, door = float(late) / 1e3, socket.create_server(("127.0.0.1", 0))
    j.tell("port", door.getsockname()[1])

    def serve(link):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while ask := link.recv(4):
            body = bytes(struct.unpack("<I", ask)[0])
            if how == "answer":
                time.sleep(wait)
                link.sendall(body)
                continue
            begin, piece = time.monotonic(), -(-len(body) // 8)
            for n in range(8):
                due = begin + wait * (n + 1) / 8
                time.sleep(max(due - time.monotonic(), 0))
                link.sendall(body[n * piece:(n + 1) * piece])
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()


@job(outside=shard_store, data="network_bound too_few_workers", rest="sync_bound launch_bound")
def mailbox_fetch(j):
    """A C program takes tasks from a message queue and fetches into shared memory."""
    ms, size = j.ms("gpu_ms", 8, 42), j.int("kib", 200, 1500) << 10
    gpu, late = j.gpu(ms, input_bytes=size), j.ms("late", 1.6, 3)
    how = j.one("slow", "answer", "send")
    j.tell("late", "%f %s" % (ms * (0.2 if j.fix else late), how))
    depth, lib, fds = j.int("depth", 2, 6), library(j, MAILBOX), array.array("i", [0, 0])
    wrong = lib.prepare(b"/natives-%d" % os.getpid(), long(size), depth,
                        ctypes.c_void_p(fds.buffer_info()[0]))
    if wrong:
        raise OSError(wrong, os.strerror(wrong))
    j.supplier(helper(j, "fetcher", FETCHER, fds[0], fds[1], size, depth, j.told("port"),
                      fds=tuple(fds)))
    steps(j, gpu, lib, size)


PACKER = r"""
int main(int n, char **arg)
{
	(void)n;
	mortal(arg[1]);
	signal(SIGPIPE, SIG_IGN);
	size_t size = atol(arg[3]);
	int file = memfd_create("packed", 0), fifo = open(arg[2], O_WRONLY);
	uint8_t *batch = malloc(size);
	decode(5, batch, size);
	for (int i = 0; i < 4; i++)
		if (write(file, batch, size) != (ssize_t)size)
			return 1;
	fcntl(fifo, F_SETPIPE_SZ, atoi(arg[4]));
	for (int i = 0;; i++) {
		off_t at = i % 4 * (off_t)size, end = at + size;
		while (at < end)
			if (sendfile(fifo, file, &at, end - at) < 0 && errno != EINTR)
				return 1;
	}
}
"""


@job(data="ipc_bound", rest="sync_bound launch_bound")
def page_pipe(j):
    """A C program has the batches ready and sends them through a FIFO that holds one page."""
    ms, size = j.ms("gpu_ms", 5, 8), j.int("kib", 2800, 4000) << 10
    gpu, fifo = j.gpu(ms, input_bytes=size, launches=j.int("launches", 5, 40)), j.path("batches")
    os.mkfifo(fifo)
    # What is left to a user who has used up pipe-user-pages-soft.
    helper(j, "packer", PACKER, fifo, size, 1 << 20 if j.fix else 4096)
    batches, x = open(fifo, "rb"), np.zeros(size, np.uint8)

    def obtain():
        batches.readinto(x)
        return x
    j.loop(gpu, obtain)


# ---- the data is not it


LOGGER = GOOD_POOL + r"""
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_much = PTHREAD_COND_INITIALIZER;
static char lines[2][1 << 18];
static size_t used, much;
static int current, swaps, log_file;
static double pack;

static void put_down(char *from, size_t size)
{
	static uint8_t packed[1 << 16];
	decode(pack, packed, sizeof packed);
	if (pwrite(log_file, from, size, 0) > 0)
		fdatasync(log_file);
}

static void *flusher(void *arg)
{
	for (;;) {
		pthread_mutex_lock(&log_lock);
		while (used < much)
			pthread_cond_wait(&is_much, &log_lock);
		size_t size = used;
		char *from = lines[current];
		used = 0;
		if (swaps) {
			current ^= 1;
			pthread_mutex_unlock(&log_lock);
			put_down(from, size);
			continue;
		}
		put_down(from, size);
		pthread_mutex_unlock(&log_lock);
	}
	return arg;
}

void log_scalar(int step, int tag, double value)
{
	pthread_mutex_lock(&log_lock);
	if (used + 100 < sizeof lines[0])
		used += sprintf(lines[current] + used, "{\"step\":%07d,\"tag\":%03d,\"value\":%12.6f}\n",
				step, tag, value);
	if (used >= much)
		pthread_cond_signal(&is_much);
	pthread_mutex_unlock(&log_lock);
}

void start_log(const char *path, size_t limit, double ms, int swap)
{
	log_file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	much = limit, pack = ms, swaps = swap;
	spawn(flusher, 0, "summary");
}
"""


@job(data=CPU, lock="lock_bound", rest="sync_bound launch_bound")
def summary_mutex(j):
    """A C++-like summary writer packs and flushes with the mutex held that log_scalar takes."""
    ms, size = j.ms("gpu_ms", 10, 45), j.int("kib", 200, 1500) << 10
    gpu, share = j.gpu(ms, input_bytes=size), j.ms("load_share", 0.05, 0.3)
    scalars, every = j.int("scalars", 10, 60), j.int("every", 1, 2)
    hold = ms * (1 + j.ms("late", 0.6, 2) * every)
    lib = library(j, LOGGER)
    lib.start(1, 4, long(size), real(ms * share))
    lib.start_log(j.path("summary.jsonl").encode(), long(scalars * every * 50), real(hold), j.fix)
    lib.log_scalar.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_double]

    def log(n):
        with j.during("lock"):
            for tag in range(scalars):
                lib.log_scalar(n, tag, gpu.loss.value)
    steps(j, gpu, lib, size, log)


CROPS = r"""
int main(int n, char **arg)
{
	(void)n;
	mortal(arg[1]);
	int link = atoi(arg[2]);
	size_t size = atol(arg[3]);
	double cost = atof(arg[4]);
	for (int i = 0;; i++) {
		char ack, space[CMSG_SPACE(sizeof(int))] = {0};
		if (i >= 3 && recv(link, &ack, 1, 0) != 1)
			return 1;
		int fd = memfd_create("crops", MFD_CLOEXEC);
		if (ftruncate(fd, size))
			return 1;
		uint8_t *batch = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		decode(cost, batch, size);
		munmap(batch, size);
		struct iovec part = {.iov_base = &size, .iov_len = sizeof size};
		struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space,
				   .msg_controllen = sizeof space};
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
		if (sendmsg(link, &m, 0) < 0)
			return 1;
		close(fd);
	}
}
"""
NMS = r"""
static pthread_barrier_t begin, end;
static double theirs, mine;
static uint8_t *kept;
static size_t length;

static void *half(void *arg)
{
	for (;;) {
		pthread_barrier_wait(&begin);
		decode(theirs, kept, length / 2);
		pthread_barrier_wait(&end);
	}
	return arg;
}

void prepare(size_t size, double ms, double other_ms)
{
	kept = aligned(size), length = size, mine = ms, theirs = other_ms;
	pthread_barrier_init(&begin, NULL, 2);
	pthread_barrier_init(&end, NULL, 2);
	spawn(half, 0, NULL);
}

void suppress(void)
{
	pthread_barrier_wait(&begin);
	decode(mine, kept + length / 2, length / 2);
	pthread_barrier_wait(&end);
}
"""


@job(data=CPU, host="host_bound", rest="sync_bound launch_bound")
def nms_barrier(j):
    """Two-stage detection: proposals come down, NMS in C on two threads, then the second stage."""
    ms, size = j.ms("gpu_ms", 12, 60), j.int("kib", 300, 2500) << 10
    gpu, share = j.gpu(ms, input_bytes=size), j.ms("load_share", 0.05, 0.25)
    boxes = np.zeros(j.int("boxes", 1000, 12000) * 5, np.float32)
    nms, own = j.ms("nms", 0.4, 1.3), j.ms("own_part", 0.25, 0.95)
    lib = library(j, NMS)
    lib.prepare(long(1 << 20), real(ms * nms * own), real(ms * nms))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    helper(j, "crops", CROPS, theirs.fileno(), size, ms * share, fds=(theirs.fileno(),))
    theirs.close()
    j.go()
    while True:
        j.mark()
        with j.during("data"):
            _, (fd,), _, _ = socket.recv_fds(ours, 8, 1)
            batch = mmap.mmap(fd, size)
        x = np.frombuffer(batch, np.uint8)
        gpu.upload(x.ctypes.data, size)
        del x
        batch.close()
        os.close(fd)
        ours.send(b"+")
        gpu.forward()
        if not j.fix:  # else it is a kernel of its own
            gpu.check(gpu.lib.cudaMemcpy(boxes.ctypes.data, gpu.input,
                                         min(boxes.nbytes, size), 2))
            with j.during("host"):
                lib.suppress()
        gpu.backward()
        gpu.optimizer()
        gpu.loss_item()


SNAPSHOT = GOOD_POOL + r"""
static uint8_t *map;

int open_snapshot(const char *path, size_t size)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return map == MAP_FAILED;
}

void save(const uint8_t *state, size_t size)
{
	memcpy(map, state, size);
	msync(map, size, MS_SYNC);
}
"""


@job(data=CPU, ckpt="checkpoint_stall", rest="sync_bound launch_bound")
def mapped_snapshot(j):
    """Snapshots through a mapped file: memcpy and msync in the training thread, and no write."""
    ms, size, every = j.ms("gpu_ms", 6, 25), j.int("kib", 200, 1500) << 10, j.int("every", 1, 3)
    gpu, share = j.gpu(ms, input_bytes=size), j.ms("load_share", 0.05, 0.3)
    weights = np.random.default_rng(1).integers(0, 255, j.int("mib", 12, 32) << 20, np.uint8)
    lib = library(j, SNAPSHOT)
    lib.start(1, 6, long(size), real(ms * share))
    if lib.open_snapshot(j.data_file("natives.snapshot", 32).encode(), long(weights.nbytes)):
        raise OSError("the snapshot cannot be mapped")

    def save(n):
        if n % every == 0 and not j.fix:
            weights[n % 4096::4096] += 1
            with j.during("ckpt"):
                lib.save(ctypes.c_void_p(weights.ctypes.data), long(weights.nbytes))
    steps(j, gpu, lib, size, save)


# ---- the device is busy


RUN_AHEAD = QUEUE + r"""
static size_t batch_size;
static double usual;

static void *map_and_batch(void *arg)
{
	uint32_t x = 42u + (long)arg;
	for (;;) {
		uint8_t *slot = any_room();
		decode(chance(&x) % 10 == 0 ? 2.5 * usual : usual, slot, batch_size);
		deliver(slot);
	}
	return arg;
}

void start(int threads, size_t size, double ms)
{
	batch_size = size, usual = ms * threads / 1.15;
	while (threads--)
		spawn(map_and_batch, threads, "tf_data");
}
"""


@job(data=CPU, threads=True, rest="sync_bound launch_bound")
def run_ahead(j):
    """The trainer waits for its C threads most of the time, but has queued steps meanwhile."""
    ms, size = j.ms("gpu_ms", 15, 80), j.int("kib", 300, 2000) << 10
    gpu = j.gpu(ms, input_bytes=size, launches=j.int("launches", 10, 40))
    threads, every = j.int("threads", 1, 2), j.int("item_every", 8, 14)
    share = j.ms("load_share", 0.4, 0.6)
    lib, used = library(j, RUN_AHEAD), []
    for _ in range(every + 4):
        lib.release(gpu.host_buffer(size))
    lib.start(threads, long(size), real(ms * share))
    j.go()
    for n in itertools.count(1):
        j.mark()
        with j.during("data"):
            used.append(lib.next_batch())
        gpu.upload(used[-1], size)
        j.train(gpu, item=n % every == 0)
        if n % every == 0:
            while used:  # the device has read them all
                lib.release(used.pop(0))


SPOOLER = r"""
int main(int n, char **arg)
{
	mortal(arg[1]);
	size_t size = atol(arg[3]);
	double cost = atof(arg[4]), spread = atof(arg[5]);
	int depth = atoi(arg[6]), watch = inotify_init1(IN_CLOEXEC), left = depth;
	char part[512], name[512], events[4096] __attribute__((aligned(8)));
	uint8_t *batch = malloc(size);
	uint32_t x = 99u;
	inotify_add_watch(watch, arg[2], IN_DELETE);
	int lock = open(arg[7], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (n = 0;; n++) {
		while (left == 0) {
			ssize_t got = read(watch, events, sizeof events);
			for (char *p = events; p < events + got; left++)
				p += sizeof(struct inotify_event) + ((struct inotify_event *)p)->len;
		}
		decode(cost * (1 + spread * (chance(&x) % 2001 / 1000.0 - 1)), batch, size);
		snprintf(part, sizeof part, "%s.part", arg[7]);
		snprintf(name, sizeof name, "%s/%08d", arg[2], n);
		int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (write(fd, batch, size) != (ssize_t)size)
			return 1;
		close(fd);
		flock(lock, LOCK_EX);
		rename(part, name);
		flock(lock, LOCK_UN);
		left--;
	}
}
"""
SPOOL = r"""
static int watch, lock;
static char folder[400];
static unsigned long ticket;
static uint8_t *batch;
static size_t batch_size;

void open_spool(const char *path, const char *lock_path, size_t size)
{
	snprintf(folder, sizeof folder, "%s", path);
	watch = inotify_init1(IN_CLOEXEC);
	inotify_add_watch(watch, path, IN_MOVED_TO);
	lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	batch = aligned(size), batch_size = size;
}

uint8_t *next_batch(void)
{
	char name[512], events[4096];
	int fd;
	snprintf(name, sizeof name, "%s/%08lu", folder, ticket++);
	while ((fd = open(name, O_RDONLY | O_CLOEXEC)) < 0)
		if (read(watch, events, sizeof events) < 0 && errno != EINTR)
			return NULL;
	size_t got = 0;
	for (ssize_t n; got < batch_size && (n = read(fd, batch + got, batch_size - got)) != 0;)
		got += n > 0 ? n : 0;
	close(fd);
	while (flock(lock, LOCK_EX))
		;
	unlink(name);
	flock(lock, LOCK_UN);
	return batch;
}

void release(uint8_t *slot)
{
	(void)slot;
}
"""


@job(data=CPU, rest="sync_bound launch_bound")
def spool_folder(j):
    """A busy C program spools files, which inotify announces and flock guards; it keeps up."""
    ms, size = j.ms("gpu_ms", 25, 100), j.int("kib", 200, 1000) << 10
    gpu, share = j.gpu(ms, input_bytes=size), j.ms("load_share", 0.4, 0.6)
    spread = j.ms("spread", 0.05, 0.6)
    spool, lock, lib = j.path("spool"), j.path("spool.lock"), library(j, SPOOL)
    os.mkdir(spool)
    lib.open_spool(spool.encode(), lock.encode(), long(size))
    helper(j, "spooler", SPOOLER, spool, size, ms * share, spread, j.int("depth", 3, 6), lock)
    steps(j, gpu, lib, size)
