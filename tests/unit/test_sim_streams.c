/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulated CUDA runtime: events, streams, waiting, fork, graphs. */
#include "test_sim_child.h"

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

/* The child of a process with threads looks for no leaks: another thread may have held
 * the sanitizer's locks when it was forked, and then it waits for them for ever. */
static int forked;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return forked;
}

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
		forked = 1;
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

/* ---- several devices --------------------------------------------------------- */

static void devices_body(void)
{
	cudaStream_t s0, s1;
	uint64_t t;
	int n;

	ptsim_set_kernel_ns(30 * MS);
	OK(cudaGetDeviceCount(&n));
	CHECK(n == 2);
	CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
	OK(cudaStreamCreateWithFlags(&s0, cudaStreamNonBlocking));
	OK(cudaSetDevice(1));
	OK(cudaGetDevice(&n));
	CHECK(n == 1);
	OK(cudaStreamCreateWithFlags(&s1, cudaStreamNonBlocking));
	OK(launch(s0)); /* a stream stays with its device */
	OK(launch(s1));
	OK(launch(NULL));
	t = now();
	OK(cudaSetDevice(0));
	OK(launch(NULL));
	/* of this device only: 60 ms, and not the other one's too */
	OK(cudaDeviceSynchronize());
	CHECK(cudaStreamQuery(s0) == cudaSuccess);
	CHECK(now() - t >= 30 * MS);
	OK(cudaSetDevice(1));
	OK(cudaDeviceSynchronize());
}

static void test_devices(void **state)
{
	static const char *const env[4] = { "PT_SIM_DEVICES=2" };
	size_t on[2] = { 0, 0 }, i;

	(void)state;
	in_child(devices_body, env);
	assert_int_equal(count("kernel", NULL), 4);
	for (i = 0; i < 4; i++) {
		const char *comma = strchr(nth("kernel", i)->api, ',');

		assert_non_null(comma);
		on[comma[1] - '0']++;
	}
	assert_int_equal(on[0], 2);
	assert_int_equal(on[1], 2);
	/* Each device has an engine of its own: they overlap. */
	assert_true(nth("kernel", 1)->start < nth("kernel", 0)->end);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_events),
	cmocka_unit_test(test_legacy_stream),
	cmocka_unit_test(test_engines),
	cmocka_unit_test(test_sync_modes),
	cmocka_unit_test(test_fork_and_log),
	cmocka_unit_test(test_graph),
	cmocka_unit_test(test_errors),
	cmocka_unit_test(test_devices),
};

SIM_TEST_MAIN(tests)
