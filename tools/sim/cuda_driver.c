/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The CUDA driver's names (libcuda.so.1) on the simulated device, with the
 * signatures of cuda.h. Codes are those of the runtime: CUDA gives both the
 * same numbers, but for mistakes that only the runtime tells apart.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"
#include "cudart_device.h"
#include "ptsim.h"

#define DRIVER_VERSION 13000

static CUresult code(cudaError_t err)
{
	switch (err) {
	case cudaErrorInvalidConfiguration:
	case cudaErrorInvalidPitchValue:
	case cudaErrorInvalidMemcpyDirection:
	case cudaErrorInvalidDeviceFunction:
		return cudaErrorInvalidValue;
	default:
		return err;
	}
}

/* ---- devices, contexts, modules -------------------------------------------- */

static char contexts[SIM_DEVICES], the_module;

SIM_API CUresult cuInit(unsigned int flags)
{
	(void)flags;
	return code(sim_enter());
}

SIM_API CUresult cuDriverGetVersion(int *version)
{
	*version = DRIVER_VERSION;
	return cudaSuccess;
}

SIM_API CUresult cuDeviceGetCount(int *count)
{
	return code(cudaGetDeviceCount(count));
}

SIM_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	int n = 0;
	cudaError_t err = cudaGetDeviceCount(&n);

	if (!err && (ordinal < 0 || ordinal >= n))
		err = cudaErrorInvalidDevice;
	if (!err)
		*device = ordinal;
	return code(err);
}

SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
	cudaError_t err = sim_enter();

	if (!err && (device < 0 || (unsigned)device >= sim_cfg.devices))
		err = cudaErrorInvalidDevice;
	if (!err)
		*ctx = (CUcontext)&contexts[device];
	return code(err);
}

SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	(void)device;
	return cudaSuccess;
}

SIM_API CUresult cuCtxSetCurrent(CUcontext ctx)
{
	for (unsigned i = 0; i < SIM_DEVICES; i++)
		if ((char *)ctx == &contexts[i])
			return code(cudaSetDevice((int)i));
	return ctx ? cudaErrorInvalidValue : cudaSuccess;
}

SIM_API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	(void)image;
	*module = (CUmodule)&the_module;
	return cudaSuccess;
}

/* A function is known by an address of its own, kept for good. */
SIM_API CUresult cuModuleGetFunction(CUfunction *f, CUmodule module,
				     const char *name)
{
	(void)module;
	*f = (CUfunction)strdup(name);
	if (*f)
		ptsim_name_kernel(*f, name);
	return *f ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* ---- launches -------------------------------------------------------------- */

#define LAUNCH(name, own)                                                      \
	SIM_API CUresult name(CUfunction f, unsigned int gx, unsigned int gy,  \
			      unsigned int gz, unsigned int bx,                \
			      unsigned int by, unsigned int bz,                \
			      unsigned int shared, CUstream stream,            \
			      void **params, void **extra)                     \
	{                                                                      \
		(void)shared, (void)params, (void)extra;                       \
		return code(sim_do_launch(#name, f, (dim3){ gx, gy, gz },      \
					  (dim3){ bx, by, bz }, stream, own)); \
	}
LAUNCH(cuLaunchKernel, false)
LAUNCH(cuLaunchKernel_ptsz, true)

#define LAUNCH_COOPERATIVE(name, own)                                          \
	SIM_API CUresult name(CUfunction f, unsigned int gx, unsigned int gy,  \
			      unsigned int gz, unsigned int bx,                \
			      unsigned int by, unsigned int bz,                \
			      unsigned int shared, CUstream stream,            \
			      void **params)                                   \
	{                                                                      \
		(void)shared, (void)params;                                    \
		return code(sim_do_launch(#name, f, (dim3){ gx, gy, gz },      \
					  (dim3){ bx, by, bz }, stream, own)); \
	}
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

#define LAUNCH_EX(name, own)                                                   \
	SIM_API CUresult name(const CUlaunchConfig *c, CUfunction f,           \
			      void **params, void **extra)                     \
	{                                                                      \
		(void)params, (void)extra;                                     \
		if (!c)                                                        \
			return cudaErrorInvalidValue;                          \
		return code(sim_do_launch(                                     \
			#name, f, (dim3){ c->gridDimX, c->gridDimY,            \
					  c->gridDimZ },                       \
			(dim3){ c->blockDimX, c->blockDimY, c->blockDimZ },    \
			c->hStream, own));                                     \
	}
LAUNCH_EX(cuLaunchKernelEx, false)
LAUNCH_EX(cuLaunchKernelEx_ptsz, true)

/* ---- copies and memsets ----------------------------------------------------- */

static CUresult copy(const char *api, CUdeviceptr dst, CUdeviceptr src,
		     size_t bytes, int kind, CUstream stream, bool sync,
		     bool own)
{
	struct sim_copy c = {
		.api = api, .dst = (void *)(uintptr_t)dst,
		.src = (const void *)(uintptr_t)src, .bytes = bytes,
		.kind = kind, .stream = stream, .sync = sync, .ptsz = own,
	};

	return code(sim_do_copy(&c));
}

#define P(x) ((CUdeviceptr)(uintptr_t)(x))
#define COPY(name, async, to, from, kind)                                      \
	SIM_API CUresult name(to dst, from src, size_t n)                      \
	{                                                                      \
		return copy(#name, P(dst), P(src), n, kind, NULL, true, false); \
	}                                                                      \
	SIM_API CUresult name##_ptds(to dst, from src, size_t n)               \
	{                                                                      \
		return copy(#name "_ptds", P(dst), P(src), n, kind, NULL,      \
			    true, true);                                       \
	}                                                                      \
	SIM_API CUresult async(to dst, from src, size_t n, CUstream s)         \
	{                                                                      \
		return copy(#async, P(dst), P(src), n, kind, s, false, false); \
	}                                                                      \
	SIM_API CUresult async##_ptsz(to dst, from src, size_t n, CUstream s)  \
	{                                                                      \
		return copy(#async "_ptsz", P(dst), P(src), n, kind, s, false, \
			    true);                                             \
	}
COPY(cuMemcpy, cuMemcpyAsync, CUdeviceptr, CUdeviceptr, cudaMemcpyDefault)
COPY(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *,
     cudaMemcpyHostToDevice)
COPY(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, void *, CUdeviceptr,
     cudaMemcpyDeviceToHost)
COPY(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr,
     cudaMemcpyDeviceToDevice)

/* The ends of a described copy: CUmemorytype 1 is the host's, 4 is unified. */
static CUresult described(const char *api, int from, const void *src_host,
			  CUdeviceptr src_dev, int to, void *dst_host,
			  CUdeviceptr dst_dev, size_t bytes, CUstream stream,
			  bool sync)
{
	bool h = from == 1, g = to == 1;
	int kind = from == 4 || to == 4 ? cudaMemcpyDefault :
		   h			? (g ? cudaMemcpyHostToHost :
					       cudaMemcpyHostToDevice) :
		   g			? cudaMemcpyDeviceToHost :
					  cudaMemcpyDeviceToDevice;

	return copy(api, g ? P(dst_host) : dst_dev, h ? P(src_host) : src_dev,
		    bytes, kind, stream, sync, false);
}

static CUresult copy_2d(const char *api, const CUDA_MEMCPY2D *c, CUstream s,
			bool sync)
{
	return described(api, (int)c->srcMemoryType, c->srcHost, c->srcDevice,
			 (int)c->dstMemoryType, c->dstHost, c->dstDevice,
			 c->WidthInBytes * c->Height, s, sync);
}

static CUresult copy_3d(const char *api, const CUDA_MEMCPY3D *c, CUstream s,
			bool sync)
{
	return described(api, (int)c->srcMemoryType, c->srcHost, c->srcDevice,
			 (int)c->dstMemoryType, c->dstHost, c->dstDevice,
			 c->WidthInBytes * c->Height * c->Depth, s, sync);
}

SIM_API CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *c)
{
	return copy_2d("cuMemcpy2D_v2", c, NULL, true);
}

SIM_API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream s)
{
	return copy_2d("cuMemcpy2DAsync_v2", c, s, false);
}

SIM_API CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *c)
{
	return copy_3d("cuMemcpy3D_v2", c, NULL, true);
}

SIM_API CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream s)
{
	return copy_3d("cuMemcpy3DAsync_v2", c, s, false);
}

SIM_API CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to,
				   CUdeviceptr src, CUcontext from, size_t n,
				   CUstream s)
{
	(void)to, (void)from;
	return copy("cuMemcpyPeerAsync", dst, src, n, cudaMemcpyDeviceToDevice,
		    s, false, false);
}

#define MEMSET(name, async, type, size)                                        \
	SIM_API CUresult name(CUdeviceptr dst, type v, size_t n)               \
	{                                                                      \
		(void)v;                                                       \
		return code(sim_do_set(#name, (void *)(uintptr_t)dst,          \
				       n *(size), NULL, false));               \
	}                                                                      \
	SIM_API CUresult async(CUdeviceptr dst, type v, size_t n, CUstream s)  \
	{                                                                      \
		(void)v;                                                       \
		return code(sim_do_set(#async, (void *)(uintptr_t)dst,         \
				       n *(size), s, false));                  \
	}
MEMSET(cuMemsetD8_v2, cuMemsetD8Async, unsigned char, 1)
MEMSET(cuMemsetD16_v2, cuMemsetD16Async, unsigned short, 2)
MEMSET(cuMemsetD32_v2, cuMemsetD32Async, unsigned int, 4)

/* ---- synchronisation, streams, events ----------------------------------------- */

SIM_API CUresult cuCtxSynchronize(void)
{
	return code(sim_do_device_sync("cuCtxSynchronize"));
}

SIM_API CUresult cuStreamSynchronize(CUstream s)
{
	return code(sim_do_stream_sync("cuStreamSynchronize", s, false));
}

SIM_API CUresult cuStreamSynchronize_ptsz(CUstream s)
{
	return code(sim_do_stream_sync("cuStreamSynchronize_ptsz", s, true));
}

SIM_API CUresult cuStreamQuery(CUstream s)
{
	return code(cudaStreamQuery(s));
}

SIM_API CUresult cuStreamCreate(CUstream *s, unsigned int flags)
{
	return code(cudaStreamCreateWithFlags(s, flags));
}

SIM_API CUresult cuStreamCreateWithPriority(CUstream *s, unsigned int flags,
					    int priority)
{
	return code(cudaStreamCreateWithPriority(s, flags, priority));
}

SIM_API CUresult cuStreamDestroy_v2(CUstream s)
{
	return code(cudaStreamDestroy(s));
}

SIM_API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned int flags)
{
	return code(cudaStreamWaitEvent(s, e, flags));
}

SIM_API CUresult cuEventCreate(CUevent *e, unsigned int flags)
{
	return code(cudaEventCreateWithFlags(e, flags));
}

SIM_API CUresult cuEventDestroy_v2(CUevent e)
{
	return code(cudaEventDestroy(e));
}

SIM_API CUresult cuEventRecord(CUevent e, CUstream s)
{
	return code(cudaEventRecord(e, s));
}

SIM_API CUresult cuEventRecord_ptsz(CUevent e, CUstream s)
{
	return code(cudaEventRecord_ptsz(e, s));
}

SIM_API CUresult cuEventSynchronize(CUevent e)
{
	return code(cudaEventSynchronize(e));
}

SIM_API CUresult cuEventQuery(CUevent e)
{
	return code(cudaEventQuery(e));
}

SIM_API CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
	return code(cudaEventElapsedTime(ms, a, b));
}

/* ---- memory ---------------------------------------------------------------------- */

static CUresult alloc(CUdeviceptr *out, size_t size)
{
	void *p = NULL;
	cudaError_t err = size ? cudaMalloc(&p, size) : cudaErrorInvalidValue;

	if (!err)
		*out = P(p);
	return code(err);
}

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t size)
{
	return alloc(p, size);
}

SIM_API CUresult cuMemAllocAsync(CUdeviceptr *p, size_t size, CUstream s)
{
	(void)s;
	return alloc(p, size);
}

SIM_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t size,
					 CUmemoryPool pool, CUstream s)
{
	(void)pool, (void)s;
	return alloc(p, size);
}

/* Physical memory apart from its addresses: here it is the same. */
SIM_API CUresult cuMemCreate(unsigned long long *handle, size_t size,
			     const void *prop, unsigned long long flags)
{
	(void)prop, (void)flags;
	return alloc(handle, size);
}

SIM_API CUresult cuMemRelease(unsigned long long handle)
{
	return code(cudaFreeAsync((void *)(uintptr_t)handle, NULL));
}

SIM_API CUresult cuMemFree_v2(CUdeviceptr p)
{
	return code(cudaFree((void *)(uintptr_t)p));
}

SIM_API CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s)
{
	return code(cudaFreeAsync((void *)(uintptr_t)p, s));
}

SIM_API CUresult cuMemAllocHost_v2(void **p, size_t size)
{
	return code(cudaMallocHost(p, size));
}

SIM_API CUresult cuMemHostAlloc(void **p, size_t size, unsigned int flags)
{
	return code(cudaHostAlloc(p, size, flags));
}

SIM_API CUresult cuMemFreeHost(void *p)
{
	return code(cudaFreeHost(p));
}

SIM_API CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned int flags)
{
	return code(cudaHostRegister(p, size, flags));
}

SIM_API CUresult cuMemHostUnregister(void *p)
{
	return code(cudaHostUnregister(p));
}

SIM_API CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	return code(cudaMemGetInfo(free, total));
}

/* ---- graphs ------------------------------------------------------------------------ */

SIM_API CUresult cuStreamBeginCapture_v2(CUstream s, int mode)
{
	return code(cudaStreamBeginCapture(s, mode));
}

SIM_API CUresult cuStreamEndCapture(CUstream s, CUgraph *g)
{
	return code(cudaStreamEndCapture(s, g));
}

SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g,
					     unsigned long long flags)
{
	return code(cudaGraphInstantiate(x, g, flags));
}

SIM_API CUresult cuGraphLaunch(CUgraphExec x, CUstream s)
{
	return code(sim_do_graph_launch("cuGraphLaunch", x, s, false));
}

SIM_API CUresult cuGraphLaunch_ptsz(CUgraphExec x, CUstream s)
{
	return code(sim_do_graph_launch("cuGraphLaunch_ptsz", x, s, true));
}

SIM_API CUresult cuGraphExecDestroy(CUgraphExec x)
{
	return code(cudaGraphExecDestroy(x));
}

SIM_API CUresult cuGraphDestroy(CUgraph g)
{
	return code(cudaGraphDestroy(g));
}

/* ---- entry points by name ------------------------------------------------------------ */

/* The newest version of a name; with flag 2 the one whose stream 0 is the
 * thread's own, where there is one. */
static void *by_name(const char *name, unsigned long long flags)
{
	static const char *const tails[] = { "_v2_ptsz", "_v2_ptds", "_ptsz",
					     "_ptds", "_v2", "" };
	char full[128];
	Dl_info me;
	void *self, *p = NULL;

	if (!dladdr((void *)(uintptr_t)cuInit, &me))
		return NULL;
	self = dlopen(me.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (!self)
		return NULL;
	for (size_t i = flags & 2 ? 0 : 4;
	     i < sizeof(tails) / sizeof(tails[0]) && !p; i++) {
		snprintf(full, sizeof(full), "%s%s", name, tails[i]);
		p = dlsym(self, full);
	}
	dlclose(self);
	return p;
}

SIM_API CUresult cuGetProcAddress(const char *name, void **pfn, int version,
				  unsigned long long flags)
{
	(void)version;
	*pfn = by_name(name, flags);
	return *pfn ? cudaSuccess : CUDA_ERROR_NOT_FOUND;
}

SIM_API CUresult cuGetProcAddress_v2(const char *name, void **pfn, int version,
				     unsigned long long flags, int *status)
{
	CUresult r = cuGetProcAddress(name, pfn, version, flags);

	if (status)
		*status = r ? 1 : 0; /* SYMBOL_NOT_FOUND */
	return r;
}
