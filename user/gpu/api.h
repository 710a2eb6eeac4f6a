/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of GPU entry points (api.def) as constants and names. Pure data. */
#ifndef PT_GPU_API_H
#define PT_GPU_API_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "abi.h"

enum pt_api_class {
	PT_API_OTHER = 0,
	PT_API_LAUNCH,
	PT_API_GRAPH_LAUNCH,
	PT_API_COPY_SYNC,  /* blocks the host until done */
	PT_API_COPY_ASYNC, /* blocks only for pageable memory */
	PT_API_MEMSET,
	PT_API_SYNC_DEVICE,
	PT_API_SYNC_STREAM,
	PT_API_SYNC_EVENT,
	PT_API_QUERY,
	PT_API_EVENT_RECORD,
	PT_API_STREAM_WAIT,
	PT_API_ALLOC,
	PT_API_FREE,
	PT_API_HOST_ALLOC,
	PT_API_HOST_FREE,
	PT_API_SET_DEVICE,
	PT_API_CAPTURE_BEGIN, /* a stream's calls go into a graph from here */
	PT_API_CAPTURE_END,
	PT_API_GRAPH_MAKE, /* a graph becomes an executable one */
	PT_API_COLLECTIVE, /* of NCCL or RCCL, on one communicator */
	PT_API_COMM,	   /* makes or ends communicators, or starts a group */
	PT_API_FUNCTION,   /* gives a kernel's handle */
	PT_API_STREAM_NEW,
	PT_API_STREAM_END, /* its handle may be given out again */
	PT_API_EVENT_END,
	PT_API_HOST_FUNC,  /* a stream waits for a function of the host */
	PT_API_GRAPH_UPDATE, /* an executable graph becomes another one */
	PT_API_PREFETCH,   /* of managed memory, on a stream */
	PT_API_COPY_BATCH, /* several copies on a stream; bytes not known */
	PT_API_MAP,	   /* memory to an address that was reserved */
	PT_API_UNMAP,
};

/* What an entry point's slots do not say by themselves; a word of these. */
#define PT_HOW_VIA(via) (via)		 /* PT_VIA_* of abi.h, 4 bits */
#define PT_HOW_KIND(k) (((k) + 1) << 4)	 /* a copy of this cudaMemcpyKind */
#define PT_HOW_OWN_STREAM 0x0100 /* stream 0 is the calling thread's own */
#define PT_HOW_AREA 0x0200	 /* bytes are v1 * v0, and v0 means no more */
#define PT_HOW_VOLUME 0x0400	 /* ... v1 * v0 * v2 */
#define PT_HOW_TIMES(log2) ((log2) << 12) /* ... and elements of 2 or 4 bytes */

/* Which library a symbol belongs to. A runtime calls its driver, so that one
 * call of the program may pass both. */
enum pt_api_lib {
	PT_LIB_RUNTIME = 1, /* libcudart */
	PT_LIB_DRIVER,      /* libcuda */
	PT_LIB_HIP,	      /* libamdhip64 */
	PT_LIB_NCCL,	      /* libnccl, librccl */
};

/* Is a thread of this name one that the CUDA driver made for itself? */
static inline bool pt_api_driver_thread(const char *comm)
{
	return !strncmp(comm, "cuda-", 5) || !strncmp(comm, "cuda0", 5);
}

struct pt_api {
	const char *symbol;
	enum pt_api_class cls;
	uint8_t ret;
	uint8_t stream;
	uint8_t v[3];
	uint16_t how; /* PT_HOW_* */
};

/* What an entry's record holds once `how` is taken into account. */
struct pt_api_args {
	uint64_t stream; /* a thread's own default stream has a handle of its
			  * own: 2 (cudaStreamPerThread) beside the tid */
	uint64_t v[3];
};

/* The table and its length; an id in a record is an index into it. */
extern const struct pt_api pt_apis[];
extern const unsigned pt_api_count;

/* Entry for an id from a record, or NULL when this build does not know it. */
const struct pt_api *pt_api_get(uint32_t id);

enum pt_api_lib pt_api_lib(const struct pt_api *a);

/* Turn a record's raw values into what the class wants (see api.def): bytes
 * of areas, volumes and collectives, the direction of a copy, the stream. */
void pt_api_settle(const struct pt_api *a, uint32_t tid, struct pt_api_args *x);

#endif
