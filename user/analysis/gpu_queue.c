/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The devices of a process seen from the host: queues that calls fill and
 * syncs find empty. What holds whatever the kernels do:
 *
 *  idle  from a sync behind which every stream of the device is empty to the
 *        next call that submits to it, or may do so;
 *  busy  a sync that has to wait shows that the last work of its stream was
 *        not done when it began, and so the device was at work since that was
 *        submitted, until the wait's end (pt_wait_end()). Not where a stream
 *        waits for an event of another device or from before the trace: then
 *        its device may have had nothing to do.
 *
 * Beside that every operation is kept for the replay of gpu_likely.c.
 */
#include <errno.h>
#include <string.h>

#include "analysis/gpu_int.h"

#define STREAMS_MAX 1024
#define EVENTS_MAX 65536

static uint32_t stream_of(struct pt_gqueue *q, uint64_t handle, uint16_t dev)
{
	struct pt_gstream s = { .handle = handle, .dev = dev };
	size_t i;

	if (handle == 1) /* cudaStreamLegacy */
		s.handle = handle = 0;
	for (i = q->streams.n; i-- > 0;)
		if (q->streams.v[i].handle == handle &&
		    q->streams.v[i].dev == dev)
			return (uint32_t)i;
	if (q->streams.n == STREAMS_MAX) {
		q->overflow = true;
		return PT_GOP_ALL;
	}
	if (pt_vec_push(&q->streams, s))
		return PT_GOP_ALL - 1;
	return (uint32_t)(q->streams.n - 1);
}

static int emit(struct pt_gqueue *q, const struct pt_gop *op)
{
	return op->stream == PT_GOP_ALL - 1 || pt_vec_push(&q->ops, *op) ?
		       -ENOMEM : 0;
}

/* Device `n` has work from `ts` on, perhaps. */
static int idle_until(struct pt_gqueue *q, uint16_t n, uint64_t ts)
{
	struct pt_gnode *d = &q->node[n];
	struct pt_span s = { d->idle_since, ts };

	/* Not after it was found empty: another thread submits while a sync is
	 * still to return, and then nothing is known. */
	d->idle_since = 0;
	return s.begin && ts > s.begin ? pt_vec_push(&d->idle, s) : 0;
}

static bool touches_all(const struct pt_gqueue *q, const struct pt_gpu_call *c,
			uint16_t n)
{
	/* Between devices, or by addresses that may be on any of them. */
	return pt_devices_unsure(&q->devices, n) ||
	       (pt_call_is_copy(c) && q->devices.roots > 1 &&
		c->v[2] != PT_COPY_H2D && c->v[2] != PT_COPY_D2H);
}

static int submit(struct pt_gqueue *q, const struct pt_gpu_call *c, uint16_t n,
		  uint32_t at)
{
	bool all = touches_all(q, c, n);
	uint16_t i;
	int err = idle_until(q, n, c->begin);

	q->node[n].works = true;
	for (i = 0; i < q->devices.n && all && !err; i++)
		err = idle_until(q, i, c->begin);
	if (at < q->streams.n) {
		struct pt_gstream *s = &q->streams.v[at];

		s->pending = true;
		s->last_submit = c->begin;
		s->peer |= all;
		s->cleared = 0;
	}
	return err;
}

/* May this stream's work be on device `n`? */
static bool concerns(const struct pt_gqueue *q, const struct pt_gstream *s,
		     uint16_t n)
{
	return s->dev == n || s->peer || pt_devices_unsure(&q->devices, s->dev);
}

/* Work of a thread whose device was not known is done once every device that
 * is in use was synchronised for that handle. */
static void clear_unsure(struct pt_gqueue *q, uint16_t n, bool all,
			 uint64_t handle, uint64_t before, uint64_t at)
{
	uint64_t used = 0;
	size_t i;

	if (!q->devices.chosen)
		return;
	for (i = 0; i < q->devices.n; i++)
		if (q->devices.node[i].same == i && q->devices.node[i].used &&
		    q->devices.node[i].kind != PT_NODE_THREAD)
			used |= 1ull << i;
	for (i = 0; i < q->streams.n; i++) {
		struct pt_gstream *s = &q->streams.v[i];

		if (!s->pending || s->last_submit > before || s->dev == n ||
		    !pt_devices_unsure(&q->devices, s->dev) ||
		    !(all || s->handle == handle))
			continue;
		s->cleared |= 1ull << n;
		if ((s->cleared & used) == used) {
			s->pending = s->foreign = s->peer = false;
			s->done = at;
		}
	}
}

/* What was submitted before `before` to a stream of device `n` (PT_GOP_ALL: to
 * any of them) has completed by `at`. Calls come in the order of their begin,
 * so that of another thread's longer sync may lie behind `at`. */
static void complete(struct pt_gqueue *q, uint16_t n, uint32_t stream,
		     uint64_t before, uint64_t at)
{
	bool all = stream == PT_GOP_ALL;
	size_t i;

	for (i = 0; i < q->streams.n; i++) {
		struct pt_gstream *s = &q->streams.v[i];

		if ((all ? s->dev == n : i == stream) && s->pending &&
		    s->last_submit <= before) {
			s->pending = s->foreign = s->peer = false;
			s->done = at;
		}
	}
	if (all || stream < q->streams.n)
		clear_unsure(q, n, all, all ? 0 : q->streams.v[stream].handle,
			     before, at);
}

/* Which devices have nothing left? */
static void look_for_drained(struct pt_gqueue *q, uint64_t at)
{
	uint16_t n;
	size_t i;

	for (n = 0; n < q->devices.n; n++) {
		struct pt_gnode *d = &q->node[n];
		uint64_t empty = at;

		if (!d->works || !d->known || d->idle_since || q->overflow ||
		    q->devices.overflow)
			continue;
		for (i = 0; i < q->streams.n; i++) {
			const struct pt_gstream *s = &q->streams.v[i];

			if (!concerns(q, s, n))
				continue;
			if (s->pending)
				break;
			empty = pt_max64(empty, s->done);
		}
		if (i == q->streams.n)
			d->idle_since = empty;
	}
}

static bool foreign_on(const struct pt_gqueue *q, uint16_t n)
{
	size_t i;

	for (i = 0; i < q->streams.n; i++)
		if (q->streams.v[i].dev == n && q->streams.v[i].pending &&
		    q->streams.v[i].foreign)
			return true;
	return false;
}

/* Since when device `n` must have been at work, if a wait of `stream` that
 * began at `begin` found it so; UINT64_MAX: it need not have been. */
static uint64_t busy_since(const struct pt_gqueue *q, uint16_t n,
			   uint32_t stream, uint64_t begin)
{
	uint64_t from = 0;
	bool any = false;
	size_t i;

	if (foreign_on(q, n) || pt_devices_unsure(&q->devices, n))
		return UINT64_MAX;
	for (i = 0; i < q->streams.n; i++) {
		const struct pt_gstream *s = &q->streams.v[i];

		if (!s->pending || s->dev != n ||
		    (stream != PT_GOP_ALL && i != stream))
			continue;
		any = true;
		/* what comes from another thread meanwhile, it need not wait
		 * for */
		from = pt_max64(from, s->last_submit <= begin ? s->last_submit :
								begin);
	}
	return any ? from ? from : begin : UINT64_MAX;
}

static int note_busy(struct pt_gqueue *q, uint16_t n, uint64_t from,
		     uint64_t end)
{
	struct pt_span s = { from, end - PT_LATE_NS };

	if (from == UINT64_MAX || end < from + PT_LATE_NS || s.end <= s.begin)
		return 0;
	return pt_vec_push(&q->node[n].busy, s);
}

/* Two threads that were not seen to choose: work of the one that was pending
 * behind a sync of the other which would have waited for it shows that they
 * are on different devices. */
static void tell_apart(struct pt_gqueue *q, uint16_t a, uint16_t b,
		       const struct pt_gpast *sync, const struct pt_gpast *wait)
{
	if (!wait->pending || !(sync->all || (sync->main && wait->main)) ||
	    wait->submitted > sync->begin ||
	    sync->end + PT_LATE_NS > wait->pending)
		return;
	q->node[a].apart |= 1ull << b;
	q->node[b].apart |= 1ull << a;
}

static uint64_t last_submit(const struct pt_gqueue *q, uint64_t before)
{
	uint64_t last = 0;
	size_t i;

	for (i = 0; i < q->streams.n; i++)
		last = pt_max64(last, pt_min64(q->streams.v[i].last_submit, before));
	return last;
}

static void remember(struct pt_gqueue *q, uint16_t n, const struct pt_gpast *p)
{
	struct pt_gnode *d = &q->node[n];
	uint16_t i;
	unsigned k;

	if (q->devices.chosen || q->devices.roots < 2)
		return;
	for (i = 0; i < q->devices.n; i++) {
		if (i == n)
			continue;
		for (k = 0; k < PT_PAST && k < q->node[i].n_past; k++) {
			tell_apart(q, n, i, p, &q->node[i].past[k]);
			tell_apart(q, n, i, &q->node[i].past[k], p);
		}
	}
	d->past[d->n_past++ % PT_PAST] = *p;
}

static struct pt_gevent *event_of(struct pt_gqueue *q, uint64_t handle)
{
	struct pt_gevent *e;

	HASH_FIND(hh, q->events, &handle, sizeof(handle), e);
	return e;
}

static int record_event(struct pt_gqueue *q, const struct pt_gpu_call *c,
			uint16_t n)
{
	struct pt_gevent *e = event_of(q, c->v[0]);
	struct pt_gop op = { .at = c->begin, .dev = n, .kind = PT_GOP_RECORD };
	int err;

	op.stream = stream_of(q, c->stream, n);
	err = emit(q, &op);
	if (err || op.stream == PT_GOP_ALL)
		return err;
	if (!e) {
		if (HASH_COUNT(q->events) >= EVENTS_MAX)
			return 0; /* unknown when it is waited for */
		e = calloc(1, sizeof(*e));
		if (!e)
			return -ENOMEM;
		e->handle = c->v[0];
		HASH_ADD(hh, q->events, handle, sizeof(e->handle), e);
		if (!PT_HASHED(e)) {
			free(e);
			return -ENOMEM;
		}
	}
	e->recorded = c->begin;
	e->stream = op.stream;
	e->op = (uint32_t)(q->ops.n - 1);
	e->foreign = q->streams.v[e->stream].pending &&
		     q->streams.v[e->stream].foreign;
	return 0;
}

/* The stream waits for the host, with nothing for the device to do; who waits
 * for the stream waits for that too. */
static int take_host_func(struct pt_gqueue *q, const struct pt_gpu_call *c,
			  uint16_t n)
{
	uint32_t s = stream_of(q, c->stream, n);
	int err = submit(q, c, n, s);

	if (!err && s < q->streams.n)
		q->streams.v[s].foreign = true;
	return err;
}

static int take_wait(struct pt_gqueue *q, const struct pt_gpu_call *c,
		     uint16_t n)
{
	const struct pt_gevent *e = event_of(q, c->v[0]);
	struct pt_gop op = { .at = c->begin, .dev = n, .kind = PT_GOP_WAIT };

	op.stream = stream_of(q, c->stream, n);
	op.event = e ? e->op + 1 : 0;
	/* the stream may now wait while its device has nothing to do; set
	 * although nothing may be pending yet: what comes next waits, too */
	if (op.stream < q->streams.n) {
		struct pt_gstream *s = &q->streams.v[op.stream];

		s->foreign |= !e || e->foreign || q->streams.v[e->stream].dev != n;
	}
	return emit(q, &op);
}

static int take_sync(struct pt_gqueue *q, const struct pt_gpu_call *c,
		     uint16_t n)
{
	struct pt_gop op = { .at = c->begin, .done = c->end, .told = c->end,
			     .dev = n,
			     .kind = PT_GOP_SYNC, .stream = PT_GOP_ALL };
	uint64_t before = c->begin, end, from, likely;
	struct pt_gpast past = { .begin = c->begin, .end = c->end };
	const struct pt_gevent *e = NULL;
	int err;

	if (c->open || c->ret) /* not seen to return, or in vain */
		return 0;
	if (c->cls == PT_API_SYNC_EVENT) {
		e = event_of(q, c->v[0]);
		if (!e)
			return 0;
		op.stream = e->stream;
		op.event = e->op + 1;
		op.dev = n = q->streams.v[e->stream].dev;
		before = e->recorded;
	} else if (c->cls == PT_API_SYNC_STREAM) {
		op.stream = stream_of(q, c->stream, n);
	}
	q->node[n].known = true;
	end = pt_wait_end(q->an, q->t->proc, c, true, &likely);
	if (end) {
		from = busy_since(q, n, op.stream, c->begin);
		if (e && from != UINT64_MAX)
			from = pt_max64(from, c->begin);
		op.done = likely;
		op.blocked = true;
		if (from != UINT64_MAX) {
			/* by any thread: were it all one device, that is what
			 * it may have waited for */
			past.submitted = last_submit(q, c->begin);
			past.pending = end > PT_LATE_NS ? end - PT_LATE_NS : 0;
		}
		err = note_busy(q, n, from, end);
		if (err)
			return err;
	}
	err = emit(q, &op);
	past.all = c->cls == PT_API_SYNC_DEVICE;
	past.main = op.stream < q->streams.n && !q->streams.v[op.stream].handle;
	if (!e)
		remember(q, n, &past);
	complete(q, n, op.stream, before, c->end);
	look_for_drained(q, c->end);
	return err;
}

/* A copy from the device that waits was done when it returned, and with it
 * all that its stream had before. Others may return earlier: one to the device
 * once staged, an asynchronous one at once, and late only for want of room in
 * the queue. */
static int take_copy(struct pt_gqueue *q, const struct pt_gpu_call *c,
		     uint16_t n)
{
	struct pt_gop op = { .at = c->begin, .key = c->v[2], .bytes = c->v[1],
			     .dev = n, .kind = PT_GOP_COPY };
	bool returned = !c->ret && !c->open;
	bool waits = returned && c->cls == PT_API_COPY_SYNC &&
		     c->v[2] == PT_COPY_D2H;
	uint64_t end = 0, held = 0, likely = c->end;
	int err;

	if (returned) {
		end = held = pt_wait_end(q->an, q->t->proc, c, false, &likely);
		if (!end)
			held = pt_wait_end(q->an, q->t->proc, c, true, &likely);
	}
	op.stream = stream_of(q, c->stream, n);
	err = submit(q, c, n, op.stream);
	if (!err)
		err = emit(q, &op);
	if (err)
		return err;
	op.kind = PT_GOP_SYNC;
	op.event = 0;
	op.done = held ? likely : c->end;
	op.told = c->end;
	op.blocked = held != 0;
	if (waits)
		q->node[n].known = true;
	/* A host that sleeps in a copy waits for it, for what is before it, or
	 * for room in the queue: of one device, or of any. */
	if (end && (waits || q->devices.roots == 1) &&
	    busy_since(q, n, op.stream, c->begin) != UINT64_MAX)
		err = note_busy(q, n, c->begin, end);
	if (!err && (waits || (held && !q->at_once[c->v[2] & 7])))
		err = emit(q, &op);
	if (waits) {
		struct pt_gpast past = { .begin = c->begin, .end = c->end };

		past.main = op.stream < q->streams.n &&
			    !q->streams.v[op.stream].handle;
		remember(q, n, &past);
		complete(q, n, op.stream, c->begin, c->end);
		look_for_drained(q, c->end);
	}
	return err;
}

static int take_launch(struct pt_gqueue *q, const struct pt_gpu_call *c,
		       uint16_t n, bool collective)
{
	struct pt_gop op = { .at = c->begin, .key = c->v[0], .dev = n,
			     .kind = PT_GOP_LAUNCH, .collective = collective };
	int err;

	if (c->cls == PT_API_GRAPH_LAUNCH) {
		const struct pt_graph_work *w = pt_graphs_work(&q->graphs, c);

		op.kind = PT_GOP_GRAPH;
		op.bytes = w ? w->kernels : 0;
		op.key = w ? w->shape : c->v[0];
	} else if (c->cls == PT_API_MEMSET) {
		op.kind = PT_GOP_MEMSET;
		op.bytes = c->v[1];
		op.key = 0;
	}
	op.stream = stream_of(q, c->stream, n);
	err = submit(q, c, n, op.stream);
	return err ? err : emit(q, &op);
}

/* A collective launches its kernel inside of its own call. */
static bool in_collective(struct pt_gqueue *q, const struct pt_gpu_call *c)
{
	size_t i, free_at = 0;

	for (i = 0; i < PT_COLLECTIVES_OPEN; i++) {
		if (q->collective[i].tid == c->tid &&
		    c->begin < q->collective[i].end)
			return true;
		if (q->collective[i].end <= c->begin)
			free_at = i;
	}
	if (c->cls == PT_API_COLLECTIVE || c->cls == PT_API_COMM) {
		q->collective[free_at].tid = c->tid;
		q->collective[free_at].end = c->end;
	}
	return false;
}

static int take_call(struct pt_gqueue *q, const struct pt_gpu_call *c)
{
	bool collective = in_collective(q, c);
	int graph = pt_graphs_take(&q->graphs, c);
	uint16_t n;

	pt_devices_take(&q->devices, c);
	if (graph) /* 1: nothing runs */
		return graph < 0 ? graph : 0;
	n = pt_devices_of(&q->devices, c);
	if (n == PT_NODE_NONE)
		return -ENOMEM;
	pt_count_call(&q->node[n].counts, &q->graphs, c);
	if (c->late) /* which stream, and what came behind it, nobody knows */
		return 0;
	switch (c->cls) {
	case PT_API_LAUNCH:
	case PT_API_GRAPH_LAUNCH:
	case PT_API_MEMSET:
	case PT_API_PREFETCH:
	case PT_API_COPY_BATCH:
		return take_launch(q, c, n, collective);
	case PT_API_HOST_FUNC:
		return take_host_func(q, c, n);
	case PT_API_COPY_SYNC:
	case PT_API_COPY_ASYNC:
		return take_copy(q, c, n);
	case PT_API_SYNC_DEVICE:
	case PT_API_SYNC_STREAM:
	case PT_API_SYNC_EVENT:
		return take_sync(q, c, n);
	case PT_API_EVENT_RECORD:
		return record_event(q, c, n);
	case PT_API_STREAM_WAIT:
		return take_wait(q, c, n);
	}
	return 0;
}

/* Streams may hold work from before the capture; of those that are used soon
 * it has to be assumed. */
#define OLD_WORK_NS NS_PER_S
static int expect_old_work(struct pt_gqueue *q)
{
	const struct pt_proc *p = q->t->proc;
	uint64_t until = pt_min64(q->an->t1, q->an->t0 + OLD_WORK_NS);
	size_t i;

	pt_devices_rewind(&q->devices);
	for (i = 0; i < p->gpu.n && p->gpu.v[i].begin < until; i++) {
		const struct pt_gpu_call *c = &p->gpu.v[i];
		uint32_t s;
		uint16_t n;

		pt_devices_take(&q->devices, c);
		if (c->late || !(pt_call_is_submit(c) ||
				 c->cls == PT_API_SYNC_STREAM))
			continue;
		n = pt_devices_of(&q->devices, c);
		if (n == PT_NODE_NONE)
			return -ENOMEM;
		s = stream_of(q, c->stream, n);
		if (s < q->streams.n)
			q->streams.v[s].pending = true;
	}
	return 0;
}

/* Asynchronous copies of pinned memory return at once, but for want of room in
 * the queue; those of other memory wait for their copy. Which of the two a
 * direction's are, most of its calls tell. */
static void look_at_copies(struct pt_gqueue *q)
{
	const struct pt_proc *p = q->t->proc;
	size_t i, n[8] = { 0 }, quick[8] = { 0 };

	for (i = pt_gpu_after(p, q->an->t0);
	     i < p->gpu.n && p->gpu.v[i].begin < q->an->t1; i++) {
		const struct pt_gpu_call *c = &p->gpu.v[i];

		if (c->cls != PT_API_COPY_ASYNC || c->late || c->open || c->ret)
			continue;
		n[c->v[2] & 7]++;
		quick[c->v[2] & 7] += c->end - c->begin < PT_BLOCKED_NS;
	}
	for (i = 0; i < 8; i++)
		q->at_once[i] = 2 * quick[i] > n[i];
}

int pt_gqueue_run(struct pt_gqueue *q)
{
	const struct pt_proc *p = q->t->proc;
	size_t i, from = pt_gpu_after(p, q->an->t0);
	int err = pt_devices_learn(&q->devices, p, q->an->t1);
	uint16_t n;

	look_at_copies(q);
	if (!err)
		err = expect_old_work(q);
	pt_devices_rewind(&q->devices);
	for (i = 0; i < p->gpu.n && p->gpu.v[i].begin < q->an->t1 && !err; i++) {
		if (i < from)
			pt_devices_take(&q->devices, &p->gpu.v[i]);
		else
			err = take_call(q, &p->gpu.v[i]);
	}
	for (n = 0; n < q->devices.n && !err; n++)
		err = idle_until(q, n, q->an->t1);
	return err;
}

void pt_gqueue_free(struct pt_gqueue *q)
{
	struct pt_gevent *e, *next;
	size_t i;

	HASH_ITER(hh, q->events, e, next) {
		HASH_DEL(q->events, e);
		free(e);
	}
	for (i = 0; i < PT_NODES_MAX; i++) {
		pt_vec_free(&q->node[i].idle);
		pt_vec_free(&q->node[i].busy);
	}
	pt_vec_free(&q->streams);
	pt_vec_free(&q->ops);
	pt_graphs_free(&q->graphs);
	pt_devices_free(&q->devices);
}
