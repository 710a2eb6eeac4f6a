/* SPDX-License-Identifier: BSD-2-Clause */
/* What runs when: the simulated device in virtual time. No thread, no clock. */
#include "cudart_state.h"

/* ---- what may run ------------------------------------------------------- */

static bool is_device_op(enum sim_op_kind k)
{
	return k <= SIM_OP_MEMSET;
}

static enum sim_engine engine_of(enum sim_op_kind k)
{
	switch (k) {
	case SIM_OP_H2D:
	case SIM_OP_H2H:
		return SIM_ENG_H2D;
	case SIM_OP_D2H:
		return SIM_ENG_D2H;
	default:
		return SIM_ENG_COMPUTE;
	}
}

static unsigned engine_slots(enum sim_engine e)
{
	/* a device that processes share runs one kernel after another */
	return e == SIM_ENG_COMPUTE && sim_cfg.concurrent && !sim_shared() ?
		       SIM_CONCURRENT : 1;
}

static bool drained(const struct sim_stream *s, uint64_t seq)
{
	return !s->head || s->head->seq > seq;
}

/* Is everything up to `seq` done in every stream of a device (that blocks)? */
static bool all_drained(unsigned device, uint64_t seq, bool only_blocking)
{
	for (struct sim_stream *s = dev.streams; s; s = s->next)
		if (s->device == device && (s->blocking || !only_blocking) && !drained(s, seq))
			return false;
	return true;
}

/* The head of a stream: may it begin at this moment? */
static bool eligible(const struct sim_op *op)
{
	const struct sim_stream *s = op->stream;
	enum sim_engine e = engine_of(op->work.kind);

	if (op->running)
		return false;
	/* legacy default stream: it waits for what blocking streams were
	 * given before, and they for what it was given before */
	if (s->legacy && !all_drained(s->device, op->seq - 1, true))
		return false;
	if (s->blocking && !s->legacy && !drained(&dev.legacy[s->device], op->seq - 1))
		return false;
	if (op->work.kind == SIM_OP_WAIT)
		return drained(op->wait_on, op->wait_seq);
	if (!is_device_op(op->work.kind))
		return true;
	return dev.busy_slots[s->device][e] < engine_slots(e) &&
	       dev.n_run < RUN_MAX;
}

static const char *op_name(enum sim_op_kind k)
{
	static const char *const names[] = {
		[SIM_OP_KERNEL] = "kernel", [SIM_OP_H2D] = "h2d",
		[SIM_OP_D2H] = "d2h",	    [SIM_OP_D2D] = "d2d",
		[SIM_OP_H2H] = "h2h",	    [SIM_OP_MEMSET] = "memset",
	};

	return names[k];
}

/* ---- waiters ------------------------------------------------------------ */

void waiter_link(struct waiter *w)
{
	w->prev = dev.last;
	w->next = NULL;
	if (dev.last)
		dev.last->next = w;
	else
		dev.first = w;
	dev.last = w;
}

static void waiter_finish(struct waiter *w)
{
	if (w->prev)
		w->prev->next = w->next;
	else
		dev.first = w->next;
	if (w->next)
		w->next->prev = w->prev;
	else
		dev.last = w->prev;
	/* the waiter lives on a stack that it leaves only under the lock */
	atomic_store(&w->done, 1);
	pthread_cond_signal(&w->cv);
}

bool waiter_satisfied(const struct waiter *w)
{
	switch (w->scope) {
	case WAIT_STREAM:
		return drained(w->stream, w->seq);
	case WAIT_BLOCKING:
		return all_drained(w->device, w->seq, true);
	case WAIT_DEVICE:
		return all_drained(w->device, w->seq, false);
	default:
		return w->op != NULL;
	}
}

void sched_check_waiters(void)
{
	struct waiter *next;

	for (struct waiter *w = dev.first; w; w = next) {
		next = w->next;
		if (waiter_satisfied(w))
			waiter_finish(w);
	}
}

/* No stream can be done before its own operations have taken their time. */
static uint64_t stream_bound(const struct sim_stream *s, uint64_t seq)
{
	uint64_t t = dev.vt;

	for (const struct sim_op *op = s->head; op && op->seq <= seq;
	     op = op->next) {
		if (op->running)
			t = op->end;
		else if (is_device_op(op->work.kind))
			t += op->work.ns;
	}
	return t;
}

static struct sim_op *earliest_running(void)
{
	struct sim_op *best = NULL;

	for (unsigned i = 0; i < dev.n_run; i++) {
		struct sim_op *op = dev.run[i];

		if (!best || op->end < best->end ||
		    (op->end == best->end && op->seq < best->seq))
			best = op;
	}
	return best;
}

/*
 * A time before which `w` cannot be satisfied. Waking once at that bound, not
 * at every completion, is what keeps a sync over a thousand short kernels one
 * blocked interval, and this library off the CPU.
 */
uint64_t waiter_bound(const struct waiter *w)
{
	const struct sim_op *first = earliest_running();
	uint64_t bound = first ? first->end : NEVER;
	uint64_t t;

	if (!first || w->scope == WAIT_ROOM)
		return bound;
	if (w->scope == WAIT_STREAM) {
		t = stream_bound(w->stream, w->seq);
		return t > bound ? t : bound;
	}
	for (struct sim_stream *s = dev.streams; s; s = s->next) {
		if (s->device != w->device ||
		    (w->scope == WAIT_BLOCKING && !s->blocking))
			continue;
		t = stream_bound(s, w->seq);
		if (t > bound)
			bound = t;
	}
	return bound;
}

/* ---- running ------------------------------------------------------------ */

void sched_log_op(const struct sim_op *op, uint64_t end)
{
	struct sim_log_rec r = {
		.op = op_name(op->work.kind), .api = op->work.api,
		.stream = op->stream->handle, .submit = op->submit,
		.start = op->start, .end = end, .bytes = op->work.bytes,
		.tid = op->tid, .device = op->stream->device,
	};

	sim_log_add(&r);
}

static void op_release(struct sim_op *op)
{
	struct waiter *w;

	for (w = dev.first; w; w = w->next)
		if (w->scope == WAIT_ROOM && !w->op)
			break;
	if (w) { /* straight to whoever has waited longest */
		w->op = op;
		return;
	}
	op->next = dev.free_ops;
	dev.free_ops = op;
}

/* Complete the head of its stream at dev.vt. */
static void complete(struct sim_op *op)
{
	struct sim_stream *s = op->stream;

	s->head = op->next;
	if (!s->head)
		s->tail = NULL;
	if (is_device_op(op->work.kind)) {
		sched_log_op(op, op->end);
		if (op->work.correlation)
			sim_act_op(op, op->end);
	}
	switch (op->work.kind) {
	case SIM_OP_RECORD:
		if (op->event->seq == op->seq)
			op->event->time = dev.vt;
		sim_event_put(op->event);
		break;
	case SIM_OP_WAIT:
		sim_stream_put(op->wait_on);
		break;
	case SIM_OP_FREE:
		sim_mem_free(op->ptr);
		break;
	default:
		break;
	}
	op_release(op);
	sim_stream_put(s);
}

static void start(struct sim_op *op)
{
	if (!is_device_op(op->work.kind)) {
		complete(op);
		return;
	}
	op->running = true;
	op->start = dev.vt;
	if (engine_of(op->work.kind) == SIM_ENG_COMPUTE && sim_shared())
		op->start = sim_shared_reserve(op->stream->device, dev.vt,
					       op->work.ns);
	op->end = op->start + op->work.ns;
	op->meeting = op->work.meet != 0;
	if (op->meeting)
		sim_meet_begin(op);
	dev.run[dev.n_run++] = op;
	dev.busy_slots[op->stream->device][engine_of(op->work.kind)]++;
}

/* Start everything that may start at dev.vt, oldest first. */
void sched_kick(void)
{
	for (;;) {
		struct sim_op *best = NULL;

		for (struct sim_stream *s = dev.streams; s; s = s->next)
			if (s->head && (!best || s->head->seq < best->seq) &&
			    eligible(s->head))
				best = s->head;
		if (!best)
			return;
		start(best);
	}
}

/* Time goes on to `to`; nothing that runs ends before. */
static void pass(uint64_t to)
{
	uint64_t since[SIM_DEVICES], any = NEVER;

	for (unsigned i = 0; i < sim_cfg.devices; i++)
		since[i] = NEVER;
	for (unsigned i = 0; i < dev.n_run; i++) {
		const struct sim_op *op = dev.run[i];
		uint64_t t = op->start > dev.vt ? op->start : dev.vt;

		if (t < since[op->stream->device])
			since[op->stream->device] = t;
		if (t < any)
			any = t;
	}
	for (unsigned i = 0; i < sim_cfg.devices; i++)
		if (since[i] < to)
			dev.device_busy[i] += to - since[i];
	if (any < to)
		dev.busy_ns += to - any;
	dev.vt = to;
}

static void finish(struct sim_op *op)
{
	pass(op->end);
	for (unsigned i = 0; i < dev.n_run; i++)
		if (dev.run[i] == op) {
			dev.run[i] = dev.run[--dev.n_run];
			break;
		}
	dev.busy_slots[op->stream->device][engine_of(op->work.kind)]--;
	complete(op);
}

void sched_advance(uint64_t now)
{
	struct sim_op *op;
	bool any = false;

	while ((op = earliest_running()) && op->end <= now) {
		uint64_t end = op->end;

		if (op->meeting && !sim_meet_over(op, now, &end)) {
			op->end = now + MEET_LOOK_NS;
			continue;
		}
		if (op->meeting) {
			/* what was replayed lies behind us */
			op->end = end > dev.vt ? end : dev.vt;
			op->meeting = false;
			continue;
		}
		finish(op);
		sched_kick();
		any = true;
	}
	if (now > dev.vt)
		pass(now);
	if (any)
		sched_check_waiters();
}

void sim_advance_now(void)
{
	sched_advance(sim_now());
}

uint64_t sim_busy(void)
{
	return dev.busy_ns;
}

uint64_t sched_next_end(void)
{
	const struct sim_op *op = earliest_running();

	return op ? op->end : NEVER;
}
