/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/api.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define PT_API(sym, c, r, s, v0, v1, v2, how)                                  \
	{ #sym, PT_API_##c, r, s, { v0, v1, v2 }, how },
const struct pt_api pt_apis[] = {
#include "gpu/api.def"
};
const unsigned pt_api_count = sizeof(pt_apis) / sizeof(pt_apis[0]);

const struct pt_api *pt_api_get(uint32_t id)
{
	return id < pt_api_count ? &pt_apis[id] : NULL;
}

enum pt_api_lib pt_api_lib(const struct pt_api *a)
{
	if (!strncmp(a->symbol, "cuda", 4))
		return PT_LIB_RUNTIME;
	if (!strncmp(a->symbol, "hip", 3))
		return PT_LIB_HIP;
	if (!strncmp(a->symbol, "nccl", 4))
		return PT_LIB_NCCL;
	return PT_LIB_DRIVER;
}

/* CUmemorytype of both ends (source in the high half) to cudaMemcpyKind. */
static uint64_t kind_of_types(uint64_t types)
{
	uint32_t src = (uint32_t)(types >> 32), dst = (uint32_t)types;
	bool from = src == 2 || src == 3, to = dst == 2 || dst == 3;

	if (!src || src > 3 || !dst || dst > 3) /* unified, or unknown */
		return 4;
	return from ? (to ? 3 : 2) : to ? 1 : 0;
}

/* Bytes of an ncclDataType_t (nccl.h); unknown ones count as one. */
static uint64_t nccl_size(uint64_t type)
{
	static const uint8_t size[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

	return type < sizeof(size) ? size[type] : 1;
}

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t r;

	return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

void pt_api_settle(const struct pt_api *a, uint32_t tid, struct pt_api_args *x)
{
	unsigned via = a->how & 15, kind = a->how >> 4 & 15;

	if (a->how & (PT_HOW_AREA | PT_HOW_VOLUME)) {
		x->v[1] = times(x->v[1], x->v[0]);
		x->v[0] = 0;
	}
	if (a->how & PT_HOW_VOLUME) {
		x->v[1] = times(x->v[1], x->v[2]);
		x->v[2] = 0;
	}
	x->v[1] = times(x->v[1], 1u << (a->how >> 12 & 3));
	if (a->cls == PT_API_COLLECTIVE)
		x->v[1] = times(x->v[1], nccl_size((uint32_t)x->v[2]));
	if (kind)
		x->v[2] = kind - 1;
	else if (via == PT_VIA_DRV_2D || via == PT_VIA_DRV_3D)
		x->v[2] = kind_of_types(x->v[2]);
	else if (a->cls == PT_API_COPY_SYNC || a->cls == PT_API_COPY_ASYNC)
		x->v[2] = (uint32_t)x->v[2]; /* an enum fills half a register */
	/* A thread's own stream is nobody else's: synchronising one of them
	 * says nothing about another thread's. */
	if (x->stream == 2 || (!x->stream && a->how & PT_HOW_OWN_STREAM))
		x->stream = (uint64_t)tid << 32 | 2;
}
