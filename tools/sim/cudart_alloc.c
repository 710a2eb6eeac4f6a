/* SPDX-License-Identifier: BSD-2-Clause */
/* Exported entry points: device memory, pinned host memory. */
#include "cudart_device.h"

#include <errno.h>
#include <sys/mman.h>

static cudaError_t dev_alloc(void **ptr, size_t size)
{
	cudaError_t err = sim_enter();
	void *p = NULL;

	if (err)
		return sim_ret(err);
	if (!ptr)
		return sim_ret(cudaErrorInvalidValue);
	if (size) {
		sim_lock();
		p = sim_mem_alloc(size);
		sim_unlock();
		if (!p)
			return sim_ret(cudaErrorMemoryAllocation);
	}
	*ptr = p;
	return cudaSuccess;
}

SIM_API cudaError_t cudaMalloc(void **ptr, size_t size)
{
	return dev_alloc(ptr, size);
}

/* The memory is there at once, not only when the stream gets to it. */
SIM_API cudaError_t cudaMallocAsync(void **ptr, size_t size,
				    cudaStream_t stream)
{
	cudaError_t err = sim_enter();
	struct sim_stream *s;

	if (err)
		return sim_ret(err);
	sim_lock();
	s = sim_stream_find(stream, false);
	sim_unlock();
	if (!s)
		return sim_ret(cudaErrorInvalidResourceHandle);
	return dev_alloc(ptr, size);
}

/* Waits for the whole device, as CUDA's does. */
SIM_API cudaError_t cudaFree(void *ptr)
{
	uint64_t enter = sim_now();
	cudaError_t err = sim_enter();
	uint64_t seq;

	if (err || !ptr)
		return sim_ret(err);
	sim_lock();
	if (!sim_mem_is_allocated(ptr)) {
		err = cudaErrorInvalidValue;
		goto out;
	}
	seq = sim_last_seq();
	if (!sim_done(NULL, seq)) {
		sim_wait(NULL, seq, atomic_load(&sim_cfg.sync));
		sim_log_host(NULL, enter, "cudaFree");
	}
	if (sim_mem_free(ptr))
		err = cudaErrorInvalidValue;
out:
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream)
{
	cudaError_t err = sim_enter();
	struct sim_stream *s;

	if (err || !ptr)
		return sim_ret(err);
	sim_lock();
	s = sim_stream_find(stream, false);
	if (!s)
		err = cudaErrorInvalidResourceHandle;
	else if (!sim_mem_is_allocated(ptr))
		err = cudaErrorInvalidValue;
	else
		sim_submit_free(s, ptr, "cudaFreeAsync");
	sim_unlock();
	return sim_ret(err);
}

/* Pinned is a property that this library remembers; nothing is mlocked. */
static cudaError_t host_alloc(void **ptr, size_t size)
{
	cudaError_t err = sim_enter();
	void *p;

	if (err)
		return sim_ret(err);
	if (!ptr)
		return sim_ret(cudaErrorInvalidValue);
	*ptr = NULL;
	if (!size)
		return cudaSuccess;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return sim_ret(cudaErrorMemoryAllocation);
	sim_lock();
	if (sim_pin_add(p, size, true))
		err = cudaErrorMemoryAllocation;
	sim_unlock();
	if (err)
		munmap(p, size);
	else
		*ptr = p;
	return sim_ret(err);
}

SIM_API cudaError_t cudaMallocHost(void **ptr, size_t size)
{
	return host_alloc(ptr, size);
}

SIM_API cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned int flags)
{
	if (flags & ~0x7u)
		return sim_ret(cudaErrorInvalidValue);
	return host_alloc(ptr, size);
}

SIM_API cudaError_t cudaFreeHost(void *ptr)
{
	cudaError_t err = sim_enter();
	size_t size = 0;

	if (err || !ptr)
		return sim_ret(err);
	sim_lock();
	if (sim_pin_del(ptr, true, &size))
		err = cudaErrorInvalidValue;
	else /* copies from it may be under way */
		sim_wait(NULL, sim_last_seq(), atomic_load(&sim_cfg.sync));
	sim_unlock();
	if (!err)
		munmap(ptr, size);
	return sim_ret(err);
}

SIM_API cudaError_t cudaHostRegister(void *ptr, size_t size,
				     unsigned int flags)
{
	cudaError_t err = sim_enter();

	if (err)
		return sim_ret(err);
	if (!ptr || !size || (flags & ~0xfu))
		return sim_ret(cudaErrorInvalidValue);
	sim_lock();
	switch (sim_pin_add(ptr, size, false)) {
	case 0:
		break;
	case -EEXIST:
		err = cudaErrorHostMemoryAlreadyRegistered;
		break;
	case -ENOMEM:
		err = cudaErrorMemoryAllocation;
		break;
	default:
		err = cudaErrorInvalidValue;
	}
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaHostUnregister(void *ptr)
{
	cudaError_t err = sim_enter();
	size_t size;

	if (err)
		return sim_ret(err);
	sim_lock();
	if (sim_pin_del(ptr, false, &size))
		err = cudaErrorHostMemoryNotRegistered;
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
	cudaError_t err = sim_enter();

	if (err)
		return sim_ret(err);
	if (!free || !total)
		return sim_ret(cudaErrorInvalidValue);
	sim_lock();
	sim_advance_now(); /* frees that a stream has reached */
	sim_mem_info(free, total);
	sim_unlock();
	return cudaSuccess;
}
