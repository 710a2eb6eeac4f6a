/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Graphs: calls on a stream that captures run nothing, they become the nodes of
 * a graph; each launch of what is made of that graph runs all of them. What was
 * captured while the trace ran is known by the handles that the calls gave back.
 */
#ifndef PT_ANALYSIS_GRAPHS_H
#define PT_ANALYSIS_GRAPHS_H

#include "analysis/internal.h"

/* What a launch runs. */
struct pt_graph_work {
	uint64_t kernels, h2d, d2h, other_copies, copy_bytes;
	uint64_t shape; /* the same for the same nodes in the same order */
};

#define PT_CAPTURE_STREAMS 16
#define PT_CAPTURE_EVENTS 64
struct pt_graph_capture {
	uint64_t streams[PT_CAPTURE_STREAMS]; /* [0]: where it began */
	uint64_t events[PT_CAPTURE_EVENTS];   /* recorded in it */
	size_t n_streams, n_events;
	struct pt_graph_work work;
};

struct pt_graph { /* a graph, or an executable one; by handle */
	uint64_t handle;
	struct pt_graph_work work;
	UT_hash_handle hh;
};

struct pt_graphs {
	PT_VEC(struct pt_graph_capture) open;
	struct pt_graph *made, *exec;
};

void pt_graphs_free(struct pt_graphs *g);

/* Take the next call in order. 1: it went into a graph and ran nothing; 0: it
 * did what it says; or -ENOMEM. */
int pt_graphs_take(struct pt_graphs *g, const struct pt_gpu_call *c);

/* What a GRAPH_LAUNCH runs; NULL: it was not captured within the trace. */
const struct pt_graph_work *pt_graphs_work(const struct pt_graphs *g,
					   const struct pt_gpu_call *c);

#endif
