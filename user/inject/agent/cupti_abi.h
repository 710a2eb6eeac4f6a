/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The part of CUPTI's C ABI that the agent uses, declared here so that a build
 * needs nothing of CUDA; tests/unit/test_cupti_abi.py checks it against the
 * real headers where they are present.
 *
 * Records only ever grew at their ends since CUDA 11: the fields here lie at the
 * same places in every version, and the lengths by version are in the table
 * below. Who walks a buffer takes the length of a record from CUPTI, or from
 * the next record's place. The graph's number came with version 14 (11.1).
 */
#ifndef PT_CUPTI_ABI_H
#define PT_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUptiResult; /* an enum in CUPTI: same size, same registers */
#define CUPTI_SUCCESS 0
#define CUPTI_ERROR_INVALID_PARAMETER 1
#define CUPTI_ERROR_INVALID_OPERATION 7
#define CUPTI_ERROR_OUT_OF_MEMORY 8
#define CUPTI_ERROR_MAX_LIMIT_REACHED 12
#define CUPTI_ERROR_NOT_INITIALIZED 15
#define CUPTI_ERROR_INVALID_KIND 21
#define CUPTI_ERROR_NOT_SUPPORTED 27
#define CUPTI_ERROR_INSUFFICIENT_PRIVILEGES 35
#define CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED 39
#define CUPTI_ERROR_UNKNOWN 999

/* CUpti_ActivityKind */
#define CUPTI_ACTIVITY_KIND_MEMCPY 1
#define CUPTI_ACTIVITY_KIND_MEMSET 2
#define CUPTI_ACTIVITY_KIND_KERNEL 3
#define CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL 10
#define CUPTI_ACTIVITY_KIND_OVERHEAD 17
#define CUPTI_ACTIVITY_KIND_MEMCPY2 22 /* from device to device */
#define CUPTI_ACTIVITY_KIND_SYNCHRONIZATION 38

/* CUpti_ActivityMemcpyKind */
#define CUPTI_ACTIVITY_MEMCPY_KIND_HTOD 1
#define CUPTI_ACTIVITY_MEMCPY_KIND_DTOH 2
#define CUPTI_ACTIVITY_MEMCPY_KIND_HTOA 3
#define CUPTI_ACTIVITY_MEMCPY_KIND_ATOH 4
#define CUPTI_ACTIVITY_MEMCPY_KIND_DTOD 8
#define CUPTI_ACTIVITY_MEMCPY_KIND_HTOH 9
#define CUPTI_ACTIVITY_MEMCPY_KIND_PTOP 10

/* CUpti_ActivityMemoryKind */
#define CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE 1
#define CUPTI_ACTIVITY_MEMORY_KIND_PINNED 2
#define CUPTI_ACTIVITY_MEMORY_KIND_DEVICE 3

/* CUpti_ActivitySynchronizationType */
#define CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE 1
#define CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE 3
#define CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE 4

#define CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH (1 << 16)
#define CUPTI_ACTIVITY_FLAG_FLUSH_FORCED 1
#define CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC 1

#define CUPTI_VERSION_GRAPH_ID 14

#define CUPTI_PACKED __attribute__((__packed__, __aligned__(8)))

typedef struct CUPTI_PACKED {
	uint32_t kind;
} CUpti_Activity;

struct cupti_kernel { /* what CUpti_ActivityKernel5 to 10 begin with */
	uint32_t kind;
	uint8_t cache_config, shared_config;
	uint16_t registers;
	uint32_t global_cache[2];
	uint64_t start, end, completed;
	uint32_t device, context, stream;
	int32_t grid[3], block[3];
	int32_t static_shared, dynamic_shared;
	uint32_t local_per_thread, local_total;
	uint32_t correlation;
	int64_t grid_id;
	const char *name;
	void *reserved;
	uint64_t queued, submitted;
	uint8_t launch_type, carveout_requested, carveout, pad;
	uint32_t shared_executed;
	uint64_t graph_node;
	uint32_t shmem_limit;
	uint32_t graph; /* since CUPTI_VERSION_GRAPH_ID */
} CUPTI_PACKED;

struct cupti_memcpy { /* CUpti_ActivityMemcpy3 to 6 */
	uint32_t kind;
	uint8_t copy_kind, src_kind, dst_kind, flags;
	uint64_t bytes, start, end;
	uint32_t device, context, stream;
	uint32_t correlation, runtime_correlation, pad;
	void *reserved;
	uint64_t graph_node;
	uint32_t graph, pad2;
} CUPTI_PACKED;

struct cupti_memcpy2 { /* CUpti_ActivityMemcpyPtoP2 to 4 */
	uint32_t kind;
	uint8_t copy_kind, src_kind, dst_kind, flags;
	uint64_t bytes, start, end;
	uint32_t device, context, stream;
	uint32_t src_device, src_context, dst_device, dst_context;
	uint32_t correlation;
	void *reserved;
	uint64_t graph_node;
	uint32_t graph, pad2;
} CUPTI_PACKED;

struct cupti_memset { /* CUpti_ActivityMemset2 to 4 */
	uint32_t kind, value;
	uint64_t bytes, start, end;
	uint32_t device, context, stream;
	uint32_t correlation;
	uint16_t flags, memory_kind;
	uint32_t pad;
	void *reserved;
	uint64_t graph_node;
	uint32_t graph, pad2;
} CUPTI_PACKED;

struct cupti_sync { /* CUpti_ActivitySynchronization, and 2 */
	uint32_t kind, type;
	uint64_t start, end;
	uint32_t correlation, context, stream, event;
} CUPTI_PACKED;

struct cupti_overhead { /* CUpti_ActivityOverhead2, and 3 */
	uint32_t kind, overhead_kind, object_kind, object[3];
	uint64_t start, end;
} CUPTI_PACKED;

/* Whole lengths, as CUDA 11.8, 12.4 and 13.0 write them. */
#define CUPTI_BY_MAJOR(major, v11, v12, v13)                                   \
	((major) >= 13 ? (v13) : (major) == 12 ? (v12) : (v11))
#define CUPTI_KERNEL_BYTES(major) CUPTI_BY_MAJOR(major, 200, 208, 216)
#define CUPTI_MEMCPY_BYTES(major) CUPTI_BY_MAJOR(major, 88, 88, 96)
#define CUPTI_MEMCPY2_BYTES(major) CUPTI_BY_MAJOR(major, 96, 96, 96)
#define CUPTI_MEMSET_BYTES(major) CUPTI_BY_MAJOR(major, 88, 88, 88)
#define CUPTI_SYNC_BYTES(major) CUPTI_BY_MAJOR(major, 40, 40, 56)
#define CUPTI_OVERHEAD_BYTES(major) CUPTI_BY_MAJOR(major, 40, 48, 56)

typedef void (*cupti_request_fn)(uint8_t **buffer, size_t *size, size_t *max);
typedef void (*cupti_complete_fn)(void *context, uint32_t stream, uint8_t *buffer,
				  size_t size, size_t valid);
typedef void (*cupti_callback_fn)(void *user, int domain, uint32_t id,
				  const void *data);
typedef uint64_t (*cupti_timestamp_fn)(void);

struct cupti_subscriber_params { /* CUpti_SubscriberParams, CUDA 13 */
	size_t struct_size;
	const char *name;
	char *old_name;
	size_t old_size; /* 64 at least */
};

#endif
