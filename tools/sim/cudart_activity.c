/* SPDX-License-Identifier: BSD-2-Clause */
/* What the device does, told to one listener: CUPTI's stand-in. */
#include "cudart_state.h"
#include "ptsim.h"

#include <stdlib.h>
#include <string.h>

struct kernel_name {
	struct kernel_name *next;
	const void *func;
	char name[];
};

static ptsim_listener listener;
static void *listener_ctx;
static uint32_t last_call;
#define BUCKETS 256
static struct kernel_name *names[BUCKETS];

static struct kernel_name **bucket(const void *func)
{
	return &names[(uintptr_t)func * 0x9e3779b97f4a7c15ull >> 56];
}

static const char *name_of(const void *func)
{
	for (const struct kernel_name *k = *bucket(func); k; k = k->next)
		if (k->func == func)
			return k->name;
	return NULL;
}

uint32_t sim_act_call(void)
{
	return listener ? ++last_call : 0;
}

/* As CUPTI numbers streams: the first ones are the driver's own. */
static uint32_t stream_number(const struct sim_stream *s)
{
	uint64_t h = s->handle * 0x9e3779b97f4a7c15ull;

	return s->legacy ? 7 : 8 + (uint32_t)(h >> 40);
}

void sim_act_op(const struct sim_op *op, uint64_t end)
{
	static const uint8_t kinds[] = {
		[SIM_OP_H2D] = cudaMemcpyHostToDevice,
		[SIM_OP_D2H] = cudaMemcpyDeviceToHost,
		[SIM_OP_D2D] = cudaMemcpyDeviceToDevice,
		[SIM_OP_H2H] = cudaMemcpyHostToHost,
		[SIM_OP_MEMSET] = 0,
	};
	struct ptsim_act a = {
		.begin = op->start, .end = end, .bytes = op->work.bytes,
		.device = op->stream->device,
		.stream = stream_number(op->stream),
		.correlation = op->work.correlation, .graph = op->work.graph,
		.func = op->work.func, .pageable = op->work.pageable,
		.async = op->work.api && strstr(op->work.api, "Async"),
	};

	if (!listener)
		return;
	if (op->work.kind == SIM_OP_KERNEL) {
		a.what = PTSIM_ACT_KERNEL;
		a.name = name_of(a.func);
	} else {
		a.what = op->work.kind == SIM_OP_MEMSET ? PTSIM_ACT_MEMSET :
							  PTSIM_ACT_COPY;
		a.detail = kinds[op->work.kind];
	}
	listener(listener_ctx, &a);
}

void sim_act_sync(uint32_t type, const struct sim_stream *s, uint64_t enter)
{
	struct ptsim_act a = {
		.what = PTSIM_ACT_SYNC, .detail = type, .begin = enter,
		.end = sim_now(), .device = s ? s->device : sim_current(),
		.stream = s ? stream_number(s) : 0xffffffff,
	};

	if (!listener)
		return;
	a.correlation = sim_act_call();
	listener(listener_ctx, &a);
}

SIM_API void ptsim_listen(ptsim_listener on, void *ctx)
{
	sim_lock();
	listener_ctx = ctx;
	listener = on;
	sim_unlock();
}

SIM_API void ptsim_poll(void)
{
	sim_lock();
	if (dev.thread_up)
		sim_advance_now();
	sim_unlock();
}

SIM_API void ptsim_name_kernel(const void *func, const char *name)
{
	struct kernel_name **b = bucket(func), *k;
	size_t n = strlen(name) + 1;

	k = malloc(sizeof(*k) + n);
	if (!k)
		return; /* it goes without a name */
	k->func = func;
	memcpy(k->name, name, n);
	sim_lock();
	k->next = *b; /* an older one stays: somebody may hold it */
	*b = k;
	sim_unlock();
}
