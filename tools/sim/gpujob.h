/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gpujob: a random GPU program. A seed decides everything that it does; times
 * are nanoseconds.
 */
#ifndef GPUJOB_H
#define GPUJOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cuda_abi.h"

#define GJ_KERNELS 12	/* distinct functions, at most */
#define GJ_LAUNCHES 160 /* per step and device, at most */
#define GJ_STREAMS 4
#define GJ_DEVICES 3

/* ---- what was drawn (gpujob_plan.c) ---------------------------------------- */

enum gj_api_kind { GJ_RUNTIME, GJ_OVER, GJ_DRIVER, GJ_HIP, GJ_API_NR };
/* How the streams of a device are made; the first one does the copies. */
enum gj_streams { GJ_S_DEFAULT, GJ_S_BLOCKING, GJ_S_NONBLOCKING, GJ_S_THREAD };
enum gj_sync {
	GJ_DEVICE_SYNC,
	GJ_STREAM_SYNC,
	GJ_EVENT_SYNC,
	GJ_ITEM, /* a small copy back that waits */
	GJ_MIX,	 /* one of the above, drawn each time */
	GJ_POLL_EVENT,
	GJ_POLL_STREAM,
	GJ_NEVER,
};
enum gj_gap { GJ_SPIN, GJ_SLEEP, GJ_FEEDER };

struct gj_phase {
	enum gj_sync sync;
	unsigned every; /* steps from sync to sync */
	enum gj_gap gap;
	uint64_t host_ns;   /* of the gap, each step */
	uint64_t launch_ns; /* CPU time before each launch */
	unsigned launches;
	uint8_t seq[GJ_LAUNCHES]; /* which kernel */
	uint64_t ns[GJ_KERNELS];  /* device time of each */
	uint64_t device_ns;	  /* of a step's kernels, one after another */
	unsigned copies;	  /* to the device, per step */
	uint64_t copy_bytes;
	uint64_t poll_ns; /* sleep between two queries; 0 yields */
	bool memset;
};

struct gj_plan {
	uint64_t seed;
	enum gj_api_kind api;
	unsigned devices;
	bool threads;  /* one for each device, else one switches */
	bool set_once; /* ... and chooses its device only at its start */
	bool concurrent;
	unsigned sync_how; /* of PT_SIM_SYNC: block, spin, yield */
	unsigned queue;
	bool graph;
	bool helper; /* half of a step's launches from another thread */
	bool pinned;
	bool copy_stream; /* copies on the last stream, kernels wait for them */
	bool join;	  /* side streams wait for the first one and it for them */
	enum gj_streams kind;
	unsigned streams;
	unsigned kernels;
	bool vary[GJ_KERNELS]; /* by +-10 % */
	unsigned phases;
	struct gj_phase phase[2];
};

/* `api`: -1 draws it. */
void gj_draw(struct gj_plan *p, uint64_t seed, int api);
/* One JSON object in one line. */
void gj_print(const struct gj_plan *p, FILE *f);
const char *gj_api_name(enum gj_api_kind api);

/* A small generator of random numbers, the same everywhere (splitmix64). */
uint64_t gj_rand(uint64_t *state);
double gj_unit(uint64_t *state); /* 0 <= x < 1 */

/* ---- the GPU library (gpujob_api.c) ---------------------------------------- */

/* The runtime's signatures, whatever library serves them. 0 is success. */
struct gj_gpu {
	int (*set_device)(int);
	int (*launch)(const void *, dim3, dim3, void **, size_t, cudaStream_t);
	int (*copy)(void *, const void *, size_t, int, cudaStream_t);
	int (*memset)(void *, int, size_t, cudaStream_t);
	int (*stream_sync)(cudaStream_t);
	int (*device_sync)(void);
	int (*stream_query)(cudaStream_t);
	int (*stream_new)(cudaStream_t *, unsigned int);
	int (*stream_wait)(cudaStream_t, cudaEvent_t, unsigned int);
	int (*event_new)(cudaEvent_t *, unsigned int);
	int (*event_record)(cudaEvent_t, cudaStream_t);
	int (*event_sync)(cudaEvent_t);
	int (*event_query)(cudaEvent_t);
	int (*malloc)(void **, size_t);
	int (*pin)(void *, size_t, unsigned int);
	int (*capture)(cudaStream_t, int);
	int (*capture_end)(cudaStream_t, cudaGraph_t *);
	int (*instantiate)(cudaGraphExec_t *, cudaGraph_t, unsigned long long);
	int (*graph_launch)(cudaGraphExec_t, cudaStream_t);
	void (*kernel_ns)(uint64_t); /* of the calling thread's next launches */
};

/* Open the stand-ins beside this program. 0, or -errno and a line said. */
int gj_gpu_open(struct gj_gpu *g, enum gj_api_kind api, unsigned devices);

#endif
