/* SPDX-License-Identifier: BSD-2-Clause */
#include "job_gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_abi.h"

/* The calls of a step, by the runtime's signatures or the driver's. */
struct runtime {
	cudaError_t (*set_device)(int);
	cudaError_t (*launch)(const void *, dim3, dim3, void **, size_t,
			      cudaStream_t);
	cudaError_t (*copy)(void *, const void *, size_t, int, cudaStream_t);
	cudaError_t (*stream_sync)(cudaStream_t);
	cudaError_t (*device_sync)(void);
	cudaError_t (*alloc)(void **, size_t);
	cudaError_t (*pin)(void *, size_t, unsigned int);
	cudaError_t (*stream_new)(cudaStream_t *, unsigned int);
	cudaError_t (*capture)(cudaStream_t, int);
	cudaError_t (*capture_end)(cudaStream_t, cudaGraph_t *);
	cudaError_t (*instantiate)(cudaGraphExec_t *, cudaGraph_t,
				   unsigned long long);
	cudaError_t (*graph_launch)(cudaGraphExec_t, cudaStream_t);
};
struct driver {
	CUresult (*init)(unsigned int);
	CUresult (*launch)(CUfunction, unsigned int, unsigned int, unsigned int,
			   unsigned int, unsigned int, unsigned int,
			   unsigned int, CUstream, void **, void **);
	CUresult (*upload)(CUdeviceptr, const void *, size_t, CUstream);
	CUresult (*download)(void *, CUdeviceptr, size_t, CUstream);
	CUresult (*stream_sync)(CUstream);
	CUresult (*device_sync)(void);
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUresult (*pin)(void *, size_t, unsigned int);
};

static struct {
	enum job_api api;
	bool has_rt, has_drv;
	struct runtime rt;
	struct driver drv;
	void (*kernel_ns)(uint64_t);
	uint64_t (*busy)(void);
	uint64_t ns;
	unsigned turn, devices, at; /* at: the current one */
	cudaGraphExec_t graph;
	int (*allreduce)(const void *, void *, size_t, int, int, void *,
			 cudaStream_t);
	void *comm;
} g;

int job_api_named(const char *name, enum job_api *out)
{
	static const char *const names[] = { "runtime", "over", "driver",
					     "mixed", "hip" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i])) {
			*out = (enum job_api)i;
			return 0;
		}
	return -1;
}

static int check(const char *what, int err)
{
	if (!err)
		return 0;
	fprintf(stderr, "simjob: %s: error %d of the GPU library\n", what, err);
	return -EIO;
}

/* Beside this program; LD_LIBRARY_PATH has no say. */
static void *open_lib(const char *name)
{
	char path[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
	void *h;

	if (n <= 0)
		return NULL;
	path[n] = 0;
	strcpy(strrchr(path, '/') + 1, name);
	h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h)
		fprintf(stderr, "simjob: %s\n", dlerror());
	return h;
}

struct name {
	void *at; /* of a function pointer */
	const char *symbol;
};

/* `prefix` may be NULL. */
static int take(void *h, const struct name *v, size_t n, const char *prefix)
{
	char full[128];
	void *p;

	for (size_t i = 0; i < n; i++) {
		snprintf(full, sizeof(full), "%s%s", prefix ? prefix : "",
			 v[i].symbol);
		p = dlsym(h, full);
		if (!p) {
			fprintf(stderr, "simjob: no %s\n", full);
			return -ENOENT;
		}
		memcpy(v[i].at, &p, sizeof(p));
	}
	return 0;
}

static int take_device(void *h)
{
	const struct name v[] = { { &g.kernel_ns, "ptsim_set_kernel_ns" },
				  { &g.busy, "ptsim_busy_ns" } };

	return take(h, v, 2, NULL);
}

static int open_runtime(const char *lib, bool hip)
{
	const struct name v[] = {
		{ &g.rt.set_device, "SetDevice" },
		{ &g.rt.launch, "LaunchKernel" },
		{ &g.rt.copy, "MemcpyAsync" },
		{ &g.rt.stream_sync, "StreamSynchronize" },
		{ &g.rt.device_sync, "DeviceSynchronize" },
		{ &g.rt.alloc, "Malloc" },
		{ &g.rt.pin, "HostRegister" },
		{ &g.rt.stream_new, "StreamCreateWithFlags" },
		{ &g.rt.capture, "StreamBeginCapture" },
		{ &g.rt.capture_end, "StreamEndCapture" },
		{ &g.rt.instantiate,
		  hip ? "GraphInstantiateWithFlags" : "GraphInstantiate" },
		{ &g.rt.graph_launch, "GraphLaunch" },
	};
	void *h = open_lib(lib);
	int err;

	if (!h)
		return -ENOENT;
	err = take(h, v, sizeof(v) / sizeof(v[0]), hip ? "hip" : "cuda");
	if (!err && !g.kernel_ns)
		err = take_device(h);
	if (!err)
		err = check("set the device", g.rt.set_device(0));
	g.has_rt = !err;
	return err;
}

/* As Triton and JAX do: every entry point through cuGetProcAddress. */
static int open_driver(bool use)
{
	static const struct {
		const char *name;
		size_t at;
	} v[] = {
#define D(field, symbol) { symbol, offsetof(struct driver, field) }
		D(init, "cuInit"), D(launch, "cuLaunchKernel"),
		D(upload, "cuMemcpyHtoDAsync"), D(download, "cuMemcpyDtoHAsync"),
		D(stream_sync, "cuStreamSynchronize"),
		D(device_sync, "cuCtxSynchronize"), D(alloc, "cuMemAlloc"),
		D(pin, "cuMemHostRegister"),
#undef D
	};
	CUresult (*by_name)(const char *, void **, int, unsigned long long,
			    int *);
	const struct name first = { &by_name, "cuGetProcAddress_v2" };
	void *h = open_lib("cuda/libcuda.so.1"), *p;
	int err;

	if (!h)
		return -ENOENT;
	err = take_device(h);
	if (err || !use)
		return err;
	err = take(h, &first, 1, NULL);
	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]) && !err; i++) {
		err = check(v[i].name, by_name(v[i].name, &p, 12000, 0, NULL));
		if (!err)
			memcpy((char *)&g.drv + v[i].at, &p, sizeof(p));
	}
	if (!err)
		err = check("cuInit", g.drv.init(0));
	g.has_drv = !err;
	return err;
}

int job_gpu_rest(void)
{
	int err = 0;

	switch (g.api) {
	case JOB_API_RUNTIME:
		err = open_runtime("libcudart.so.12", false);
		break;
	case JOB_API_HIP:
		err = open_runtime("cuda/libamdhip64.so.6", true);
		break;
	case JOB_API_DRIVER:
		err = open_driver(true);
		break;
	case JOB_API_OVER:
		err = open_driver(false); /* for what ptsim.h declares */
		if (!err)
			err = open_runtime("cuda/libcudart.so.12", false);
		break;
	case JOB_API_MIXED:
		if (!g.has_drv)
			err = open_driver(true);
		if (!err)
			err = open_runtime("cuda/libcudart.so.12", false);
		break;
	}
	if (!err && g.ns)
		g.kernel_ns(g.ns);
	return err;
}

int job_gpu_open(enum job_api api, bool late, unsigned devices)
{
	char n[16];

	g.api = api;
	g.devices = devices;
	snprintf(n, sizeof(n), "%u", devices);
	if (devices > 1)
		setenv("PT_SIM_DEVICES", n, 1);
	if (!late)
		return job_gpu_rest();
	return api == JOB_API_MIXED ? open_driver(true) : 0;
}

bool job_gpu_ready(void)
{
	return g.has_rt || g.has_drv;
}

int job_gpu_malloc(void **p, size_t size)
{
	CUdeviceptr d = 0;
	int err;

	if (g.has_rt)
		return check("malloc", g.rt.alloc(p, size));
	if (!g.has_drv)
		return 0;
	err = check("malloc", g.drv.alloc(&d, size));
	*p = (void *)(uintptr_t)d;
	return err;
}

int job_gpu_pin(void *p, size_t size)
{
	if (g.has_rt)
		return check("pin", g.rt.pin(p, size, 0));
	return g.has_drv ? check("pin", g.drv.pin(p, size, 0)) : 0;
}

int job_gpu_upload(void *dst, const void *src, size_t size)
{
	if (g.has_rt)
		return check("copy to the device",
			     g.rt.copy(dst, src, size, cudaMemcpyHostToDevice,
				       NULL));
	if (!g.has_drv)
		return 0;
	return check("copy to the device",
		     g.drv.upload((CUdeviceptr)(uintptr_t)dst, src, size,
				  NULL));
}

int job_gpu_download(void *dst, const void *src, size_t size)
{
	if (g.has_rt)
		return check("copy of the loss",
			     g.rt.copy(dst, src, size, cudaMemcpyDeviceToHost,
				       NULL));
	if (!g.has_drv)
		return 0;
	return check("copy of the loss",
		     g.drv.download(dst, (CUdeviceptr)(uintptr_t)src, size,
				    NULL));
}

static int use_device(unsigned device)
{
	if (device == g.at || !g.has_rt)
		return 0;
	g.at = device;
	return check("set the device", g.rt.set_device((int)device));
}

int job_gpu_launch(const void *func)
{
	dim3 grid = { 128, 1, 1 }, block = { 256, 1, 1 };
	int err = use_device((g.at + 1) % g.devices);
	bool rt = g.has_rt && (!g.has_drv || g.turn++ % 2);

	if (err)
		return err;
	if (rt)
		return check("launch", g.rt.launch(func, grid, block, NULL, 0,
						   NULL));
	if (!g.has_drv)
		return 0;
	return check("launch",
		     g.drv.launch((CUfunction)(uintptr_t)func, grid.x, grid.y,
				  grid.z, block.x, block.y, block.z, 0, NULL,
				  NULL, NULL));
}

int job_gpu_sync(void)
{
	int err = 0;

	for (unsigned i = 0; g.has_rt && i < g.devices && !err; i++) {
		err = use_device((g.at + (i > 0)) % g.devices);
		if (!err)
			err = check("sync", g.rt.stream_sync(NULL));
	}
	if (g.has_rt)
		return err;
	return g.has_drv ? check("sync", g.drv.stream_sync(NULL)) : 0;
}

int job_gpu_finish(void)
{
	if (g.devices > 1)
		return job_gpu_sync(); /* everything is on NULL streams */
	if (g.has_rt)
		return check("sync", g.rt.device_sync());
	return g.has_drv ? check("sync", g.drv.device_sync()) : 0;
}

void job_gpu_kernel_ns(uint64_t ns)
{
	g.ns = ns;
	if (g.kernel_ns)
		g.kernel_ns(ns);
}

uint64_t job_gpu_busy_ns(void)
{
	return g.busy ? g.busy() : 0;
}

int job_gpu_record(const void *func, unsigned n)
{
	dim3 grid = { 128, 1, 1 }, block = { 256, 1, 1 };
	cudaGraph_t graph;
	cudaStream_t s;
	int err;

	if (!g.has_rt)
		return check("a graph needs the runtime", 1);
	err = g.rt.stream_new(&s, cudaStreamNonBlocking);
	if (!err)
		err = g.rt.capture(s, 0);
	for (unsigned i = 0; i < n && !err; i++)
		err = g.rt.launch(func, grid, block, NULL, 0, s);
	if (!err)
		err = g.rt.capture_end(s, &graph);
	if (!err)
		err = g.rt.instantiate(&g.graph, graph, 0);
	return check("record a graph", err);
}

int job_gpu_replay(void)
{
	return check("launch a graph", g.rt.graph_launch(g.graph, NULL));
}

int job_gpu_nccl_open(void)
{
	struct {
		char internal[128];
	} id = { { 0 } };
	int (*init)(void **, int, __typeof__(id), int);
	const struct name v[] = { { &init, "ncclCommInitRank" },
				  { &g.allreduce, "ncclAllReduce" } };
	const char *world = getenv("WORLD_SIZE"), *rank = getenv("RANK");
	int ranks = getenv("PT_SIM_NCCL") && world ? atoi(world) : 1;
	void *h = open_lib("cuda/libnccl.so.2");
	int err = h ? take(h, v, 2, NULL) : -ENOENT;

	return err ? err : check("ncclCommInitRank",
				 init(&g.comm, ranks, id,
				      ranks > 1 && rank ? atoi(rank) : 0));
}

int job_gpu_allreduce(void *p, size_t n)
{
	/* ncclFloat32, ncclSum */
	return check("ncclAllReduce",
		     g.allreduce(p, p, n, 7, 0, g.comm, NULL));
}
