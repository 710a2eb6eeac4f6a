/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of GPU entry points (api.def) as constants and names. Pure data. */
#ifndef PT_GPU_API_H
#define PT_GPU_API_H

#include <stdint.h>

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
};

struct pt_api {
	const char *symbol;
	enum pt_api_class cls;
	uint8_t ret;
	uint8_t stream;
	uint8_t v[3];
};

/* The table and its length; an id in a record is an index into it. */
extern const struct pt_api pt_apis[];
extern const unsigned pt_api_count;

/* Entry for an id from a record, or NULL when this build does not know it. */
const struct pt_api *pt_api_get(uint32_t id);

#endif
