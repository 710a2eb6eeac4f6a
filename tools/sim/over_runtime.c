/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A CUDA runtime that keeps no device of its own: every call goes on to the
 * driver's exported entry point, as a real runtime's may, so that one call of
 * the program passes two libraries. Linked with libcuda.so.1; built without
 * tail calls, because a real runtime's frame is there while its driver works.
 */
#include "cuda_abi.h"
#include "ptsim.h"

#include <stdbool.h>

#define API __attribute__((visibility("default"), noinline))

static __thread cudaError_t last_error;

static cudaError_t ret(CUresult err)
{
	if (err)
		last_error = err;
	return err;
}

static CUdeviceptr at(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

/* A kernel goes by the address of the host's function for it, as in the real
 * runtime. */
API cudaError_t cudaLaunchKernel(const void *func, dim3 g, dim3 b, void **args,
				 size_t shmem, cudaStream_t s)
{
	return ret(cuLaunchKernel((CUfunction)(uintptr_t)func, g.x, g.y, g.z,
				  b.x, b.y, b.z, (unsigned int)shmem, s, args,
				  NULL));
}

API cudaError_t cudaLaunchKernel_ptsz(const void *func, dim3 g, dim3 b,
				      void **args, size_t shmem, cudaStream_t s)
{
	return ret(cuLaunchKernel_ptsz((CUfunction)(uintptr_t)func, g.x, g.y,
				       g.z, b.x, b.y, b.z, (unsigned int)shmem,
				       s, args, NULL));
}

API cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 g, dim3 b,
					    void **args, size_t shmem,
					    cudaStream_t s)
{
	return ret(cuLaunchCooperativeKernel((CUfunction)(uintptr_t)func, g.x,
					     g.y, g.z, b.x, b.y, b.z,
					     (unsigned int)shmem, s, args));
}

API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c,
				    const void *func, void **args)
{
	CUlaunchConfig d = {
		.gridDimX = c->gridDim.x, .gridDimY = c->gridDim.y,
		.gridDimZ = c->gridDim.z, .blockDimX = c->blockDim.x,
		.blockDimY = c->blockDim.y, .blockDimZ = c->blockDim.z,
		.hStream = c->stream,
	};

	return ret(cuLaunchKernelEx(&d, (CUfunction)(uintptr_t)func, args,
				    NULL));
}

/* Which driver call a copy becomes. */
static CUresult copy(void *dst, const void *src, size_t n, int kind,
		     cudaStream_t s, bool async)
{
	CUdeviceptr d = at(dst), f = at(src);

	switch (kind) {
	case cudaMemcpyHostToDevice:
		return async ? cuMemcpyHtoDAsync_v2(d, src, n, s) :
			       cuMemcpyHtoD_v2(d, src, n);
	case cudaMemcpyDeviceToHost:
		return async ? cuMemcpyDtoHAsync_v2(dst, f, n, s) :
			       cuMemcpyDtoH_v2(dst, f, n);
	case cudaMemcpyDeviceToDevice:
		return async ? cuMemcpyDtoDAsync_v2(d, f, n, s) :
			       cuMemcpyDtoD_v2(d, f, n);
	default:
		return async ? cuMemcpyAsync(d, f, n, s) : cuMemcpy(d, f, n);
	}
}

API cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, int kind)
{
	return ret(copy(dst, src, n, kind, NULL, false));
}

API cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, int kind,
				cudaStream_t s)
{
	return ret(copy(dst, src, n, kind, s, true));
}

API cudaError_t cudaMemset(void *p, int v, size_t n)
{
	return ret(cuMemsetD8_v2(at(p), (unsigned char)v, n));
}

API cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s)
{
	return ret(cuMemsetD8Async(at(p), (unsigned char)v, n, s));
}

API cudaError_t cudaDeviceSynchronize(void)
{
	return ret(cuCtxSynchronize());
}

API cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	return ret(cuStreamSynchronize(s));
}

API cudaError_t cudaStreamQuery(cudaStream_t s)
{
	return ret(cuStreamQuery(s));
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned int flags)
{
	return ret(cuStreamCreate(s, flags));
}

API cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	return ret(cuStreamDestroy_v2(s));
}

API cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e,
				    unsigned int flags)
{
	return ret(cuStreamWaitEvent(s, e, flags));
}

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned int flags)
{
	return ret(cuEventCreate(e, flags));
}

API cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	return ret(cuEventDestroy_v2(e));
}

API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	return ret(cuEventRecord(e, s));
}

API cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	return ret(cuEventSynchronize(e));
}

API cudaError_t cudaEventQuery(cudaEvent_t e)
{
	return ret(cuEventQuery(e));
}

API cudaError_t cudaMalloc(void **p, size_t size)
{
	CUdeviceptr d = 0;
	CUresult err = size ? cuMemAlloc_v2(&d, size) : 0;

	if (!err)
		*p = (void *)(uintptr_t)d;
	return ret(err);
}

API cudaError_t cudaFree(void *p)
{
	return ret(p ? cuMemFree_v2(at(p)) : 0);
}

API cudaError_t cudaMallocHost(void **p, size_t size)
{
	return ret(cuMemAllocHost_v2(p, size));
}

API cudaError_t cudaHostAlloc(void **p, size_t size, unsigned int flags)
{
	return ret(cuMemHostAlloc(p, size, flags));
}

API cudaError_t cudaFreeHost(void *p)
{
	return ret(cuMemFreeHost(p));
}

API cudaError_t cudaHostRegister(void *p, size_t size, unsigned int flags)
{
	return ret(cuMemHostRegister_v2(p, size, flags));
}

API cudaError_t cudaHostUnregister(void *p)
{
	return ret(cuMemHostUnregister(p));
}

API cudaError_t cudaSetDevice(int device)
{
	CUcontext ctx;
	CUdevice d;
	CUresult err = cuDeviceGet(&d, device);

	if (!err)
		err = cuDevicePrimaryCtxRetain(&ctx, d);
	if (!err)
		err = cuCtxSetCurrent(ctx);
	return ret(err);
}

API cudaError_t cudaGetDeviceCount(int *n)
{
	return ret(cuDeviceGetCount(n));
}

API cudaError_t cudaStreamBeginCapture(cudaStream_t s, int mode)
{
	return ret(cuStreamBeginCapture_v2(s, mode));
}

API cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
	return ret(cuStreamEndCapture(s, g));
}

API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g,
				     unsigned long long flags)
{
	return ret(cuGraphInstantiateWithFlags(x, g, flags));
}

API cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
	return ret(cuGraphLaunch(x, s));
}

API cudaError_t cudaGetLastError(void)
{
	cudaError_t err = last_error;

	last_error = 0;
	return err;
}

API cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

API const char *cudaGetErrorString(cudaError_t err)
{
	return err ? "an error of the simulated driver" : "no error";
}
