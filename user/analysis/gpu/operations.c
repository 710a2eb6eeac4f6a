/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report's operations: what the trainer's processes called, launched and
 * copied. Entry points by their name; kernels by their function; copies by
 * their direction. What a graph launch ran counts where it ran; calls that only
 * went into a graph count as calls of the entry point alone.
 */
#include "analysis/gpu/operations.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/gpu/graphs.h"
#include "model/names.h"

#define ID_REST UINT64_MAX     /* more rows than PT_OPS_MAX */

static const char *const kind_names[] = {
	[PT_OP_API] = "api",   [PT_OP_KERNEL] = "kernel",
	[PT_OP_COPY] = "copy", [PT_OP_MEMSET] = "memset",
	[PT_OP_NVTX] = "nvtx",
};

struct pt_op *pt_op_row(struct pt_ops *o, enum pt_op_kind kind, uint32_t tgid,
			uint64_t id)
{
	struct pt_op_key key = { kind, tgid, id };
	struct pt_op **recent = &o->recent[(kind + id + (id >> 6)) % PT_OPS_RECENT];
	struct pt_op *p = *recent;

	if (p && !memcmp(&p->key, &key, sizeof(key)))
		return p;
	HASH_FIND(hh, o->all, &key, sizeof(key), p);
	if (p)
		return *recent = p;
	if (o->n >= PT_OPS_MAX && id != ID_REST) {
		o->full = true;
		return pt_op_row(o, kind, 0, ID_REST);
	}
	p = pt_hash_make(o->all, key, &key);
	o->n += !!p;
	return p;
}

static void free_rows(struct pt_ops *o)
{
	struct pt_op *p, *tmp;

	HASH_ITER(hh, o->all, p, tmp) {
		HASH_DEL(o->all, p);
		pt_vec_free(&p->us);
		free(p);
	}
}

/* Is `p` of the process tree of the trainer, without other trainers' trees? */
static bool op_in_tree(const struct pt_an *an, const struct pt_trainer *t,
		   const struct pt_proc *p)
{
	int depth = 64; /* a damaged stream may hold a circle */
	size_t i;

	for (; p && depth--; p = p->ppid ? pt_model_proc(an->m, p->ppid) : NULL) {
		if (p == t->proc)
			return true;
		for (i = 0; i < an->trainers.n; i++)
			if (an->trainers.v[i].proc == p)
				return false;
	}
	return false;
}

/* ---- one process -------------------------------------------------------- */

struct walk {
	struct pt_ops *o;
	const struct pt_proc *p;
	const struct pt_thread *thread; /* of the last call; may be NULL */
	struct pt_graphs graphs;
};

static int add_call(struct walk *w, const struct pt_gpu_call *c)
{
	struct pt_op *p = pt_op_row(w->o, PT_OP_API, 0, c->api);

	if (!p)
		return -ENOMEM;
	p->calls++;
	if (c->ret == INT64_MIN || c->open || c->late)
		return 0; /* an entry-only call has no time */
	if (!w->thread || w->thread->tid != c->tid)
		w->thread = pt_model_thread(w->o->an->m, c->tid);
	p->total_ns += (double)(c->end - c->begin);
	if (w->thread)
		p->cpu_ns += (double)pt_cpu_ns(w->thread, c->begin, c->end);
	return pt_vec_push(&p->us, (double)(c->end - c->begin) / 1000);
}

static uint64_t add_bytes(uint64_t a, uint64_t b)
{
	uint64_t r;

	return __builtin_add_overflow(a, b, &r) ? UINT64_MAX : r;
}

static int add_graph(struct walk *w, const struct pt_gpu_call *c)
{
	const struct pt_graph_work *g = pt_graphs_work(&w->graphs, c);
	struct pt_op *p = pt_op_row(w->o, PT_OP_KERNEL, 0, PT_OP_GRAPHS);
	const struct {
		uint64_t id, n;
	} copies[] = { { PT_COPY_H2D, g ? g->h2d : 0 },
		       { PT_COPY_D2H, g ? g->d2h : 0 },
		       { PT_COPY_ANY, g ? g->other_copies : 0 } };
	size_t i;

	if (!p)
		return -ENOMEM;
	p->some |= !g;
	p->calls += g ? g->kernels : 0;
	for (i = 0; g && i < 3; i++) {
		if (!copies[i].n)
			continue;
		p = pt_op_row(w->o, PT_OP_COPY, 0, copies[i].id);
		if (!p)
			return -ENOMEM;
		p->calls += copies[i].n;
		/* of a graph only the sum over all directions is known */
		if (copies[i].n == g->h2d + g->d2h + g->other_copies)
			p->bytes = add_bytes(p->bytes, g->copy_bytes);
		else
			p->bytes_unknown = true;
	}
	return 0;
}

/* What a call put on the device. */
static int add_work(struct walk *w, const struct pt_gpu_call *c)
{
	bool launch = c->cls == PT_API_LAUNCH;
	struct pt_op *p;

	if (c->cls == PT_API_GRAPH_LAUNCH)
		return add_graph(w, c);
	if (!pt_call_is_submit(c) || (c->late && !pt_call_is_copy(c)))
		return 0;
	p = launch ? pt_op_row(w->o, PT_OP_KERNEL, w->p->tgid, c->v[0]) :
	    c->cls == PT_API_MEMSET ? pt_op_row(w->o, PT_OP_MEMSET, 0, 0) :
	    pt_op_row(w->o, PT_OP_COPY, 0,
		      c->v[2] < PT_COPY_ANY && !c->late ? c->v[2] :
							  PT_COPY_ANY);
	if (!p)
		return -ENOMEM;
	if (launch && !p->calls)
		p->name = pt_kernel_name(w->o->an->m, w->p, c->v[0]);
	w->o->launches |= launch;
	p->calls++;
	p->bytes_unknown |= c->late;
	if (!launch)
		p->bytes = add_bytes(p->bytes, c->v[1]);
	return 0;
}

static int walk_process(struct pt_ops *o, const struct pt_proc *p)
{
	struct walk w = { .o = o, .p = p };
	int err = 0;
	size_t i;

	/* from the first call on: a graph is captured before it is launched */
	for (i = 0; i < p->gpu.n && p->gpu.v[i].begin < o->an->t1 && !err; i++) {
		const struct pt_gpu_call *c = &p->gpu.v[i];
		int node = pt_graphs_take(&w.graphs, c);

		if (node < 0)
			err = node;
		if (err || c->begin < o->an->t0 || c->implied)
			continue;
		err = add_call(&w, c);
		if (!err && !node)
			err = add_work(&w, c);
	}
	pt_graphs_free(&w.graphs);
	return err;
}

/* Calls whose records were lost. Which kernels they launched is not known. */
static int add_missed(struct pt_ops *o, const struct pt_proc *p, bool trainer)
{
	pt_each(const struct pt_rec_missed, r, &o->an->m->missed) {
		const struct pt_api *api = pt_api_get(r->what);
		struct pt_op *row, *kernels = NULL;

		if (!api || !pt_missed_in(o->an, r) ||
		    !(r->hdr.tgid == p->tgid || (trainer && !r->hdr.tgid)))
			continue;
		row = pt_op_row(o, PT_OP_API, 0, r->what);
		if (row && api->cls == PT_API_LAUNCH)
			kernels = pt_op_row(o, PT_OP_KERNEL, 0, ID_REST);
		if (!row || (!kernels && api->cls == PT_API_LAUNCH))
			return -ENOMEM;
		row->calls += r->count;
		if (kernels) {
			kernels->calls += r->count;
			o->launches = true;
		}
	}
	return 0;
}

/* ---- rows --------------------------------------------------------------- */

static const char *copy_name(uint64_t kind)
{
	static const char *const names[] = { "host to host", "host to device",
					     "device to host",
					     "device to device" };

	return kind < sizeof(names) / sizeof(names[0]) ? names[kind] :
							 "direction unknown";
}

static const char *name_of(const struct pt_ops *o, const struct pt_op *p)
{
	if (p->key.id == ID_REST)
		return "(all others)";
	if (p->name) /* the model's, which goes before the report does */
		return pt_arena_strdup(o->an->a, p->name);
	switch (p->key.kind) {
	case PT_OP_API:
		return pt_api_get((uint32_t)p->key.id)->symbol;
	case PT_OP_COPY:
		return copy_name(p->key.id);
	case PT_OP_MEMSET:
		return "memset";
	case PT_OP_KERNEL:
		if (p->key.id == PT_OP_GRAPHS)
			return "(kernels of graphs)";
		return pt_arena_printf(o->an->a, "kernel at 0x%" PRIx64,
				       p->key.id);
	case PT_OP_NVTX:
		return "(no text)";
	default:
		return NULL;
	}
}

/* Measured for some of the calls: the others are taken for their like. */
static void fill_device_time(const struct pt_op *p, struct pt_r_operation *r)
{
	bool all = p->timed >= p->calls;
	double ns = p->total_ns;

	if (!p->timed)
		return;
	r->certainty = all && !p->some ? PT_MEASURED : PT_ESTIMATED;
	if (p->some) /* how many there were is not known */
		return;
	if (!all)
		ns = p->total_ns / (double)p->timed * (double)p->calls;
	r->gpu_s = r->total_s = ns / NS_PER_S;
}

static int fill_row(const struct pt_ops *o, const struct pt_op *p,
		    struct pt_r_operation *r)
{
	bool host = p->key.kind == PT_OP_API || p->key.kind == PT_OP_NVTX;
	bool moves = p->key.kind == PT_OP_COPY || p->key.kind == PT_OP_MEMSET;
	double wall = (double)(o->an->t1 - o->an->t0);
	struct pt_dist d;

	r->name = name_of(o, p);
	if (!r->name)
		return -ENOMEM;
	r->kind = kind_names[p->key.kind];
	r->calls = p->some ? PT_NULL : pt_count(p->calls);
	r->bytes = moves && !p->bytes_unknown ? pt_count(p->bytes) : PT_NULL;
	r->total_s = r->mean_us = r->min_us = r->max_us = r->p50_us =
		r->p99_us = r->share = NAN;
	r->gpu_s = NAN;
	r->cpu_s = host && p->us.n ? p->cpu_ns / NS_PER_S : NAN;
	r->certainty = PT_CERT_NONE;
	if (p->us.n) {
		pt_dist_of(p->us.v, p->us.n, &d);
		r->mean_us = d.mean;
		r->min_us = d.min;
		r->max_us = d.max;
		r->p50_us = d.p50;
		r->p99_us = d.p99;
	}
	if (host && (p->us.n || p->total_ns > 0)) {
		r->total_s = p->total_ns / NS_PER_S;
		r->certainty = PT_MEASURED;
	} else if (!host) {
		fill_device_time(p, r);
	}
	if (isfinite(r->total_s) && wall > 0)
		r->share = fmin(1, r->total_s * NS_PER_S / wall);
	return 0;
}

/* The same kernel launched by two processes, or seen by two handles. */
static int join_names(struct pt_ops *o)
{
	struct pt_op *p, *q, *tmp;
	int err = 0;

	for (p = o->all; p; p = p->hh.next) {
		if (p->key.kind != PT_OP_KERNEL || !p->name)
			continue;
		for (q = p->hh.next; q; q = tmp) {
			tmp = q->hh.next;
			if (q->key.kind != PT_OP_KERNEL || !q->name ||
			    strcmp(p->name, q->name))
				continue;
			p->calls += q->calls;
			p->timed += q->timed;
			p->total_ns += q->total_ns;
			err = err ?: pt_doubles_append(&p->us, &q->us);
			HASH_DEL(o->all, q);
			pt_vec_free(&q->us);
			free(q);
			o->n--;
		}
	}
	return err;
}

/* The launch's function is all that is known of them. */
static void say_unnamed(const struct pt_ops *o)
{
	unsigned long long lacking = 0, all = 0;
	const struct pt_op *p;

	for (p = o->all; p; p = p->hh.next) {
		if (p->key.kind != PT_OP_KERNEL || p->key.id == PT_OP_GRAPHS ||
		    p->key.id == ID_REST)
			continue;
		all++;
		lacking += !p->name;
	}
	if (lacking)
		pt_report_limit(o->an->r, "kernel.names",
				"%llu of %llu kernels have no name: their host function has no symbol (a stripped file), or the driver gave their handle before the trace began.",
				lacking, all);
}

static void say_batches(const struct pt_ops *o)
{
	unsigned long long calls = 0;
	const struct pt_api *a;
	const struct pt_op *p;

	for (p = o->all; p; p = p->hh.next) {
		a = p->key.kind == PT_OP_API && p->key.id < UINT32_MAX ?
			    pt_api_get((uint32_t)p->key.id) : NULL;
		if (a && a->cls == PT_API_COPY_BATCH)
			calls += p->calls;
	}
	if (calls)
		pt_report_limit(o->an->r, "gpu.copies",
				"%llu calls copied several blocks each: the copies are counted, their bytes and directions are not known.",
				calls);
}

static int fill_rows(struct pt_ops *o)
{
	struct pt_r_operation *r;
	struct pt_op *p, *tmp;
	size_t n = 0;
	int err = 0;

	r = pt_arena_calloc(o->an->a, o->n + 1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	HASH_ITER(hh, o->all, p, tmp) {
		/* its calls were hooked nowhere: what ran tells; else they
		 * are counted, and just which are its own is not known */
		if (!p->calls && (p->key.kind != PT_OP_KERNEL || !o->launches))
			p->calls = p->timed;
		if (!p->calls && !p->some)
			continue; /* all of it went into other rows */
		err = fill_row(o, p, &r[n++]);
		if (err)
			return err;
	}
	o->an->r->operations = r;
	o->an->r->n_operations = n;
	return 0;
}

int pt_fill_operations(struct pt_an *an, const struct pt_trainer *t)
{
	struct pt_ops o = { .an = an };
	bool ranges = false;
	int err = 0;
	size_t i;

	for (i = 0; i < an->m->all_procs.n && !err; i++) {
		const struct pt_proc *p = an->m->all_procs.v[i];

		if (!op_in_tree(an, t, p))
			continue;
		err = walk_process(&o, p);
		err = err ?: add_missed(&o, p, p == t->proc);
		err = err ?: pt_op_measured(&o, p);
		err = err ?: pt_op_ranges(&o, p);
		ranges |= p->nvtx.n > 0;
	}
	if (!err && !ranges)
		err = pt_report_limit(an->r, "nvtx", "NVTX ranges are seen only where a "
						     "library exports NVTX (libnvToolsExt, up "
						     "to CUDA 12); the header-only NVTX 3 is "
						     "compiled into the program.");
	if (!err && !o.timed)
		err = pt_report_limit(an->r, "operations.gpu_s", "Device times of single "
								 "kernels and copies need "
								 "--cupti: without it only "
								 "their sums are known.");
	err = err ?: join_names(&o);
	say_unnamed(&o);
	say_batches(&o);
	err = err ?: fill_rows(&o);
	err = err ?: pt_report_sort_operations(an->r, PT_SORT_TOTAL);
	free_rows(&o);
	return err;
}
