/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the costs of a stretch, all that a sync waits for, have to be scaled so
 * that it ends when it did. The replay spends most of its time here, so what
 * belongs to the stretch lies in one array.
 */
#include <math.h>
#include <string.h>

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
	while (r->rise.n <= r->places && !err)
		err = pt_vec_push(&r->rise, 0);
	return err;
}

/* ---- one scale ------------------------------------------------------------ */

/* Each stream stands where the stretch before left it. */
void pt_replay_rewind(struct pt_replay *r)
{
	size_t i;

	for (i = 0; i < r->q->streams.n; i++)
		r->streams[i].now = (double)r->streams[i].free;
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

/* ---- the scale ------------------------------------------------------------ */

/* When the stretch ends, and by how much that moves with the scale; what is before
 * operation `x->at` has run, and ended at `r->before`. */
static double run(struct pt_replay *r, const struct pt_scaling *x, double *slope)
{
	const struct pt_gwork *w = r->work.v + x->at, *stop = r->work.v + r->work.n;
	struct pt_replay_stream *s = &r->streams[w < stop ? w->stream : 0];
	double now, rise = 0, end = r->before, ended;
	size_t i;

	for (i = 0; i < r->q->streams.n; i++) {
		r->streams[i].now = r->now[i];
		r->streams[i].rise = 0;
	}
	*slope = 0;
	for (now = s->now; w < stop; w++) {
		if (s != &r->streams[w->stream]) {
			s->now = now;
			s->rise = rise;
			s = &r->streams[w->stream];
			now = s->now;
			rise = s->rise;
		}
		if (w->kind == PT_GOP_RECORD) {
			r->ended[w->op] = (uint64_t)now;
			r->rise.v[w->place] = rise;
			continue;
		}
		ended = w->kind == PT_GOP_WAIT ? (double)r->ended[w->op] : w->at;
		if (ended > now) {
			now = ended;
			rise = w->kind == PT_GOP_WAIT ? r->rise.v[w->place] : 0;
		}
		if (w->kind == PT_GOP_WAIT)
			continue;
		if (w->fixed && !x->fixed) {
			now += w->ns;
		} else {
			now += w->ns * x->scale;
			rise += w->ns;
		}
		if (now > end) {
			end = now;
			*slope = rise;
		}
	}
	return bounded(end);
}

/* Is the end before `end` at this scale? By the guess, or tried. */
static bool falls_short(struct pt_replay *r, struct pt_scaling x, double scale,
			double end, double guess)
{
	double slope;

	if (!isnan(guess))
		return scale < guess;
	x.scale = scale;
	return run(r, &x, &slope) < end;
}

/* Halving goes so near. False: no scale up to the highest is enough. */
static bool halve(struct pt_replay *r, const struct pt_scaling *x, double end,
		  double guess, double *lo, double *hi)
{
	double half;
	int n;

	*lo = 0;
	for (*hi = 1; falls_short(r, *x, *hi, end, guess); *hi *= 2) {
		if (*hi > SCALE_MAX)
			return false;
		*lo = *hi;
	}
	half = (*hi - *lo) / 2;
	for (n = 0; n < 30 && 2 * half > 1e-4 * *hi; n++) {
		/* no branch: which way it goes nobody can foresee */
		*lo += half * falls_short(r, *x, *lo + half, end, guess);
		*hi = *lo + half;
		half /= 2;
	}
	return true;
}

/*
 * The scale with which the stretch ends at `end`. The end grows with the scale, and
 * the faster the higher that is: where its tangent meets `end` is a guess that is
 * hardly ever wrong twice. What halving would come to by the guess is tried at both
 * its ends; where they do not hold, its higher end is the next guess, and at last
 * each half is tried. False: no scale does.
 */
#define GUESSES 8
static bool bisect(struct pt_replay *r, double end, struct pt_scaling *x)
{
	double lo = 0, hi = 1, e, slope;
	bool found = false;
	size_t i;
	int n;

	r->before = replay_stretch(r, x, x->at, NULL);
	for (i = 0; i < r->q->streams.n; i++)
		r->now[i] = r->streams[i].now;
	memset(r->rise.v, 0, (r->places + 1) * sizeof(*r->rise.v));
	for (n = 0; n < GUESSES; n++) {
		x->scale = hi;
		e = run(r, x, &slope);
		if (!(slope > 0))
			break;
		found = halve(r, x, end, hi + (end - e) / slope, &lo, &hi);
		if ((lo == 0 || falls_short(r, *x, lo, end, NAN)) &&
		    (found ? !falls_short(r, *x, hi, end, NAN) :
			     falls_short(r, *x, hi, end, NAN)))
			break;
	}
	if (n == GUESSES || !(slope > 0))
		found = halve(r, x, end, NAN, &lo, &hi);
	x->scale = 0;
	if (lo == 0 && run(r, x, &slope) > end)
		return false;
	x->scale = hi;
	return found;
}

static double off(const struct pt_scaling *x)
{
	return fabs(log(x->scale + 1e-9));
}

/* Would a copy that begins the last piece of work take longer than any does? */
static bool is_too_slow(const struct pt_replay *r, const struct pt_scaling *x)
{
	const struct pt_gwork *w = &r->work.v[x->at];

	return w->kind == PT_GOP_COPY &&
	       w->ns * x->scale > PT_COPY_SLOWEST * pt_gop_nominal(&r->q->ops.v[w->op]);
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
	has_last = last.from && (known || last.fixed) && bisect(r, end, &last) &&
		   !(last.fixed && is_too_slow(r, &last));
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
