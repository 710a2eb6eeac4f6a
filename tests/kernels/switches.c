// SPDX-License-Identifier: BSD-2-Clause
/*
 * Context switches: a job of several threads sleeps, hands turns on and computes, and each
 * thread reads its own counts (getrusage) when it begins and ends. Between these two
 * moments each switch must have made one record, and which system call it was made in
 * must be right.
 *
 *   switches                  the test; "ok" or "error ..." at the end
 *   switches --job            the job
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "job.h"
#include "model/syscalls.h"

#define THREADS 3
#define TURNS 400
#define TRUTH "/tmp/switches"

/* What a thread knows of itself, and what was seen of it. */
struct thread {
	uint64_t tid, begin, end, switches, sleeps;
	uint64_t seen, seen_sleeps;
};

/* ---- the job ------------------------------------------------------------------ */

static int ring[THREADS][2]; /* pipes: a byte is the turn */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t switches(void)
{
	struct rusage r;

	getrusage(RUSAGE_THREAD, &r);
	return (uint64_t)r.ru_nvcsw + (uint64_t)r.ru_nivcsw;
}

/* The count at a moment: none came between the two. */
static uint64_t moment(uint64_t *ns)
{
	uint64_t n;

	do {
		n = switches();
		*ns = now_ns();
	} while (switches() != n);
	return n;
}

static void *work(void *arg)
{
	struct timespec ms = { 0, 1000000 };
	struct thread *t = arg;
	volatile uint64_t x = 0;
	size_t me = (size_t)t->tid;
	char byte = 'x';
	int i, k;

	t->tid = (uint64_t)syscall(SYS_gettid);
	t->switches = 0 - moment(&t->begin);
	for (i = 0; i < TURNS; i++) {
		if (read(ring[me][0], &byte, 1) != 1)
			break;
		for (k = 0; k < 2000; k++)
			x += (uint64_t)k;
		if (i % 8 == 0) {
			nanosleep(&ms, NULL);
			t->sleeps++;
		}
		if (write(ring[(me + 1) % THREADS][1], &byte, 1) != 1)
			break;
	}
	t->switches += moment(&t->end);
	return NULL;
}

static int job(void)
{
	struct thread t[THREADS] = { 0 };
	pthread_t id[THREADS];
	FILE *f = fopen(TRUTH, "w");
	char c;
	size_t i;

	printf("ready\n");
	fflush(stdout);
	if (!f || read(0, &c, 1) != 1)
		return 1;
	for (i = 0; i < THREADS; i++) {
		t[i].tid = i;
		if (pipe(ring[i]))
			return 1;
	}
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&id[i], NULL, work, &t[i]))
			return 1;
	if (write(ring[0][1], "x", 1) != 1)
		return 1;
	for (i = 0; i < THREADS; i++)
		pthread_join(id[i], NULL);
	for (i = 0; i < THREADS; i++)
		fprintf(f, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", t[i].tid,
			t[i].begin, t[i].end, t[i].switches, t[i].sleeps);
	fclose(f);
	printf("done\n");
	fflush(stdout);
	return read(0, &c, 1) < 0;
}

/* ---- the tracer ---------------------------------------------------------------- */

static struct pt_rec_off *seen;
static size_t n_seen, cap_seen;

static void on_record(void *ctx, const void *rec, size_t len)
{
	const struct pt_rec_off *r = rec;

	(void)ctx;
	if (len < sizeof(*r) || r->hdr.kind != PT_REC_OFF || r->hdr.flags & PT_F_OPEN)
		return;
	if (n_seen == cap_seen) {
		cap_seen = cap_seen ? 2 * cap_seen : 4096;
		seen = realloc(seen, cap_seen * sizeof(*seen));
		if (!seen)
			abort();
	}
	seen[n_seen++] = *r;
}

static int compare(void)
{
	FILE *f = fopen(TRUTH, "r");
	struct thread t;
	int bad = 0;
	size_t i;

	while (f && fscanf(f, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &t.tid,
			   &t.begin, &t.end, &t.switches, &t.sleeps) == 5) {
		t.seen = t.seen_sleeps = 0;
		for (i = 0; i < n_seen; i++) {
			const struct pt_rec_off *r = &seen[i];

			if (r->hdr.tid != t.tid || r->off_ts < t.begin || r->hdr.ts > t.end)
				continue;
			t.seen++;
			t.seen_sleeps += !(r->hdr.flags & PT_F_PREEMPTED) &&
					 (r->syscall == PT_NR_nanosleep ||
					  r->syscall == PT_NR_clock_nanosleep);
		}
		printf("thread %" PRIu64 ": %" PRIu64 " switches, %" PRIu64 " seen; %" PRIu64
		       " sleeps, %" PRIu64 " seen\n", t.tid, t.switches, t.seen, t.sleeps,
		       t.seen_sleeps);
		/* a timer may be over before the thread is off its processor */
		bad |= t.seen != t.switches || !t.switches || t.seen_sleeps > t.sleeps ||
		       10 * t.seen_sleeps < 9 * t.sleeps;
	}
	if (!f)
		return 1;
	fclose(f);
	return bad;
}

int main(int argc, char **argv)
{
	struct pt_capture_opts o = { .n_pids = 1, .mode = PT_MODE_STANDARD, .ring_mb = 16 };
	char self[] = "/proc/self/exe", option[] = "--job";
	char *args[] = { self, option, NULL };
	struct pt_capture *c = NULL;
	struct pt_err err = { "" };
	int to, from, r;
	pid_t pid;

	if (argc > 1 && !strcmp(argv[1], "--job"))
		return job();
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	pid = job_start(args, &to, &from);
	if (pid < 0)
		return 1;
	o.pids = &pid;
	r = job_await(from, "ready", NULL, on_record);
	r = r ? r : pt_capture_open(&c, &o, &err);
	if (!r && write(to, "g", 1) != 1)
		r = -errno;
	r = r ? r : job_await(from, "done", c, on_record);
	if (r)
		printf("error %s\n", err.msg[0] ? err.msg : strerror(-r));
	if (c)
		pt_capture_stop(c, on_record, NULL);
	if (!r && compare()) {
		printf("error switches and records differ\n");
		r = 1;
	}
	pt_capture_close(c, NULL, NULL);
	close(to);
	close(from);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	free(seen);
	if (!r)
		printf("ok\n");
	return r ? 1 : 0;
}
