/* SPDX-License-Identifier: BSD-2-Clause */
/* simjob: the GPU through one library or another, opened by name. */
#ifndef SIMJOB_GPU_H
#define SIMJOB_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum job_api {
	JOB_API_RUNTIME, /* libcudart with a device of its own */
	JOB_API_OVER,	 /* libcudart over libcuda, which has the device */
	JOB_API_DRIVER,	 /* libcuda alone */
	JOB_API_MIXED,	 /* libcudart over libcuda, and libcuda directly */
	JOB_API_HIP,
};

/* 0, or -1 when there is no such name. */
int job_api_named(const char *name, enum job_api *out);

/*
 * Open the libraries that `api` needs; with `late` those of its first half
 * only: nothing for one library, libcuda for the mixed one. job_gpu_rest()
 * opens what is left. With several devices (of a runtime) the launches take
 * turns. 0 or -errno, said. Every other call: 0 or -EIO, said;
 * nothing is done, and 0 returned, while no library is open.
 */
int job_gpu_open(enum job_api api, bool late, unsigned devices);
int job_gpu_rest(void);
bool job_gpu_ready(void);

int job_gpu_malloc(void **p, size_t size);
int job_gpu_pin(void *p, size_t size);
int job_gpu_upload(void *dst, const void *src, size_t size);
int job_gpu_download(void *dst, const void *src, size_t size);
/* One kernel, known by the address `func`; the mixed job takes turns. */
int job_gpu_launch(const void *func);
int job_gpu_sync(void);
int job_gpu_finish(void); /* wait for the whole device */
void job_gpu_kernel_ns(uint64_t ns);
uint64_t job_gpu_busy_ns(void);

/* Record `n` launches of `func` in a graph, on a stream of its own. */
int job_gpu_record(const void *func, unsigned n);
int job_gpu_replay(void); /* the graph, on the default stream */

/* NCCL's all-reduce of `n` floats at `p`: of one rank, or of RANK among
 * WORLD_SIZE where PT_SIM_NCCL names a file that they share. */
int job_gpu_nccl_open(void);
int job_gpu_allreduce(void *p, size_t n);

#endif
