/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/gpu/graphs.h"

#include <errno.h>
#include <stdlib.h>

void pt_graphs_free(struct pt_graphs *g)
{
	pt_vec_free(&g->open);
	pt_hash_free(g->made);
	pt_hash_free(g->exec);
}

static bool holds(const uint64_t *v, size_t n, uint64_t x)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (v[i] == x)
			return true;
	return false;
}

/* The capture that a stream takes part in, or NULL. */
static struct pt_graph_capture *capture_of(struct pt_graphs *g, uint64_t stream)
{
	size_t i;

	for (i = 0; i < g->open.n; i++)
		if (holds(g->open.v[i].streams, g->open.v[i].n_streams, stream))
			return &g->open.v[i];
	return NULL;
}

static struct pt_graph *find(struct pt_graph *all, uint64_t handle)
{
	struct pt_graph *x;

	HASH_FIND(hh, all, &handle, sizeof(handle), x);
	return x;
}

/* Begun again without an end: the first one failed. */
static int begin(struct pt_graphs *g, uint64_t stream)
{
	struct pt_graph_capture fresh = { .n_streams = 1 };
	struct pt_graph_capture *c = capture_of(g, stream);

	fresh.streams[0] = stream;
	if (c) {
		*c = fresh;
		return 0;
	}
	return pt_vec_push(&g->open, fresh);
}

static int end(struct pt_graphs *g, const struct pt_gpu_call *c)
{
	struct pt_graph_capture *cap = capture_of(g, c->stream);
	struct pt_graph_work work;
	struct pt_graph *made;

	if (!cap)
		return 0;
	work = cap->work;
	*cap = g->open.v[--g->open.n];
	if (c->ret || !c->v[2])
		return 0;
	made = pt_hash_make(g->made, handle, &c->v[2]);
	if (!made)
		return -ENOMEM;
	made->work = work; /* in place of an earlier one's, destroyed */
	return 0;
}

static int make(struct pt_graphs *g, const struct pt_gpu_call *c)
{
	const struct pt_graph *from = find(g->made, c->v[1]);
	struct pt_graph *x;

	if (c->ret || !c->v[2])
		return 0;
	if (!from) { /* made before the trace, or node by node */
		x = find(g->exec, c->v[2]);
		if (x)
			HASH_DEL(g->exec, x);
		free(x);
		return 0;
	}
	x = pt_hash_make(g->exec, handle, &c->v[2]);
	if (!x)
		return -ENOMEM;
	x->work = from->work;
	return 0;
}

static void add_node(struct pt_graph_work *w, const struct pt_gpu_call *c)
{
	/* FNV-1a over what makes out the node */
	w->shape = (w->shape ^ c->cls) * 0x100000001b3ull;
	w->shape = (w->shape ^ (c->cls == PT_API_LAUNCH ? c->v[0] : c->v[1])) *
		   0x100000001b3ull;
	if (c->cls == PT_API_LAUNCH)
		w->kernels++;
	if (!pt_call_is_copy(c))
		return;
	if (c->v[2] == PT_COPY_H2D)
		w->h2d++;
	else if (c->v[2] == PT_COPY_D2H)
		w->d2h++;
	else
		w->other_copies++;
	w->copy_bytes += c->v[1];
}

/* A stream joins by waiting for an event that was recorded in the capture. */
static int join(struct pt_graphs *g, const struct pt_gpu_call *c)
{
	pt_each(struct pt_graph_capture, cap, &g->open) {
		if (!holds(cap->events, cap->n_events, c->v[0]))
			continue;
		if (!holds(cap->streams, cap->n_streams, c->stream) &&
		    cap->n_streams < PT_CAPTURE_STREAMS)
			cap->streams[cap->n_streams++] = c->stream;
		return 1;
	}
	return 0;
}

int pt_graphs_take(struct pt_graphs *g, const struct pt_gpu_call *c)
{
	struct pt_graph_capture *cap;

	switch (c->cls) {
	case PT_API_CAPTURE_BEGIN:
		return begin(g, c->stream);
	case PT_API_CAPTURE_END:
		return end(g, c);
	case PT_API_GRAPH_MAKE:
		return make(g, c);
	}
	if (!g->open.n)
		return 0;
	if (c->cls == PT_API_STREAM_WAIT && join(g, c))
		return 1;
	cap = capture_of(g, c->stream);
	if (!cap)
		return 0;
	if (c->cls == PT_API_EVENT_RECORD) {
		if (cap->n_events < PT_CAPTURE_EVENTS)
			cap->events[cap->n_events++] = c->v[0];
		return 1;
	}
	/* an update of an executable graph leaves its nodes what they are */
	if (c->cls == PT_API_COPY_BATCH && c->v[0] <= PT_BATCH_MAX)
		cap->work.other_copies += c->v[0];
	if (c->cls == PT_API_COPY_BATCH || c->cls == PT_API_PREFETCH ||
	    c->cls == PT_API_HOST_FUNC)
		return 1;
	if (!pt_call_is_submit(c))
		return 0;
	add_node(&cap->work, c);
	return 1;
}

const struct pt_graph_work *pt_graphs_work(const struct pt_graphs *g,
					   const struct pt_gpu_call *c)
{
	const struct pt_graph *x = find(g->exec, c->v[0]);

	return x ? &x->work : NULL;
}
