/* SPDX-License-Identifier: BSD-2-Clause */
/* The GPU libraries' stand-ins under one set of signatures. */
#include "gpujob.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* What the driver's calls need beside the runtime's arguments. */
static struct {
	CUresult (*launch)(CUfunction, unsigned int, unsigned int, unsigned int,
			   unsigned int, unsigned int, unsigned int,
			   unsigned int, CUstream, void **, void **);
	CUresult (*h2d)(CUdeviceptr, const void *, size_t, CUstream);
	CUresult (*d2h)(void *, CUdeviceptr, size_t, CUstream);
	CUresult (*set)(CUdeviceptr, unsigned char, size_t, CUstream);
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUresult (*current)(CUcontext);
	CUresult (*retain)(CUcontext *, CUdevice);
	CUresult (*init)(unsigned int);
	CUcontext ctx[GJ_DEVICES];
} drv;

static CUdeviceptr at(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

static int drv_launch(const void *f, dim3 g, dim3 b, void **args, size_t shmem,
		      cudaStream_t s)
{
	return drv.launch((CUfunction)(uintptr_t)f, g.x, g.y, g.z, b.x, b.y,
			  b.z, (unsigned int)shmem, s, args, NULL);
}

static int drv_copy(void *dst, const void *src, size_t n, int kind,
		    cudaStream_t s)
{
	return kind == cudaMemcpyHostToDevice ? drv.h2d(at(dst), src, n, s) :
						drv.d2h(dst, at(src), n, s);
}

static int drv_memset(void *p, int v, size_t n, cudaStream_t s)
{
	return drv.set(at(p), (unsigned char)v, n, s);
}

static int drv_malloc(void **p, size_t n)
{
	CUdeviceptr d = 0;
	int err = drv.alloc(&d, n);

	*p = (void *)(uintptr_t)d;
	return err;
}

static int drv_set_device(int device)
{
	return drv.current(drv.ctx[device]);
}

static void *open_lib(const char *name)
{
	char path[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
	void *h;

	if (n <= 0)
		return NULL;
	path[n] = 0;
	strcpy(strrchr(path, '/') + 1, name);
	h = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!h)
		fprintf(stderr, "gpujob: %s\n", dlerror());
	return h;
}

struct name {
	void *at; /* of a function pointer */
	const char *symbol;
};

static int take(void *h, const struct name *v, size_t n, const char *prefix)
{
	char full[128];

	for (size_t i = 0; i < n; i++) {
		void *p;

		snprintf(full, sizeof(full), "%s%s", prefix, v[i].symbol);
		p = dlsym(h, full);
		if (!p) {
			fprintf(stderr, "gpujob: no %s\n", full);
			return -ENOENT;
		}
		memcpy(v[i].at, &p, sizeof(p));
	}
	return 0;
}

static int take_driver(struct gj_gpu *g, void *h, unsigned devices)
{
	const struct name v[] = {
		{ &drv.init, "Init" },
		{ &drv.retain, "DevicePrimaryCtxRetain" },
		{ &drv.current, "CtxSetCurrent" },
		{ &drv.launch, "LaunchKernel" },
		{ &drv.h2d, "MemcpyHtoDAsync_v2" },
		{ &drv.d2h, "MemcpyDtoHAsync_v2" },
		{ &drv.set, "MemsetD8Async" },
		{ &drv.alloc, "MemAlloc_v2" },
		{ &g->stream_sync, "StreamSynchronize" },
		{ &g->device_sync, "CtxSynchronize" },
		{ &g->stream_query, "StreamQuery" },
		{ &g->stream_new, "StreamCreate" },
		{ &g->stream_wait, "StreamWaitEvent" },
		{ &g->event_new, "EventCreate" },
		{ &g->event_record, "EventRecord" },
		{ &g->event_sync, "EventSynchronize" },
		{ &g->event_query, "EventQuery" },
		{ &g->pin, "MemHostRegister_v2" },
		{ &g->capture, "StreamBeginCapture_v2" },
		{ &g->capture_end, "StreamEndCapture" },
		{ &g->instantiate, "GraphInstantiateWithFlags" },
		{ &g->graph_launch, "GraphLaunch" },
	};
	int err = take(h, v, sizeof(v) / sizeof(v[0]), "cu");

	if (!err && drv.init(0))
		err = -EIO;
	for (unsigned i = 0; i < devices && !err; i++)
		if (drv.retain(&drv.ctx[i], (CUdevice)i))
			err = -EIO;
	g->set_device = drv_set_device;
	g->launch = drv_launch;
	g->copy = drv_copy;
	g->memset = drv_memset;
	g->malloc = drv_malloc;
	return err;
}

static int take_runtime(struct gj_gpu *g, void *h, bool hip)
{
	const struct name v[] = {
		{ &g->set_device, "SetDevice" },
		{ &g->launch, "LaunchKernel" },
		{ &g->copy, "MemcpyAsync" },
		{ &g->memset, "MemsetAsync" },
		{ &g->stream_sync, "StreamSynchronize" },
		{ &g->device_sync, "DeviceSynchronize" },
		{ &g->stream_query, "StreamQuery" },
		{ &g->stream_new, "StreamCreateWithFlags" },
		{ &g->stream_wait, "StreamWaitEvent" },
		{ &g->event_new, "EventCreateWithFlags" },
		{ &g->event_record, "EventRecord" },
		{ &g->event_sync, "EventSynchronize" },
		{ &g->event_query, "EventQuery" },
		{ &g->malloc, "Malloc" },
		{ &g->pin, "HostRegister" },
		{ &g->capture, "StreamBeginCapture" },
		{ &g->capture_end, "StreamEndCapture" },
		{ &g->instantiate,
		  hip ? "GraphInstantiateWithFlags" : "GraphInstantiate" },
		{ &g->graph_launch, "GraphLaunch" },
	};

	return take(h, v, sizeof(v) / sizeof(v[0]), hip ? "hip" : "cuda");
}

int gj_gpu_open(struct gj_gpu *g, enum gj_api_kind api, unsigned devices)
{
	static const char *const libs[] = {
		[GJ_RUNTIME] = "libcudart.so.12",
		[GJ_OVER] = "cuda/libcudart.so.12",
		[GJ_DRIVER] = "cuda/libcuda.so.1",
		[GJ_HIP] = "cuda/libamdhip64.so.6",
	};
	const struct name ns = { &g->kernel_ns, "ptsim_set_kernel_ns" };
	/* the runtime over the driver keeps no device of its own */
	void *dev = api == GJ_OVER ? open_lib(libs[GJ_DRIVER]) : NULL;
	void *h = open_lib(libs[api]);
	int err;

	if (!h || (api == GJ_OVER && !dev))
		return -ENOENT;
	err = take(dev ? dev : h, &ns, 1, "");
	if (!err)
		err = api == GJ_DRIVER ? take_driver(g, h, devices) :
					 take_runtime(g, h, api == GJ_HIP);
	return err;
}
