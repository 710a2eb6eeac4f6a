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
 * Beside that every operation is kept for the replay of likely.c.
 */
#include <errno.h>

#include "analysis/gpu/streams.h"

#define EVENTS_MAX 65536

static int emit(struct pt_gqueue *q, const struct pt_gop *op)
{
	return op->stream == PT_GOP_ALL - 1 || pt_vec_push(&q->ops, *op) ?
		       -ENOMEM : 0;
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
	bool full = HASH_COUNT(q->events) >= EVENTS_MAX;
	struct pt_gevent *e;
	struct pt_gop op = { .at = c->begin, .dev = n, .kind = PT_GOP_RECORD };
	int err;

	op.stream = pt_gq_stream(q, c->stream, n);
	err = emit(q, &op);
	if (err || op.stream == PT_GOP_ALL)
		return err;
	e = full ? event_of(q, c->v[0]) : pt_hash_make(q->events, handle, &c->v[0]);
	if (!e) /* unknown when it is waited for */
		return full ? 0 : -ENOMEM;
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
	uint32_t s = pt_gq_stream(q, c->stream, n);
	int err = pt_gq_submit(q, c, n, s);

	if (!err && s < q->streams.n)
		q->streams.v[s].foreign = true;
	return err;
}

static int take_wait(struct pt_gqueue *q, const struct pt_gpu_call *c,
		     uint16_t n)
{
	const struct pt_gevent *e = event_of(q, c->v[0]);
	struct pt_gop op = { .at = c->begin, .dev = n, .kind = PT_GOP_WAIT };

	op.stream = pt_gq_stream(q, c->stream, n);
	op.event = e ? e->op + 1 : 0;
	/* the stream may now wait while its device has nothing to do; set
	 * although nothing may be pending yet: what comes next waits, too */
	if (op.stream < q->streams.n) {
		struct pt_gstream *s = &q->streams.v[op.stream];

		s->foreign |= !e || e->foreign || q->streams.v[e->stream].dev != n;
	}
	return emit(q, &op);
}

/* The default stream waits for others unless they were made not to; a copy alone is back
 * sooner than this. */
#define WAITED_NS 2000000ull

/* Does waiting for the stream in [begin,end) tell when kernels are done? */
static bool tells(const struct pt_gqueue *q, uint32_t stream, uint64_t begin,
		  uint64_t end)
{
	return stream >= q->streams.n || q->streams.v[stream].kernels ||
	       (!q->streams.v[stream].handle && end >= begin + WAITED_NS);
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
		op.stream = pt_gq_stream(q, c->stream, n);
	}
	q->node[n].known |= tells(q, op.stream, c->begin, c->end);
	end = pt_wait_end(q->an, q->t->proc, c, true, &likely);
	if (end) {
		from = pt_gq_busy_since(q, n, op.stream, c->begin, end);
		if (e && from != UINT64_MAX)
			from = pt_max64(from, c->begin);
		op.done = likely;
		op.blocked = true;
		if (from != UINT64_MAX) {
			/* by any thread: were it all one device, that is what
			 * it may have waited for */
			past.submitted = pt_gq_last_submit(q, c->begin);
			past.pending = end > PT_LATE_NS ? end - PT_LATE_NS : 0;
		}
		err = pt_gq_note_busy(q, n, from, end);
		if (err)
			return err;
	}
	err = emit(q, &op);
	past.all = c->cls == PT_API_SYNC_DEVICE;
	past.main = op.stream < q->streams.n && !q->streams.v[op.stream].handle;
	/* it may have been for an earlier function: what came behind that may not be done */
	if (c->implied)
		return err;
	if (!e)
		pt_gq_remember(q, n, &past);
	pt_gq_complete(q, n, op.stream, before, c->end);
	pt_gq_find_drained(q, c->end);
	return err;
}

/* A copy from the device that waits was done when it returned, and with it
 * all that its stream had before. Others may return earlier: one to the device
 * once staged, an asynchronous one at once, and late only for want of room in
 * the queue. */
static int take_copy(struct pt_gqueue *q, const struct pt_gpu_call *c,
		     uint16_t n)
{
	struct pt_gop op = { .at = c->begin, .key = pt_min64(c->v[2], PT_COPY_ANY), .bytes = c->v[1],
			     .dev = n, .kind = PT_GOP_COPY };
	bool returned = !c->ret && !c->open;
	bool waits = returned && c->cls == PT_API_COPY_SYNC &&
		     c->v[2] == PT_COPY_D2H;
	uint64_t end = 0, held = 0, likely = c->end, from;
	int err;

	if (returned) {
		end = held = pt_wait_end(q->an, q->t->proc, c, false, &likely);
		if (!end)
			held = pt_wait_end(q->an, q->t->proc, c, true, &likely);
	}
	op.stream = pt_gq_stream(q, c->stream, n);
	err = pt_gq_submit(q, c, n, op.stream);
	err = err ?: emit(q, &op);
	if (err)
		return err;
	op.kind = PT_GOP_SYNC;
	op.event = 0;
	op.done = held ? likely : c->end;
	op.told = c->end;
	op.blocked = held != 0;
	if (waits)
		q->node[n].known |= tells(q, op.stream, c->begin, c->end);
	/* A host that sleeps in a copy waits for it, for what is before it, or
	 * for room in the queue: of one device, or of any. */
	if (end && (waits || q->devices.roots == 1) &&
	    pt_gq_busy_since(q, n, op.stream, c->begin, 0) != UINT64_MAX) {
		from = pt_gq_busy_since(q, n, PT_GOP_ALL, c->begin, end);
		err = pt_gq_note_busy(q, n, waits ? from : c->begin, end);
	}
	if (!err && (waits || (held && !q->at_once[c->v[2] & 7])))
		err = emit(q, &op);
	if (waits) {
		struct pt_gpast past = { .begin = c->begin, .end = c->end };

		past.main = op.stream < q->streams.n &&
			    !q->streams.v[op.stream].handle;
		pt_gq_remember(q, n, &past);
		pt_gq_complete(q, n, op.stream, c->begin, c->end);
		pt_gq_find_drained(q, c->end);
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
	op.stream = pt_gq_stream(q, c->stream, n);
	err = pt_gq_submit(q, c, n, op.stream);
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

/* ---- what the device was given to do, as numbers -------------------------------- */

static void count_graph(struct pt_dev_counts *t, const struct pt_graph_work *w)
{
	t->graph_launches++;
	if (!w) {
		t->graphs_unknown++;
		return;
	}
	t->graph_kernels += w->kernels;
	t->h2d += w->h2d;
	t->d2h += w->d2h;
	t->other_copies += w->other_copies;
	t->copy_bytes += w->copy_bytes;
}

static void count_call(struct pt_dev_counts *t, const struct pt_graphs *g,
		       const struct pt_gpu_call *c)
{
	switch (c->cls) {
	case PT_API_LAUNCH:
		t->kernels++;
		break;
	case PT_API_GRAPH_LAUNCH:
		count_graph(t, pt_graphs_work(g, c));
		break;
	case PT_API_COLLECTIVE:
		t->collectives++;
		t->collective_bytes += c->v[1];
		break;
	case PT_API_COPY_SYNC:
	case PT_API_COPY_ASYNC:
		if (c->v[2] == PT_COPY_H2D)
			t->h2d++;
		else if (c->v[2] == PT_COPY_D2H)
			t->d2h++;
		else
			t->other_copies++;
		t->copy_bytes += c->v[1];
		break;
	case PT_API_COPY_BATCH:
		if (c->v[0] <= PT_BATCH_MAX)
			t->other_copies += c->v[0];
		break;
	case PT_API_SYNC_DEVICE:
	case PT_API_SYNC_STREAM:
	case PT_API_SYNC_EVENT:
		t->syncs++;
		break;
	case PT_API_ALLOC:
		t->failed_allocs += c->ret > 0;
		break;
	}
}

/* ---- all calls ------------------------------------------------------------------ */

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
	count_call(&q->node[n].counts, &q->graphs, c);
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
		s = pt_gq_stream(q, c->stream, n);
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

	pt_each_call(c, p, q->an->t0, q->an->t1) {
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
	err = err ?: expect_old_work(q);
	pt_devices_rewind(&q->devices);
	for (i = 0; i < p->gpu.n && p->gpu.v[i].begin < q->an->t1 && !err; i++) {
		if (i < from)
			pt_devices_take(&q->devices, &p->gpu.v[i]);
		else
			err = take_call(q, &p->gpu.v[i]);
	}
	for (n = 0; n < q->devices.n && !err; n++)
		err = pt_gq_idle_until(q, n, q->an->t1);
	return err;
}

void pt_gqueue_free(struct pt_gqueue *q)
{
	size_t i;

	pt_hash_free(q->events);
	for (i = 0; i < PT_NODES_MAX; i++) {
		pt_vec_free(&q->node[i].idle);
		pt_vec_free(&q->node[i].busy);
	}
	pt_vec_free(&q->streams);
	pt_vec_free(&q->ops);
	pt_graphs_free(&q->graphs);
	pt_devices_free(&q->devices);
}
