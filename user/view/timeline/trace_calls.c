// SPDX-License-Identifier: BSD-2-Clause
/* Calls of GPU libraries, as slices of the threads that made them. */
#include <errno.h>
#include <stdlib.h>

#include "base/minmax.h"
#include "model/names.h"
#include "view/timeline/trace_int.h"

PT_ORDER(by_thread, struct pt_thread_call, pt_cmp(x->tid, y->tid) ?: pt_cmp(x->at, y->at))

/* Of each call, the first work that it began. Both are in order of time. */
static int find_acts(struct pt_walk *k, const struct pt_proc *p)
{
	size_t i;

	if (!p->acts.n)
		return 0;
	k->acts = malloc(p->gpu.n * sizeof(*k->acts));
	if (!k->acts)
		return -ENOMEM;
	for (i = 0; i < p->gpu.n; i++)
		k->acts[i] = UINT32_MAX;
	for (i = 0; i < p->acts.n && i < UINT32_MAX; i++) {
		uint32_t call = p->acts.v[i].call;

		if (call < p->gpu.n && k->acts[call] == UINT32_MAX)
			k->acts[call] = (uint32_t)i;
	}
	return 0;
}

int pt_sort_calls(struct pt_walk *k, const struct pt_proc *p)
{
	struct pt_thread_call *c;
	bool sorted = true;
	size_t i;

	k->proc = p;
	k->n_calls = 0;
	free(k->acts);
	k->acts = NULL;
	if (!p->gpu.n)
		return 0;
	if (p->gpu.n > UINT32_MAX)
		return -EOVERFLOW;
	c = realloc(k->calls, p->gpu.n * sizeof(*c));
	if (!c)
		return -ENOMEM;
	k->calls = c;
	k->n_calls = p->gpu.n;
	for (i = 0; i < p->gpu.n; i++) {
		c[i].tid = p->gpu.v[i].tid;
		c[i].at = (uint32_t)i;
		sorted = sorted && (!i || c[i - 1].tid <= c[i].tid);
	}
	if (!sorted)
		qsort(c, k->n_calls, sizeof(*c), by_thread);
	return find_acts(k, p);
}

static size_t first_of(const struct pt_walk *k, uint32_t tid)
{
	return pt_bisect(k->n_calls, i, k->calls[i].tid < tid);
}

static const char *copy_kind(uint64_t kind)
{
	static const char *const names[] = { "HtoH", "HtoD", "DtoH", "DtoD",
					     "by address" };

	return kind < sizeof(names) / sizeof(*names) ? names[kind] : NULL;
}

/* What a launch launched, where its name is known. */
static int kernel_arg(struct pt_walk *k, const struct pt_gpu_call *c,
		      struct pt_trace_event *e)
{
	const char *name = c->cls == PT_API_LAUNCH && !c->late ?
		pt_kernel_name(k->x->m, k->proc, c->v[0]) : NULL;

	if (!name)
		return 0;
	name = pt_shown_name(k, name);
	pt_arg_str(e, "kernel", name);
	return name ? 0 : -ENOMEM;
}

static void work_args(const struct pt_walk *k, uint32_t call,
		      struct pt_trace_event *e)
{
	uint32_t act = pt_first_act(k, call);

	if (act == UINT32_MAX)
		return;
	e->flow_out = pt_call_flow(k->proc, call);
	pt_arg_int(e, "correlation", k->proc->acts.v[act].correlation);
}

static void call_args(const struct pt_gpu_call *c, struct pt_trace_event *e)
{
	e->n_args = 0;
	if (c->stream)
		pt_arg_id(e, "stream", c->stream);
	switch (c->cls) {
	case PT_API_COPY_SYNC:
	case PT_API_COPY_ASYNC:
		pt_arg_id(e, "bytes", c->v[1]);
		pt_arg_str(e, "direction", copy_kind(c->v[2]));
		break;
	case PT_API_MEMSET:
	case PT_API_ALLOC:
	case PT_API_HOST_ALLOC:
	case PT_API_COLLECTIVE:
		pt_arg_id(e, "bytes", c->v[1]);
		break;
	case PT_API_LAUNCH:
		pt_arg_id(e, "function", c->v[0]);
		break;
	case PT_API_GRAPH_LAUNCH:
		pt_arg_id(e, "graph", c->v[0]);
		break;
	default:
		break;
	}
	if (c->ret != INT64_MIN && c->ret != 0)
		pt_arg_int(e, "error", c->ret);
	if (c->open)
		pt_arg_int(e, "not over", 1);
	if (c->late)
		pt_arg_int(e, "begun before the capture", 1);
}

static enum pt_trace_cat cat_of(const struct pt_api *a)
{
	switch (pt_api_lib(a)) {
	case PT_LIB_DRIVER:
		return PT_CAT_DRIVER;
	case PT_LIB_NCCL:
		return PT_CAT_COLLECTIVE;
	default:
		return PT_CAT_RUNTIME;
	}
}

int pt_walk_calls(struct pt_walk *k, const struct pt_thread *th,
		  const struct pt_trace_track *t)
{
	uint64_t ends[PT_INFLIGHT_MAX * 2]; /* of the calls that it is in */
	size_t i, depth = 0;
	int err = 0;

	for (i = first_of(k, th->tid);
	     i < k->n_calls && k->calls[i].tid == th->tid && !err; i++) {
		const struct pt_gpu_call *c = &k->proc->gpu.v[k->calls[i].at];
		const struct pt_api *a = pt_api_get(c->api);
		struct pt_trace_event e = {
			.track = t,
			.begin = c->begin,
			.end = c->open ? k->x->m->end : c->end,
			.name = !a ? "unknown call" :
				c->implied ? "wait for a function behind device work" : a->symbol,
			.cat = a ? cat_of(a) : PT_CAT_RUNTIME,
		};

		while (depth && ends[depth - 1] <= e.begin)
			depth--;
		if (e.end < e.begin)
			e.end = e.begin;
		/* inside of what it is in */
		if (depth && e.end > ends[depth - 1])
			e.end = ends[depth - 1];
		call_args(c, &e);
		work_args(k, k->calls[i].at, &e);
		err = kernel_arg(k, c, &e);
		if (err)
			break;
		err = e.end > e.begin ? k->w->slice(k->w, &e) :
					k->w->instant(k->w, &e);
		if (e.end > e.begin && depth < sizeof(ends) / sizeof(*ends))
			ends[depth++] = e.end;
	}
	return err;
}
