/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device seen from the host: a queue that calls fill and syncs find
 * empty. Two answers:
 *
 *  hard    idle from a sync that drained every stream to the next call that
 *          submits; busy while the host is blocked in a sync or a blocking
 *          copy. Both hold whatever the kernels do.
 *  likely  inside a stretch from the first submission to the draining sync,
 *          a FIFO in which every launch takes the same time; that time is
 *          solved for, so that the FIFO ends when the sync returned.
 *
 * One device per process in this version.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "analysis/graphs.h"
#include "analysis/internal.h"

#define MAX_STREAMS 64
#define MAX_EVENTS 256
/* A sync that returns sooner found the device empty: a call and its two
 * probes take a few microseconds. */
#define BLOCKED_NS 30000ull

struct stream {
	uint64_t handle, last_submit;
	uint64_t done; /* when it was found empty; pending: before that */
	uint64_t copies_by; /* when its pending copies are over, most likely */
	bool pending;
	bool launches; /* ... among what is pending */
};

struct event {
	uint64_t handle, stream, recorded;
};

struct unit { /* work submitted */
	uint64_t at;
	uint64_t known_ns; /* its device time, where the call tells; else 0 */
	bool launch;
};

struct device {
	struct pt_an *an;
	struct pt_trainer *t;
	struct stream streams[MAX_STREAMS];
	size_t n_streams;
	bool streams_overflow;
	struct event events[MAX_EVENTS];
	size_t n_events, next_event;
	PT_VEC(struct unit) units; /* of the open stretch */
	pt_spans busy;		   /* certainly busy */
	uint64_t idle_since;	   /* drained; 0: not known to be empty */
	uint64_t idle_likely_since; /* but for copies that must be over; 0 */
	pt_doubles per_launch;	   /* solved times, ns, for the median */
	struct pt_graphs graphs;
};

static struct stream *stream_of(struct device *d, uint64_t handle)
{
	size_t i;

	if (handle == 1) /* cudaStreamLegacy */
		handle = 0;
	for (i = 0; i < d->n_streams; i++)
		if (d->streams[i].handle == handle)
			return &d->streams[i];
	if (d->n_streams == MAX_STREAMS) {
		d->streams_overflow = true;
		return NULL;
	}
	d->streams[d->n_streams].handle = handle;
	return &d->streams[d->n_streams++];
}

/* When the FIFO of the stretch's units runs empty, at `w` ns a launch. Idle
 * pieces go to `idle` where given. */
static uint64_t fifo(const struct unit *u, size_t n, double w, pt_spans *idle,
		     int *err)
{
	uint64_t f = n ? u[0].at : 0;
	size_t i;

	for (i = 0; i < n; i++) {
		if (u[i].at > f) {
			struct pt_span s = { f, u[i].at };

			if (idle && pt_vec_push(idle, s))
				*err = -ENOMEM;
			f = u[i].at;
		}
		f += u[i].launch ? (uint64_t)w : u[i].known_ns;
	}
	return f;
}

/* The time per launch with which the FIFO ends at `end`. fifo() grows with
 * it, so bisection finds it. */
static double solve(const struct unit *u, size_t n, uint64_t end)
{
	double lo = 0, hi = (double)(end - u[0].at);
	int i;

	for (i = 0; i < 40 && hi - lo > 1; i++) {
		double mid = (lo + hi) / 2;

		if (fifo(u, n, mid, NULL, NULL) < end)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

static int idle_until(struct device *d, uint64_t ts)
{
	struct pt_span s = { d->idle_since, ts };
	struct pt_span likely = { d->idle_likely_since, ts };

	d->idle_likely_since = 0;
	if (likely.begin && ts > likely.begin &&
	    pt_vec_push(&d->t->idle_likely, likely))
		return -ENOMEM;

	/* Not after it was found empty: another thread submits while a sync is
	 * still to return, and then nothing is known. */
	d->idle_since = 0;
	if (!s.begin || ts <= s.begin)
		return 0;
	if (pt_vec_push(&d->t->idle_hard, s))
		return -ENOMEM;
	return pt_vec_push(&d->t->idle_likely, s);
}

/* Every stream is empty at `ts`, for certain (`hard`) or but for copies that
 * must be over by then; the host had waited since `from`. */
static int drained(struct device *d, uint64_t from, uint64_t ts, bool hard)
{
	size_t n = d->units.n, i, launches = 0;
	bool blocked = ts - from >= BLOCKED_NS;
	uint64_t limit = blocked ? ts : from, end;
	double w;
	int err = 0;

	d->t->gpu_known = true;
	*(hard ? &d->idle_since : &d->idle_likely_since) = ts;
	for (i = 0; i < n; i++)
		launches += d->units.v[i].launch;
	if (n && launches && limit > d->units.v[0].at) {
		w = solve(d->units.v, n, limit);
		if (blocked) {
			if (pt_vec_push(&d->per_launch, w))
				return -ENOMEM;
		} else if (d->per_launch.n) {
			/* ended before the sync: as long as its like, at most */
			double *v = d->per_launch.v;

			w = fmin(w, v[d->per_launch.n / 2]);
		}
		end = fifo(d->units.v, n, w, &d->t->idle_likely, &err);
		if (!blocked && end < ts) {
			struct pt_span s = { end, ts };

			if (pt_vec_push(&d->t->idle_likely, s))
				err = -ENOMEM;
		}
	}
	d->units.n = 0;
	return err;
}

/* Longer than this a copy hardly takes: half the rate of PCI Express 3.0 with
 * 16 lanes, 8 GB/s, and a start-up. */
static uint64_t copy_ns(uint64_t bytes)
{
	return 50000 + pt_min64(bytes, NS_PER_S * 60) / 8;
}

static int submit(struct device *d, const struct pt_gpu_call *c,
		  uint64_t known_ns)
{
	struct stream *s = stream_of(d, c->stream);
	struct unit u = { c->begin, known_ns,
			  c->cls == PT_API_LAUNCH || c->cls == PT_API_GRAPH_LAUNCH };
	int err = idle_until(d, c->begin);

	if (err)
		return err;
	if (s) {
		s->pending = true;
		s->last_submit = c->begin;
		if (u.launch)
			s->launches = true;
		else if (pt_call_is_copy(c))
			s->copies_by = pt_max64(s->copies_by, c->begin) +
				       copy_ns(c->v[1]);
	}
	return pt_vec_push(&d->units, u);
}

/* What was submitted to `handle` (all: to any stream) before `before` has
 * completed by `at`; returns when nothing at all is left, 0: something is.
 * Calls come in the order of their begin, so that of another thread's longer
 * sync may lie behind `at`. */
static uint64_t complete(struct device *d, bool all, uint64_t handle,
			 uint64_t before, uint64_t at)
{
	bool left = d->streams_overflow && !all;
	uint64_t empty = at;
	size_t i;

	if (handle == 1)
		handle = 0;
	for (i = 0; i < d->n_streams; i++) {
		struct stream *s = &d->streams[i];

		if ((all || s->handle == handle) && s->pending &&
		    s->last_submit <= before) {
			s->pending = s->launches = false;
			s->done = at;
		}
		left |= s->pending;
		empty = pt_max64(empty, s->done);
	}
	return left ? 0 : empty;
}

/* Nothing is left but copies that were over before `at`: a prefetcher puts the
 * next batch's on a stream of its own, which nobody waits for at once. */
static bool only_old_copies(const struct device *d, uint64_t at)
{
	size_t i;

	for (i = 0; i < d->n_streams; i++)
		if (d->streams[i].pending && (d->streams[i].launches ||
					      d->streams[i].copies_by > at))
			return false;
	return !d->streams_overflow;
}

static void record_event(struct device *d, const struct pt_gpu_call *c)
{
	size_t i;

	for (i = 0; i < d->n_events; i++)
		if (d->events[i].handle == c->v[0])
			break;
	if (i == d->n_events) {
		i = d->n_events < MAX_EVENTS ? d->n_events++ :
					       d->next_event++ % MAX_EVENTS;
	}
	d->events[i].handle = c->v[0];
	d->events[i].stream = c->stream;
	d->events[i].recorded = c->begin;
}

/* Asleep for the device, or asking it over and over: it is busy. On the run
 * queue: nobody knows, it may have ended long before the host came back. */
static int busy_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		      bool queued)
{
	struct device *d = ctx;
	struct pt_span s = { b, e };

	(void)iv;
	return queued || e - b < BLOCKED_NS ? 0 : pt_vec_push(&d->busy, s);
}

/* The host was blocked on the device in this call. */
static int note_busy(struct device *d, const struct pt_gpu_call *c)
{
	const struct pt_thread *t = pt_model_thread(d->an->m, c->tid);

	if (c->end - c->begin < BLOCKED_NS || !t)
		return 0;
	return pt_walk(t, c->begin, c->end, busy_piece, d);
}

static int take_sync(struct device *d, const struct pt_gpu_call *c)
{
	uint64_t handle = c->stream, before = c->begin;
	uint64_t empty;
	size_t i;
	int err;

	if (c->open || c->ret == INT64_MIN)
		return 0;
	if (c->cls == PT_API_SYNC_EVENT) {
		for (i = 0; i < d->n_events; i++)
			if (d->events[i].handle == c->v[0])
				break;
		if (i == d->n_events)
			return 0;
		handle = d->events[i].stream;
		before = d->events[i].recorded;
	}
	err = note_busy(d, c);
	if (err)
		return err;
	empty = complete(d, c->cls == PT_API_SYNC_DEVICE, handle, before,
			 c->end);
	if (empty)
		return d->idle_since ? 0 : drained(d, c->begin, empty, true);
	return only_old_copies(d, c->end) && !d->idle_likely_since ?
		       drained(d, c->begin, c->end, false) : 0;
}

/* A copy that blocked the host was done when it returned, and with it all
 * that its stream had before. */
static int take_copy(struct device *d, const struct pt_gpu_call *c)
{
	bool blocking = c->end - c->begin >= BLOCKED_NS && c->ret != INT64_MIN;
	bool alone = d->idle_since != 0;
	uint64_t empty;
	int err;

	if (!blocking || c->open)
		return submit(d, c, 0);
	err = submit(d, c, alone ? c->end - c->begin : 0);
	if (!err)
		err = note_busy(d, c);
	/* Host-to-device copies may return once staged: not a drain. Nor are
	 * those whose direction the call leaves open. */
	if (err || c->v[2] == PT_COPY_H2D || c->v[2] == PT_COPY_ANY)
		return err;
	empty = complete(d, false, c->stream, c->begin, c->end);
	return empty ? drained(d, c->begin, empty, true) : 0;
}

static void count_graph(struct pt_trainer *t, const struct pt_graph_work *w)
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

static void count(struct pt_trainer *t, const struct pt_graphs *g,
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

static int take_call(struct device *d, const struct pt_gpu_call *c)
{
	int graph = pt_graphs_take(&d->graphs, c);

	if (graph) /* 1: nothing runs */
		return graph < 0 ? graph : 0;
	count(d->t, &d->graphs, c);
	if (c->late) /* which stream, and what came behind it, nobody knows */
		return pt_call_is_sync(c) ? note_busy(d, c) : 0;
	if (pt_call_is_copy(c))
		return take_copy(d, c);
	if (pt_call_is_submit(c))
		return submit(d, c, 0);
	if (pt_call_is_sync(c))
		return take_sync(d, c);
	if (c->cls == PT_API_EVENT_RECORD)
		record_event(d, c);
	return 0;
}

static int cmp_span(const void *a, const void *b)
{
	const struct pt_span *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Sort, clip to the window and join, so that the lists can be swept. */
static uint64_t tidy_spans(pt_spans *s, uint64_t t0, uint64_t t1)
{
	uint64_t sum = 0;
	size_t i, n = 0;

	if (s->n)
		qsort(s->v, s->n, sizeof(*s->v), cmp_span);
	for (i = 0; i < s->n; i++) {
		struct pt_span x = { pt_max64(s->v[i].begin, t0),
				     pt_min64(s->v[i].end, t1) };

		if (x.begin >= x.end)
			continue;
		if (n && x.begin <= s->v[n - 1].end)
			s->v[n - 1].end = pt_max64(s->v[n - 1].end, x.end);
		else
			s->v[n++] = x;
	}
	s->n = n;
	for (i = 0; i < n; i++)
		sum += s->v[i].end - s->v[i].begin;
	return sum;
}

/* Take `b` out of `a`; both tidy. Where a launch was lost, the host may be
 * seen to wait for a device that seemed empty: then it was not. How long what
 * is left is goes to *sum. */
static int subtract(pt_spans *a, const pt_spans *b, uint64_t *sum)
{
	pt_spans out = { 0 };
	size_t i, k = 0;
	int err = 0;

	*sum = 0;
	for (i = 0; i < a->n && !err; i++) {
		struct pt_span s = a->v[i];

		while (k < b->n && b->v[k].end <= s.begin)
			k++;
		while (k < b->n && b->v[k].begin < s.end && !err) {
			struct pt_span head = { s.begin, b->v[k].begin };

			if (head.begin < head.end)
				err = pt_vec_push(&out, head);
			s.begin = pt_min64(b->v[k].end, s.end);
			if (b->v[k].end > s.end)
				break;
			k++;
		}
		if (s.begin < s.end && !err)
			err = pt_vec_push(&out, s);
	}
	pt_vec_free(a);
	a->v = out.v;
	a->n = out.n;
	a->cap = out.cap;
	for (i = 0; i < a->n; i++)
		*sum += a->v[i].end - a->v[i].begin;
	return err;
}

static int sum_up(struct device *d)
{
	struct pt_trainer *t = d->t;
	uint64_t t0 = d->an->t0, t1 = d->an->t1, busy;
	pt_spans waits = { 0 };
	struct pt_span w[2];
	size_t i;
	int err = 0, n, k;

	tidy_spans(&t->idle_hard, t0, t1);
	tidy_spans(&t->idle_likely, t0, t1);
	busy = tidy_spans(&d->busy, t0, t1);
	err = subtract(&t->idle_hard, &d->busy, &t->idle_hard_ns);
	if (!err)
		err = subtract(&t->idle_likely, &d->busy, &t->idle_likely_ns);
	t->busy_hard_ns = busy;
	for (i = 0; i < t->steps.n && !err; i++) {
		n = pt_step_spans(&t->steps.v[i], w);
		for (k = 0; k < n && !err; k++)
			err = pt_vec_push(&waits, w[k]);
	}
	if (!err) {
		uint64_t all = tidy_spans(&waits, t0, t1);

		t->starved_lo_ns = pt_spans_overlap(t->idle_hard.v,
						    t->idle_hard.n, waits.v,
						    waits.n);
		t->starved_likely_ns = pt_spans_overlap(t->idle_likely.v,
							t->idle_likely.n,
							waits.v, waits.n);
		t->starved_hi_ns = all - pt_spans_overlap(d->busy.v, d->busy.n,
							  waits.v, waits.n);
		t->starved_likely_ns = pt_max64(t->starved_likely_ns,
						t->starved_lo_ns);
		/* Never found empty. A host that waits for the device more
		 * than for data is ahead of it: its waiting is hidden. */
		if (!t->gpu_known)
			t->starved_likely_ns = t->starved_hi_ns -
				pt_min64(t->starved_hi_ns, busy);
	}
	pt_vec_free(&waits);
	return err;
}

/* Streams may hold work from before the capture; of those that are used soon
 * it has to be assumed. */
#define OLD_WORK_NS NS_PER_S
static void expect_old_work(struct device *d)
{
	const struct pt_proc *p = d->t->proc;
	uint64_t until = pt_min64(d->an->t1, d->an->t0 + OLD_WORK_NS);
	struct stream *s;
	size_t i;

	for (i = pt_gpu_after(p, d->an->t0); i < p->gpu.n; i++) {
		const struct pt_gpu_call *c = &p->gpu.v[i];

		if (c->begin >= until)
			break;
		if (c->late || !(pt_call_is_submit(c) ||
				 c->cls == PT_API_SYNC_STREAM))
			continue;
		s = stream_of(d, c->stream);
		if (s)
			s->pending = true;
	}
}

int pt_model_gpu(struct pt_an *an, struct pt_trainer *t)
{
	struct device d = { .an = an, .t = t };
	struct pt_proc *p = t->proc;
	size_t i;
	int err = 0;

	expect_old_work(&d);
	for (i = pt_gpu_after(p, an->t0); i < p->gpu.n && !err; i++) {
		if (p->gpu.v[i].begin >= an->t1)
			break;
		err = take_call(&d, &p->gpu.v[i]);
	}
	if (!err)
		err = idle_until(&d, an->t1);
	t->never_drained = !t->gpu_known;
	if (!err)
		err = sum_up(&d);
	pt_vec_free(&d.units);
	pt_vec_free(&d.busy);
	pt_vec_free(&d.per_launch);
	pt_graphs_free(&d.graphs);
	return err;
}
