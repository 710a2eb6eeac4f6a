/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A capture as tracks of slices, instants and counter values: what the formats
 * for timeline viewers share. pt_trace_walk() calls a writer for each of them.
 *
 * A track comes before its events, and all its events together. Slices come in
 * the order of their begin, parents before children, and lie inside of their
 * parent: where two calls of a damaged recording overlap, the inner one is cut.
 */
#ifndef PT_VIEW_TRACE_H
#define PT_VIEW_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "view/export.h"

enum pt_track_kind {
	PT_TRACK_PROCESS,
	PT_TRACK_THREAD,  /* what the thread called */
	PT_TRACK_LANE,	  /* of slices, below its parent */
	PT_TRACK_COUNTER,
};

/* What the lanes and slices show: the writers' categories, as Perfetto's and Chrome's
 * readers know them. */
#define PT_TRACE_CATS(X)                                                       \
	X(NONE, "", "")                                                        \
	X(STATE, "state", "thread_state") /* what a thread was doing */        \
	X(STEP, "step", "user_annotation")                                     \
	X(WAIT, "data_wait", "cpu_op") /* for data */                          \
	X(BATCH, "batch", "batch") /* a worker had made one */                 \
	X(RUNTIME, "cuda_runtime", "cuda_runtime") /* of the GPU libraries */  \
	X(DRIVER, "cuda_driver", "cuda_driver")                                \
	X(COLLECTIVE, "collective", "collective")                              \
	X(DEVICE, "device", "gpu_estimate") /* of its idle and busy time */    \
	X(KERNEL, "kernel", "kernel") /* measured on the device */             \
	X(COPY, "gpu_memcpy", "gpu_memcpy")                                    \
	X(MEMSET, "gpu_memset", "gpu_memset")                                  \
	X(RANGE, "nvtx", "user_annotation") /* that the program named */       \
	X(PYTHON, "python", "python_function") /* a line of it */
enum pt_trace_cat {
#define X(id, perfetto, chrome) PT_CAT_##id,
	PT_TRACE_CATS(X)
#undef X
};

enum pt_track_unit { PT_UNIT_NONE, PT_UNIT_BYTES, PT_UNIT_BYTES_S,
		     PT_UNIT_CORES, PT_UNIT_SHARE, PT_UNIT_COUNT };

struct pt_trace_track {
	uint64_t id; /* never 0 */
	uint64_t parent;  /* 0: none */
	enum pt_track_kind kind;
	enum pt_trace_cat cat;
	enum pt_track_unit unit; /* of a counter */
	uint32_t pid, tid;	 /* the kernel's ids; tid 0: none */
	uint32_t lane; /* 0, or which of its process' or thread's lanes */
	uint32_t number; /* 0, or which of several such lanes */
	const char *name; /* raw bytes */
};

enum pt_trace_arg_type { PT_ARG_INT, PT_ARG_ID, PT_ARG_STR, PT_ARG_REAL };
struct pt_trace_arg {
	const char *key; /* static */
	enum pt_trace_arg_type type;
	union {
		int64_t i;
		uint64_t id; /* 64 bits: addresses, inodes, handles */
		const char *s; /* raw bytes; lives as long as the model */
		double d;
	};
};
#define PT_TRACE_ARGS 8

struct pt_trace_event {
	const struct pt_trace_track *track;
	uint64_t begin, end; /* an instant: equal */
	const char *name; /* raw bytes */
	bool name_once; /* no other event has this name */
	enum pt_trace_cat cat;
	uint64_t flow_out, flow_in; /* 0: none */
	struct pt_trace_arg arg[PT_TRACE_ARGS];
	unsigned n_args;
};

/* Every function: 0 or -errno, which ends the walk. */
struct pt_trace_writer {
	int (*track)(struct pt_trace_writer *w, const struct pt_trace_track *t);
	int (*slice)(struct pt_trace_writer *w, const struct pt_trace_event *e);
	int (*instant)(struct pt_trace_writer *w,
		       const struct pt_trace_event *e);
	int (*value)(struct pt_trace_writer *w, const struct pt_trace_track *t,
		     uint64_t ts, double v);
};

int pt_trace_walk(const struct pt_export *x, struct pt_trace_writer *w);

/* states.c: a state's name for people, and what its object is: a file's path,
 * or NULL. */
const char *pt_wait_name(enum pt_wait w);
const char *pt_iv_path(const struct pt_model *m, const struct pt_iv *iv);

static inline void pt_arg_int(struct pt_trace_event *e, const char *key,
			      int64_t v)
{
	if (e->n_args < PT_TRACE_ARGS)
		e->arg[e->n_args++] = (struct pt_trace_arg){
			.key = key, .type = PT_ARG_INT, .i = v };
}
static inline void pt_arg_id(struct pt_trace_event *e, const char *key,
			     uint64_t v)
{
	if (e->n_args < PT_TRACE_ARGS)
		e->arg[e->n_args++] = (struct pt_trace_arg){
			.key = key, .type = PT_ARG_ID, .id = v };
}
static inline void pt_arg_str(struct pt_trace_event *e, const char *key,
			      const char *v)
{
	if (v && e->n_args < PT_TRACE_ARGS)
		e->arg[e->n_args++] = (struct pt_trace_arg){
			.key = key, .type = PT_ARG_STR, .s = v };
}

#endif
