/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/gpu_replay.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Where nothing is known yet: of a kernel (any value will do, it is scaled),
 * of a copy (PCI Express 3.0 with 16 lanes), of a memset. */
#define KERNEL_NS 10000.0
#define COPY_START_NS 8000.0
#define COPY_BYTES_PER_NS 12.0
#define SET_START_NS 2000.0
#define SET_BYTES_PER_NS 500.0
#define SCALE_MAX 1e9
/* So much (of the logarithm) may a copy of known time differ from it. */
#define FIXED_OFF 0.5
/* Fewer copies that held their caller tell nothing. */
#define COPIES_MIN 5

static bool is_unit(const struct pt_gop *op)
{
	return op->kind <= PT_GOP_MEMSET;
}

/* The time of an operation whose class costs 1. */
static double nominal(const struct pt_gop *op)
{
	switch (op->kind) {
	case PT_GOP_COPY:
		return COPY_START_NS + (double)op->bytes / COPY_BYTES_PER_NS;
	case PT_GOP_MEMSET:
		return SET_START_NS + (double)op->bytes / SET_BYTES_PER_NS;
	case PT_GOP_GRAPH:
		return KERNEL_NS * (double)(op->bytes ? op->bytes : 1);
	default:
		return KERNEL_NS;
	}
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

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Copies that held their caller took no longer than he was held; those that
 * found their stream empty took just that. */
static int time_copies(struct pt_replay *r)
{
	const pt_gops *ops = &r->q->ops;
	pt_doubles v = { 0 };
	size_t i, k;
	int err = 0;

	for (k = 0; k < r->classes.n && !err; k++) {
		struct pt_gclass *c = r->classes.v[k];

		v.n = 0;
		if (c->id[0] != PT_GOP_COPY)
			continue;
		for (i = 0; i + 1 < ops->n && !err; i++) {
			const struct pt_gop *s = &ops->v[i + 1];

			if (ops->v[i].kind == PT_GOP_COPY && r->cls[i] == k &&
			    s->kind == PT_GOP_SYNC && s->blocked &&
			    s->at == ops->v[i].at && s->done > s->at)
				err = pt_vec_push(&v, (double)(s->done - s->at) /
							      nominal(&ops->v[i]));
		}
		if (err || v.n < COPIES_MIN)
			continue;
		qsort(v.v, v.n, sizeof(*v.v), by_value);
		c->ns[0] = c->ns[1] = c->ns[2] = v.v[v.n / 10];
		c->fixed = true;
	}
	pt_vec_free(&v);
	return err;
}

int pt_replay_open(struct pt_replay *r)
{
	const struct pt_gqueue *q = r->q;
	size_t i;

	r->cls = calloc(q->ops.n + 1, sizeof(*r->cls));
	r->ended = calloc(q->ops.n + 1, sizeof(*r->ended));
	r->streams = calloc(q->streams.n + 1, sizeof(*r->streams));
	if (!r->cls || !r->ended || !r->streams)
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
	return time_copies(r);
}

void pt_replay_close(struct pt_replay *r)
{
	size_t i;

	HASH_CLEAR(hh, r->hash);
	for (i = 0; i < r->classes.n; i++)
		free(r->classes.v[i]);
	for (i = 0; r->streams && i < r->q->streams.n; i++)
		pt_vec_free(&r->streams[i].open);
	for (i = 0; i < PT_NODES_MAX; i++) {
		pt_vec_free(&r->dev[i].busy);
		pt_vec_free(&r->dev[i].compute);
		pt_vec_free(&r->dev[i].copy);
		pt_vec_free(&r->dev[i].collective);
	}
	pt_vec_free(&r->classes);
	pt_vec_free(&r->samples);
	free(r->cls);
	free(r->ended);
	free(r->streams);
}

/* ---- one stretch of one stream ------------------------------------------- */

/* How the costs of a stretch are scaled so that it ends when it did. */
struct scaling {
	size_t from;  /* operations before this one stay as they are */
	double scale;
	bool fixed;   /* also those whose time is known */
};

static double scaled(const struct pt_gunit *u, size_t i, const struct scaling *x)
{
	return i < x->from || (u->fixed && !x->fixed) ? u->ns : u->ns * x->scale;
}

static uint64_t fifo(const struct pt_gunit *u, size_t n, uint64_t start,
		     const struct scaling *x)
{
	double f = (double)start;
	size_t i;

	for (i = 0; i < n; i++)
		f = fmax(f, (double)u[i].at) + scaled(&u[i], i, x);
	return f < (double)UINT64_MAX / 2 ? (uint64_t)f : UINT64_MAX / 2;
}

static const struct scaling as_is = { .scale = 1 };

/* Where the last piece of work without a pause begins. */
static size_t last_run(const struct pt_gunit *u, size_t n, uint64_t start,
		       const struct scaling *x)
{
	double f = (double)start;
	size_t i, from = 0;

	for (i = 0; i < n; i++) {
		if ((double)u[i].at >= f)
			from = i;
		f = fmax(f, (double)u[i].at) + scaled(&u[i], i, x);
	}
	return from;
}

/* The scale with which the stretch ends at `end`; it grows with the scale, so
 * bisection finds it. False: no scale does. */
static bool bisect(const struct pt_gunit *u, size_t n, uint64_t start,
		   uint64_t end, struct scaling *x)
{
	double lo = 0, hi = 1;
	int i;

	x->scale = 0;
	if (fifo(u, n, start, x) > end)
		return false;
	for (x->scale = hi; fifo(u, n, start, x) < end; x->scale = hi) {
		if (hi > SCALE_MAX)
			return false;
		lo = hi;
		hi *= 2;
	}
	for (i = 0; i < 40 && hi - lo > 1e-5 * hi; i++) {
		x->scale = (lo + hi) / 2;
		if (fifo(u, n, start, x) < end)
			lo = x->scale;
		else
			hi = x->scale;
	}
	x->scale = hi;
	return true;
}

/* Is there something of which no stretch showed how long it takes? */
static bool unseen(const struct pt_replay *r, const struct pt_gunit *u, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (!u[i].fixed && !r->classes.v[r->cls[u[i].op]]->seen)
			return true;
	return false;
}

static double off(const struct scaling *x)
{
	return fabs(log(x->scale + 1e-9));
}

/*
 * Either all of the stretch takes longer or shorter than thought, or just its
 * last piece of work does: what came before that had ended before it. Of both,
 * the one that changes less; all of it while nothing is known.
 */
static struct scaling solve(const struct pt_replay *r, const struct pt_gunit *u,
			    size_t n, uint64_t start, uint64_t end)
{
	struct scaling all = { 0 }, last = { 0 };
	bool known = !unseen(r, u, n), has_all, has_last;
	size_t i;

	has_all = bisect(u, n, start, end, &all);
	last.from = last_run(u, n, start, &as_is);
	for (i = last.from, last.fixed = true; i < n; i++)
		last.fixed &= u[i].fixed;
	has_last = last.from && (known || last.fixed) &&
		   bisect(u, n, start, end, &last);
	if (has_last && last.fixed && off(&last) < FIXED_OFF)
		return last;
	if (has_last && known && (!has_all || off(&last) < off(&all)))
		return last;
	if (has_all)
		return all;
	/* what seemed known has to give way */
	last.fixed = true;
	if (bisect(u, n, start, end, &last))
		return last;
	all.fixed = true;
	bisect(u, n, start, end, &all);
	return all;
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

/* The first n open operations of a stream are over, at this scale. */
static int close_units(struct pt_replay *r, uint32_t at, size_t n,
		       const struct scaling *x)
{
	struct pt_replay_stream *s = &r->streams[at];
	struct pt_replay_dev *d = &r->dev[r->q->streams.v[at].dev];
	double f = (double)s->free;
	size_t i;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		const struct pt_gunit *u = &s->open.v[i];
		const struct pt_gop *op = &r->q->ops.v[u->op];
		double b = fmax(f, (double)u->at);
		pt_spans *kind = op->kind == PT_GOP_COPY ? &d->copy :
				 op->collective ? &d->collective : &d->compute;

		f = b + scaled(u, i, x);
		err = put(&d->busy, (uint64_t)b, (uint64_t)f);
		if (!err && r->mode == PT_REPLAY_MID)
			err = put(kind, (uint64_t)b, (uint64_t)f);
	}
	s->free = (uint64_t)f;
	if (n)
		memmove(s->open.v, s->open.v + n,
			(s->open.n - n) * sizeof(*s->open.v));
	s->open.n -= n;
	s->end = fifo(s->open.v, s->open.n, s->free, &as_is);
	return err;
}

/* What the stretch of `n` says of its classes: those of its last piece of
 * work decide when it ends. */
static int sample(struct pt_replay *r, const struct pt_replay_stream *s,
		  size_t n, const struct scaling *x)
{
	size_t i, from = last_run(s->open.v, n, s->free, x), first = r->samples.n;
	int err = 0;

	for (i = from; i < n && !err; i++) {
		const struct pt_gunit *u = &s->open.v[i];
		struct pt_gsample one = {
			.cls = r->cls[u->op],
			.weight = scaled(u, i, x),
		};
		size_t last = r->samples.n;

		if (u->fixed && !x->fixed)
			continue;
		one.ns = r->classes.v[one.cls]->ns[r->mode] *
			 (i < x->from ? 1 : x->scale);
		if (last > first && r->samples.v[last - 1].cls == one.cls)
			r->samples.v[last - 1].weight += one.weight;
		else
			err = pt_vec_push(&r->samples, one);
	}
	return err;
}

/* ---- operations in order -------------------------------------------------- */

static int take_unit(struct pt_replay *r, uint32_t i, const struct pt_gop *op)
{
	struct pt_replay_stream *s;
	struct pt_gunit u = { .at = op->at, .op = i };

	if (op->stream == PT_GOP_ALL)
		return 0;
	s = &r->streams[op->stream];
	u.at = pt_max64(u.at, s->waits);
	u.ns = nominal(op) * r->classes.v[r->cls[i]]->ns[r->mode];
	u.fixed = r->classes.v[r->cls[i]]->fixed;
	s->end = pt_max64(s->end, u.at) + (uint64_t)u.ns;
	return pt_vec_push(&s->open, u);
}

/* How many of the stream's open operations the sync waits for. */
static size_t waited(const struct pt_replay *r, const struct pt_replay_stream *s,
		     const struct pt_gop *op)
{
	size_t n = s->open.n;

	while (n && (op->event ? s->open.v[n - 1].op >= op->event :
				 r->q->ops.v[s->open.v[n - 1].op].at > op->at))
		n--;
	return n;
}

/* The stream of those that the sync waits for which seems to end last. */
static uint32_t last_of(const struct pt_replay *r, const struct pt_gop *op)
{
	uint32_t i, last = PT_GOP_ALL;
	uint64_t end, latest = 0;

	for (i = 0; i < r->q->streams.n; i++) {
		const struct pt_replay_stream *s = &r->streams[i];
		size_t n;

		if (op->stream != PT_GOP_ALL ? op->stream != i :
					       r->q->streams.v[i].dev != op->dev)
			continue;
		n = waited(r, s, op);
		if (!n)
			continue;
		end = fifo(s->open.v, n, s->free, &as_is);
		if (last == PT_GOP_ALL || end > latest) {
			last = i;
			latest = end;
		}
	}
	return last;
}

static int take_sync(struct pt_replay *r, const struct pt_gop *op)
{
	uint32_t i, last = last_of(r, op);
	uint64_t end = op->done;
	int err = 0;

	if (last == PT_GOP_ALL)
		return 0;
	if (op->blocked)
		end = pt_max64(op->at, end - (uint64_t)r->late_ns);
	for (i = 0; i < r->q->streams.n && !err; i++) {
		struct pt_replay_stream *s = &r->streams[i];
		struct scaling x = as_is;
		size_t n;

		if (op->stream != PT_GOP_ALL ? op->stream != i :
					       r->q->streams.v[i].dev != op->dev)
			continue;
		n = waited(r, s, op);
		if (!n)
			continue;
		if (!op->blocked && unseen(r, s->open.v, n)) {
			/* as long as can be: it had ended by then */
			end = r->mode == PT_REPLAY_LOW ? s->free : op->at;
			x = solve(r, s->open.v, n, s->free, end);
		} else if ((op->blocked && i == last) ||
		    fifo(s->open.v, n, s->free, &as_is) > end) {
			x = solve(r, s->open.v, n, s->free, end);
			if (op->blocked && i == last && x.scale > 0)
				err = sample(r, s, n, &x);
		}
		if (!err)
			err = close_units(r, i, n, &x);
	}
	return err;
}

int pt_replay_pass(struct pt_replay *r, enum pt_replay_mode mode, double late_ns)
{
	const struct pt_gqueue *q = r->q;
	uint32_t i;
	int err = 0;

	r->mode = mode;
	r->late_ns = late_ns;
	r->samples.n = 0;
	for (i = 0; i < q->streams.n; i++) {
		struct pt_replay_stream *s = &r->streams[i];

		s->open.n = 0;
		s->free = s->end = s->waits = 0;
	}
	for (i = 0; i < q->devices.n; i++) {
		struct pt_replay_dev *d = &r->dev[i];

		d->busy.n = d->compute.n = d->copy.n = d->collective.n = 0;
	}
	for (i = 0; i < q->ops.n && !err; i++) {
		const struct pt_gop *op = &q->ops.v[i];

		if (is_unit(op))
			err = take_unit(r, i, op);
		else if (op->kind == PT_GOP_SYNC)
			err = take_sync(r, op);
		else if (op->stream == PT_GOP_ALL)
			continue;
		else if (op->kind == PT_GOP_RECORD)
			r->ended[i] = r->streams[op->stream].end;
		else if (op->event)
			r->streams[op->stream].waits =
				pt_max64(r->streams[op->stream].waits,
					 r->ended[op->event - 1]);
	}
	for (i = 0; i < q->streams.n && !err; i++)
		err = close_units(r, i, r->streams[i].open.n, &as_is);
	return err;
}

/* ---- costs ---------------------------------------------------------------- */

static int by_class(const void *a, const void *b)
{
	const struct pt_gsample *x = a, *y = b;

	if (x->cls != y->cls)
		return x->cls < y->cls ? -1 : 1;
	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

/* The value below which a part of the weight lies; sorted. */
static double quantile(const struct pt_gsample *s, size_t n, double part)
{
	double sum = 0, at = 0;
	size_t i;

	for (i = 0; i < n; i++)
		sum += s[i].weight;
	for (i = 0; i < n; i++) {
		at += s[i].weight;
		if (at >= part * sum)
			return s[i].ns;
	}
	return s[n - 1].ns;
}

int pt_replay_learn(struct pt_replay *r)
{
	size_t i, k;

	if (r->samples.n)
		qsort(r->samples.v, r->samples.n, sizeof(*r->samples.v), by_class);
	for (i = 0; i < r->samples.n; i = k) {
		struct pt_gclass *c = r->classes.v[r->samples.v[i].cls];

		for (k = i; k < r->samples.n && r->samples.v[k].cls == c->index;)
			k++;
		c->ns[PT_REPLAY_LOW] = quantile(r->samples.v + i, k - i, 0.25);
		c->ns[PT_REPLAY_MID] = quantile(r->samples.v + i, k - i, 0.5);
		c->ns[PT_REPLAY_HIGH] = quantile(r->samples.v + i, k - i, 0.75);
		c->seen = true;
	}
	return 0;
}
