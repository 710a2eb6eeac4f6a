/* SPDX-License-Identifier: BSD-2-Clause */
/* Graphs and collectives in hand-made streams: what is counted, and when it is
 * not known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "stream.h"

#define PID 1000u
#define S 0xcafe00ull
#define T 0xcafe40ull /* a stream that joins */
#define GRAPH 0x61000ull
#define EXEC 0x62000ull
#define EVENT 0x63000ull
#define BEGIN (1000 * ST_S)

struct job {
	struct stream s;
	struct pt_model *m;
	struct pt_report *r;
	uint64_t now;
};

static uint64_t tick(struct job *j)
{
	return j->now += 20 * ST_US;
}

static void open_job(struct job *j)
{
	*j = (struct job){ .now = BEGIN + ST_S };
	st_host(&j->s, BEGIN, 4, PID);
	st_task(&j->s, BEGIN, PID, PID, 1, "train");
}

static void finish(struct job *j)
{
	st_window(&j->s, BEGIN + ST_S / 2, j->now + ST_S);
	st_seal(&j->s);
	j->r = st_analyze(&j->s, &j->m);
	assert_non_null(j->r);
	assert_int_equal(j->r->n_gpu, 1);
}

static void close_job(struct job *j)
{
	pt_report_free(j->r);
	pt_model_free(j->m);
	st_free(&j->s);
}

static void call(struct job *j, const char *symbol, uint64_t stream, uint64_t v0,
		 uint64_t v1, uint64_t v2)
{
	st_gpu(&j->s, symbol, PID, PID, tick(j), 0, stream, v0, v1, v2);
}

/* A call that gives back a handle, or an error. */
static void makes(struct job *j, const char *symbol, uint64_t stream, uint64_t v1,
		  uint64_t handle, int err)
{
	uint64_t b = tick(j);
	size_t i;

	st_gpu(&j->s, symbol, PID, PID, b, tick(j), stream, 0x7ffe00, v1, 0);
	i = j->s.recs.n - 1;
	assert_int_equal(j->s.recs.v[i].r.hdr.kind, PT_REC_GPU_RETURN);
	j->s.recs.v[i].r.gpu.v[0] = (uint64_t)err;
	j->s.recs.v[i].r.gpu.v[1] = err ? 0 : handle;
}

static void launches(struct job *j, uint64_t stream, unsigned n)
{
	while (n--)
		call(j, "cudaLaunchKernel", stream, 0x1234, 0, 0);
}

/* Some work that is no graph, so that there is a trainer. */
static void plain_step(struct job *j)
{
	uint64_t b;

	launches(j, 0, 3);
	b = tick(j);
	st_gpu(&j->s, "cudaStreamSynchronize", PID, PID, b, b + 500 * ST_US, 0,
	       0, 0, 0);
	j->now += ST_MS;
}

static void captured_launches_run_with_the_graph(void **state)
{
	struct job j;
	int i;

	(void)state;
	open_job(&j);
	plain_step(&j);
	call(&j, "cudaStreamBeginCapture", S, 0, 0, 0);
	launches(&j, S, 5);
	launches(&j, 0, 1); /* another stream's is not captured */
	call(&j, "cudaMemcpyAsync", S, 0x1, 100, 1);
	makes(&j, "cudaStreamEndCapture", S, 0, GRAPH, 0);
	makes(&j, "cudaGraphInstantiate", 0, GRAPH, EXEC, 0);
	launches(&j, S, 2); /* after the capture it runs again */
	for (i = 0; i < 10; i++)
		call(&j, "cudaGraphLaunch", S, EXEC, 0, 0);
	plain_step(&j);
	finish(&j);
	assert_int_equal(j.r->gpu[0].kernels, 3 + 1 + 2 + 10 * 5 + 3);
	assert_int_equal(j.r->gpu[0].graph_launches, 10);
	assert_int_equal(j.r->gpu[0].copies_h2d, 10);
	assert_int_equal(j.r->gpu[0].copy_bytes, 1000);
	close_job(&j);
}

static void a_stream_joins_by_an_event(void **state)
{
	struct job j;

	(void)state;
	open_job(&j);
	plain_step(&j);
	launches(&j, T, 1); /* not yet */
	call(&j, "cuStreamBeginCapture_v2", S, 0, 0, 0);
	launches(&j, S, 1);
	call(&j, "cuEventRecord", S, EVENT, 0, 0);
	call(&j, "cuStreamWaitEvent", T, EVENT, 0, 0);
	launches(&j, T, 4);
	makes(&j, "cuStreamEndCapture", S, 0, GRAPH, 0);
	makes(&j, "cuGraphInstantiateWithFlags", 0, GRAPH, EXEC, 0);
	launches(&j, T, 1); /* no more */
	call(&j, "cuGraphLaunch", S, EXEC, 0, 0);
	plain_step(&j);
	finish(&j);
	assert_int_equal(j.r->gpu[0].kernels, 3 + 1 + 1 + 5 + 3);
	close_job(&j);
}

static void a_graph_from_before_is_unknown(void **state)
{
	struct job j;
	size_t i;
	bool said = false;

	(void)state;
	open_job(&j);
	plain_step(&j);
	call(&j, "cudaGraphLaunch", S, EXEC, 0, 0);
	plain_step(&j);
	finish(&j);
	assert_true(j.r->gpu[0].kernels == PT_NULL);
	assert_int_equal(j.r->gpu[0].graph_launches, 1);
	for (i = 0; i < j.r->capture.n_limits; i++)
		said |= !strcmp(j.r->capture.limits[i].what, "gpu.kernels");
	assert_true(said);
	close_job(&j);
}

static void a_failed_capture_makes_nothing(void **state)
{
	struct job j;

	(void)state;
	open_job(&j);
	plain_step(&j);
	call(&j, "cudaStreamBeginCapture", S, 0, 0, 0);
	launches(&j, S, 5);
	makes(&j, "cudaStreamEndCapture", S, 0, GRAPH, 901);
	launches(&j, S, 2);
	plain_step(&j);
	finish(&j);
	assert_int_equal(j.r->gpu[0].kernels, 3 + 2 + 3);
	close_job(&j);
}

/* An executable graph that was destroyed, and another at its address. */
static void a_handle_is_used_again(void **state)
{
	struct job j;

	(void)state;
	open_job(&j);
	plain_step(&j);
	call(&j, "cudaStreamBeginCapture", S, 0, 0, 0);
	launches(&j, S, 5);
	makes(&j, "cudaStreamEndCapture", S, 0, GRAPH, 0);
	makes(&j, "cudaGraphInstantiate", 0, GRAPH, EXEC, 0);
	call(&j, "cudaGraphLaunch", S, EXEC, 0, 0);
	call(&j, "cudaStreamBeginCapture", S, 0, 0, 0);
	launches(&j, S, 7);
	makes(&j, "cudaStreamEndCapture", S, 0, GRAPH, 0);
	makes(&j, "cudaGraphInstantiate", 0, GRAPH, EXEC, 0);
	call(&j, "cudaGraphLaunch", S, EXEC, 0, 0);
	/* and one that was built node by node */
	makes(&j, "cudaGraphInstantiate", 0, GRAPH + 8, EXEC + 8, 0);
	plain_step(&j);
	finish(&j);
	assert_int_equal(j.r->gpu[0].kernels, 3 + 5 + 7 + 3);
	close_job(&j);
}

static void collectives_block(void **state)
{
	struct job j;
	uint64_t b;
	int i;

	(void)state;
	open_job(&j);
	plain_step(&j);
	for (i = 0; i < 4; i++) {
		/* ncclFloat32; the launch lies inside */
		b = tick(&j);
		st_gpu(&j.s, "ncclAllReduce", PID, PID, b, b + 10 * ST_MS, S,
		       0xc0, 1000, 7);
		j.now = b + 9 * ST_MS;
		launches(&j, S, 1);
		j.now = b + 10 * ST_MS;
		/* a quick one only fills the queue */
		b = tick(&j);
		st_gpu(&j.s, "ncclBroadcast", PID, PID, b, b + 10 * ST_US, S,
		       0xc0, 500, 6);
		launches(&j, S, 1);
		plain_step(&j);
	}
	finish(&j);
	assert_int_equal(j.r->gpu[0].collectives, 8);
	assert_int_equal(j.r->gpu[0].collective_bytes, 4 * (4000 + 1000));
	assert_int_equal(j.r->gpu[0].kernels, 3 + 4 * (1 + 1 + 3));
	assert_true(fabs(j.r->breakdown.collective.seconds - 0.04) < 1e-6);
	close_job(&j);
}

static bool has_limit(const struct pt_report *r, const char *what)
{
	for (size_t i = 0; i < r->capture.n_limits; i++)
		if (!strcmp(r->capture.limits[i].what, what))
			return true;
	return false;
}

/* Several copies in one call, alone and as part of a graph. */
static void batches(void **state)
{
	struct job j;

	(void)state;
	open_job(&j);
	call(&j, "cuMemcpyBatchAsync_v2", S, 5, 0, 0);
	call(&j, "cuMemcpyBatchAsync_v2", S, UINT64_MAX, 0, 0); /* damaged */
	call(&j, "cudaStreamBeginCapture", T, 0, 0, 0);
	call(&j, "cuMemcpyBatchAsync_v2", T, 3, 0, 0);
	call(&j, "cudaLaunchHostFunc", T, 0x1234, 0, 0);
	call(&j, "cuMemPrefetchAsync_v2", T, 0x1000, 4096, 0);
	makes(&j, "cudaStreamEndCapture", T, 0, GRAPH, 0);
	makes(&j, "cudaGraphInstantiate", 0, GRAPH, EXEC, 0);
	call(&j, "cudaGraphLaunch", S, EXEC, 0, 0);
	call(&j, "cudaGraphExecUpdate", 0, EXEC, GRAPH, 0);
	call(&j, "cudaGraphLaunch", S, EXEC, 0, 0);
	finish(&j);
	assert_int_equal(j.r->gpu->copies_other, 5 + 2 * 3);
	assert_int_equal(j.r->gpu->kernels, 0);
	assert_true(has_limit(j.r, "gpu.copies"));
	close_job(&j);
}

/* The lower bound of busy when the host sleeps 10 ms for a stream that had
 * `symbol`. */
static double busy_behind(const char *symbol, bool both)
{
	struct job j;
	uint64_t b;
	double busy;

	open_job(&j);
	call(&j, "cudaLaunchKernel", S, 1, 0, 0);
	b = tick(&j);
	st_gpu(&j.s, "cudaStreamSynchronize", PID, PID, b, b + 2000, S, 0, 0, 0);
	if (both)
		call(&j, "cudaLaunchKernel", S, 1, 0, 0);
	call(&j, symbol, S, 1, 0, 0);
	b = tick(&j);
	st_gpu(&j.s, "cudaStreamSynchronize", PID, PID, b, b + 10 * ST_MS, S, 0,
	       0, 0);
	st_off(&j.s, PID, PID, b + 1000, b + 10 * ST_MS - 3000,
	       b + 10 * ST_MS - 2000);
	j.now = b + 10 * ST_MS;
	finish(&j);
	busy = j.r->gpu->busy_hard[0];
	close_job(&j);
	return busy;
}

static void functions_of_the_host(void **state)
{
	(void)state;
	/* the control: a wait behind a kernel shows the device at work */
	assert_true(busy_behind("cudaLaunchKernel", false) > 0);
	assert_true(busy_behind("cudaLaunchHostFunc", false) == 0);
	assert_true(busy_behind("cudaLaunchHostFunc", true) == 0);
	assert_true(busy_behind("cuStreamAddCallback", true) == 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(batches),
		cmocka_unit_test(functions_of_the_host),
		cmocka_unit_test(captured_launches_run_with_the_graph),
	cmocka_unit_test(a_stream_joins_by_an_event),
	cmocka_unit_test(a_graph_from_before_is_unknown),
	cmocka_unit_test(a_failed_capture_makes_nothing),
	cmocka_unit_test(a_handle_is_used_again),
	cmocka_unit_test(collectives_block),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
