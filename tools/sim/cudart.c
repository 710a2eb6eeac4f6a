/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exported entry points: launches, copies, memsets and synchronisations.
 *
 * One exported function is one API call of the application: none calls
 * another, the shared parts are static, so that a probe on an entry point
 * counts each call once.
 */
#include "cudart_device.h"
#include "ptsim.h"

/* Fixed cost of a copy beside its bytes, and of a memset. */
#define COPY_NS 8000
#define MEMSET_NS 2000
/* On-device bandwidth, bytes per nanosecond. */
#define D2D_BYTES_PER_NS 600.0

_Atomic uint64_t sim_n_launch, sim_n_copy, sim_n_sync;

static __thread uint64_t kernel_ns; /* 0: the default */
static __thread cudaError_t last_error;

cudaError_t sim_ret(cudaError_t err)
{
	if (err)
		last_error = err;
	return err;
}

cudaError_t sim_last_error(bool clear)
{
	cudaError_t err = last_error;

	if (clear)
		last_error = cudaSuccess;
	return err;
}

static uint64_t clamp_ns(double ns)
{
	return ns < (double)SIM_OP_NS_MAX ? (uint64_t)ns : SIM_OP_NS_MAX;
}

/* ---- launches ------------------------------------------------------------ */

static bool dims_ok(dim3 g, dim3 b)
{
	return g.x && g.y && g.z && b.x && b.y && b.z &&
	       (uint64_t)b.x * b.y <= 1024 &&
	       (uint64_t)b.x * b.y * b.z <= 1024;
}

cudaError_t sim_do_launch(const char *api, const void *func, dim3 grid,
			  dim3 block, cudaStream_t stream, bool ptsz)
{
	struct sim_work w = { .kind = SIM_OP_KERNEL, .api = api, .func = func,
			      .meet = sim_meet_taken() };
	uint64_t enter = sim_now();
	struct sim_stream *s;
	bool blocked = false;
	cudaError_t err;

	err = sim_enter();
	if (err)
		return sim_ret(err);
	if (!func)
		return sim_ret(cudaErrorInvalidDeviceFunction);
	if (!dims_ok(grid, block))
		return sim_ret(cudaErrorInvalidConfiguration);
	w.ns = kernel_ns ? kernel_ns : sim_cfg.kernel_ns;
	if (w.meet)
		w.api = "ncclAllReduce"; /* for the log */

	sim_lock();
	s = sim_stream_find(stream, ptsz);
	if (!s) {
		err = cudaErrorInvalidResourceHandle;
		goto out;
	}
	atomic_fetch_add(&sim_n_launch, 1);
	if (s->capture) {
		if (!sim_graph_add(s->capture, &w))
			err = cudaErrorMemoryAllocation;
		goto out;
	}
	w.correlation = sim_act_call();
	sim_submit(s, &w, &blocked);
	if (blocked)
		sim_log_host(stream, enter, api);
out:
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaLaunchKernel(const void *func, dim3 grid, dim3 block,
				     void **args, size_t shmem,
				     cudaStream_t stream)
{
	(void)args;
	(void)shmem;
	return sim_do_launch("cudaLaunchKernel", func, grid, block, stream,
			     false);
}

SIM_API cudaError_t cudaLaunchKernel_ptsz(const void *func, dim3 grid,
					  dim3 block, void **args,
					  size_t shmem, cudaStream_t stream)
{
	(void)args;
	(void)shmem;
	return sim_do_launch("cudaLaunchKernel_ptsz", func, grid, block,
			     stream, true);
}

SIM_API cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 grid,
						dim3 block, void **args,
						size_t shmem,
						cudaStream_t stream)
{
	(void)args;
	(void)shmem;
	return sim_do_launch("cudaLaunchCooperativeKernel", func, grid, block,
			     stream, false);
}

SIM_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config,
					const void *func, void **args)
{
	(void)args;
	if (!config)
		return sim_ret(cudaErrorInvalidValue);
	return sim_do_launch("cudaLaunchKernelExC", func, config->gridDim,
			     config->blockDim, config->stream, false);
}

SIM_API cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config,
					     const void *func, void **args)
{
	(void)args;
	if (!config)
		return sim_ret(cudaErrorInvalidValue);
	return sim_do_launch("cudaLaunchKernelExC_ptsz", func, config->gridDim,
			     config->blockDim, config->stream, true);
}

SIM_API void ptsim_set_kernel_ns(uint64_t ns)
{
	kernel_ns = ns < SIM_OP_NS_MAX ? ns : SIM_OP_NS_MAX;
}

/* ---- copies -------------------------------------------------------------- */

/* Which way, and does the call wait? Under the lock. */
static cudaError_t copy_plan(const struct sim_copy *c, struct sim_work *w,
			     bool *waits)
{
	bool from = sim_mem_is_device(c->src), to = sim_mem_is_device(c->dst);
	const void *host = NULL;
	double rate = D2D_BYTES_PER_NS;

	switch (c->kind) {
	case cudaMemcpyDefault:
		w->kind = from ? (to ? SIM_OP_D2D : SIM_OP_D2H)
			       : (to ? SIM_OP_H2D : SIM_OP_H2H);
		break;
	case cudaMemcpyHostToDevice:
		w->kind = SIM_OP_H2D;
		break;
	case cudaMemcpyDeviceToHost:
		w->kind = SIM_OP_D2H;
		break;
	case cudaMemcpyDeviceToDevice:
		w->kind = SIM_OP_D2D;
		break;
	case cudaMemcpyHostToHost:
		w->kind = SIM_OP_H2H;
		break;
	default:
		return cudaErrorInvalidMemcpyDirection;
	}
	if (w->kind == SIM_OP_H2D || w->kind == SIM_OP_H2H) {
		rate = sim_cfg.h2d_bytes_per_ns;
		host = c->src;
	} else if (w->kind == SIM_OP_D2H) {
		rate = sim_cfg.d2h_bytes_per_ns;
		host = c->dst;
	}
	w->api = c->api;
	w->bytes = c->bytes;
	w->ns = clamp_ns(COPY_NS + (double)c->bytes / rate);
	/* pageable memory goes through a staging buffer while the call waits;
	 * on-device copies never hold the caller */
	w->pageable = host && !sim_pin_covers(host, c->bytes);
	*waits = w->kind != SIM_OP_D2D && (c->sync || w->pageable);
	return cudaSuccess;
}

cudaError_t sim_do_copy(const struct sim_copy *c)
{
	uint64_t enter = sim_now(), seq;
	bool waits = false, blocked = false;
	struct sim_work w = { 0 };
	struct sim_stream *s;
	cudaError_t err;

	err = sim_enter();
	if (err)
		return sim_ret(err);
	if (c->bytes && (!c->dst || !c->src))
		return sim_ret(cudaErrorInvalidValue);

	sim_lock();
	s = sim_stream_find(c->stream, c->ptsz);
	if (!s) {
		err = cudaErrorInvalidResourceHandle;
		goto out;
	}
	err = copy_plan(c, &w, &waits);
	if (err)
		goto out;
	atomic_fetch_add(&sim_n_copy, 1);
	if (!c->bytes)
		goto out;
	if (s->capture) {
		if (c->sync)
			err = cudaErrorStreamCaptureUnsupported;
		else if (!sim_graph_add(s->capture, &w))
			err = cudaErrorMemoryAllocation;
		goto out;
	}
	w.correlation = sim_act_call();
	seq = sim_submit(s, &w, &blocked);
	if (waits)
		sim_wait(s, seq, atomic_load(&sim_cfg.sync));
	if (waits || blocked)
		sim_log_host(c->stream, enter, c->api);
out:
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaMemcpy(void *dst, const void *src, size_t count,
			       int kind)
{
	struct sim_copy c = {
		.api = "cudaMemcpy", .dst = dst, .src = src, .bytes = count,
		.kind = kind, .sync = true,
	};

	return sim_do_copy(&c);
}

SIM_API cudaError_t cudaMemcpy_ptds(void *dst, const void *src, size_t count,
				    int kind)
{
	struct sim_copy c = {
		.api = "cudaMemcpy_ptds", .dst = dst, .src = src,
		.bytes = count, .kind = kind, .sync = true, .ptsz = true,
	};

	return sim_do_copy(&c);
}

SIM_API cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count,
				    int kind, cudaStream_t stream)
{
	struct sim_copy c = {
		.api = "cudaMemcpyAsync", .dst = dst, .src = src,
		.bytes = count, .kind = kind, .stream = stream,
	};

	return sim_do_copy(&c);
}

SIM_API cudaError_t cudaMemcpyAsync_ptsz(void *dst, const void *src,
					 size_t count, int kind,
					 cudaStream_t stream)
{
	struct sim_copy c = {
		.api = "cudaMemcpyAsync_ptsz", .dst = dst, .src = src,
		.bytes = count, .kind = kind, .stream = stream, .ptsz = true,
	};

	return sim_do_copy(&c);
}

/* Bytes of a pitched copy; -1: they do not fit their pitches. */
static int area(size_t dpitch, size_t spitch, size_t width, size_t height,
		size_t *bytes)
{
	if (width > dpitch || width > spitch)
		return -1;
	return __builtin_mul_overflow(width, height, bytes) ? -1 : 0;
}

SIM_API cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src,
				 size_t spitch, size_t width, size_t height,
				 int kind)
{
	struct sim_copy c = {
		.api = "cudaMemcpy2D", .dst = dst, .src = src,
		.kind = kind, .sync = true,
	};

	if (area(dpitch, spitch, width, height, &c.bytes))
		return sim_ret(cudaErrorInvalidPitchValue);
	return sim_do_copy(&c);
}

SIM_API cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch,
				      const void *src, size_t spitch,
				      size_t width, size_t height, int kind,
				      cudaStream_t stream)
{
	struct sim_copy c = {
		.api = "cudaMemcpy2DAsync", .dst = dst, .src = src,
		.kind = kind, .stream = stream,
	};

	if (area(dpitch, spitch, width, height, &c.bytes))
		return sim_ret(cudaErrorInvalidPitchValue);
	return sim_do_copy(&c);
}

/* Device memory is set by the device; the call does not wait. */
cudaError_t sim_do_set(const char *api, void *ptr, size_t count,
		       cudaStream_t stream, bool ptsz)
{
	struct sim_work w = { .kind = SIM_OP_MEMSET, .bytes = count,
			      .api = api };
	uint64_t enter = sim_now();
	bool blocked = false;
	struct sim_stream *s;
	cudaError_t err;

	err = sim_enter();
	if (err)
		return sim_ret(err);
	if (!ptr && count)
		return sim_ret(cudaErrorInvalidValue);
	w.ns = clamp_ns(MEMSET_NS + (double)count / D2D_BYTES_PER_NS);

	sim_lock();
	s = sim_stream_find(stream, ptsz);
	if (!s) {
		err = cudaErrorInvalidResourceHandle;
	} else if (count && s->capture) {
		if (!sim_graph_add(s->capture, &w))
			err = cudaErrorMemoryAllocation;
	} else if (count) {
		w.correlation = sim_act_call();
		sim_submit(s, &w, &blocked);
		if (blocked)
			sim_log_host(stream, enter, api);
	}
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaMemset(void *ptr, int value, size_t count)
{
	(void)value;
	return sim_do_set("cudaMemset", ptr, count, NULL, false);
}

SIM_API cudaError_t cudaMemsetAsync(void *ptr, int value, size_t count,
				    cudaStream_t stream)
{
	(void)value;
	return sim_do_set("cudaMemsetAsync", ptr, count, stream, false);
}

/* ---- synchronisation ------------------------------------------------------ */

cudaError_t sim_do_device_sync(const char *api)
{
	uint64_t enter = sim_now();
	cudaError_t err = sim_enter();

	if (err)
		return sim_ret(err);
	sim_lock();
	atomic_fetch_add(&sim_n_sync, 1);
	sim_wait(NULL, sim_last_seq(), atomic_load(&sim_cfg.sync));
	sim_log_host(NULL, enter, api);
	sim_act_sync(PTSIM_SYNC_DEVICE, NULL, enter);
	sim_unlock();
	return cudaSuccess;
}

SIM_API cudaError_t cudaDeviceSynchronize(void)
{
	return sim_do_device_sync("cudaDeviceSynchronize");
}

cudaError_t sim_do_stream_sync(const char *api, cudaStream_t stream, bool ptsz)
{
	uint64_t enter = sim_now();
	cudaError_t err = sim_enter();
	struct sim_stream *s;

	if (err)
		return sim_ret(err);
	sim_lock();
	s = sim_stream_find(stream, ptsz);
	if (!s) {
		err = cudaErrorInvalidResourceHandle;
	} else if (s->capture) {
		err = cudaErrorStreamCaptureUnsupported;
	} else {
		atomic_fetch_add(&sim_n_sync, 1);
		sim_wait(s, sim_last_seq(), atomic_load(&sim_cfg.sync));
		sim_log_host(stream, enter, api);
		sim_act_sync(PTSIM_SYNC_STREAM, s, enter);
	}
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	return sim_do_stream_sync("cudaStreamSynchronize", stream, false);
}

SIM_API cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream)
{
	return sim_do_stream_sync("cudaStreamSynchronize_ptsz", stream, true);
}

SIM_API cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	cudaError_t err = sim_enter();
	struct sim_stream *s;

	if (err)
		return sim_ret(err);
	sim_lock();
	s = sim_stream_find(stream, false);
	if (!s)
		err = cudaErrorInvalidResourceHandle;
	else if (!sim_done(s, sim_last_seq()))
		err = cudaErrorNotReady;
	sim_unlock();
	return sim_ret(err);
}

SIM_API void ptsim_counts(uint64_t *launches, uint64_t *copies,
			  uint64_t *syncs)
{
	if (launches)
		*launches = atomic_load(&sim_n_launch);
	if (copies)
		*copies = atomic_load(&sim_n_copy);
	if (syncs)
		*syncs = atomic_load(&sim_n_sync);
}

SIM_API uint64_t ptsim_busy_ns(void)
{
	uint64_t ns = 0;

	if (sim_enter())
		return 0;
	sim_lock();
	sim_advance_now();
	ns = sim_busy();
	sim_unlock();
	return ns;
}
