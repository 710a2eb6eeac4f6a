/* SPDX-License-Identifier: BSD-2-Clause */
/* The walk over a capture, private to trace*.c. */
#ifndef PT_EXPORT_TRACE_INT_H
#define PT_EXPORT_TRACE_INT_H

#include "export/trace.h"

struct pt_thread_call {
	uint32_t tid;
	uint32_t at; /* in the process' calls */
};

struct pt_walk {
	const struct pt_export *x;
	struct pt_trace_writer *w;
	const struct pt_proc *proc;    /* whose calls these are */
	struct pt_thread_call *calls; /* by thread, then in order */
	size_t n_calls;
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
	PT_SPACE_COUNTER = 16, /* and those behind it */
	PT_SPACE_STREAM = 64,  /* ... likewise: the n-th stream of a process */
};
uint64_t pt_track_id(enum pt_track_space space, uint32_t id);

/* Numbers of lanes in their process, beside its threads. */
enum pt_lane_number {
	PT_LANE_STATE = 1, /* one for each thread */
	PT_LANE_STEPS,
	PT_LANE_WAITS,
	PT_LANE_DEVICE,
};

/* Put the calls of `p` into the threads' order. 0 or -ENOMEM. */
int pt_sort_calls(struct pt_walk *k, const struct pt_proc *p);
/* The calls of a thread of that process. */
int pt_walk_calls(struct pt_walk *k, const struct pt_thread *th,
		  const struct pt_trace_track *t);
/* Where a worker had made the batches that steps waited for. */
int pt_walk_batches(struct pt_walk *k, const struct pt_thread *th,
		    const struct pt_trace_track *t);
/* Steps, data waits, device, batches that are ready. */
int pt_walk_trainer(struct pt_walk *k, const struct pt_lane_trainer *t);

#endif
