/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulated CUDA runtime. Every case runs in a child of its own, because
 * the runtime reads its environment once; afterwards the parent judges the
 * truth log that the child left. Bounds on time are one-sided: what the device
 * model guarantees on however slow a machine.
 */
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

struct line {
	char op[16], api[40];
	uint64_t stream, submit, start, end, bytes;
	int tid;
};

static struct line lines[LOG_MAX];
static size_t n_lines, n_headers;
static char log_path[64];

static const dim3 one = { 1, 1, 1 };
static const char func;

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static uint64_t thread_cpu(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static cudaError_t launch(cudaStream_t s)
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
static void in_child(void (*body)(void), const char *const env[4])
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

static const struct line *nth(const char *op, size_t n)
{
	for (size_t i = 0; i < n_lines; i++)
		if (!strcmp(lines[i].op, op) && !n--)
			return &lines[i];
	return NULL;
}

static size_t count(const char *op, const char *api)
{
	size_t n = 0;

	for (size_t i = 0; i < n_lines; i++)
		n += !strcmp(lines[i].op, op) &&
		     (!api || !strcmp(lines[i].api, api));
	return n;
}

/* ---- order and time --------------------------------------------------------- */

static void fifo_body(void)
{
	uint64_t t = now();

	ptsim_set_kernel_ns(3 * MS);
	for (int i = 0; i < 20; i++)
		OK(launch(NULL));
	OK(cudaDeviceSynchronize());
	CHECK(now() - t >= 60 * MS);
	CHECK(ptsim_busy_ns() >= 60 * MS);
	CHECK(cudaStreamQuery(NULL) == cudaSuccess);
}

static void test_fifo(void **state)
{
	(void)state;
	in_child(fifo_body, NULL);
	assert_int_equal(n_headers, 1);
	assert_int_equal(count("kernel", "cudaLaunchKernel"), 20);
	assert_int_equal(count("host", "cudaDeviceSynchronize"), 1);
	for (size_t i = 0; i < 20; i++) {
		const struct line *l = nth("kernel", i);
		const struct line *p = i ? nth("kernel", i - 1) : NULL;

		assert_int_equal(l->end - l->start, 3 * MS);
		/* back to back, to the nanosecond: the schedule cannot drift */
		if (p)
			assert_int_equal(l->start, l->submit > p->end
							   ? l->submit
							   : p->end);
		else
			assert_int_equal(l->start, l->submit);
	}
	assert_true(nth("host", 0)->end >= nth("kernel", 19)->end);
}

static void default_ns_body(void)
{
	OK(launch(NULL));
	ptsim_set_kernel_ns(2 * MS);
	OK(launch(NULL));
	ptsim_set_kernel_ns(0);
	OK(launch(NULL));
	OK(cudaDeviceSynchronize());
}

static void *other_thread(void *arg)
{
	(void)arg;
	OK(launch(NULL)); /* another thread's setting does not reach here */
	return NULL;
}

static void threads_body(void)
{
	pthread_t t;

	default_ns_body();
	ptsim_set_kernel_ns(2 * MS);
	CHECK(!pthread_create(&t, NULL, other_thread, NULL));
	CHECK(!pthread_join(t, NULL));
	OK(cudaDeviceSynchronize());
}

static void test_kernel_ns(void **state)
{
	static const char *const env[4] = { "PT_SIM_KERNEL_NS=70000" };
	static const uint64_t want[] = { 70000, 2 * MS, 70000, 70000 };

	(void)state;
	in_child(threads_body, env);
	assert_int_equal(count("kernel", NULL), 4);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(nth("kernel", i)->end -
				 nth("kernel", i)->start, want[i]);
	assert_int_not_equal(nth("kernel", 3)->tid, nth("kernel", 0)->tid);
}

/* ---- copies ------------------------------------------------------------------ */

#define COPY_BYTES (5u << 20)

static void copies_body(void)
{
	void *dev, *pinned, *plain = malloc(COPY_BYTES);
	uint64_t t, copy_ns = COPY_BYTES * 10ull; /* 0.1 GB/s */

	CHECK(plain);
	memset(plain, 1, COPY_BYTES);
	OK(cudaMalloc(&dev, COPY_BYTES));
	OK(cudaMallocHost(&pinned, COPY_BYTES));
	memset(pinned, 1, COPY_BYTES);

	t = now();
	OK(cudaMemcpyAsync(dev, plain, COPY_BYTES, cudaMemcpyHostToDevice,
			   NULL));
	CHECK(now() - t >= copy_ns);
	t = now();
	OK(cudaMemcpy(dev, pinned, COPY_BYTES, cudaMemcpyDefault));
	CHECK(now() - t >= copy_ns);
	t = now();
	OK(cudaMemcpyAsync(plain, dev, COPY_BYTES, cudaMemcpyDeviceToHost,
			   NULL));
	CHECK(now() - t >= COPY_BYTES); /* 1 GB/s the other way */
	OK(cudaHostRegister(plain, COPY_BYTES, 0));
	CHECK(cudaHostRegister(plain, 1, 0) ==
	      cudaErrorHostMemoryAlreadyRegistered);
	OK(cudaHostUnregister(plain));
	CHECK(cudaHostUnregister(plain) == cudaErrorHostMemoryNotRegistered);
	OK(cudaMemcpyAsync(dev, dev, 64, cudaMemcpyDefault, NULL));
	OK(cudaMemset(dev, 0, 600000));
	OK(cudaMemcpyAsync(dev, plain, 0, cudaMemcpyHostToDevice, NULL));
	CHECK(cudaMemcpy(dev, plain, 1, 9) == cudaErrorInvalidMemcpyDirection);
	OK(cudaDeviceSynchronize());
	OK(cudaFreeHost(pinned));
	CHECK(cudaFreeHost(pinned) == cudaErrorInvalidValue);
	free(plain);
}

static void test_copies(void **state)
{
	static const char *const env[4] = { "PT_SIM_H2D_GBPS=0.1",
					    "PT_SIM_D2H_GBPS=1" };

	(void)state;
	in_child(copies_body, env);
	assert_int_equal(count("h2d", NULL), 2);
	assert_int_equal(count("d2h", NULL), 1);
	assert_int_equal(count("d2d", NULL), 1);
	assert_int_equal(count("memset", NULL), 1);
	assert_int_equal(nth("h2d", 0)->bytes, COPY_BYTES);
	assert_true(nth("h2d", 0)->end - nth("h2d", 0)->start >=
		    COPY_BYTES * 10ull);
	/* 1 GB/s, and less than half a millisecond of fixed cost */
	assert_true(nth("d2h", 0)->end - nth("d2h", 0)->start >= COPY_BYTES);
	assert_true(nth("d2h", 0)->end - nth("d2h", 0)->start <
		    COPY_BYTES + MS / 2);
	assert_int_equal(count("host", "cudaMemcpyAsync"), 2);
	assert_int_equal(count("host", "cudaMemcpy"), 1);
}

static void pinned_body(void)
{
	uint64_t t;
	void *dev, *p;

	OK(cudaMalloc(&dev, COPY_BYTES));
	OK(cudaHostAlloc(&p, COPY_BYTES, 0));
	t = now();
	/* 5 s of copying: the call must be back long before */
	OK(cudaMemcpyAsync(dev, p, COPY_BYTES, cudaMemcpyHostToDevice, NULL));
	CHECK(now() - t < 4000 * MS);
	CHECK(cudaStreamQuery(NULL) == cudaErrorNotReady);
}

static void test_pinned_does_not_block(void **state)
{
	static const char *const env[4] = { "PT_SIM_H2D_GBPS=0.001" };

	(void)state;
	in_child(pinned_body, env);
	assert_int_equal(count("host", NULL), 0);
	/* the process left in mid-copy: the log says how far it got */
	assert_int_equal(count("h2d", NULL), 1);
	assert_true(nth("h2d", 0)->end - nth("h2d", 0)->start < 5000 * MS);
}

/* ---- the queue ---------------------------------------------------------------- */

static void queue_body(void)
{
	uint64_t t = now();

	ptsim_set_kernel_ns(20 * MS);
	for (int i = 0; i < 8; i++)
		OK(launch(NULL));
	/* four are pending at most: four have run */
	CHECK(now() - t >= 80 * MS);
	OK(cudaDeviceSynchronize());
}

static void test_back_pressure(void **state)
{
	static const char *const env[4] = { "PT_SIM_QUEUE=4" };

	(void)state;
	in_child(queue_body, env);
	assert_int_equal(count("kernel", NULL), 8);
	assert_true(count("host", "cudaLaunchKernel") >= 1);
	for (size_t i = 4; i < 8; i++)
		assert_true(nth("kernel", i)->submit >=
			    nth("kernel", i - 4)->end);
}

/* ---- memory ------------------------------------------------------------------- */

static void churn(void)
{
	struct { uint64_t at; size_t len; } b[64] = { 0 };
	unsigned r = 1;

	for (int i = 0; i < 2000; i++) {
		int k = (int)((r = r * 1103515245u + 12345) >> 16) & 63;
		void *p;

		if (b[k].at) {
			OK(cudaFree((void *)(uintptr_t)b[k].at));
			b[k].at = 0;
			continue;
		}
		b[k].len = (r >> 8) % 300000 + 1;
		OK(cudaMalloc(&p, b[k].len));
		b[k].at = (uint64_t)(uintptr_t)p;
		for (int j = 0; j < 64; j++)
			CHECK(j == k || !b[j].at ||
			      b[j].at + b[j].len <= b[k].at ||
			      b[k].at + b[k].len <= b[j].at);
	}
	for (int k = 0; k < 64; k++)
		OK(cudaFree((void *)(uintptr_t)b[k].at));
}

static void memory_body(void)
{
	size_t avail, total;
	void *a, *b, *c;

	OK(cudaMalloc(&a, 32 << 20));
	OK(cudaMalloc(&b, 16 << 20));
	CHECK(cudaMalloc(&c, 32 << 20) == cudaErrorMemoryAllocation);
	CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
	CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
	CHECK(cudaGetLastError() == cudaSuccess);
	CHECK(cudaMalloc(&c, SIZE_MAX) == cudaErrorMemoryAllocation);
	OK(cudaMemGetInfo(&avail, &total));
	CHECK(total == 64 << 20 && avail == 16 << 20);
	OK(cudaFree(a));
	CHECK(cudaFree(a) == cudaErrorInvalidValue);
	OK(cudaMalloc(&c, 32 << 20));
	OK(cudaFree(NULL));

	/* freed when the stream gets there, not before */
	ptsim_set_kernel_ns(5000 * MS);
	OK(cudaMallocAsync(&a, 1 << 20, NULL));
	OK(launch(NULL));
	OK(cudaFreeAsync(a, NULL));
	OK(cudaMemGetInfo(&avail, &total));
	CHECK(avail == 15 << 20);
}

static void free_waits_body(void)
{
	uint64_t t = now();
	size_t avail, total;
	void *p, *q;

	ptsim_set_kernel_ns(30 * MS);
	OK(cudaMalloc(&p, 100));
	OK(cudaMalloc(&q, 1 << 20));
	OK(launch(NULL));
	OK(cudaFreeAsync(q, NULL));
	OK(cudaFree(p)); /* waits for the device */
	CHECK(now() - t >= 30 * MS);
	OK(cudaMemGetInfo(&avail, &total));
	CHECK(avail == total);
	churn();
	OK(cudaMemGetInfo(&avail, &total));
	CHECK(avail == total);
}

static void test_memory(void **state)
{
	static const char *const env[4] = { "PT_SIM_MEM=67108864" };

	(void)state;
	in_child(memory_body, env);
	in_child(free_waits_body, env);
	assert_int_equal(count("host", "cudaFree"), 1);
}

/* ---- events and streams --------------------------------------------------------- */

static void events_body(void)
{
	cudaStream_t a, b;
	cudaEvent_t e, f, never;
	uint64_t t;
	float ms;

	OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
	OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
	OK(cudaEventCreate(&e));
	OK(cudaEventCreateWithFlags(&f, cudaEventBlockingSync));
	OK(cudaEventCreate(&never));
	OK(cudaEventSynchronize(never));
	OK(cudaStreamWaitEvent(a, never, 0));
	t = now();
	ptsim_set_kernel_ns(30 * MS);
	OK(cudaEventRecord(e, a));
	OK(launch(a));
	OK(cudaEventRecord(f, a));
	OK(cudaStreamWaitEvent(b, f, 0));
	ptsim_set_kernel_ns(1 * MS);
	OK(launch(b));
	OK(cudaEventSynchronize(f));
	CHECK(now() - t >= 30 * MS);
	OK(cudaEventQuery(f));
	OK(cudaEventElapsedTime(&ms, e, f));
	CHECK(ms >= 29.99f);
	CHECK(cudaEventElapsedTime(&ms, e, never) ==
	      cudaErrorInvalidResourceHandle);
	OK(cudaStreamSynchronize(b));
	ptsim_set_kernel_ns(5000 * MS);
	OK(launch(a));
	OK(cudaEventRecord(f, a));
	CHECK(cudaEventQuery(f) == cudaErrorNotReady);
	OK(cudaEventDestroy(f)); /* while it is pending */
	CHECK(cudaEventQuery(f) == cudaErrorInvalidResourceHandle);
	OK(cudaStreamDestroy(b));
	CHECK(cudaStreamSynchronize(b) == cudaErrorInvalidResourceHandle);
	CHECK(launch(b) == cudaErrorInvalidResourceHandle);
	CHECK(cudaStreamDestroy(NULL) == cudaErrorInvalidResourceHandle);
}

static void test_events(void **state)
{
	static const char *const env[4] = { "PT_SIM_CONCURRENT=1" };

	(void)state;
	in_child(events_body, env);
	assert_int_equal(count("kernel", NULL), 3);
	/* stream b waited for the event, in device time to the nanosecond
	 * unless its launch came later still */
	assert_true(nth("kernel", 1)->start >= nth("kernel", 0)->end);
	assert_int_equal(count("host", "cudaEventSynchronize"), 2);
}

static void legacy_body(void)
{
	cudaStream_t a, nb;

	OK(cudaStreamCreate(&a));
	OK(cudaStreamCreateWithFlags(&nb, cudaStreamNonBlocking));
	ptsim_set_kernel_ns(200 * MS);
	OK(launch(a));	  /* 0 */
	OK(launch(NULL)); /* 1: after 0 */
	OK(launch(a));	  /* 2: after 1 */
	OK(launch(cudaStreamPerThread)); /* 3: blocking too, after 1 */
	ptsim_set_kernel_ns(1 * MS);
	OK(launch(nb)); /* 4: waits for nobody */
	CHECK(cudaStreamQuery(NULL) == cudaErrorNotReady);
	OK(cudaStreamSynchronize(NULL)); /* waits for a as well */
	OK(cudaStreamQuery(a));
	OK(cudaDeviceSynchronize());
}

static const struct line *by_submit(size_t n)
{
	const struct line *best = NULL;
	uint64_t after = 0;

	for (size_t k = 0; k <= n; k++) {
		best = NULL;
		for (size_t i = 0; i < n_lines; i++)
			if (!strcmp(lines[i].op, "kernel") &&
			    lines[i].submit > after &&
			    (!best || lines[i].submit < best->submit))
				best = &lines[i];
		if (!best)
			return NULL;
		after = best->submit;
	}
	return best;
}

static void test_legacy_stream(void **state)
{
	static const char *const env[4] = { "PT_SIM_CONCURRENT=1" };
	const struct line *k[5];

	(void)state;
	in_child(legacy_body, env);
	assert_int_equal(count("kernel", NULL), 5);
	for (size_t i = 0; i < 5; i++) {
		k[i] = by_submit(i);
		assert_non_null(k[i]);
	}
	assert_true(k[1]->start >= k[0]->end);
	assert_true(k[2]->start >= k[1]->end);
	assert_true(k[3]->start >= k[1]->end);
	assert_true(k[3]->start < k[2]->end); /* two streams at once */
	assert_int_equal(k[4]->start, k[4]->submit);
	assert_int_equal(k[3]->stream, 2);
}

static void engines_body(void)
{
	cudaStream_t a, b;
	void *dev, *p;

	OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
	OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
	OK(cudaMalloc(&dev, COPY_BYTES));
	OK(cudaMallocHost(&p, COPY_BYTES));
	ptsim_set_kernel_ns(10 * MS);
	for (int i = 0; i < 5; i++) {
		OK(launch(a));
		OK(launch(b));
	}
	OK(cudaMemcpyAsync(dev, p, COPY_BYTES, cudaMemcpyHostToDevice, b));
	ptsim_set_kernel_ns(400 * MS);
	OK(launch(a));
	OK(cudaDeviceSynchronize());
}

static void test_engines(void **state)
{
	static const char *const env[4] = { "PT_SIM_H2D_GBPS=0.05" };

	(void)state;
	in_child(engines_body, env);
	assert_int_equal(count("kernel", NULL), 11);
	for (size_t i = 1; i < 11; i++) /* in order of completion */
		assert_true(nth("kernel", i)->start >=
			    nth("kernel", i - 1)->end);
	/* the copy engine does not wait for the compute engine: the copy of
	 * about 100 ms began while kernels ran or the last one was queued */
	assert_true(nth("h2d", 0)->start < nth("kernel", 10)->end);
	assert_true(nth("kernel", 10)->start < nth("h2d", 0)->end ||
		    nth("kernel", 10)->submit >= nth("h2d", 0)->end);
}

/* ---- waiting --------------------------------------------------------------------- */

static uint64_t sync_cpu(void)
{
	uint64_t t = now(), cpu = thread_cpu();

	ptsim_set_kernel_ns(200 * MS);
	OK(launch(NULL));
	OK(cudaDeviceSynchronize());
	CHECK(now() - t >= 200 * MS);
	return thread_cpu() - cpu;
}

static void block_body(void)
{
	struct rusage a, b;

	CHECK(sync_cpu() < 100 * MS);
	/* a wait over many kernels is one sleep, of the caller and of the
	 * device thread, not one for each */
	ptsim_set_kernel_ns(100000);
	for (int i = 0; i < 1000; i++)
		OK(launch(NULL));
	getrusage(RUSAGE_SELF, &a);
	OK(cudaStreamSynchronize(NULL));
	getrusage(RUSAGE_SELF, &b);
	CHECK(b.ru_nvcsw - a.ru_nvcsw < 50);
}

static void spin_body(void)
{
	CHECK(sync_cpu() >= 5 * MS);
	OK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
	CHECK(sync_cpu() < 100 * MS);
}

static void yield_body(void)
{
	CHECK(sync_cpu() > 0);
}

static void test_sync_modes(void **state)
{
	static const char *const spin[4] = { "PT_SIM_SYNC=spin" };
	static const char *const yield[4] = { "PT_SIM_SYNC=yield" };

	(void)state;
	in_child(block_body, NULL);
	in_child(spin_body, spin);
	in_child(yield_body, yield);
}

/* ---- fork, log, graphs, errors ---------------------------------------------------- */

static void fork_body(void)
{
	uint64_t t;
	int status;
	pid_t pid;

	ptsim_set_kernel_ns(1 * MS);
	OK(launch(NULL));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		alarm(20);
		CHECK(launch(NULL) == cudaErrorInitializationError);
		CHECK(cudaDeviceSynchronize() == cudaErrorInitializationError);
		exit(7);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	OK(launch(NULL));
	OK(cudaDeviceSynchronize());
	/* written while the process lives: give it ten seconds */
	for (t = now(); now() - t < 10000 * MS; usleep(50000)) {
		char buf[4096] = "";
		FILE *f = fopen(log_path, "r");

		CHECK(f);
		CHECK(fread(buf, 1, sizeof(buf) - 1, f) > 0);
		fclose(f);
		if (strstr(buf, "cudaDeviceSynchronize"))
			return;
	}
	CHECK(!"the log was not written in ten seconds");
}

static void test_fork_and_log(void **state)
{
	(void)state;
	in_child(fork_body, NULL);
	assert_int_equal(n_headers, 1);
	assert_int_equal(count("kernel", NULL), 2);
}

static void graph_body(void)
{
	uint64_t launches, copies, syncs;
	cudaGraphExec_t x;
	cudaStream_t s;
	cudaGraph_t g;

	OK(cudaStreamCreate(&s));
	CHECK(cudaStreamBeginCapture(NULL, 0) ==
	      cudaErrorStreamCaptureUnsupported);
	OK(cudaStreamBeginCapture(s, 0));
	ptsim_set_kernel_ns(2 * MS);
	for (int i = 0; i < 3; i++)
		OK(launch(s));
	CHECK(cudaStreamSynchronize(s) == cudaErrorStreamCaptureUnsupported);
	OK(cudaStreamEndCapture(s, &g));
	OK(cudaGraphInstantiate(&x, g, 0));
	OK(cudaGraphDestroy(g));
	CHECK(cudaGraphDestroy(g) == cudaErrorInvalidValue);
	OK(cudaGraphLaunch(x, s));
	OK(cudaGraphLaunch(x, s));
	OK(cudaStreamSynchronize(s));
	OK(cudaGraphExecDestroy(x));
	ptsim_counts(&launches, &copies, &syncs);
	CHECK(launches == 5 && copies == 0 && syncs == 1);
}

static void test_graph(void **state)
{
	(void)state;
	in_child(graph_body, NULL);
	assert_int_equal(count("kernel", NULL), 6);
	assert_int_equal(count("kernel", "cudaGraphLaunch"), 6);
}

static void errors_body(void)
{
	dim3 none = { 0, 1, 1 }, big = { 2048, 1, 1 };
	int n;

	CHECK(cudaLaunchKernel(NULL, one, one, NULL, 0, NULL) ==
	      cudaErrorInvalidDeviceFunction);
	CHECK(cudaLaunchKernel(&func, none, one, NULL, 0, NULL) ==
	      cudaErrorInvalidConfiguration);
	CHECK(cudaLaunchKernel(&func, one, big, NULL, 0, NULL) ==
	      cudaErrorInvalidConfiguration);
	CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
	OK(cudaSetDevice(0));
	OK(cudaGetDeviceCount(&n));
	CHECK(n == 1);
	OK(cudaRuntimeGetVersion(&n));
	CHECK(n == 13000);
	CHECK(!strcmp(cudaGetErrorName(2), "cudaErrorMemoryAllocation"));
	CHECK(!strcmp(cudaGetErrorString(2), "out of memory"));
	CHECK(!strcmp(cudaGetErrorName(12345), "unrecognized error code"));
}

static void test_errors(void **state)
{
	static const char *const env[4] = { "PT_SIM_QUEUE=-3",
					    "PT_SIM_H2D_GBPS=nan" };

	(void)state;
	in_child(errors_body, env);
	assert_int_equal(n_lines, 0);
}

/* ---- the ABI ------------------------------------------------------------------------ */

static void test_symbols(void **state)
{
	static const char *const names[] = {
#define PT_API(symbol, ...) #symbol,
#include "gpu/api.def"
	};
	const size_t n = sizeof(names) / sizeof(names[0]);
	void *lib = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
	void *at[128];

	(void)state;
	assert_non_null(lib);
	assert_true(n < 128);
	for (size_t i = 0; i < n; i++) {
		at[i] = dlsym(lib, names[i]);
		if (!at[i])
			fail_msg("%s is not exported", names[i]);
		for (size_t j = 0; j < i; j++) /* none folded into another */
			if (at[i] == at[j])
				fail_msg("%s is %s", names[i], names[j]);
	}
	dlclose(lib);
}

/* What we declare ourselves, against NVIDIA's headers where a machine has
 * them: a source full of assertions that must compile. */
static void test_abi_against_headers(void **state)
{
	static const struct { const char *name; int value; } v[] = {
#define V(x) { #x, x }
		V(cudaSuccess), V(cudaErrorInvalidValue),
		V(cudaErrorMemoryAllocation), V(cudaErrorInitializationError),
		V(cudaErrorCudartUnloading), V(cudaErrorInvalidConfiguration),
		V(cudaErrorInvalidPitchValue),
		V(cudaErrorInvalidMemcpyDirection),
		V(cudaErrorInvalidDeviceFunction), V(cudaErrorInvalidDevice),
		V(cudaErrorInvalidResourceHandle), V(cudaErrorIllegalState),
		V(cudaErrorNotReady), V(cudaErrorHostMemoryAlreadyRegistered),
		V(cudaErrorHostMemoryNotRegistered),
		V(cudaErrorStreamCaptureUnsupported),
		V(cudaErrorStreamCaptureInvalidated),
		V(cudaMemcpyHostToHost), V(cudaMemcpyHostToDevice),
		V(cudaMemcpyDeviceToHost), V(cudaMemcpyDeviceToDevice),
		V(cudaMemcpyDefault), V(cudaStreamNonBlocking),
		V(cudaEventBlockingSync), V(cudaEventDisableTiming),
		V(cudaDeviceScheduleSpin), V(cudaDeviceScheduleYield),
		V(cudaDeviceScheduleBlockingSync),
	};
	const char *home = getenv("CUDA_HOME");
	char path[4096], cmd[4608];
	FILE *cc;

	(void)state;
	if (!home)
		home = "/usr/local/cuda";
	snprintf(path, sizeof(path), "%s/include/cuda_runtime_api.h", home);
	if (strchr(path, '\'') || access(path, R_OK)) {
		print_message("skipped: no CUDA headers (%s)\n", path);
		skip();
	}
	snprintf(cmd, sizeof(cmd),
		 "cc -x c -std=gnu11 -fsyntax-only -I'%s/include' -", home);
	cc = popen(cmd, "w");
	assert_non_null(cc);
	fputs("#include <stddef.h>\n#include <cuda_runtime_api.h>\n", cc);
	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
		fprintf(cc, "_Static_assert(%s == %d, \"%s\");\n", v[i].name,
			v[i].value, v[i].name);
	fprintf(cc,
		"_Static_assert(sizeof(cudaError_t) == %zu, \"error\");\n"
		"_Static_assert(sizeof(dim3) == %zu, \"dim3\");\n"
		"_Static_assert(sizeof(cudaLaunchConfig_t) == %zu, \"cfg\");\n"
		"_Static_assert(offsetof(cudaLaunchConfig_t, stream) == %zu,"
		" \"stream\");\n",
		sizeof(cudaError_t), sizeof(dim3), sizeof(cudaLaunchConfig_t),
		offsetof(cudaLaunchConfig_t, stream));
	assert_int_equal(pclose(cc), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_symbols),
		cmocka_unit_test(test_abi_against_headers),
		cmocka_unit_test(test_fifo),
		cmocka_unit_test(test_kernel_ns),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_pinned_does_not_block),
		cmocka_unit_test(test_back_pressure),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_legacy_stream),
		cmocka_unit_test(test_engines),
		cmocka_unit_test(test_sync_modes),
		cmocka_unit_test(test_fork_and_log),
		cmocka_unit_test(test_graph),
		cmocka_unit_test(test_errors),
	};
	int rc;

	snprintf(log_path, sizeof(log_path), "/tmp/test_sim.%d.csv",
		 (int)getpid());
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(log_path);
	return rc;
}
