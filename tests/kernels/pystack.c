// SPDX-License-Identifier: BSD-2-Clause
/*
 * What is sampled of Python in the kernel, of a process that plays an interpreter: its
 * memory is known to the last word, true or not. Writes lines for tests/kernels/judge.py:
 *   python CASE good N
 *   error TEXT
 * N: samples, each of which was as it had to be; of a case that lies, those that were
 * tried.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "capture/capture.h"
#include "capture/ringbuf.h"
#include "python/reader_int.h"

#define WORDS 8192
#define WAIT_NS UINT64_C(20000000000) /* an emulated machine takes its time */

/* Words of the memory. Frames lie apart, as they do. */
enum { TID, POINTER, RUNTIME = 8, INTERPRETER = 200, STATES = 2000, CFRAME = 3000, FRAME = 4000, CODE = 7000 };
#define STATE_WORDS 40
#define FRAME_WORDS 20
#define FRAMES 5
#define SHIM 2 /* between C and Python */

static uint64_t *memory; /* at the same place in both processes */
static struct pt_py_found found;
static unsigned long long good, bad;
static uint32_t want; /* frames; 0: any number */

static uint64_t at(unsigned word)
{
	return (uint64_t)(uintptr_t)&memory[word];
}

static void put(unsigned word, uint32_t offset, uint64_t v)
{
	if (offset != PT_PY_NOWHERE)
		memcpy((char *)&memory[word] + offset, &v, sizeof(v));
}

/* The interpreter has three threads, of which ours is the last. */
static void play(void)
{
	const struct pt_py_where *w = &found.where;
	uint64_t tid = memory[TID], pointer = memory[POINTER];
	unsigned i;

	memset(memory + RUNTIME, 0, (WORDS - RUNTIME) * sizeof(*memory));
	put(RUNTIME, w->interpreters, at(INTERPRETER));
	put(INTERPRETER, w->threads, at(STATES));
	for (i = 0; i < 3; i++) {
		unsigned state = STATES + STATE_WORDS * i;

		put(state, w->next, i < 2 ? at(state + STATE_WORDS) : 0);
		put(state, w->id, i < 2 ? 1 : w->native ? tid : pointer);
		put(state, w->frame, at(w->cframe == PT_PY_NOWHERE ? FRAME : CFRAME));
	}
	put(CFRAME, w->cframe, at(FRAME));
	for (i = 0; i < FRAMES; i++) {
		unsigned frame = FRAME + FRAME_WORDS * i;

		put(frame, w->code, at(CODE) + 64 * i);
		put(frame, w->instr, 1000 + i);
		put(frame, w->previous, i + 1 < FRAMES ? at(frame + FRAME_WORDS) : 0);
		if (w->owner != PT_PY_NOWHERE && i == SHIM)
			((char *)&memory[frame])[w->owner] = 3;
	}
}

static _Noreturn void player(void)
{
	unsigned i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
#ifdef __x86_64__
	__asm__("mov %%fs:0, %0" : "=r"(memory[POINTER]));
#endif
	__atomic_store_n(&memory[TID], (uint64_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	/* its own pages, as an interpreter's are: what it never touched is not mapped for it */
	for (i = 0;; i = (i + 64) % WORDS)
		*(volatile uint64_t *)&memory[i];
}

/* Ours are in order, without the one between C and Python. */
static bool is_right(const struct pt_py_sample *s)
{
	uint32_t i, k = 0;

	if (want == PT_PY_FRAMES)
		return s->n == want;
	for (i = 0; i < FRAMES; i++) {
		if (found.where.owner != PT_PY_NOWHERE && i == SHIM)
			continue;
		if (k >= s->n || s->at[k].code != at(CODE) + 64 * i || (uint32_t)s->at[k].instr != 1000 + i)
			return false;
		k++;
	}
	return k == s->n;
}

static int on_sample(void *ctx, void *data, size_t len)
{
	const size_t head = offsetof(struct pt_py_sample, at);
	const struct pt_py_sample *s = data;
	uint64_t now = pt_now_ns();

	(void)ctx;
	if (len < head || !s->n || s->n > PT_PY_FRAMES ||
	    len != head + sizeof(s->at[0]) * (size_t)s->n || !s->ip ||
	    s->tid != memory[TID] || s->tgid != memory[TID] || s->ts > now ||
	    (want && !is_right(s)))
		bad++;
	else
		good++;
	return 0;
}

static struct pt_py_counts counts(const struct pt_capture *c)
{
	struct pt_py_counts n;
	unsigned hz;

	pt_capture_py_counts(c, &n, &hz);
	return n;
}

/* Until so many samples were tried. */
static int wait_for(struct pt_capture *c, struct pt_ringbuf *ring, uint64_t n)
{
	uint64_t from = counts(c).tried, until = pt_now_ns() + WAIT_NS;
	int r = 0;

	while (!r && counts(c).tried < from + n && pt_now_ns() < until) {
		usleep(20000);
		r = pt_ringbuf_read(ring);
	}
	return r ?: counts(c).tried < from + n ? -ETIME : 0;
}

/* Until so many were read; how many of the tries of an emulated machine fall amid a change is its
 * own affair. */
static int wait_for_good(struct pt_capture *c, struct pt_ringbuf *ring, uint64_t n)
{
	uint64_t until = pt_now_ns() + WAIT_NS;
	int r = 0;

	while (!r && good < n && pt_now_ns() < until)
		r = wait_for(c, ring, 1);
	return r;
}

static bool say(const char *name, int minor, bool ok, uint64_t n)
{
	printf("python %s-3.%d %s %llu\n", name, minor, ok ? "good" : "bad", (unsigned long long)n);
	return ok;
}

/* A true one, as often as asked for; one that has no end; one that ends in a page that
 * is none; one whose thread is not there; and what nobody can foresee. */
static bool each_case(struct pt_capture *c, struct pt_ringbuf *ring, void *hole)
{
	int minor = found.minor, r;
	struct pt_py_counts was;
	uint64_t seed = 7;
	unsigned i, k;
	bool ok;

	want = FRAMES;
	wait_for(c, ring, 2); /* one may be of before */
	good = bad = 0;
	r = wait_for_good(c, ring, 15);
	ok = say("true", minor, !r && good >= 15 && !bad, good);

	want = PT_PY_FRAMES;
	put(FRAME + FRAME_WORDS * (FRAMES - 1), found.where.previous, at(FRAME));
	wait_for(c, ring, 2);
	good = bad = 0;
	r = wait_for_good(c, ring, 3);
	ok &= say("circle", minor, !r && good >= 3 && !bad, good);

	want = FRAMES;
	put(FRAME + FRAME_WORDS * (FRAMES - 1), found.where.previous, (uint64_t)(uintptr_t)hole);
	wait_for(c, ring, 2);
	was = counts(c);
	good = bad = 0;
	r = wait_for(c, ring, 5);
	ok &= say("hole", minor, !r && !good && !bad && counts(c).unread >= was.unread + 5, 5);

	play();
	/* one amid play() forgets the state that it knew: now it has it again */
	wait_for(c, ring, 2);
	good = bad = 0;
	wait_for_good(c, ring, 2);
	put(STATES + STATE_WORDS, found.where.next, at(STATES)); /* in a circle, without it */
	wait_for(c, ring, 2);
	good = bad = 0;
	/* the state that is known stays its own, as long as it says so */
	r = wait_for_good(c, ring, 3);
	ok &= say("kept", minor, !r && good >= 3 && !bad, good);
	put(STATES + 2 * STATE_WORDS, found.where.id, 1);
	wait_for(c, ring, 2);
	was = counts(c);
	good = bad = 0;
	r = wait_for(c, ring, 20);
	ok &= say("nobody", minor, !r && !good && !bad && counts(c).no_stack >= was.no_stack + 20, 20);

	want = 0;
	for (i = 0, r = 0; i < 30 && !r; i++) {
		play();
		for (k = 0; k < 40; k++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			memory[RUNTIME + (seed >> 33) % (WORDS - RUNTIME)] =
				seed >> 20 & 1 ? at((seed >> 40) % WORDS) + (seed >> 21 & 7) : seed;
		}
		r = wait_for(c, ring, 1);
	}
	ok &= say("lies", minor, !r && !bad, i);
	return ok;
}

/* ns that it was on a core. */
static uint64_t ran(pid_t pid)
{
	unsigned long long ns = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	f = fopen(path, "r");
	if (f && fscanf(f, "%llu", &ns) != 1)
		ns = 0;
	if (f)
		fclose(f);
	return ns;
}

/* Whoever may take next to nothing of a core halves the rate every two seconds, and it is. */
static bool rates(struct pt_capture *c, pid_t pid, struct pt_ringbuf *ring)
{
	struct pt_py_counts was;
	unsigned hz = 0, i;
	uint64_t cpu, n;
	double got;

	want = 0;
	for (i = 0; i < 5; i++) { /* the first only begins; two in a row count */
		pt_capture_py_tick(c, 0, 1e-9);
		wait_for(c, ring, 2);
	}
	pt_capture_py_counts(c, &was, &hz);
	cpu = ran(pid);
	wait_for(c, ring, 40);
	n = counts(c).tried - was.tried;
	got = (double)n * 1e9 / (double)(ran(pid) - cpu);
	printf("# %u times a second: %.1f for each second on a core\n", hz, got);
	return hz == PT_PY_HZ / 4 && got > 0.5 * hz && got < 1.6 * hz;
}

static int each_version(struct pt_capture *c, pid_t pid, struct pt_ringbuf *ring, void *hole)
{
	int minor, ret = 0;
	struct pt_py *p;
	struct pt_err err = { "" };

	for (minor = 8; minor <= 13 && !ret; minor++) {
		/* of a memory without a published table: the version's own */
		memset(memory + RUNTIME, 0, (WORDS - RUNTIME) * sizeof(*memory));
		if (pt_py_open_at(&p, pid, at(RUNTIME), minor, &err)) {
			printf("error %s\n", err.msg);
			return 1;
		}
		if (!pt_py_where(p, &found)) {
			printf("python none-3.%d good 0\n", minor);
		} else if (!pt_py_found_check(&found)) {
			printf("error what is known of 3.%d is refused\n", minor);
			ret = 1;
		} else {
			play();
			ret = pt_capture_py_add(c, pid, &found.where);
			if (ret)
				printf("error 3.%d: %s\n", minor, strerror(-ret));
			else
				ret = !each_case(c, ring, hole);
		}
		pt_py_close(p);
	}
	if (!ret && !say("rate", minor - 1, rates(c, pid, ring), 1))
		ret = 1;
	return ret;
}

int main(void)
{
	struct pt_capture_opts o = { .n_pids = 1, .mode = PT_MODE_STANDARD, .python = true,
				     .no_gpu_probes = true };
	size_t size = WORDS * sizeof(*memory), bytes;
	struct pt_ringbuf *ring = NULL;
	struct pt_capture *c = NULL;
	struct pt_err err = { "" };
	void *hole;
	pid_t pid;
	int r = 1, fd;

	setvbuf(stdout, NULL, _IOLBF, 0);
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || hole == MAP_FAILED)
		return 1;
	pid = fork();
	if (!pid)
		player();
	while (pid > 0 && !__atomic_load_n(&memory[TID], __ATOMIC_ACQUIRE))
		usleep(1000);
	o.pids = &pid;
	if (pid < 0 || pt_capture_open(&c, &o, &err)) {
		printf("error %s\n", err.msg);
		goto out;
	}
	fd = pt_capture_py_ring(c, &bytes);
	ring = fd < 0 ? NULL : pt_ringbuf_open(fd, bytes, on_sample, NULL);
	if (!ring) {
		printf("error Python is not sampled on this kernel\n");
		goto out;
	}
	if (pt_capture_py_add(c, getpid(), &found.where) != -EOPNOTSUPP)
		printf("error a process that is not the target's is taken\n");
	else
		r = each_version(c, pid, ring, hole);
out:
	pt_ringbuf_free(ring);
	pt_capture_close(c, NULL, NULL);
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	return r;
}
