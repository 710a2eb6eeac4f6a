/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/gpu/replay.h"

#include <errno.h>
#include <string.h>

/* A host that was told returns so long behind that at least. */
#define TOLD_NS 10000.0
#define OLD_WORK_NS 100000.0

static bool is_unit(const struct pt_gop *op)
{
	return op->kind <= PT_GOP_MEMSET;
}

static struct pt_gclass *class_of(struct pt_replay *r, const struct pt_gop *op)
{
	uint64_t id[2] = { op->kind, op->key };
	struct pt_gclass *c;
	int m;

	HASH_FIND(hh, r->hash, id, sizeof(id), c);
	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	memcpy(c->id, id, sizeof(id));
	c->index = (uint32_t)r->classes.n;
	for (m = 0; m < PT_REPLAY_NR; m++)
		c->ns[m] = 1;
	if (pt_vec_push(&r->classes, c)) {
		free(c);
		return NULL;
	}
	HASH_ADD(hh, r->hash, id, sizeof(id), c);
	return PT_HASHED(c) ? c : NULL;
}

int pt_replay_open(struct pt_replay *r)
{
	const struct pt_gqueue *q = r->q;
	size_t i;

	r->cls = calloc(q->ops.n + 1, sizeof(*r->cls));
	r->ended = calloc(q->ops.n + 1, sizeof(*r->ended));
	r->place = calloc(q->ops.n + 1, sizeof(*r->place));
	r->streams = calloc(q->streams.n + 1, sizeof(*r->streams));
	r->now = calloc(q->streams.n + 1, sizeof(*r->now));
	if (!r->cls || !r->ended || !r->place || !r->streams || !r->now)
		return -ENOMEM;
	for (i = 0; i < q->ops.n; i++) {
		struct pt_gclass *c;

		if (!is_unit(&q->ops.v[i]))
			continue;
		c = class_of(r, &q->ops.v[i]);
		if (!c)
			return -ENOMEM;
		r->cls[i] = c->index;
	}
	return pt_replay_time_copies(r);
}

void pt_replay_close(struct pt_replay *r)
{
	size_t i;

	HASH_CLEAR(hh, r->hash);
	for (i = 0; i < r->classes.n; i++)
		free(r->classes.v[i]);
	for (i = 0; i < PT_NODES_MAX; i++) {
		pt_vec_free(&r->dev[i].busy);
		pt_vec_free(&r->dev[i].compute);
		pt_vec_free(&r->dev[i].copy);
		pt_vec_free(&r->dev[i].collective);
	}
	pt_vec_free(&r->classes);
	pt_vec_free(&r->samples);
	pt_vec_free(&r->open);
	pt_vec_free(&r->work);
	pt_vec_free(&r->rise);
	free(r->cls);
	free(r->ended);
	free(r->place);
	free(r->streams);
	free(r->now);
}

static double scaled(const struct pt_gopen *u, size_t i,
		     const struct pt_scaling *x)
{
	return i < x->from || (u->fixed && !x->fixed) ? u->ns : u->ns * x->scale;
}

static int put(pt_spans *s, uint64_t b, uint64_t e)
{
	struct pt_span x = { b, e };

	if (e <= b)
		return 0;
	if (s->n && s->v[s->n - 1].end == b) {
		s->v[s->n - 1].end = e;
		return 0;
	}
	return pt_vec_push(s, x);
}

static int emit(struct pt_replay *r, const struct pt_gopen *u, double b, double e)
{
	struct pt_replay_dev *d = &r->dev[r->q->streams.v[u->stream].dev];
	pt_spans *kind = u->kind == PT_GOP_COPY ? &d->copy :
			 u->collective ? &d->collective : &d->compute;
	int err;

	if (r->learn) /* nobody asks */
		return 0;
	if (!u->fixed && !r->classes.v[r->cls[u->op]]->seen)
		d->unseen_ns += (uint64_t)(e - b);
	err = put(&d->busy, (uint64_t)b, (uint64_t)e);
	if (!err && r->mode == PT_REPLAY_MID)
		err = put(kind, (uint64_t)b, (uint64_t)e);
	return err;
}

/* What the sync waits for is over, at this scale. */
static int close_open(struct pt_replay *r, const struct pt_scaling *x)
{
	size_t i, n = 0;
	int err = 0;

	pt_replay_rewind(r);
	for (i = 0; i < r->open.n; i++) {
		const struct pt_gopen *u = &r->open.v[i];
		struct pt_replay_stream *s = &r->streams[u->stream];

		if (!u->in) {
			r->open.v[n++] = *u;
			continue;
		}
		s->open--;
		if (u->kind == PT_GOP_RECORD) {
			r->ended[u->op] = (uint64_t)s->now;
			r->place[u->op] = 0;
		} else if (u->kind == PT_GOP_WAIT) {
			s->now = pt_later(s->now, (double)r->ended[
					r->q->ops.v[u->op].event - 1]);
		} else {
			double b = pt_later(s->now, (double)u->at);

			s->now = b + scaled(u, i, x);
			err = err ?: emit(r, u, b, s->now);
		}
		s->free = (uint64_t)s->now;
	}
	r->open.n = n;
	return err;
}

/* What the stretch says of its classes: those of its last piece of work decide
 * when it ends. */
static int sample(struct pt_replay *r, const struct pt_scaling *x, bool less)
{
	size_t i, from = 0, first = r->samples.n;
	const size_t stretch = r->ends + r->quick;
	double end = pt_replay_simulate(r, x, &from), piece;
	int err = 0;

	piece = end - r->work.v[from].at;
	for (i = from; i < r->work.n && !err; i++) {
		const struct pt_gwork *w = &r->work.v[i];
		struct pt_gsample one = { .piece = piece, .less = less };
		size_t last = r->samples.n;

		if (w->kind > PT_GOP_MEMSET || (w->fixed && !x->fixed))
			continue;
		one.cls = r->cls[w->op];
		r->classes.v[one.cls]->stretch = stretch;
		one.weight = w->ns; /* not scaled: what is off weighs no more */
		one.ns = r->classes.v[one.cls]->ns[r->mode] *
			 (w->open < x->from ? 1 : x->scale);
		if (last > first && r->samples.v[last - 1].cls == one.cls)
			r->samples.v[last - 1].weight += one.weight;
		else
			err = pt_vec_push(&r->samples, one);
	}
	for (i = 0; i < from; i++) {
		const struct pt_gwork *w = &r->work.v[i];
		struct pt_gclass *c = w->kind <= PT_GOP_MEMSET ? r->classes.v[r->cls[w->op]] : NULL;

		if (!c || c->stretch == stretch)
			continue;
		c->stretch = stretch;
		c->apart++;
	}
	return err;
}

/* ---- operations in order -------------------------------------------------- */

/* Never synchronised: what is older than so many operations is taken as it
 * seems to be. */
#define OPEN_MAX 8192

static int take_open(struct pt_replay *r, uint32_t i, const struct pt_gop *op)
{
	struct pt_replay_stream *s;
	struct pt_gopen u = { .at = op->at + r->submit_ns, .op = i,
			      .stream = op->stream, .kind = op->kind,
			      .collective = op->collective };
	size_t k;

	if (op->stream == PT_GOP_ALL)
		return 0;
	s = &r->streams[op->stream];
	if (op->kind == PT_GOP_WAIT && !op->event)
		return 0;
	if (op->kind == PT_GOP_RECORD && !s->open) {
		r->ended[i] = s->free;
		return 0;
	}
	if (is_unit(op)) {
		const struct pt_gclass *c = r->classes.v[r->cls[i]];

		u.ns = pt_gop_nominal(op) * c->ns[r->mode];
		u.fixed = op->kind == PT_GOP_COPY;
	}
	s->open++;
	if (pt_vec_push(&r->open, u))
		return -ENOMEM;
	if (r->open.n < OPEN_MAX)
		return 0;
	for (k = 0; k < r->open.n; k++)
		r->open.v[k].in = k < OPEN_MAX / 2;
	return close_open(r, &pt_as_is);
}

/* A sync of these streams has returned. Had one of all of them before? */
static bool show_streams(struct pt_replay *r)
{
	bool shown = true;
	size_t i;

	for (i = 0; i < r->open.n; i++)
		if (r->open.v[i].in) {
			struct pt_replay_stream *s =
				&r->streams[r->open.v[i].stream];

			shown &= s->shown;
			s->shown = true;
		}
	return shown;
}

/*
 * The first sync of a stream, if it waits, may wait for work from before the
 * trace: where the costs are known and do not explain the wait, that work is
 * what it was for, and the device had it since the trace began.
 */
static int take_old(struct pt_replay *r, const struct pt_gop *op, double end)
{
	struct pt_replay_dev *d = &r->dev[op->dev];
	double lo = (double)r->q->an->t0, hi = end;
	bool shown = show_streams(r);
	size_t i, from = 0;
	int k;

	if (shown || r->unseen || pt_replay_simulate(r, &pt_as_is, &from) >= end)
		return 0;
	for (i = 0; i < from; i++) /* with a pause, only its last piece counts */
		if (r->work.v[i].kind <= PT_GOP_MEMSET)
			return 0;
	for (k = 0; k < 40 && hi - lo > 1000; k++) {
		double mid = (lo + hi) / 2;

		for (i = 0; i < r->open.n; i++)
			if (r->open.v[i].in)
				r->streams[r->open.v[i].stream].free =
					(uint64_t)mid;
		if (pt_replay_simulate(r, &pt_as_is, NULL) < end)
			lo = mid;
		else
			hi = mid;
	}
	/* no more than a wake-up's difference */
	if (lo < (double)r->open.v[0].at + OLD_WORK_NS)
		return 0;
	return put(&d->busy, r->q->an->t0, (uint64_t)lo);
}

/* A sync that did not wait says how long its work took at most; that what was learned
 * elsewhere does not hold here, where it comes to less than so much of that. */
#define FAR_LESS 0.5

static int take_sync(struct pt_replay *r, uint32_t at, const struct pt_gop *op)
{
	double end = (double)op->done;
	struct pt_scaling x = pt_as_is;
	int err = pt_replay_stretch(r, at, op);

	if (err)
		return err;
	if (!r->work.n)
		return close_open(r, &pt_as_is);
	*(op->blocked ? &r->ends : &r->quick) += 1;
	if (!op->blocked)
		show_streams(r);
	if (op->blocked) {
		end = r->mode == PT_REPLAY_HIGH ? (double)op->told - TOLD_NS :
						  end - r->late_ns;
		end = pt_later((double)op->at, end);
		err = take_old(r, op, end);
		if (err)
			return err;
		x = pt_replay_solve(r, end);
		if (r->learn && x.scale > 0)
			err = sample(r, &x, false);
	} else if (r->unseen) {
		/* as long as can be: it had ended by then */
		x.scale = 0;
		if (r->mode != PT_REPLAY_LOW)
			x = pt_replay_solve(r, (double)op->at);
	} else if (pt_replay_simulate(r, &pt_as_is, NULL) > end) {
		x = pt_replay_solve(r, end);
		if (r->learn && x.scale < FAR_LESS)
			err = sample(r, &x, true);
	}
	return err ? err : close_open(r, &x);
}

/* The operations [from,to), as if nothing had been before them. */
static int replay_ops(struct pt_replay *r, size_t from, size_t to)
{
	size_t i;
	int err = 0;

	memset(r->streams, 0, r->q->streams.n * sizeof(*r->streams));
	r->open.n = 0;
	for (i = from; i < to && !err; i++) {
		const struct pt_gop *op = &r->q->ops.v[i];

		err = op->kind == PT_GOP_SYNC ? take_sync(r, (uint32_t)i, op) :
						take_open(r, (uint32_t)i, op);
	}
	for (i = 0; i < r->open.n; i++)
		r->open.v[i].in = true;
	return err ? err : close_open(r, &pt_as_is);
}

/*
 * The costs are medians, which more than so many operations, and so many stretches that
 * show their end, hardly make any better: of more, blocks at equal distances, each from
 * the end of a stretch on, and of one stretch at least, however long that is.
 */
#define LEARN_OPS 16384
#define LEARN_BLOCKS 16
#define LEARN_ENDS 32
static int replay_some(struct pt_replay *r)
{
	const struct pt_gop *op = r->q->ops.v;
	size_t n = r->q->ops.n, k, from, to = 0, next, ends;
	int err = 0;

	for (k = 0; k < LEARN_BLOCKS && !err; k++) {
		from = n / LEARN_BLOCKS * k;
		from = from > to ? from : to;
		next = n / LEARN_BLOCKS * (k + 1);
		while (from && from < n && op[from - 1].kind != PT_GOP_SYNC)
			from++;
		for (to = from, ends = 0; to < n && (!ends || (to < next &&
				(ends < LEARN_ENDS || to < from + LEARN_OPS / LEARN_BLOCKS))); to++)
			ends += op[to].kind == PT_GOP_SYNC && op[to].blocked;
		err = replay_ops(r, from, to);
	}
	return err;
}

int pt_replay_pass(struct pt_replay *r, enum pt_replay_mode mode, bool learn,
		   double late_ns, uint64_t submit_ns)
{
	const struct pt_gqueue *q = r->q;
	size_t i;

	r->mode = mode;
	r->learn = learn;
	r->late_ns = late_ns;
	r->submit_ns = submit_ns;
	r->samples.n = 0;
	for (i = 0; i < r->classes.n; i++)
		r->classes.v[i]->apart = r->classes.v[i]->stretch = 0;
	r->ends = r->quick = 0;
	pt_each_of(struct pt_replay_dev, d, r->dev, q->devices.n) {
		d->busy.n = d->compute.n = d->copy.n = d->collective.n = 0;
		d->unseen_ns = 0;
	}
	return learn && q->ops.n > LEARN_OPS ? replay_some(r) :
					       replay_ops(r, 0, q->ops.n);
}
