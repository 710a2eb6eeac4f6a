/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the trainer's wall time went. Every nanosecond of the window counts
 * once: data waits first, then time inside GPU calls, then what is left. */

#include "analysis/internal.h"
#include "analysis/waits/look.h"

static void add_to_step(struct pt_trainer *t, size_t *hint,
			const struct pt_gpu_call *c, uint64_t ns)
{
	while (*hint < t->steps.n && t->steps.v[*hint].end <= c->begin)
		(*hint)++;
	if (*hint == t->steps.n || t->steps.v[*hint].begin > c->begin)
		return;
	if (pt_call_is_sync(c) || pt_call_is_copy(c))
		t->steps.v[*hint].gpu_wait_ns += c->end - c->begin;
	else
		t->steps.v[*hint].collective_ns += ns;
}

/* A shorter collective has only put its kernel into the queue. */
#define COLLECTIVE_NS 30000ull

/* Streams that may have work, and calls of several threads that wait for one. Of more than so many
 * none is known to have none. */
#define STREAMS_MAX 16

struct at_work {
	uint64_t stream[STREAMS_MAX];
	size_t n;
	struct drain {
		uint64_t stream, end;
		bool all;
	} drains[STREAMS_MAX];
	size_t n_drains;
	bool drained; /* ever: before that, what there is is not known */
};

static void add_stream(struct at_work *w, uint64_t stream)
{
	size_t i;

	for (i = 0; i < w->n_drains; i++) /* what comes meanwhile may be left */
		if (w->drains[i].all || w->drains[i].stream == stream)
			w->drains[i--] = w->drains[--w->n_drains];
	for (i = 0; i < w->n && i < STREAMS_MAX; i++)
		if (w->stream[i] == stream)
			return;
	if (w->n < STREAMS_MAX)
		w->stream[w->n] = stream;
	w->n++;
}

static void drop_stream(struct at_work *w, uint64_t stream)
{
	size_t i;

	for (i = 0; i < w->n && w->n <= STREAMS_MAX; i++)
		if (w->stream[i] == stream)
			w->stream[i] = w->stream[--w->n];
}

/* Drains are over when their calls are. */
static void drain_until(struct at_work *w, uint64_t ts)
{
	size_t i;

	for (i = 0; i < w->n_drains; i++) {
		if (w->drains[i].end > ts)
			continue;
		if (w->drains[i].all)
			w->n = 0;
		else
			drop_stream(w, w->drains[i].stream);
		w->drained = true;
		w->drains[i--] = w->drains[--w->n_drains];
	}
}

/* A sync of one stream says nothing of others; a copy back that blocks waits for all, as the legacy
 * default stream does. */
static void note_call(struct at_work *w, const struct pt_gpu_call *c)
{
	bool back = pt_call_is_copy(c) && c->v[2] == PT_COPY_D2H;
	bool all = c->cls == PT_API_SYNC_DEVICE || (back && c->cls == PT_API_COPY_SYNC);

	if (pt_call_is_launch(c))
		add_stream(w, c->stream);
	else if ((all || back || c->cls == PT_API_SYNC_STREAM) && w->n_drains < STREAMS_MAX)
		w->drains[w->n_drains++] = (struct drain){ c->stream, c->end, all };
}

static bool is_empty(const struct at_work *w)
{
	return w->drained && !w->n;
}

/* Fewer copies of an empty device tell no price. */
#define PRICE_MIN 3

/* How long the thread waited for a core in [b, e): in a copy that is not the copy's. */
static uint64_t queued_in(const struct pt_thread *th, uint64_t b, uint64_t e)
{
	uint64_t ns = 0;

	pt_each_iv(iv, th, b, e)
		ns += pt_overlap(b, e, iv->ready, iv->end);
	return ns;
}

/*
 * What a copy from pageable memory takes by itself, ns a byte: the lower quartile of
 * those that found the device empty, as a busy machine only ever adds to it. Of the others
 * the rest of their time is waiting for what was before them. 0: not known.
 */
static int price_of_copies(const struct pt_an *an, const struct pt_trainer *t,
			   double *out)
{
	const struct pt_proc *p = t->proc;
	struct at_work w = { 0 };
	pt_doubles v = { 0 };
	int err = 0;

	pt_each_call(c, p, an->t0, an->t1) {
		if (err)
			break;
		drain_until(&w, c->begin);
		if (is_empty(&w) && pt_call_is_copy(c) && c->v[2] == PT_COPY_H2D &&
		    c->tid == t->main->tid && c->end > c->begin && c->v[1])
			err = pt_vec_push(&v, (double)(c->end - c->begin -
						       queued_in(t->main, c->begin, c->end)) /
						      (double)c->v[1]);
		note_call(&w, c);
	}
	pt_median(v.v, v.n); /* sorts */
	*out = v.n >= PRICE_MIN ? v.v[v.n / 4] : 0;
	pt_vec_free(&v);
	return err;
}

struct blocked {
	const struct pt_an *an;
	struct pt_trainer *t;
	double price; /* of copies */
	uint64_t last; /* what ends before has been counted */
	size_t hint, step;
};

/* A call of the main thread. empty: drained since the last launch. */
static void count_call(struct blocked *k, const struct pt_gpu_call *c, bool empty)
{
	struct pt_trainer *t = k->t;
	uint64_t b = pt_max64(c->begin, k->last), e = pt_min64(c->end, k->an->t1);
	uint64_t ns, copied;

	if (e <= b)
		return;
	k->last = e;
	ns = e - b - pt_waits_in(t, &k->hint, b, e);
	if (pt_call_is_sync(c) || (pt_call_is_copy(c) && !empty)) {
		copied = pt_call_is_copy(c) && c->v[2] == PT_COPY_H2D ?
			(uint64_t)(k->price * (double)c->v[1]) : 0;
		copied = pt_min64(ns, copied);
		t->transfer_ns += copied;
		t->gpu_wait_ns += ns - copied;
		add_to_step(t, &k->step, c, ns);
	} else if (pt_call_is_copy(c)) {
		t->transfer_ns += ns - pt_min64(ns, queued_in(t->main, b, e));
	} else if ((c->cls == PT_API_COLLECTIVE || c->cls == PT_API_COMM) &&
		   e - b >= COLLECTIVE_NS) {
		t->collective_ns += ns;
		add_to_step(t, &k->step, c, ns);
	}
}

/* The host blocked in calls of the main thread: for the device (gpu_wait),
 * for a copy while the device had nothing to compute (transfer), or for the
 * other ranks (collective). */
static void host_blocked(struct pt_an *an, struct pt_trainer *t, double price)
{
	struct blocked k = { .an = an, .t = t, .price = price, .last = an->t0 };
	struct at_work w = { 0 };

	pt_each_call(c, t->proc, an->t0, an->t1) {
		drain_until(&w, c->begin);
		if (c->tid == t->main->tid)
			count_call(&k, c, is_empty(&w));
		note_call(&w, c);
	}
}

/* ... and, of calls whose end is not watched, while they slept: for room in the device's queue,
 * or for a copy. */
static void slept_in_calls(const struct pt_an *an, struct pt_trainer *t)
{
	size_t hint = 0;

	if (!t->look)
		return;
	pt_each(const struct pt_host_piece, x, &t->look->host.pieces) {
		uint64_t b = pt_max64(x->begin, an->t0), e = pt_min64(x->end, an->t1);

		if (x->what == PT_HOST_LAUNCHING && x->iv && e > b)
			t->gpu_wait_ns += e - b - pt_waits_in(t, &hint, b, e);
	}
}

int pt_sum_breakdown(struct pt_an *an, struct pt_trainer *t)
{
	double price;
	int err = price_of_copies(an, t, &price);

	pt_each(const struct pt_fetch, w, &t->waits) {
		t->data_wait_ns += w->end - w->begin;
		t->blocked_ns += w->blocked_ns;
		t->own_read_ns += w->own_read_ns;
		t->own_cpu_ns += w->own_cpu_ns;
		t->handover_ns += w->handover_ns;
	}
	if (err)
		return err;
	host_blocked(an, t, price);
	slept_in_calls(an, t);
	return 0;
}
