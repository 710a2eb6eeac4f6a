/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of GPU entry points: what a record's raw values come to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/api.h"

static const struct pt_api *named(const char *symbol)
{
	unsigned i;

	for (i = 0; i < pt_api_count; i++)
		if (!strcmp(pt_apis[i].symbol, symbol))
			return &pt_apis[i];
	fail_msg("no %s in the table", symbol);
	return NULL;
}

/* Settled values of a call by thread 7. */
static struct pt_api_args settled(const char *symbol, uint64_t stream,
				  uint64_t v0, uint64_t v1, uint64_t v2)
{
	struct pt_api_args x = { stream, { v0, v1, v2 } };

	pt_api_settle(named(symbol), 7, &x);
	return x;
}

static void lines_are_sound(void **state)
{
	unsigned i, j;

	(void)state;
	assert_true(pt_api_count <= 512); /* what an attachment has room for */
	for (i = 0; i < pt_api_count; i++) {
		const struct pt_api *a = &pt_apis[i];
		unsigned via = a->how & 15;

		for (j = 0; j < i; j++)
			assert_string_not_equal(a->symbol, pt_apis[j].symbol);
		assert_true(a->cls != PT_API_OTHER && via <= PT_VIA_NAME);
		/* What a class cannot do without. */
		if (a->cls == PT_API_LAUNCH || a->cls == PT_API_EVENT_RECORD ||
		    a->cls == PT_API_SYNC_EVENT || a->cls == PT_API_FREE)
			assert_int_not_equal(a->v[0], PT_SLOT_ABSENT);
		if (a->cls == PT_API_SYNC_STREAM)
			assert_int_not_equal(a->stream, PT_SLOT_ABSENT);
		if ((a->cls >= PT_API_COPY_SYNC && a->cls <= PT_API_MEMSET) ||
		    a->cls == PT_API_ALLOC || a->cls == PT_API_COLLECTIVE)
			assert_true(a->v[1] != PT_SLOT_ABSENT || via);
		if (a->cls == PT_API_COPY_SYNC || a->cls == PT_API_COPY_ASYNC)
			assert_true(a->v[2] != PT_SLOT_ABSENT || via ||
				    (a->how >> 4 & 15));
		/* Blocking calls and failures need the return. */
		if ((a->cls >= PT_API_SYNC_DEVICE &&
		     a->cls <= PT_API_SYNC_EVENT) ||
		    a->cls == PT_API_COPY_SYNC || a->cls == PT_API_ALLOC ||
		    a->cls == PT_API_COLLECTIVE || via == PT_VIA_OUT ||
		    via == PT_VIA_NAME)
			assert_true(a->ret);
		/* A launch must stay cheap. */
		if (a->cls == PT_API_LAUNCH || a->cls == PT_API_GRAPH_LAUNCH)
			assert_false(a->ret);
	}
}

/* The first lines' places are in recordings that exist. */
static void old_ids_stay(void **state)
{
	(void)state;
	assert_string_equal(pt_apis[0].symbol, "cudaLaunchKernel");
	assert_string_equal(pt_apis[7].symbol, "cudaMemcpy");
	assert_string_equal(pt_apis[14].symbol, "cudaStreamSynchronize");
	assert_string_equal(pt_apis[29].symbol, "cudaSetDevice");
}

static void libraries_by_name(void **state)
{
	(void)state;
	assert_int_equal(pt_api_lib(named("cudaLaunchKernel")), PT_LIB_RUNTIME);
	assert_int_equal(pt_api_lib(named("cuLaunchKernel")), PT_LIB_DRIVER);
	assert_int_equal(pt_api_lib(named("hipLaunchKernel")), PT_LIB_HIP);
	assert_int_equal(pt_api_lib(named("ncclAllReduce")), PT_LIB_NCCL);
}

static void bytes(void **state)
{
	(void)state;
	/* v0 is the height, v1 the width */
	assert_int_equal(settled("cudaMemcpy2D", 0, 10, 100, 1).v[1], 1000);
	assert_int_equal(settled("cudaMemcpy2D", 0, 10, 100, 1).v[0], 0);
	assert_int_equal(settled("cudaMalloc3D", 0, 10, 100, 3).v[1], 3000);
	assert_int_equal(settled("cuMemsetD32_v2", 0, 1, 100, 0).v[1], 400);
	assert_int_equal(settled("cuMemsetD2D16_v2", 0, 5, 7, 0).v[1], 70);
	assert_int_equal(settled("cudaMemcpy", 0, 9, 100, 1).v[1], 100);
	assert_int_equal(settled("cudaMemcpy", 0, 9, 100, 1).v[0], 9);
	/* no more than 64 bits */
	assert_true(settled("cudaMemcpy2D", 0, UINT64_MAX, 3, 1).v[1] ==
		    UINT64_MAX);
	/* ncclFloat16, ncclFloat32, ncclBfloat16, unknown */
	assert_int_equal(settled("ncclAllReduce", 0, 1, 10, 6).v[1], 20);
	assert_int_equal(settled("ncclAllReduce", 0, 1, 10, 7).v[1], 40);
	assert_int_equal(settled("ncclAllReduce", 0, 1, 10, 9).v[1], 20);
	assert_int_equal(settled("ncclAllReduce", 0, 1, 10, 99).v[1], 10);
}

static void directions(void **state)
{
	const uint64_t host = 1, dev = 2, array = 3, unified = 4;

	(void)state;
	assert_int_equal(settled("cuMemcpyHtoD_v2", 0, 1, 2, 9).v[2], 1);
	assert_int_equal(settled("cuMemcpyDtoHAsync_v2", 0, 1, 2, 9).v[2], 2);
	assert_int_equal(settled("cuMemcpyDtoD_v2", 0, 1, 2, 9).v[2], 3);
	assert_int_equal(settled("cuMemcpyAsync", 0, 1, 2, 9).v[2], 4);
	/* the upper half of the register is not the enum's */
	assert_int_equal(settled("cudaMemcpy", 0, 1, 2, 0xabcd00000002).v[2],
			 2);
#define TYPES(src, dst) settled("cuMemcpy2D_v2", 0, 0, 1, (src) << 32 | (dst)).v[2]
	assert_int_equal(TYPES(host, dev), 1);
	assert_int_equal(TYPES(host, array), 1);
	assert_int_equal(TYPES(dev, host), 2);
	assert_int_equal(TYPES(array, dev), 3);
	assert_int_equal(TYPES(host, host), 0);
	assert_int_equal(TYPES(unified, dev), 4);
	assert_int_equal(TYPES(dev, unified), 4);
#undef TYPES
	/* HIP numbered its memory types anew: not looked at */
	assert_int_equal(settled("hipMemcpyParam2D", 0, 0, 1,
				 host << 32 | dev).v[2], 4);
}

static void own_streams(void **state)
{
	const uint64_t own = (uint64_t)7 << 32 | 2;

	(void)state;
	assert_int_equal(settled("cudaLaunchKernel", 0, 1, 0, 0).stream, 0);
	assert_int_equal(settled("cudaLaunchKernel", 1, 1, 0, 0).stream, 1);
	assert_int_equal(settled("cudaLaunchKernel", 2, 1, 0, 0).stream, own);
	assert_int_equal(settled("cudaLaunchKernel_ptsz", 0, 1, 0, 0).stream,
			 own);
	assert_int_equal(settled("cudaMemcpy_ptds", 0, 1, 0, 0).stream, own);
	assert_int_equal(settled("hipLaunchKernel_spt", 0, 1, 0, 0).stream, own);
	assert_int_equal(settled("cuLaunchKernel_ptsz", 640, 1, 0, 0).stream,
			 640);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(lines_are_sound),
	cmocka_unit_test(old_ids_stay),
	cmocka_unit_test(libraries_by_name),
	cmocka_unit_test(bytes),
	cmocka_unit_test(directions),
	cmocka_unit_test(own_streams),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
