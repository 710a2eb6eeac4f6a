/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the costs of a stretch, all that a sync waits for, have to be scaled so
 * that it ends when it did. The replay spends most of its time here, so what
 * belongs to the stretch lies in one array, and eight scales run at once: one
 * alone waits for the maximum and the sum of each operation in turn. Each of
 * them has the same numbers as it would have alone.
 */
#include <errno.h>
#include <math.h>

#include "analysis/gpu/replay.h"

#define SCALE_MAX 1e9
/* So much (of the logarithm) may a copy of known time differ from it. */
#define FIXED_OFF 0.5

/* Of a RECORD that some WAIT of the stretch asks for; from 2 on its place. */
#define ASKED 1

/* Mark what the sync waits for: of its streams, and of those whose events they
 * wait for. How many operations. */
static size_t mark(struct pt_replay *r, uint32_t at, const struct pt_gop *op)
{
	size_t i, n = 0;

	for (i = 0; i < r->q->streams.n; i++) {
		bool of = op->stream == PT_GOP_ALL ?
				  r->q->streams.v[i].dev == op->dev :
				  op->stream == i;

		r->streams[i].limit = !of ? 0 : op->event ? op->event : at;
	}
	for (i = r->open.n; i-- > 0;) {
		struct pt_gopen *u = &r->open.v[i];

		u->in = u->op < r->streams[u->stream].limit;
		if (!u->in)
			continue;
		n += u->kind <= PT_GOP_MEMSET;
		if (u->kind == PT_GOP_WAIT) {
			uint32_t e = r->q->ops.v[u->op].event;
			struct pt_replay_stream *s = &r->streams[
				r->q->ops.v[e - 1].stream];

			r->place[e - 1] = ASKED;
			s->limit = s->limit > e ? s->limit : e;
		}
	}
	return n;
}

/* One operation of the stretch into r->work; a RECORD comes before the WAITs
 * that ask for it. */
static int add_to_stretch(struct pt_replay *r, uint32_t i)
{
	const struct pt_gopen *u = &r->open.v[i];
	struct pt_gwork w = { .at = (double)u->at, .ns = u->ns, .op = u->op,
			      .stream = u->stream, .open = i, .kind = u->kind,
			      .fixed = u->fixed };

	if (!u->fixed)
		r->loose = i + 1;
	if (u->kind == PT_GOP_RECORD) {
		if (r->place[u->op] != ASKED)
			return 0;
		r->place[u->op] = ASKED + ++r->places;
		w.place = r->places;
	} else if (u->kind == PT_GOP_WAIT) {
		w.op = r->q->ops.v[u->op].event - 1;
		if (r->place[w.op] > ASKED)
			w.place = r->place[w.op] - ASKED;
	} else if (!u->fixed) {
		r->unseen |= !r->classes.v[r->cls[u->op]]->seen;
	}
	return pt_vec_push(&r->work, w);
}

int pt_replay_stretch(struct pt_replay *r, uint32_t at, const struct pt_gop *op)
{
	size_t i, n = mark(r, at, op);
	int err = 0;

	r->work.n = 0;
	r->places = 0;
	r->loose = 0;
	r->unseen = false;
	if (!n)
		return 0;
	for (i = 0; i < r->open.n && !err; i++)
		if (r->open.v[i].in)
			err = add_to_stretch(r, (uint32_t)i);
	while (r->ended_at.n <= r->places && !err)
		err = pt_vec_push(&r->ended_at, (union pt_eight){ 0 });
	return err;
}

/* ---- one scale ------------------------------------------------------------ */

/* Each stream stands where the stretch before left it. */
void pt_replay_rewind(struct pt_replay *r)
{
	size_t i;

	for (i = 0; i < r->q->streams.n; i++)
		r->streams[i].now = (double)pt_max64(r->streams[i].free,
						     r->streams[i].waits);
}

/* The operations before `n`; when they end. *last: where the last piece of work
 * without a pause begins; NULL: nobody asks. */
static double replay_stretch(struct pt_replay *r, const struct pt_scaling *x, size_t n,
			     size_t *last)
{
	double end = 0;
	size_t i;

	pt_replay_rewind(r);
	for (i = 0; i < n; i++) {
		const struct pt_gwork *w = &r->work.v[i];
		struct pt_replay_stream *s = &r->streams[w->stream];

		if (w->kind == PT_GOP_RECORD) {
			r->ended[w->op] = (uint64_t)s->now;
		} else if (w->kind == PT_GOP_WAIT) {
			s->now = pt_later(s->now, (double)r->ended[w->op]);
		} else {
			if (last && w->at >= end)
				*last = i;
			s->now = pt_later(s->now, w->at) +
				 (w->open < x->from || (w->fixed && !x->fixed) ?
					  w->ns : w->ns * x->scale);
			end = pt_later(end, s->now);
		}
	}
	return end;
}

static double bounded(double end)
{
	return end < (double)UINT64_MAX / 2 ? end : (double)UINT64_MAX / 2;
}

double pt_replay_simulate(struct pt_replay *r, const struct pt_scaling *x,
			  size_t *last)
{
	return bounded(replay_stretch(r, x, r->work.n, last));
}

/* ---- eight of them -------------------------------------------------------- */

#define PAIRS (PT_LANES / 2)
#define EACH(k) _Pragma("GCC unroll 4") for (k = 0; k < PAIRS; k++)

static inline pt_pair later2(pt_pair a, pt_pair b)
{
	pt_bits m = a > b;

	return (pt_pair)(((pt_bits)a & m) | ((pt_bits)b & ~m));
}

static inline pt_pair both(double v)
{
	return (pt_pair){ v, v };
}

/* What run() does, from operation `x->at` on, for each scale; those before it
 * have run, ended at `end`, and hold the first `done` places. */
static void run_lanes(struct pt_replay *r, const struct pt_scaling *x,
		      double end, uint32_t done, const union pt_eight *scale,
		      union pt_eight *out)
{
	const struct pt_gwork *w = r->work.v + x->at, *stop = r->work.v + r->work.n;
	uint32_t at = w < stop ? w->stream : 0;
	union pt_eight *now = r->now;
	pt_pair t[PAIRS], e[PAIRS], v;
	size_t i;
	int k;

	for (i = 0; i < r->q->streams.n; i++)
		EACH(k) now[i].p[k] = both(r->streams[i].now);
	EACH(k) e[k] = both(end);
	EACH(k) t[k] = now[at].p[k];
	for (; w < stop; w++) {
		if (w->stream != at) {
			EACH(k) now[at].p[k] = t[k];
			at = w->stream;
			EACH(k) t[k] = now[at].p[k];
		}
		if (w->kind == PT_GOP_RECORD) {
			union pt_eight *ended = &r->ended_at.v[w->place];

			EACH(k) ended->p[k] = t[k];
			for (k = 0; k < PT_LANES; k++) /* whole, as r->ended is */
				ended->v[k] = (double)(uint64_t)ended->v[k];
		} else if (w->kind == PT_GOP_WAIT && w->place > done) {
			EACH(k) t[k] = later2(t[k], r->ended_at.v[w->place].p[k]);
		} else if (w->kind == PT_GOP_WAIT) {
			v = both((double)r->ended[w->op]);
			EACH(k) t[k] = later2(t[k], v);
		} else if (w->fixed && !x->fixed) {
			EACH(k) t[k] = later2(t[k], both(w->at)) + both(w->ns);
			EACH(k) e[k] = later2(e[k], t[k]);
		} else {
			EACH(k) t[k] = later2(t[k], both(w->at)) +
				       both(w->ns) * scale->p[k];
			EACH(k) e[k] = later2(e[k], t[k]);
		}
	}
	EACH(k) out->p[k] = e[k];
	for (k = 0; k < PT_LANES; k++)
		out->v[k] = bounded(out->v[k]);
}

/* ---- the scale ------------------------------------------------------------ */

/* The next three halvings, whichever way they go: the middles at [1]; of its
 * lower half at [2], of its upper one at [3]; and so on. */
static void middles(double lo, double hi, union pt_eight *s)
{
	double l[PT_LANES], h[PT_LANES];
	int k;

	s->v[0] = 1; /* nobody asks */
	l[1] = lo;
	h[1] = hi;
	for (k = 1; k < PT_LANES; k++) {
		s->v[k] = (l[k] + h[k]) / 2;
		if (2 * k + 1 >= PT_LANES)
			continue;
		l[2 * k] = l[k];
		h[2 * k] = l[2 * k + 1] = s->v[k];
		h[2 * k + 1] = h[k];
	}
}

static bool apart(double lo, double hi)
{
	return hi - lo > 1e-4 * hi;
}

/* The scale with which the stretch ends at `end`; it grows with the scale, so
 * bisection finds it. False: no scale does. */
static bool bisect(struct pt_replay *r, double end, struct pt_scaling *x)
{
	double lo = 0, hi = 1, before = replay_stretch(r, x, x->at, NULL);
	union pt_eight s, e;
	uint32_t done = 0;
	size_t i;
	int k, n;

	for (i = 0; i < x->at; i++)
		done += r->work.v[i].kind == PT_GOP_RECORD;
	for (k = 0; k < PT_LANES; k++)
		s.v[k] = k ? (double)(1u << (k - 1)) : 0;
	run_lanes(r, x, before, done, &s, &e);
	x->scale = 0;
	if (e.v[0] > end)
		return false;
	for (k = 1; ; k++) {
		if (k == PT_LANES) {
			for (k = 0; k < PT_LANES; k++)
				s.v[k] = hi * (double)(1u << k);
			run_lanes(r, x, before, done, &s, &e);
			k = 0;
		}
		x->scale = hi;
		if (!(e.v[k] < end))
			break;
		if (hi > SCALE_MAX)
			return false;
		lo = hi;
		hi *= 2;
	}
	for (n = 0; n < 30 && apart(lo, hi);) {
		middles(lo, hi, &s);
		run_lanes(r, x, before, done, &s, &e);
		for (k = 1; k < PT_LANES && n < 30 && apart(lo, hi); n++) {
			if (e.v[k] < end) {
				lo = s.v[k];
				k = 2 * k + 1;
			} else {
				hi = s.v[k];
				k = 2 * k;
			}
		}
	}
	x->scale = hi;
	return true;
}

static double off(const struct pt_scaling *x)
{
	return fabs(log(x->scale + 1e-9));
}

/*
 * Either all of the stretch takes longer or shorter than thought, or just its
 * last piece of work does: what came before that had ended before it. Of both,
 * the one that changes less; all of it while nothing is known.
 */
struct pt_scaling pt_replay_solve(struct pt_replay *r, double end)
{
	struct pt_scaling all = { 0 }, last = { 0 };
	bool known = !r->unseen, has_all, has_last;

	pt_replay_simulate(r, &pt_as_is, &last.at);
	last.from = r->work.v[last.at].open;
	last.fixed = r->loose <= last.from;
	has_last = last.from && (known || last.fixed) && bisect(r, end, &last);
	/* a copy that the host was told of late teaches nothing of kernels
	 * that syncs may show */
	if (has_last && last.fixed &&
	    (off(&last) < FIXED_OFF || (!known && r->round < 2)))
		return last;
	has_all = bisect(r, end, &all);
	if (has_last && known && (!has_all || off(&last) < off(&all)))
		return last;
	if (has_all)
		return all;
	/* what seemed known has to give way */
	last.fixed = true;
	if (bisect(r, end, &last))
		return last;
	all.fixed = true;
	bisect(r, end, &all);
	return all;
}
