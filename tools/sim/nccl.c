/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NCCL's and RCCL's names (libnccl, librccl) with the signatures of nccl.h. A
 * collective is one kernel on the stream that it is given; those of several ranks
 * meet on their devices, by the file that PT_SIM_NCCL names. Like
 * NCCL, which has a runtime linked into it, it launches through the driver
 * where the process has one; else through the runtime, CUDA's or HIP's.
 * PT_SIM_NCCL_HOLD_US: how long each call sleeps before it launches, as a call
 * on a communicator of blocking kind does while a peer has not come yet.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_abi.h"

#define API __attribute__((visibility("default"), noinline)) int
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define NCCL_SUCCESS 0
#define NCCL_SYSTEM_ERROR 2
#define NCCL_INVALID_ARGUMENT 4

typedef struct sim_comm {
	int ranks, rank;
	unsigned group;
} *ncclComm_t;
typedef struct {
	char internal[128];
} ncclUniqueId;

static CUresult (*drv)(CUfunction, unsigned int, unsigned int, unsigned int,
		       unsigned int, unsigned int, unsigned int, unsigned int,
		       CUstream, void **, void **);
static cudaError_t (*rt)(const void *, dim3, dim3, void **, size_t,
			 cudaStream_t);
static long hold_us;
static unsigned groups; /* made so far */
static int (*join)(const char *, unsigned, unsigned, unsigned);
static void (*meet)(unsigned);
static const char the_kernel;

static void *symbol(const char *lib, const char *name)
{
	void *h = dlopen(lib, RTLD_NOW | RTLD_NOLOAD);

	return h ? dlsym(h, name) : NULL;
}

/* The libraries that the process has by now; looked up when a communicator is
 * made. */
static void find_layers(void)
{
	const char *hold = getenv("PT_SIM_NCCL_HOLD_US");

	hold_us = hold ? strtol(hold, NULL, 10) : 0;
	static const char name[] =
		"_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
	static const char *const libs[] = { "libcuda.so.1", "libcudart.so.12",
					    "libcudart.so.13", "libamdhip64.so.6" };

	for (size_t i = 0; i < sizeof(libs) / sizeof(*libs); i++) {
		void (*call)(const void *, const char *);

		*(void **)&call = symbol(libs[i], "ptsim_name_kernel");
		if (!call)
			continue;
		call(&the_kernel, name);
		/* the first one: a runtime over a driver has no device */
		if (!join) {
			*(void **)&join = symbol(libs[i], "ptsim_meet_join");
			*(void **)&meet = symbol(libs[i], "ptsim_meet_next");
		}
	}
	*(void **)&drv = symbol("libcuda.so.1", "cuLaunchKernel");
	*(void **)&rt = symbol("libcudart.so.12", "cudaLaunchKernel");
	if (!rt)
		*(void **)&rt = symbol("libcudart.so.13", "cudaLaunchKernel");
	if (!rt)
		*(void **)&rt = symbol("libamdhip64.so.6", "hipLaunchKernel");
}

static int collective(ncclComm_t comm, cudaStream_t stream)
{
	struct timespec ts = { hold_us / 1000000, hold_us % 1000000 * 1000 };
	dim3 g = { 8, 1, 1 }, b = { 512, 1, 1 };
	int err;

	if (!comm)
		return NCCL_INVALID_ARGUMENT;
	while (hold_us && nanosleep(&ts, &ts) && errno == EINTR)
		;
	if (comm->ranks > 1)
		meet(comm->group);
	if (drv)
		err = drv((CUfunction)(uintptr_t)&the_kernel, g.x, g.y, g.z,
			  b.x, b.y, b.z, 0, stream, NULL, NULL);
	else if (rt)
		err = rt(&the_kernel, g, b, NULL, 0, stream);
	else
		return NCCL_SYSTEM_ERROR;
	return err ? 1 : NCCL_SUCCESS; /* ncclUnhandledCudaError */
}

API ncclGetUniqueId(ncclUniqueId *id)
{
	id->internal[0] = 1;
	return NCCL_SUCCESS;
}

API ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
	const char *path = getenv("PT_SIM_NCCL");

	(void)id;
	find_layers();
	*comm = calloc(1, sizeof(**comm));
	if (!*comm)
		return NCCL_SYSTEM_ERROR;
	(*comm)->ranks = ranks;
	(*comm)->rank = rank;
	(*comm)->group = groups++;
	if (ranks > 1 && (!path || !join ||
			  join(path, (*comm)->group, (unsigned)ranks,
			       (unsigned)rank)))
		return NCCL_SYSTEM_ERROR;
	return NCCL_SUCCESS;
}

API ncclCommDestroy(ncclComm_t comm)
{
	free(comm);
	return NCCL_SUCCESS;
}

API ncclGroupStart(void)
{
	return NCCL_SUCCESS;
}

API ncclGroupEnd(void)
{
	return NCCL_SUCCESS;
}

API ncclAllReduce(const void *send, void *recv, size_t count, int type, int op,
		  ncclComm_t comm, cudaStream_t s)
{
	(void)send, (void)recv, (void)count, (void)type, (void)op;
	return collective(comm, s);
}

API ncclReduceScatter(const void *send, void *recv, size_t count, int type,
		      int op, ncclComm_t comm, cudaStream_t s)
{
	(void)send, (void)recv, (void)count, (void)type, (void)op;
	return collective(comm, s);
}

API ncclAllGather(const void *send, void *recv, size_t count, int type,
		  ncclComm_t comm, cudaStream_t s)
{
	(void)send, (void)recv, (void)count, (void)type;
	return collective(comm, s);
}

API ncclReduce(const void *send, void *recv, size_t count, int type, int op,
	       int root, ncclComm_t comm, cudaStream_t s)
{
	(void)send, (void)recv, (void)count, (void)type, (void)op, (void)root;
	return collective(comm, s);
}

API ncclBroadcast(const void *send, void *recv, size_t count, int type,
		  int root, ncclComm_t comm, cudaStream_t s)
{
	(void)send, (void)recv, (void)count, (void)type, (void)root;
	return collective(comm, s);
}

API ncclBcast(void *buf, size_t count, int type, int root, ncclComm_t comm,
	      cudaStream_t s)
{
	(void)buf, (void)count, (void)type, (void)root;
	return collective(comm, s);
}

API ncclSend(const void *buf, size_t count, int type, int peer, ncclComm_t comm,
	     cudaStream_t s)
{
	(void)buf, (void)count, (void)type, (void)peer;
	return collective(comm, s);
}

API ncclRecv(void *buf, size_t count, int type, int peer, ncclComm_t comm,
	     cudaStream_t s)
{
	(void)buf, (void)count, (void)type, (void)peer;
	return collective(comm, s);
}
