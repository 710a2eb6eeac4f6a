/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocations of device memory that failed: by the code that they returned,
 * what was held then, and whether the program got over it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/gpu/passes.h"

struct block { /* allocated and not freed */
	uint64_t pointer, bytes;
	size_t dev;
	UT_hash_handle hh;
};

struct asker { /* a thread, from the window's end backwards */
	uint32_t tid;
	uint64_t bytes; /* of its next allocation */
	bool granted;	/* that, or a retry of it */
	UT_hash_handle hh;
};

struct failure {
	size_t call, dev;
	uint64_t held;
	bool retried, recovered;
};

struct allocs {
	const struct pt_an *an;
	const struct pt_trainer *t;
	struct pt_devices devices;
	struct block *blocks;
	struct asker *askers;
	uint64_t *held; /* by device */
	PT_VEC(struct failure) failures; /* by time */
};

/* cudaError_t and CUresult agree in these numbers, and HIP has them from
 * there. */
static const char *code_name(int64_t code)
{
	static const struct {
		int64_t code;
		const char *name;
	} names[] = {
		{ 1, "cudaErrorInvalidValue" },
		{ 2, "cudaErrorMemoryAllocation" },
		{ 3, "cudaErrorInitializationError" },
		{ 4, "cudaErrorCudartUnloading" },
		{ 46, "cudaErrorDevicesUnavailable" },
		{ 100, "cudaErrorNoDevice" },
		{ 101, "cudaErrorInvalidDevice" },
		{ 201, "cudaErrorDeviceUninitialized" },
		{ 214, "cudaErrorECCUncorrectable" },
		{ 700, "cudaErrorIllegalAddress" },
		{ 709, "cudaErrorContextIsDestroyed" },
		{ 719, "cudaErrorLaunchFailure" },
		{ 800, "cudaErrorNotPermitted" },
		{ 801, "cudaErrorNotSupported" },
		{ 900, "cudaErrorStreamCaptureUnsupported" },
		{ 999, "cudaErrorUnknown" },
	};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].code == code)
			return names[i].name;
	return NULL;
}

static size_t dev_of(const struct allocs *a, uint16_t node)
{
	size_t i;

	for (i = 0; i < a->t->devs.n; i++)
		if (a->t->devs.v[i].has_node && a->t->devs.v[i].node == node)
			return i;
	return 0; /* a device that no work went to: shown with the first */
}

static void drop(struct allocs *a, uint64_t pointer)
{
	struct block *b;

	HASH_FIND(hh, a->blocks, &pointer, sizeof(pointer), b);
	if (!b)
		return; /* from before the trace */
	a->held[b->dev] -= b->bytes;
	HASH_DEL(a->blocks, b);
	free(b);
}

static int hold(struct allocs *a, uint64_t pointer, uint64_t bytes, size_t dev)
{
	struct block *b;

	if (!pointer)
		return 0;
	drop(a, pointer); /* its free was not seen */
	if (bytes > UINT64_MAX / 2 - a->held[dev])
		return 0;
	b = pt_hash_make(a->blocks, pointer, &pointer);
	if (!b)
		return -ENOMEM;
	b->bytes = bytes;
	b->dev = dev;
	a->held[dev] += bytes;
	return 0;
}

/* In the order of time: what is held, and what fails. */
static int forwards(struct allocs *a)
{
	const struct pt_proc *p = a->t->proc;
	int err = pt_devices_learn(&a->devices, p, a->an->t1);
	size_t i;

	pt_devices_rewind(&a->devices);
	for (i = 0; i < p->gpu.n && p->gpu.v[i].begin < a->an->t1 && !err; i++) {
		const struct pt_gpu_call *c = &p->gpu.v[i];
		uint16_t node;
		struct failure f;

		pt_devices_take(&a->devices, c);
		if (c->cls == PT_API_FREE)
			drop(a, c->v[0]);
		if (c->cls != PT_API_ALLOC || c->late || c->open)
			continue;
		node = pt_devices_of(&a->devices, c);
		if (node == PT_NODE_NONE)
			return -ENOMEM;
		f = (struct failure){ .call = i, .dev = dev_of(a, node) };
		f.held = a->held[f.dev];
		if (c->ret == 0)
			err = hold(a, c->v[2], c->v[1], f.dev);
		else if (c->ret > 0 && c->begin >= a->an->t0)
			err = pt_vec_push(&a->failures, f);
	}
	return err;
}

/* Against the order of time: what each thread asked for next. */
static int backwards(struct allocs *a)
{
	const struct pt_proc *p = a->t->proc;
	size_t i = pt_gpu_after(p, a->an->t1), k = a->failures.n;

	while (k && i-- > 0) {
		const struct pt_gpu_call *c = &p->gpu.v[i];
		struct failure *f = &a->failures.v[k - 1];
		struct asker *s;
		bool same;

		if (c->cls != PT_API_ALLOC || c->late || c->open)
			continue;
		HASH_FIND(hh, a->askers, &c->tid, sizeof(c->tid), s);
		same = s && s->bytes == c->v[1];
		if (f->call == i) {
			f->retried = same;
			f->recovered = same && s->granted;
			k--;
		}
		s = s ?: pt_hash_make(a->askers, tid, &c->tid);
		if (!s)
			return -ENOMEM;
		s->granted = c->ret == 0 || (same && s->granted);
		s->bytes = c->v[1];
	}
	return 0;
}

static int add_row(const struct allocs *a, struct pt_r_gpu *g,
		   const struct failure *f)
{
	const struct pt_gpu_call *c = &a->t->proc->gpu.v[f->call];
	struct pt_r_alloc_failure *r = g->alloc_failures;
	int64_t bytes = pt_count(c->v[1]);
	size_t i;

	for (i = 0; i < g->n_alloc_failures && r[i].code != c->ret; i++)
		;
	if (i == g->n_alloc_failures) {
		/* codes are few; one more row each */
		r = pt_arena_calloc(a->an->a, i + 1, sizeof(*r));
		if (!r)
			return -ENOMEM;
		if (i)
			memcpy(r, g->alloc_failures, i * sizeof(*r));
		g->alloc_failures = r;
		g->n_alloc_failures++;
		r[i].code = c->ret;
		r[i].name = code_name(c->ret);
		r[i].largest_bytes = r[i].smallest_bytes = bytes;
		r[i].free_bytes = PT_NULL;
	}
	r[i].count++;
	r[i].retried += f->retried;
	r[i].recovered += f->recovered;
	if (bytes > r[i].largest_bytes)
		r[i].largest_bytes = bytes;
	if (bytes < r[i].smallest_bytes)
		r[i].smallest_bytes = bytes;
	r[i].held_bytes = pt_count(f->held);
	r[i].last_ns = c->begin;
	return 0;
}

PT_ORDER(by_count, struct pt_r_alloc_failure,
	 pt_cmp(y->count, x->count) ?: pt_cmp(x->code, y->code))

static void free_all(struct allocs *a)
{
	pt_hash_free(a->blocks);
	pt_hash_free(a->askers);
	pt_vec_free(&a->failures);
	pt_devices_free(&a->devices);
	free(a->held);
}

#define MAX_CODES 64 /* a damaged stream may hold any */

int pt_fill_alloc_failures(const struct pt_an *an, const struct pt_trainer *t,
			   struct pt_r_gpu *g)
{
	struct allocs *a;
	size_t i;
	int err;

	if (!t->counts.failed_allocs || !t->devs.n)
		return 0;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->an = an;
	a->t = t;
	a->held = calloc(t->devs.n, sizeof(*a->held));
	err = a->held ? forwards(a) : -ENOMEM;
	err = err ?: backwards(a);
	/* also those of threads that gave no device any work */
	for (i = 0; i < t->devs.n && !err; i++)
		g[i].failed_allocations = 0;
	for (i = 0; i < a->failures.n && !err; i++) {
		struct pt_r_gpu *d = &g[a->failures.v[i].dev];

		d->failed_allocations++;
		if (d->n_alloc_failures < MAX_CODES)
			err = add_row(a, d, &a->failures.v[i]);
	}
	for (i = 0; i < t->devs.n && !err; i++)
		if (g[i].n_alloc_failures)
			qsort(g[i].alloc_failures, g[i].n_alloc_failures,
			      sizeof(*g[i].alloc_failures), by_count);
	free_all(a);
	free(a);
	return err;
}
