/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams, events, the bounded queue, and waiting for it. */
#include "cudart_state.h"

#include <sched.h>
#include <stdlib.h>

/* ---- streams ------------------------------------------------------------- */

struct sim_stream *sim_stream_new(bool blocking)
{
	struct sim_stream *last = &dev.legacy[sim_cfg.devices - 1];
	struct sim_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->refs = 1;
	s->blocking = blocking;
	s->device = sim_current();
	s->handle = (uint64_t)(uintptr_t)s;
	s->prev = last; /* of the NULL streams */
	s->next = last->next;
	if (s->next)
		s->next->prev = s;
	last->next = s;
	return s;
}

void sim_stream_put(struct sim_stream *s)
{
	if (!s || --s->refs)
		return;
	s->prev->next = s->next; /* never a NULL stream: they are first */
	if (s->next)
		s->next->prev = s->prev;
	sim_graph_free(s->capture);
	free(s);
}

void sim_stream_close(struct sim_stream *s)
{
	s->closed = true; /* nobody finds it any more */
	sim_stream_put(s);
}

/* One for each device that the thread used; freed when the thread ends. */
static struct sim_stream *per_thread_stream(void)
{
	struct sim_stream **v = pthread_getspecific(sim_thread_key), *s;

	if (!v) {
		v = calloc(SIM_DEVICES, sizeof(*v));
		if (!v || pthread_setspecific(sim_thread_key, v)) {
			free(v);
			return NULL;
		}
	}
	if (v[sim_current()])
		return v[sim_current()];
	s = sim_stream_new(true);
	if (!s)
		return NULL;
	s->handle = (uint64_t)(uintptr_t)cudaStreamPerThread;
	v[sim_current()] = s;
	return s;
}

struct sim_stream *sim_stream_find(cudaStream_t handle, bool ptsz)
{
	if (handle == cudaStreamPerThread || (!handle && ptsz))
		return per_thread_stream();
	if (!handle || handle == cudaStreamLegacy)
		return &dev.legacy[sim_current()];
	for (struct sim_stream *s = dev.streams; s; s = s->next)
		if (!s->closed && s->handle == (uint64_t)(uintptr_t)handle)
			return s;
	return NULL;
}

void sim_event_put(struct sim_event *e)
{
	if (--e->refs)
		return;
	sim_stream_put(e->stream);
	free(e);
}

/* ---- queueing and waiting ------------------------------------------------ */

static void relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#else
	__asm__ volatile("yield");
#endif
}

#define LOOK_NS 5000 /* a waiter looks not more often */

/*
 * A real device needs no core to be done; this one's thread may get none, most of all while
 * the waiter keeps it. So the waiter brings the device up to date itself, when it can be over.
 */
static void look_again(struct waiter *w, uint64_t *bound)
{
	uint64_t now = sim_now(), t;

	if (now < *bound)
		return;
	sim_lock();
	sim_advance_now();
	t = atomic_load(&w->done) ? 0 : waiter_bound(w);
	sim_unlock();
	*bound = t > now + LOOK_NS ? t : now + LOOK_NS;
}

static void wait_here(struct waiter *w, enum sim_sync how)
{
	uint64_t bound = 0;

	w->prev = w->next = NULL;
	atomic_init(&w->done, 0);
	pthread_cond_init(&w->cv, NULL);
	waiter_link(w);
	device_wake_by(waiter_bound(w));
	if (how == SIM_SYNC_BLOCK) {
		while (!atomic_load(&w->done))
			pthread_cond_wait(&w->cv, &dev.lock);
	} else {
		sim_unlock();
		while (!atomic_load(&w->done)) {
			if (how == SIM_SYNC_YIELD)
				sched_yield();
			else
				relax();
			look_again(w, &bound);
		}
		sim_lock();
	}
	pthread_cond_destroy(&w->cv);
}

/* An operation to fill in; may drop the lock while the queue is full. */
static struct sim_op *op_get(struct sim_stream *s, const struct sim_work *w,
			     bool *blocked)
{
	struct sim_op *op;

	s->refs++; /* the stream must outlive the wait below */
	sim_advance_now();
	op = dev.free_ops;
	if (op) {
		dev.free_ops = op->next;
	} else {
		struct waiter wt = { .scope = WAIT_ROOM };

		if (blocked)
			*blocked = true;
		wait_here(&wt, SIM_SYNC_BLOCK);
		op = wt.op;
		sim_advance_now();
	}
	*op = (struct sim_op){
		.stream = s, .work = *w, .submit = dev.vt,
		.tid = sim_tid(),
	};
	return op;
}

static uint64_t op_queue(struct sim_op *op)
{
	struct sim_stream *s = op->stream;
	uint64_t seq = ++dev.seq;

	op->seq = seq;
	if (s->tail)
		s->tail->next = op;
	else
		s->head = op;
	s->tail = op;
	sched_kick();
	/* others wait for what we have reserved, or for us: it goes on in real
	 * time */
	if (sim_shared() || sim_meets())
		device_wake_by(sched_next_end());
	sched_check_waiters(); /* room made by an operation without device time */
	if (sim_log_enabled())
		device_wake_by(dev.vt + FLUSH_NS);
	return seq; /* the operation may be gone already */
}

uint64_t sim_submit(struct sim_stream *s, const struct sim_work *w,
		    bool *blocked)
{
	return op_queue(op_get(s, w, blocked));
}

uint64_t sim_submit_record(struct sim_stream *s, struct sim_event *e,
			   const char *api)
{
	struct sim_work w = { .kind = SIM_OP_RECORD, .api = api };
	struct sim_op *op;

	e->refs++; /* it may be destroyed while the queue is full */
	op = op_get(s, &w, NULL);
	if (e->stream != s) {
		sim_stream_put(e->stream);
		e->stream = s;
		s->refs++;
	}
	op->event = e;
	e->seq = dev.seq + 1;
	e->time = 0;
	return op_queue(op);
}

void sim_submit_wait(struct sim_stream *s, struct sim_event *e,
		     const char *api)
{
	struct sim_work w = { .kind = SIM_OP_WAIT, .api = api };
	struct sim_op *op;

	if (!e->seq || e->time)
		return; /* never recorded, or done: nothing to wait for */
	e->refs++; /* it may be destroyed while the queue is full */
	op = op_get(s, &w, NULL);
	op->wait_on = e->stream;
	op->wait_on->refs++;
	op->wait_seq = e->seq;
	sim_event_put(e);
	op_queue(op);
}

void sim_submit_free(struct sim_stream *s, void *ptr, const char *api)
{
	struct sim_work w = { .kind = SIM_OP_FREE, .api = api };
	struct sim_op *op = op_get(s, &w, NULL);

	op->ptr = ptr;
	op_queue(op);
}

uint64_t sim_last_seq(void)
{
	return dev.seq;
}

static void waiter_set(struct waiter *w, struct sim_stream *s, uint64_t seq)
{
	w->scope = !s ? WAIT_DEVICE : s->legacy ? WAIT_BLOCKING : WAIT_STREAM;
	w->stream = s;
	w->device = s ? s->device : sim_current();
	w->seq = seq;
}

bool sim_done(struct sim_stream *s, uint64_t seq)
{
	struct waiter w = { 0 };

	sim_advance_now();
	waiter_set(&w, s, seq);
	return waiter_satisfied(&w);
}

static void wait_on(struct waiter *w, enum sim_sync how)
{
	struct sim_stream *s = w->stream;

	sim_advance_now();
	if (waiter_satisfied(w))
		return;
	if (s)
		s->refs++;
	wait_here(w, how);
	sim_stream_put(s);
}

void sim_wait(struct sim_stream *s, uint64_t seq, enum sim_sync how)
{
	struct waiter w = { 0 };

	waiter_set(&w, s, seq);
	wait_on(&w, how);
}

void sim_wait_record(struct sim_stream *s, uint64_t seq, enum sim_sync how)
{
	struct waiter w = { .scope = WAIT_STREAM, .stream = s, .seq = seq };

	wait_on(&w, how);
}

void sim_log_host(cudaStream_t stream, uint64_t enter, const char *api)
{
	struct sim_log_rec r = {
		.op = "host", .api = api, .submit = enter, .start = enter,
		.stream = (uint64_t)(uintptr_t)stream, .end = sim_now(),
		.tid = sim_tid(), .device = sim_current(),
	};

	sim_log_add(&r);
	if (sim_log_enabled())
		device_wake_by(dev.vt + FLUSH_NS);
}
