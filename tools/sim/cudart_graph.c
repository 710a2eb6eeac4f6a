/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CUDA graphs, as far as capturing one stream and launching the result goes:
 * the operations run in the order of capture. Graphs built node by node,
 * events inside a capture, and updates are not modelled.
 */
#include "cudart_device.h"

#include <stdlib.h>

struct sim_graph {
	struct sim_graph *next; /* alive, as a graph or as an executable one */
	bool exec;
	bool broken; /* a node could not be kept */
	uint32_t id;
	size_t n, cap;
	struct sim_work *v;
};

static struct sim_graph *graphs;
static uint32_t last_id;

bool sim_graph_add(struct sim_graph *g, const struct sim_work *w)
{
	if (g->n == g->cap) {
		size_t cap = g->cap ? g->cap * 2 : 16;
		struct sim_work *v = realloc(g->v, cap * sizeof(*v));

		if (!v) {
			g->broken = true;
			return false;
		}
		g->v = v;
		g->cap = cap;
	}
	g->v[g->n++] = *w;
	return true;
}

void sim_graph_free(struct sim_graph *g)
{
	if (!g)
		return;
	free(g->v);
	free(g);
}

/* Take a live handle of the right kind off the list; NULL if it is none. */
static struct sim_graph *graph_take(const void *handle, bool exec)
{
	for (struct sim_graph **p = &graphs; *p; p = &(*p)->next) {
		struct sim_graph *g = *p;

		if ((const void *)g == handle && g->exec == exec) {
			*p = g->next;
			return g;
		}
	}
	return NULL;
}

static void graph_keep(struct sim_graph *g)
{
	g->next = graphs;
	graphs = g;
}

static struct sim_graph *graph_copy(const struct sim_graph *from)
{
	struct sim_graph *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	for (size_t i = 0; i < from->n; i++)
		if (!sim_graph_add(g, &from->v[i])) {
			sim_graph_free(g);
			return NULL;
		}
	return g;
}

SIM_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode)
{
	cudaError_t err = sim_enter();
	struct sim_stream *s;

	if (err)
		return sim_ret(err);
	if (mode < 0 || mode > 2)
		return sim_ret(cudaErrorInvalidValue);
	sim_lock();
	s = sim_stream_find(stream, false);
	if (!s) {
		err = cudaErrorInvalidResourceHandle;
	} else if (s->legacy) {
		err = cudaErrorStreamCaptureUnsupported;
	} else if (s->capture) {
		err = cudaErrorIllegalState;
	} else {
		s->capture = calloc(1, sizeof(*s->capture));
		if (!s->capture)
			err = cudaErrorMemoryAllocation;
	}
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaStreamEndCapture(cudaStream_t stream,
					 cudaGraph_t *graph)
{
	cudaError_t err = sim_enter();
	struct sim_graph *g = NULL;
	struct sim_stream *s;

	if (err)
		return sim_ret(err);
	if (!graph)
		return sim_ret(cudaErrorInvalidValue);
	sim_lock();
	s = sim_stream_find(stream, false);
	if (s) {
		g = s->capture;
		s->capture = NULL;
	}
	if (!s) {
		err = cudaErrorInvalidResourceHandle;
	} else if (!g) {
		err = cudaErrorIllegalState;
	} else if (g->broken) {
		sim_graph_free(g);
		err = cudaErrorStreamCaptureInvalidated;
	} else {
		graph_keep(g);
		*graph = (cudaGraph_t)g;
	}
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec,
					 cudaGraph_t graph,
					 unsigned long long flags)
{
	cudaError_t err = sim_enter();
	struct sim_graph *g, *x;

	(void)flags;
	if (err)
		return sim_ret(err);
	if (!exec)
		return sim_ret(cudaErrorInvalidValue);
	sim_lock();
	g = graph_take(graph, false);
	if (!g) {
		err = cudaErrorInvalidValue;
		goto out;
	}
	graph_keep(g);
	x = graph_copy(g);
	if (!x) {
		err = cudaErrorMemoryAllocation;
		goto out;
	}
	x->exec = true;
	x->id = ++last_id;
	graph_keep(x);
	*exec = (cudaGraphExec_t)x;
out:
	sim_unlock();
	return sim_ret(err);
}

cudaError_t sim_do_graph_launch(const char *api, cudaGraphExec_t exec,
				cudaStream_t stream, bool ptsz)
{
	uint64_t enter = sim_now();
	cudaError_t err = sim_enter();
	struct sim_graph *g, *run;
	struct sim_stream *s;
	bool blocked = false;
	uint32_t correlation, id;

	if (err)
		return sim_ret(err);
	sim_lock();
	s = sim_stream_find(stream, ptsz);
	g = graph_take(exec, true);
	if (g)
		graph_keep(g);
	if (!s || !g || s->capture) {
		err = cudaErrorInvalidResourceHandle;
		goto out;
	}
	/* it may be destroyed while the queue is full */
	run = graph_copy(g);
	if (!run) {
		err = cudaErrorMemoryAllocation;
		goto out;
	}
	atomic_fetch_add(&sim_n_launch, 1);
	correlation = sim_act_call();
	id = g->id;
	for (size_t i = 0; i < run->n; i++) {
		run->v[i].api = api;
		run->v[i].correlation = correlation;
		run->v[i].graph = id;
		sim_submit(s, &run->v[i], &blocked);
	}
	sim_graph_free(run);
	if (blocked)
		sim_log_host(stream, enter, api);
out:
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	return sim_do_graph_launch("cudaGraphLaunch", exec, stream, false);
}

SIM_API cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t exec,
					 cudaStream_t stream)
{
	return sim_do_graph_launch("cudaGraphLaunch_ptsz", exec, stream, true);
}

static cudaError_t destroy(const void *handle, bool exec)
{
	cudaError_t err = sim_enter();
	struct sim_graph *g;

	if (err)
		return sim_ret(err);
	sim_lock();
	g = graph_take(handle, exec);
	sim_unlock();
	if (!g)
		return sim_ret(cudaErrorInvalidValue);
	sim_graph_free(g);
	return cudaSuccess;
}

SIM_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	return destroy(exec, true);
}

SIM_API cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	return destroy(graph, false);
}
