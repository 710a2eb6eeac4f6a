/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stream may run a function of the host (cuLaunchHostFunc): so the device tells how far
 * it has come. Whoever sleeps until that has run waits for the device as in a sync, though
 * no call says so; JAX and TensorFlow wait for results in this way. Such sleeps become
 * calls here, of the function's entry point and of the class of syncs, and all that looks
 * at syncs sees them.
 */
#include "model/budget.h"
#include "model/internal.h"

/* The driver's thread runs the function, which wakes another thread, and so on (JAX: three). */
#define HOPS_MAX 8
/* From being woken to waking the next one, at most. */
#define RUNS_NS 1000000ull
/* A call whose return is not watched waits for room in its queue: not behind so much. */
#define LAUNCH_NS 20000ull
/* What is looked at, back from the sleep, for the function that it may be for. */
#define CALLS_MAX 256
/* Who woke somebody is not known until all records of that moment have come. */
#define LATE_NS 50000000ull

/* Did the driver's thread end it, or who was woken by that meanwhile, and so on? */
static bool is_for_device(const struct pt_model *m, const struct pt_proc *p,
			  const struct pt_iv *iv)
{
	const struct pt_iv *by = iv;
	uint64_t ts = iv->ready;
	int hop;

	for (hop = 0; hop < HOPS_MAX && by->valid_wake; hop++) {
		const struct pt_thread *w = pt_model_thread(m, by->waker_tid);

		/* who feeds the device itself had other things to say */
		if (!w || w->proc != p || w->calls)
			return false;
		if (pt_is_driver_thread(w))
			return true;
		by = pt_iv_before(w, ts);
		if (!by || by->ready <= iv->begin || ts > by->end + RUNS_NS)
			return false;
		ts = by->ready;
	}
	return false;
}

/* Which event the stream of the function waits for; 0: none that was seen. */
static uint64_t event_of(const struct pt_proc *p, size_t at)
{
	const struct pt_gpu_call *f = &p->gpu.v[at];
	size_t n;

	for (n = 0; at-- > 0 && n < CALLS_MAX; n++) {
		const struct pt_gpu_call *c = &p->gpu.v[at];

		if (c->tid == f->tid && c->stream == f->stream)
			return c->cls == PT_API_STREAM_WAIT ? c->v[0] : 0;
	}
	return 0;
}

/* The thread's last call before `ts`, and its last function for the host; false: it is in a
 * call, or has asked for no such function. */
static bool find_function(const struct pt_proc *p, const struct pt_thread *th, uint64_t ts,
			  size_t *at)
{
	size_t i = pt_gpu_after(p, ts), n;
	bool last = true;

	for (n = 0; i-- > 0 && n < CALLS_MAX; n++) {
		const struct pt_gpu_call *c = &p->gpu.v[i];

		if (c->tid != th->tid)
			continue;
		if (c->cls == PT_API_HOST_FUNC) {
			*at = i;
			return true;
		}
		if (last && (c->end > ts || (c->end == c->begin && c->end + LAUNCH_NS > ts)))
			return false;
		last = false;
	}
	return false;
}

static int take_sleep(struct pt_model *m, struct pt_proc *p, const struct pt_thread *th,
		      const struct pt_iv *iv)
{
	struct pt_gpu_call c;
	size_t at;

	if (iv->open || !iv->valid_wake || iv->ready <= iv->begin ||
	    !find_function(p, th, iv->begin, &at) || !is_for_device(m, p, iv))
		return 0;
	c = p->gpu.v[at];
	c.v[0] = event_of(p, at);
	c.cls = c.v[0] ? PT_API_SYNC_EVENT : PT_API_SYNC_STREAM;
	c.begin = iv->begin;
	c.end = iv->end;
	c.ret = 0;
	c.implied = true;
	return pt_held_push(&m->held.time, &p->gpu, c);
}

int pt_find_host_waits(struct pt_model *m, struct pt_proc *p, bool all)
{
	uint64_t until = all ? UINT64_MAX : m->last_ts - pt_min64(m->last_ts, LATE_NS);
	size_t i, k;
	int err = 0;

	for (i = 0; p->host_funcs && i < p->threads.n && !err; i++) {
		struct pt_thread *th = p->threads.v[i];

		if (!th->calls)
			continue;
		k = pt_iv_after(th, th->host_waits);
		for (; k < th->iv.n && th->iv.v[k].end < until && !err; k++) {
			err = take_sleep(m, p, th, &th->iv.v[k]);
			th->host_waits = th->iv.v[k].end;
		}
	}
	return err;
}
