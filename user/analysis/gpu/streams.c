/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/gpu/streams.h"

#define STREAMS_MAX 1024

uint32_t pt_gq_stream(struct pt_gqueue *q, uint64_t handle, uint16_t dev)
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

int pt_gq_idle_until(struct pt_gqueue *q, uint16_t n, uint64_t ts)
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

/* A small copy back takes no longer by itself, however slow its memory is: a wait
 * that lasts longer is for what was before it. */
#define COPY_MAX (1 << 20)
#define COPY_NS(bytes) (500000 + 4 * (bytes))

static void note_submit(struct pt_gstream *s, const struct pt_gpu_call *c)
{
	s->last_submit = c->begin;
	if (pt_call_is_copy(c) && c->v[2] == PT_COPY_D2H && c->v[1] <= COPY_MAX) {
		s->copies_ns += COPY_NS(c->v[1]);
		return;
	}
	s->work_submit = c->begin;
	s->copies_ns = 0;
}

static void forget_submits(struct pt_gstream *s, uint64_t at)
{
	s->pending = s->foreign = s->peer = false;
	s->work_submit = s->copies_ns = 0;
	s->done = at;
}

int pt_gq_submit(struct pt_gqueue *q, const struct pt_gpu_call *c, uint16_t n,
		  uint32_t at)
{
	bool all = touches_all(q, c, n);
	uint16_t i;
	int err = pt_gq_idle_until(q, n, c->begin);

	q->node[n].works = true;
	for (i = 0; i < q->devices.n && all && !err; i++)
		err = pt_gq_idle_until(q, i, c->begin);
	if (at < q->streams.n) {
		struct pt_gstream *s = &q->streams.v[at];

		s->kernels |= pt_call_is_launch(c);
		s->pending = true;
		note_submit(s, c);
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
	pt_each(struct pt_gstream, s, &q->streams) {
		if (!s->pending || s->last_submit > before || s->dev == n ||
		    !pt_devices_unsure(&q->devices, s->dev) ||
		    !(all || s->handle == handle))
			continue;
		s->cleared |= 1ull << n;
		if ((s->cleared & used) == used)
			forget_submits(s, at);
	}
}

void pt_gq_complete(struct pt_gqueue *q, uint16_t n, uint32_t stream,
		     uint64_t before, uint64_t at)
{
	bool all = stream == PT_GOP_ALL;
	size_t i;

	for (i = 0; i < q->streams.n; i++) {
		struct pt_gstream *s = &q->streams.v[i];

		if ((all ? s->dev == n : i == stream) && s->pending &&
		    s->last_submit <= before)
			forget_submits(s, at);
	}
	if (all || stream < q->streams.n)
		clear_unsure(q, n, all, all ? 0 : q->streams.v[stream].handle,
			     before, at);
}

void pt_gq_find_drained(struct pt_gqueue *q, uint64_t at)
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

uint64_t pt_gq_busy_since(const struct pt_gqueue *q, uint16_t n,
			  uint32_t stream, uint64_t begin, uint64_t end)
{
	uint64_t from = 0, at;
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
		at = s->work_submit && end > s->last_submit + s->copies_ns ?
			     s->work_submit : s->last_submit;
		/* what comes from another thread meanwhile, it need not wait
		 * for */
		from = pt_max64(from, pt_min64(at, begin));
	}
	return any ? from ? from : begin : UINT64_MAX;
}

int pt_gq_note_busy(struct pt_gqueue *q, uint16_t n, uint64_t from,
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

uint64_t pt_gq_last_submit(const struct pt_gqueue *q, uint64_t before)
{
	uint64_t last = 0;
	size_t i;

	for (i = 0; i < q->streams.n; i++)
		last = pt_max64(last, pt_min64(q->streams.v[i].last_submit, before));
	return last;
}

void pt_gq_remember(struct pt_gqueue *q, uint16_t n, const struct pt_gpast *p)
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
