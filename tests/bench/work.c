/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is measured with a tracer and without: a loop of each kind, again and again.
 *
 *   work LIBRARY FILE
 *
 * Reads lines, and answers each with one:
 *
 *   call NAME MS [RATE]  calls of a function of the library, at most RATE a second
 *   read MS              4 KiB of the file, which is in the page cache
 *   direct MS            4 KiB of it past the page cache
 *   pipe MS              a byte to another process and back
 *   getppid MS           the shortest system call
 *   probe NAME B         an empty program on a function, B bytes behind its entry; or where
 *                        pipetrace would put one (B: place)
 *   free 0               takes it out
 *   crowd P T            P processes more, of T threads each, asleep until this one ends
 *   naps P US            P processes more, each of which sleeps US microseconds, again and again
 *
 * The answer to a loop is ns each and how many, to `probe` how many bytes behind the entry.
 */
#include <bpf/bpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "capture/elf.h"
#include "capture/session.h"

#define BLOCK 4096
#define BLOCKS 256 /* of the file */
#define LOOK 32	   /* at the clock, each so many times */
#define FAR 4096   /* a program that far behind an entry is another function's */

typedef long (*function)(void *, long, long, long, long, long, long, long, long, void *, void *);

static const char *library, *path;
static void *handle;
static int probe = -1, cached = -1, direct = -1, there = -1, back = -1;

static void fail(const char *what)
{
	fprintf(stderr, "work: %s: %s\n", what, errno ? strerror(errno) : "not possible here");
	exit(1);
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- the loops: one round each ------------------------------------------------ */

static function called;

static void call(long i)
{
	static long box[16];

	(void)i;
	called(box, 1, 2, 3, 4, 5, 6, 7, 8, box, NULL);
}

static void read_cached(long i)
{
	static char to[BLOCK];

	if (pread(cached, to, BLOCK, i % BLOCKS * BLOCK) != BLOCK)
		fail("read");
}

static void read_direct(long i)
{
	static char to[BLOCK] __attribute__((aligned(BLOCK)));

	if (direct < 0)
		direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (pread(direct, to, BLOCK, i * 37 % BLOCKS * BLOCK) != BLOCK)
		fail("direct read");
}

static void echo(int in, int out)
{
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(in, &c, 1) == 1 && write(out, &c, 1) == 1)
		;
	_exit(0);
}

static void ping(long i)
{
	int to[2], from[2];
	char c = (char)i;

	if (there < 0) {
		if (pipe(to) || pipe(from))
			fail("pipe");
		if (!fork())
			echo(to[0], from[1]);
		close(to[0]);
		close(from[1]);
		there = to[1];
		back = from[0];
	}
	if (write(there, &c, 1) != 1 || read(back, &c, 1) != 1)
		fail("the other process has ended");
}

static void shortest(long i)
{
	(void)i;
	syscall(SYS_getppid);
}

static void loop(void (*round)(long), double ms, double rate)
{
	double begin, end, now;
	long i, n = 0;

	round(0); /* opens what it needs */
	begin = now = now_ns();
	end = begin + ms * 1e6;
	do {
		for (i = 0; i < LOOK; i++)
			round(n++);
		do
			now = now_ns();
		while (rate > 0 && (double)n * 1e9 / (now - begin) > rate);
	} while (now < end);
	printf("%.2f %ld\n", (now - begin) / (double)n, n);
}

/* ---- a probe of our own --------------------------------------------------------- */

static int empty_program(void)
{
	const struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, o, .expected_attach_type = PT_ATTACH_UPROBE_MULTI);

	return bpf_prog_load(BPF_PROG_TYPE_KPROBE, "empty", "GPL", code, 2, &o);
}

static void put_probe(const char *name, const char *at)
{
	const struct pt_entry_use use = { .args = 0x3f, .stack = 1 };
	int fd = open(library, O_RDONLY | O_CLOEXEC), prog = empty_program();
	uint64_t offset, cookie = 0;
	struct pt_elf_entry e;
	struct pt_err err = { "" };
	unsigned long skip;

	if (fd < 0 || prog < 0)
		fail("an empty program");
	if (pt_elf_entries(fd, &name, &use, 1, &e, &err) != 1) {
		errno = 0;
		fail(err.msg);
	}
	skip = strcmp(at, "place") ? strtoul(at, NULL, 10) : e.place.skip;
	if (skip > FAR)
		fail("that far behind an entry");
	offset = e.offset + skip;
	probe = pt_uprobe_multi(prog, library, &offset, &cookie, 1, 0, getpid());
	errno = -probe;
	if (probe < 0)
		fail("a probe");
	close(prog);
	close(fd);
	printf("%lu\n", skip);
}

/* ---- who is only there --------------------------------------------------------- */

static void *sleeper(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void crowd(int processes, int threads)
{
	pthread_attr_t small;
	pthread_t t;
	int p, i;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	for (p = 0; p < processes; p++) {
		if (fork())
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (i = 1; i < threads; i++)
			if (pthread_create(&t, &small, sleeper, NULL))
				_exit(1);
		sleeper(NULL);
	}
	printf("%d\n", processes * threads);
}

static void naps(int processes, long us)
{
	const struct timespec nap = { us / 1000000, us % 1000000 * 1000 };
	int p, all[2];
	char byte;

	if (pipe(all))
		fail("pipe");
	for (p = 0; p < processes; p++) {
		if (fork())
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_TIMERSLACK, 1);
		close(all[1]);
		if (read(all[0], &byte, 1)) /* until all are there */
			_exit(1);
		for (;;)
			nanosleep(&nap, NULL);
	}
	printf("%d\n", processes);
	close(all[0]);
	close(all[1]);
}

static void obey(const char *what, const char *name, double a, const char *second)
{
	if (!strcmp(what, "call")) {
		*(void **)&called = dlsym(handle, name);
		if (!called)
			fail(name);
		loop(call, a, second ? strtod(second, NULL) : 0);
	} else if (!strcmp(what, "read")) {
		loop(read_cached, a, 0);
	} else if (!strcmp(what, "direct")) {
		loop(read_direct, a, 0);
	} else if (!strcmp(what, "pipe")) {
		loop(ping, a, 0);
	} else if (!strcmp(what, "getppid")) {
		loop(shortest, a, 0);
	} else if (!strcmp(what, "probe") && second) {
		put_probe(name, second);
	} else if (!strcmp(what, "free")) {
		close(probe);
		printf("0\n");
	} else if (!strcmp(what, "crowd") && second) {
		crowd((int)strtol(name, NULL, 10), (int)strtol(second, NULL, 10));
	} else if (!strcmp(what, "naps") && second) {
		naps((int)strtol(name, NULL, 10), strtol(second, NULL, 10));
	} else {
		errno = 0;
		fail(what);
	}
}

int main(int argc, char **argv)
{
	char line[256], *what, *name, *third, *fourth;
	static char block[BLOCK];
	int i;

	if (argc != 3) {
		fprintf(stderr, "usage: work LIBRARY FILE\n");
		return 2;
	}
	library = argv[1];
	path = argv[2];
	handle = dlopen(library, RTLD_NOW);
	/* it is filled: a file that is there is somebody's */
	cached = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (!handle || cached < 0)
		fail(handle ? path : dlerror());
	for (i = 0; i < BLOCKS; i++)
		if (pwrite(cached, block, BLOCK, i * BLOCK) != BLOCK)
			fail(path);
	if (fsync(cached))
		fail(path);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		what = strtok(line, " \n");
		name = strtok(NULL, " \n");
		third = strtok(NULL, " \n");
		fourth = strtok(NULL, " \n");
		if (!what || !name)
			fail("a line of one word");
		if (!strcmp(what, "call"))
			obey(what, name, third ? strtod(third, NULL) : 0, fourth);
		else
			obey(what, name, strtod(name, NULL), third);
	}
	return 0;
}
