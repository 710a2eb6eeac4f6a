/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The part of the CUDA driver API's public C ABI that the simulated driver
 * serves: names, layouts and values of cuda.h. The offsets asserted below are
 * those that tests/unit/test_api_headers.py finds in the real header.
 */
#ifndef PTSIM_CUDA_ABI_H
#define PTSIM_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "cudart_abi.h"

typedef int CUresult;
#define CUDA_ERROR_NOT_FOUND 500

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUarray_st *CUarray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef cudaStream_t CUstream;
typedef cudaEvent_t CUevent;
typedef cudaGraph_t CUgraph;
typedef cudaGraphExec_t CUgraphExec;

typedef struct CUlaunchConfig_st {
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	CUstream hStream;
	void *attrs; /* CUlaunchAttribute *, not looked at */
	unsigned int numAttrs;
} CUlaunchConfig;

typedef struct CUDA_MEMCPY2D_st {
	size_t srcXInBytes, srcY;
	unsigned int srcMemoryType; /* 1 host, 2 device, 3 array, 4 unified */
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	size_t srcPitch, dstXInBytes, dstY;
	unsigned int dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	size_t dstPitch, WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct CUDA_MEMCPY3D_st {
	size_t srcXInBytes, srcY, srcZ, srcLOD;
	unsigned int srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	void *reserved0;
	size_t srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;
	unsigned int dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	void *reserved1;
	size_t dstPitch, dstHeight, WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

_Static_assert(offsetof(CUlaunchConfig, hStream) == 32, "CUlaunchConfig");
_Static_assert(offsetof(CUDA_MEMCPY2D, srcMemoryType) == 16 &&
	       offsetof(CUDA_MEMCPY2D, dstMemoryType) == 72 &&
	       offsetof(CUDA_MEMCPY2D, WidthInBytes) == 112, "CUDA_MEMCPY2D");
_Static_assert(offsetof(CUDA_MEMCPY3D, srcMemoryType) == 32 &&
	       offsetof(CUDA_MEMCPY3D, dstMemoryType) == 120 &&
	       offsetof(CUDA_MEMCPY3D, WidthInBytes) == 176, "CUDA_MEMCPY3D");

CUresult cuInit(unsigned int flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuCtxSetCurrent(CUcontext ctx);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *f, CUmodule module, const char
		*name);
CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy,
		unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
		unsigned int shared, CUstream stream, void **params, void **extra);
CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gx, unsigned int gy,
		unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
		unsigned int shared, CUstream stream, void **params, void **extra);
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned
		int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int
		bz, unsigned int shared, CUstream stream, void **params);
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gx,
		unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
		unsigned int bz, unsigned int shared, CUstream stream, void **params);
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void
		**params, void **extra);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void
		**params, void **extra);
CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n);
CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t n);
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream
		s);
CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t n,
		CUstream s);
CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void * src, size_t n);
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dst, const void * src, size_t n);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void * src, size_t n,
		CUstream s);
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dst, const void * src, size_t
		n, CUstream s);
CUresult cuMemcpyDtoH_v2(void * dst, CUdeviceptr src, size_t n);
CUresult cuMemcpyDtoH_v2_ptds(void * dst, CUdeviceptr src, size_t n);
CUresult cuMemcpyDtoHAsync_v2(void * dst, CUdeviceptr src, size_t n,
		CUstream s);
CUresult cuMemcpyDtoHAsync_v2_ptsz(void * dst, CUdeviceptr src, size_t n,
		CUstream s);
CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n);
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dst, CUdeviceptr src, size_t n);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n,
		CUstream s);
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t
		n, CUstream s);
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *c);
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream s);
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *c);
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream s);
CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src,
		CUcontext from, size_t n, CUstream s);
CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char v, size_t n);
CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char v, size_t n,
		CUstream s);
CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short v, size_t n);
CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short v, size_t n,
		CUstream s);
CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int v, size_t n);
CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int v, size_t n,
		CUstream s);
CUresult cuCtxSynchronize(void);
CUresult cuStreamSynchronize(CUstream s);
CUresult cuStreamSynchronize_ptsz(CUstream s);
CUresult cuStreamQuery(CUstream s);
CUresult cuStreamCreate(CUstream *s, unsigned int flags);
CUresult cuStreamCreateWithPriority(CUstream *s, unsigned int flags, int
		priority);
CUresult cuStreamDestroy_v2(CUstream s);
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned int flags);
CUresult cuEventCreate(CUevent *e, unsigned int flags);
CUresult cuEventDestroy_v2(CUevent e);
CUresult cuEventRecord(CUevent e, CUstream s);
CUresult cuEventRecord_ptsz(CUevent e, CUstream s);
CUresult cuEventSynchronize(CUevent e);
CUresult cuEventQuery(CUevent e);
CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b);
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t size);
CUresult cuMemAllocAsync(CUdeviceptr *p, size_t size, CUstream s);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t size, CUmemoryPool
		pool, CUstream s);
CUresult cuMemCreate(unsigned long long *handle, size_t size, const void
		*prop, unsigned long long flags);
CUresult cuMemRelease(unsigned long long handle);
CUresult cuMemFree_v2(CUdeviceptr p);
CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s);
CUresult cuMemAllocHost_v2(void **p, size_t size);
CUresult cuMemHostAlloc(void **p, size_t size, unsigned int flags);
CUresult cuMemFreeHost(void *p);
CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned int flags);
CUresult cuMemHostUnregister(void *p);
CUresult cuMemGetInfo_v2(size_t *free, size_t *total);
CUresult cuStreamBeginCapture_v2(CUstream s, int mode);
CUresult cuStreamEndCapture(CUstream s, CUgraph *g);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g, unsigned
		long long flags);
CUresult cuGraphLaunch(CUgraphExec x, CUstream s);
CUresult cuGraphLaunch_ptsz(CUgraphExec x, CUstream s);
CUresult cuGraphExecDestroy(CUgraphExec x);
CUresult cuGraphDestroy(CUgraph g);
CUresult cuGetProcAddress(const char *name, void **pfn, int version,
		unsigned long long flags);
CUresult cuGetProcAddress_v2(const char *name, void **pfn, int version,
		unsigned long long flags, int *status);

#endif
