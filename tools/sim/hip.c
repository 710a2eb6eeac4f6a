/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * AMD's HIP runtime by its names (libamdhip64), on the simulated device:
 * signatures, layouts and values of ROCm's hip_runtime_api.h, whose launch
 * configuration, copy kinds and handles are CUDA's by other names.
 */
#include "cudart_device.h"

typedef cudaError_t hipError_t;

#define HIP SIM_API hipError_t
/* One library, no header of ours for others. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

HIP hipInit(unsigned int flags)
{
	(void)flags;
	return sim_enter();
}

HIP hipGetDeviceCount(int *n)
{
	return cudaGetDeviceCount(n);
}

HIP hipSetDevice(int device)
{
	return cudaSetDevice(device);
}

HIP hipLaunchKernel(const void *func, dim3 g, dim3 b, void **args, size_t shmem,
		    cudaStream_t s)
{
	(void)args, (void)shmem;
	return sim_do_launch("hipLaunchKernel", func, g, b, s, false);
}

HIP hipLaunchKernel_spt(const void *func, dim3 g, dim3 b, void **args,
			size_t shmem, cudaStream_t s)
{
	(void)args, (void)shmem;
	return sim_do_launch("hipLaunchKernel_spt", func, g, b, s, true);
}

HIP hipExtLaunchKernel(const void *func, dim3 g, dim3 b, void **args,
		       size_t shmem, cudaStream_t s, cudaEvent_t start,
		       cudaEvent_t stop, int flags)
{
	(void)args, (void)shmem, (void)start, (void)stop, (void)flags;
	return sim_do_launch("hipExtLaunchKernel", func, g, b, s, false);
}

HIP hipLaunchKernelExC(const cudaLaunchConfig_t *c, const void *func,
		       void **args)
{
	(void)args;
	return sim_do_launch("hipLaunchKernelExC", func, c->gridDim,
			     c->blockDim, c->stream, false);
}

HIP hipModuleLaunchKernel(void *f, unsigned int gx, unsigned int gy,
			  unsigned int gz, unsigned int bx, unsigned int by,
			  unsigned int bz, unsigned int shared, cudaStream_t s,
			  void **params, void **extra)
{
	(void)shared, (void)params, (void)extra;
	return sim_do_launch("hipModuleLaunchKernel", f, (dim3){ gx, gy, gz },
			     (dim3){ bx, by, bz }, s, false);
}

static hipError_t copy(const char *api, void *dst, const void *src, size_t n,
		       int kind, cudaStream_t s, bool sync)
{
	return sim_do_copy(&(struct sim_copy){ .api = api, .dst = dst,
					       .src = src, .bytes = n,
					       .kind = kind, .stream = s,
					       .sync = sync });
}

HIP hipMemcpy(void *dst, const void *src, size_t n, int kind)
{
	return copy("hipMemcpy", dst, src, n, kind, NULL, true);
}

HIP hipMemcpyWithStream(void *dst, const void *src, size_t n, int kind,
			cudaStream_t s)
{
	return copy("hipMemcpyWithStream", dst, src, n, kind, s, true);
}

HIP hipMemcpyAsync(void *dst, const void *src, size_t n, int kind,
		   cudaStream_t s)
{
	return copy("hipMemcpyAsync", dst, src, n, kind, s, false);
}

HIP hipMemcpyHtoD(void *dst, void *src, size_t n)
{
	return copy("hipMemcpyHtoD", dst, src, n, cudaMemcpyHostToDevice, NULL,
		    true);
}

HIP hipMemcpyDtoHAsync(void *dst, void *src, size_t n, cudaStream_t s)
{
	return copy("hipMemcpyDtoHAsync", dst, src, n, cudaMemcpyDeviceToHost,
		    s, false);
}

HIP hipMemset(void *p, int v, size_t n)
{
	(void)v;
	return sim_do_set("hipMemset", p, n, NULL, false);
}

HIP hipMemsetAsync(void *p, int v, size_t n, cudaStream_t s)
{
	(void)v;
	return sim_do_set("hipMemsetAsync", p, n, s, false);
}

HIP hipDeviceSynchronize(void)
{
	return sim_do_device_sync("hipDeviceSynchronize");
}

HIP hipStreamSynchronize(cudaStream_t s)
{
	return sim_do_stream_sync("hipStreamSynchronize", s, false);
}

HIP hipStreamCreateWithFlags(cudaStream_t *s, unsigned int flags)
{
	return cudaStreamCreateWithFlags(s, flags);
}

HIP hipStreamQuery(cudaStream_t s)
{
	return cudaStreamQuery(s);
}

HIP hipStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned int flags)
{
	return cudaStreamWaitEvent(s, e, flags);
}

HIP hipEventCreateWithFlags(cudaEvent_t *e, unsigned int flags)
{
	return cudaEventCreateWithFlags(e, flags);
}

HIP hipEventRecord(cudaEvent_t e, cudaStream_t s)
{
	return cudaEventRecord(e, s);
}

HIP hipEventSynchronize(cudaEvent_t e)
{
	return cudaEventSynchronize(e);
}

HIP hipEventQuery(cudaEvent_t e)
{
	return cudaEventQuery(e);
}

HIP hipMalloc(void **p, size_t size)
{
	return cudaMalloc(p, size);
}

HIP hipMallocAsync(void **p, size_t size, cudaStream_t s)
{
	return cudaMallocAsync(p, size, s);
}

HIP hipFree(void *p)
{
	return cudaFree(p);
}

HIP hipFreeAsync(void *p, cudaStream_t s)
{
	return cudaFreeAsync(p, s);
}

HIP hipHostMalloc(void **p, size_t size, unsigned int flags)
{
	(void)flags;
	return cudaMallocHost(p, size);
}

HIP hipHostFree(void *p)
{
	return cudaFreeHost(p);
}

HIP hipHostRegister(void *p, size_t size, unsigned int flags)
{
	return cudaHostRegister(p, size, flags);
}

HIP hipHostUnregister(void *p)
{
	return cudaHostUnregister(p);
}

HIP hipStreamBeginCapture(cudaStream_t s, int mode)
{
	return cudaStreamBeginCapture(s, mode);
}

HIP hipStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
	return cudaStreamEndCapture(s, g);
}

HIP hipGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g,
				 unsigned long long flags)
{
	return cudaGraphInstantiate(x, g, flags);
}

HIP hipGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
	return sim_do_graph_launch("hipGraphLaunch", x, s, false);
}

SIM_API const char *hipGetErrorString(hipError_t err)
{
	return cudaGetErrorString(err);
}
