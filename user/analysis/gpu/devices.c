/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which device a call goes to. Each thread has a current device, which
 * SET_DEVICE calls change: an ordinal of the runtime, or a context of the
 * driver. A thread that was not seen to choose has one of its own here, until
 * something shows which it is:
 *
 *  - a launch on a stream's handle that another thread launches on as well:
 *    a stream belongs to one device;
 *  - a thread that later chooses, and always the same: that was its device;
 *  - a context that the driver is given right behind a runtime's ordinal, by the
 *    same thread: the runtime hands the choice on;
 *  - where no thread ever chooses: work that nobody of its own thread waits
 *    for is on the device of the one thread (or group of threads) that waits,
 *    for otherwise nobody would ever wait for it.
 *
 * What stays open may be any device: see pt_gqueue_run().
 */
#include <errno.h>

#include "analysis/gpu/passes.h"

static uint16_t root(const struct pt_devices *d, uint16_t n)
{
	while (d->node[n].same != n)
		n = d->node[n].same;
	return n;
}

static uint16_t node_of(struct pt_devices *d, uint8_t kind, uint64_t value)
{
	size_t i;

	for (i = 0; i < d->n; i++)
		if (d->node[i].kind == kind && d->node[i].value == value)
			return (uint16_t)i;
	if (d->n == PT_NODES_MAX) {
		d->overflow = true;
		return 0;
	}
	d->node[d->n] = (struct pt_node){ .value = value, .kind = kind,
					  .same = (uint16_t)d->n };
	return (uint16_t)d->n++;
}

/* Two nodes are one device. Two ordinals never are: a handle that was seen on
 * both was destroyed and given out again. */
static void unite(struct pt_devices *d, uint16_t a, uint16_t b)
{
	a = root(d, a);
	b = root(d, b);
	if (a == b || (d->node[a].kind == d->node[b].kind &&
		       d->node[a].kind != PT_NODE_THREAD))
		return;
	/* the one that tells more stays */
	if (d->node[a].kind > d->node[b].kind)
		d->node[a].same = b;
	else
		d->node[b].same = a;
}

static struct pt_gpu_thread *thread_of(struct pt_devices *d, uint32_t tid)
{
	struct pt_gpu_thread t = { .tid = tid, .own = PT_NODE_NONE, .choice = PT_NODE_NONE,
				   .now = PT_NODE_NONE };
	size_t i;

	for (i = d->threads.n; i-- > 0;) /* those that have ended lie in front */
		if (d->threads.v[i].tid == tid)
			return &d->threads.v[i];
	if (pt_vec_push(&d->threads, t))
		return NULL;
	return &d->threads.v[d->threads.n - 1];
}

/* The one that it works on: of its own, if it has chosen none. */
static uint16_t now_of(struct pt_devices *d, struct pt_gpu_thread *t)
{
	if (t->now == PT_NODE_NONE)
		t->now = t->own = node_of(d, PT_NODE_THREAD, t->tid);
	return t->now;
}

static bool sets_device(const struct pt_gpu_call *c)
{
	/* no context: nothing can be submitted until another is chosen */
	return c->cls == PT_API_SET_DEVICE &&
	       (c->v[0] || pt_api_lib(pt_api_get(c->api)) != PT_LIB_DRIVER);
}

static uint16_t chosen(struct pt_devices *d, const struct pt_gpu_call *c)
{
	bool driver = pt_api_lib(pt_api_get(c->api)) == PT_LIB_DRIVER;

	return driver ? node_of(d, PT_NODE_CONTEXT, c->v[0]) :
			node_of(d, PT_NODE_ORDINAL, (uint32_t)c->v[0]);
}

/* A stream whose handle means another one on each device: the default streams,
 * and the threads' own ones. */
static bool is_local(uint64_t handle)
{
	return handle <= 2 || (handle & UINT32_MAX) == 2;
}

/* A launch needs the stream's own device to be current. */
static bool binds(const struct pt_gpu_call *c)
{
	return (pt_call_is_launch(c) || c->cls == PT_API_EVENT_RECORD) && !is_local(c->stream);
}

static int bind(struct pt_devices *d, const struct pt_gpu_call *c,
		uint16_t node, bool learning)
{
	struct pt_handle *h;

	HASH_FIND(hh, d->handles, &c->stream, sizeof(c->stream), h);
	if (h) {
		if (learning)
			unite(d, h->node, node);
		else if (d->node[root(d, node)].kind != PT_NODE_THREAD)
			h->node = node; /* perhaps given out again */
		return 0;
	}
	h = pt_hash_make(d->handles, handle, &c->stream);
	if (!h)
		return -ENOMEM;
	h->node = node;
	return 0;
}

/* Does the call wait for the caller's own device, whatever stream it names? Of
 * an event that is taken for granted. */
static bool waits_here(const struct pt_gpu_call *c)
{
	return c->cls == PT_API_SYNC_DEVICE || c->cls == PT_API_COPY_SYNC ||
	       c->cls == PT_API_SYNC_EVENT ||
	       (c->cls == PT_API_SYNC_STREAM && is_local(c->stream)) ||
	       (c->cls == PT_API_COPY_ASYNC && c->v[2] == PT_COPY_D2H);
}

/* The device of a stream that is waited for by its handle. */
static void wait_for_handle(struct pt_devices *d, struct pt_gpu_thread *t,
			    const struct pt_gpu_call *c)
{
	const struct pt_handle *h;

	if (c->cls != PT_API_SYNC_STREAM || is_local(c->stream))
		return;
	HASH_FIND(hh, d->handles, &c->stream, sizeof(c->stream), h);
	if (h)
		d->node[h->node].waited = true;
	else
		t->waits = true;
}

/* A thread that always chooses the same had it before, too. */
static void join_first(struct pt_devices *d)
{
	pt_each(const struct pt_gpu_thread, t, &d->threads) {
		if (t->own != PT_NODE_NONE && t->choice != PT_NODE_NONE && !t->many)
			unite(d, t->own, t->choice);
	}
}

/* No thread chooses: devices that nobody waits for are the one that is waited for. */
static void join_silent(struct pt_devices *d)
{
	uint16_t at = PT_NODE_NONE, n;
	size_t i;

	if (d->chosen)
		return;
	/* nobody has chosen: each thread works on its own */
	for (i = 0; i < d->threads.n; i++)
		if (d->threads.v[i].waits)
			d->node[now_of(d, &d->threads.v[i])].waited = true;
	for (i = 0; i < d->n; i++) {
		n = root(d, (uint16_t)i);
		if (!d->node[i].waited || n == at)
			continue;
		if (at != PT_NODE_NONE)
			return;
		at = n;
	}
	for (i = 0; i < d->threads.n; i++) {
		n = root(d, now_of(d, &d->threads.v[i]));
		if (at == PT_NODE_NONE)
			at = n;
		unite(d, at, n);
	}
}

/* A runtime hands a choice on to the driver within so long. */
#define HANDED_ON_NS 1000000ull

static void choose(struct pt_devices *d, struct pt_gpu_thread *t,
		   const struct pt_gpu_call *c)
{
	uint16_t last = t->now;

	t->now = chosen(d, c);
	if (d->node[t->now].kind == PT_NODE_ORDINAL) {
		t->ordinal_ns = c->begin;
		if (!d->ordinal_ns)
			d->ordinal_ns = c->begin;
	} else {
		if (t->ordinal_ns && c->begin - t->ordinal_ns < HANDED_ON_NS &&
		    d->node[last].kind == PT_NODE_ORDINAL)
			unite(d, last, t->now);
		t->ordinal_ns = 0;
		d->node[t->now].chosen_ns = c->begin;
	}
	if (t->choice == PT_NODE_NONE)
		t->choice = t->now;
	t->many |= root(d, t->choice) != root(d, t->now);
	d->chosen = true;
}

static bool matters(const struct pt_gpu_call *c)
{
	return !c->late && (pt_call_is_step(c) || sets_device(c) ||
			    c->cls == PT_API_EVENT_RECORD);
}

/*
 * The driver's functions are probed some milliseconds before or behind the
 * runtime's. Contexts chosen only before the runtime's first choice was seen are
 * what it handed on then: of which device, nobody knows.
 */
static void forget_contexts(struct pt_devices *d)
{
	size_t i;

	for (i = 0; i < d->n; i++)
		if (d->node[i].kind == PT_NODE_CONTEXT && d->node[i].same == i &&
		    d->node[i].chosen_ns < d->ordinal_ns)
			d->node[i].kind = PT_NODE_THREAD;
}

int pt_devices_learn(struct pt_devices *d, const struct pt_proc *p, uint64_t t1)
{
	size_t i;
	int err = 0;

	for (i = 0; i < p->gpu.n && !err && p->gpu.v[i].begin < t1; i++) {
		const struct pt_gpu_call *c = &p->gpu.v[i];
		struct pt_gpu_thread *t;

		if (!matters(c))
			continue;
		t = thread_of(d, c->tid);
		if (!t)
			return -ENOMEM;
		if (sets_device(c)) {
			choose(d, t, c);
			continue;
		}
		t->ordinal_ns = 0;
		t->waits |= waits_here(c);
		wait_for_handle(d, t, c);
		d->node[now_of(d, t)].used = true;
		if (binds(c))
			err = bind(d, c, t->now, true);
	}
	if (err)
		return err;
	forget_contexts(d);
	join_first(d);
	join_silent(d);
	for (i = 0; i < d->n; i++)
		if (d->node[i].used)
			d->node[root(d, (uint16_t)i)].used = true;
	for (i = 0; i < d->n; i++)
		d->roots += d->node[i].same == i && d->node[i].used;
	return 0;
}

void pt_devices_free(struct pt_devices *d)
{
	pt_hash_free(d->handles);
	pt_vec_free(&d->threads);
}

void pt_devices_rewind(struct pt_devices *d)
{
	size_t i;

	for (i = 0; i < d->threads.n; i++)
		d->threads.v[i].now = d->threads.v[i].own;
}

void pt_devices_take(struct pt_devices *d, const struct pt_gpu_call *c)
{
	struct pt_gpu_thread *t;

	if (c->late || !sets_device(c))
		return;
	t = thread_of(d, c->tid);
	if (t)
		t->now = chosen(d, c);
}

uint16_t pt_devices_of(struct pt_devices *d, const struct pt_gpu_call *c)
{
	struct pt_gpu_thread *t = thread_of(d, c->tid);
	const struct pt_handle *h = NULL;

	if (!t)
		return PT_NODE_NONE;
	if (binds(c) && bind(d, c, now_of(d, t), false))
		return PT_NODE_NONE;
	if (!is_local(c->stream))
		HASH_FIND(hh, d->handles, &c->stream, sizeof(c->stream), h);
	return root(d, h ? h->node : now_of(d, t));
}

bool pt_devices_unsure(const struct pt_devices *d, uint16_t node)
{
	return d->overflow || (d->chosen && d->node[node].kind == PT_NODE_THREAD);
}
