/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulated CUDA runtime: ABI, order and time, copies, queue, memory. */
#include "test_sim_child.h"

/* ---- the ABI ------------------------------------------------------------------------ */

static void test_symbols(void **state)
{
	static const char *const names[] = {
#define PT_API(symbol, ...) #symbol,
#include "gpu/api.def"
	};
	/* the table's first lines, which a training loop uses; those that
	 * follow are variants of them */
	const size_t n = 30;
	void *lib = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
	void *at[sizeof(names) / sizeof(names[0])];

	(void)state;
	assert_non_null(lib);
	assert_string_equal(names[n - 1], "cudaSetDevice");
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

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_symbols),
	cmocka_unit_test(test_abi_against_headers),
	cmocka_unit_test(test_fifo),
	cmocka_unit_test(test_kernel_ns),
	cmocka_unit_test(test_copies),
	cmocka_unit_test(test_pinned_does_not_block),
	cmocka_unit_test(test_back_pressure),
	cmocka_unit_test(test_memory),
};

SIM_TEST_MAIN(tests)
