/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For the tests of the simulated CUDA runtime. Every case runs in a child of
 * its own, because the runtime reads its environment once; afterwards the
 * parent judges the truth log that the child left. Bounds on time are
 * one-sided: what the device model guarantees on however slow a machine.
 */
#ifndef TEST_SIM_CHILD_H
#define TEST_SIM_CHILD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../tools/sim/cudart_abi.h"
#include "../../tools/sim/ptsim.h"

#define MS 1000000ull
#define LOG_MAX 4096
#define COPY_BYTES (5u << 20)

struct line {
	char op[16], api[40];
	uint64_t stream, submit, start, end, bytes;
	int tid;
};

static struct line lines[LOG_MAX];
static size_t n_lines, n_headers;
static char log_path[64];

/* Not every test file uses every helper. */
#define MAYBE __attribute__((unused))

static const dim3 one = { 1, 1, 1 };
static const char func;

MAYBE static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

MAYBE static uint64_t thread_cpu(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

MAYBE static cudaError_t launch(cudaStream_t s)
{
	return cudaLaunchKernel(&func, one, one, NULL, 0, s);
}

/* In the child: say what failed and leave. */
#define CHECK(cond)                                                            \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,     \
				#cond);                                        \
			_exit(1);                                              \
		}                                                              \
	} while (0)
#define OK(call) CHECK((call) == cudaSuccess)

static void parse_log(void)
{
	char buf[512];
	FILE *f = fopen(log_path, "r");

	n_lines = n_headers = 0;
	assert_non_null(f);
	while (fgets(buf, sizeof(buf), f)) {
		struct line *l = &lines[n_lines];

		assert_int_equal(buf[strlen(buf) - 1], '\n'); /* not torn */
		if (buf[0] == '#') {
			assert_memory_equal(buf, "# pipetrace-sim 1 pid=", 22);
			n_headers++;
			continue;
		}
		if (!strncmp(buf, "op,", 3))
			continue;
		assert_true(n_lines < LOG_MAX);
		assert_int_equal(
			sscanf(buf,
			       "%15[a-z0-9],%" SCNu64 ",%" SCNu64 ",%" SCNu64
			       ",%" SCNu64 ",%" SCNu64 ",%d,%39s",
			       l->op, &l->stream, &l->submit, &l->start,
			       &l->end, &l->bytes, &l->tid, l->api),
			8);
		assert_true(l->submit <= l->start && l->start <= l->end);
		n_lines++;
	}
	fclose(f);
}

/* Run `body` in a child with up to four NAME=VALUE settings, read its log. */
MAYBE static void in_child(void (*body)(void), const char *const env[4])
{
	int status = -1;
	pid_t pid;

	unlink(log_path);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(60); /* a hang is a failure */
		setenv("PT_SIM_LOG", log_path, 1);
		for (int i = 0; i < 4 && env && env[i]; i++)
			putenv((char *)(uintptr_t)env[i]);
		body();
		exit(0); /* the library's own exit is part of the test */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	parse_log();
}

MAYBE static const struct line *nth(const char *op, size_t n)
{
	for (size_t i = 0; i < n_lines; i++)
		if (!strcmp(lines[i].op, op) && !n--)
			return &lines[i];
	return NULL;
}

MAYBE static size_t count(const char *op, const char *api)
{
	size_t n = 0;

	for (size_t i = 0; i < n_lines; i++)
		n += !strcmp(lines[i].op, op) &&
		     (!api || !strcmp(lines[i].api, api));
	return n;
}

/* main() of a test file: a log of its own, removed at the end. */
#define SIM_TEST_MAIN(tests)                                                   \
	int main(void)                                                         \
	{                                                                      \
		int rc;                                                        \
                                                                               \
		snprintf(log_path, sizeof(log_path), "/tmp/test_sim.%d.csv",   \
			 (int)getpid());                                       \
		rc = cmocka_run_group_tests(tests, NULL, NULL);                \
		unlink(log_path);                                              \
		return rc;                                                     \
	}

#endif
