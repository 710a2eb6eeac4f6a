/* SPDX-License-Identifier: BSD-2-Clause */
/* The walk over a capture, private to trace*.c. */
#ifndef PT_VIEW_TRACE_INT_H
#define PT_VIEW_TRACE_INT_H

#include "base/hash.h"
#include "view/timeline/trace.h"

struct pt_thread_call {
	uint32_t tid;
	uint32_t at; /* in the process' calls */
};

struct pt_shown { /* a symbol as its source has it */
	const char *raw;
	char *text;
	UT_hash_handle hh;
};

struct pt_walk {
	const struct pt_export *x;
	struct pt_trace_writer *w;
	const struct pt_proc *proc;    /* whose calls these are */
	struct pt_thread_call *calls; /* by thread, then in order */
	size_t n_calls;
	uint32_t *acts; /* of each call, the first piece of work it began */
	struct pt_shown *shown; /* uthash, by raw */
};

/* Upper half of a track's id. */
enum pt_track_space {
	PT_SPACE_PROCESS = 1,
	PT_SPACE_THREAD,
	PT_SPACE_STATE,
	PT_SPACE_STEPS,
	PT_SPACE_WAITS,
	PT_SPACE_DEVICE,
	PT_SPACE_QUEUE,
	PT_SPACE_SERIES,
	PT_SPACE_PYTHON,
	PT_SPACE_COUNTER = 16, /* and those behind it */
	PT_SPACE_STREAM = 1 << 20, /* ... the n-th stream of a process */
	PT_SPACE_RANGES = 1 << 29, /* ... the n-th lane of its ranges */
};
uint64_t pt_track_id(enum pt_track_space space, uint32_t id);

/* Numbers of lanes in their process, beside its threads. */
enum pt_lane_number {
	PT_LANE_STATE = 1, /* one for each thread */
	PT_LANE_STEPS,
	PT_LANE_WAITS,
	PT_LANE_DEVICE,
	PT_LANE_STREAM, /* several */
	PT_LANE_RANGES, /* several */
	PT_LANE_PYTHON, /* one for each thread */
};

/* Put the calls of `p` into the threads' order. 0 or -ENOMEM. */
int pt_sort_calls(struct pt_walk *k, const struct pt_proc *p);
/* The first work that a call of that process began; UINT32_MAX: none known. */
static inline uint32_t pt_first_act(const struct pt_walk *k, uint32_t call)
{
	return k->acts && call < k->n_calls ? k->acts[call] : UINT32_MAX;
}
/* The flow from a call to its work: beside those of steps, never 0. */
static inline uint64_t pt_call_flow(const struct pt_proc *p, uint32_t call)
{
	return 1ull << 63 | (uint64_t)p->tgid << 32 | call;
}
/* A symbol as its source has it; lives as long as the walk. NULL: no memory. */
const char *pt_shown_name(struct pt_walk *k, const char *raw);
/* The calls of a thread of that process. */
int pt_walk_calls(struct pt_walk *k, const struct pt_thread *th,
		  const struct pt_trace_track *t);
/* Where a worker had made the batches that steps waited for. */
int pt_walk_batches(struct pt_walk *k, const struct pt_thread *th,
		    const struct pt_trace_track *t);
/* Its stacks of Python, as they were looked at. */
int pt_walk_python(struct pt_walk *k, const struct pt_thread *th);
/* Steps, data waits, device, batches that are ready. */
int pt_walk_trainer(struct pt_walk *k, const struct pt_lane_trainer *t);
/* Work measured on the devices; ranges that the program named. */
int pt_walk_device(struct pt_walk *k, const struct pt_proc *p);
int pt_walk_ranges(struct pt_walk *k, const struct pt_proc *p);

#define PT_SPREAD_LANES 8
struct pt_spread {
	uint64_t group; /* what shares lanes */
	uint64_t begin, end;
	uint32_t at; /* the caller's */
	uint8_t lane; /* set here */
};
typedef int (*pt_spread_fn)(void *ctx, const struct pt_spread *s);
/* Choose lanes for all, then call `track` before the first of a lane and
 * `slice` for each, in the order of their begin. What overlaps on more than
 * PT_SPREAD_LANES, or deeper than they nest, is cut. 0 or what a function returned. */
int pt_spread(struct pt_spread *v, size_t n, pt_spread_fn track,
	      pt_spread_fn slice, void *ctx);

#endif
