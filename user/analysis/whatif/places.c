/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/health.h"
#include "analysis/internal.h"
#include "analysis/whatif/places.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Chance has to say so many stays together before their lack is a finding. */
#define EVENTS_MIN 8
/* Together less than this of what chance says: never; more than that: as chance. */
#define NEVER 0.08
#define AS_CHANCE 0.5
/* One begins when another ends: within this, or a part of a stay. */
#define ADJACENT_MS 0.5
#define ADJACENT_PART 8
/* ... of those that begin, and more often than chance. */
#define ADJACENT_SHARE 0.2
#define ADJACENT_TIMES 3
/* A stay that ends when those before it have ended and its own time has passed
 * has a slope of 1 on their end, an independent one 0. */
#define SLOPE_ERRORS 2.0
#define ERROR_MOST 0.2
#define FOLLOWS 0.6 /* measured: 0.95 to 1.02 of disks and servers that take turns ... */
#define FOLLOWS_NOT 0.7 /* ... up to 0.5 of servers that do not */
/* Who is served in turn ends its time behind the other. Where so many of all end with another,
 * within such a part of a stay, something ends both: a tick, or a server that answers many at
 * once. Measured: 0.45 to 0.73 of delayed acknowledgements (40 ms); up to 0.3 of throttled
 * disks, 0.01 of servers that take turns. */
#define AT_ONCE 0.4
#define AT_ONCE_PART 20
/* Ends that follow each other this evenly, most of them, are served in turn:
 * those of stays that have nothing to do with each other fall anywhere. Two
 * workers of one pace keep their distance by chance: of two, the ends have to be
 * steadier than the stays, since what is served in turn takes its time whenever
 * it was asked, and one that is not waits its own time. */
#define EVEN 0.08
#define EVEN_SHARE 0.6
#define STEADIER 0.5
#define VARIES 0.005 /* of a stay: where stays vary less, nothing can be told of two */
/* Stays longer than so many usual ones are left out of it. */
#define OUTLIER 5.0

struct edge {
	double at;
	int8_t work, in; /* +1, -1 or 0 */
};

/* Of one moment ends first. */
PT_ORDER(cmp_edge, struct edge,
	 pt_cmp(x->at, y->at) ?: (x->work + x->in) - (y->work + y->in))

static double pairs(long k)
{
	return k > 1 ? (double)k * (double)(k - 1) / 2 : 0;
}

/* For how long pairs were inside together, and would be by chance. */
static int sweep(const struct pt_wi_visit *v, size_t n, const struct pt_wi_work *w,
		 size_t n_work, struct pt_wi_verdict *out)
{
	double inside = 0, working = 0, both = 0, any = 0, last = 0, share;
	size_t i, m = 0;
	long k = 0, in = 0;
	struct edge *e = malloc(2 * (n + n_work) * sizeof(*e) + 1);

	if (!e)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		e[m++] = (struct edge){ v[i].begin, 0, 1 };
		e[m++] = (struct edge){ v[i].end, 0, -1 };
		inside += v[i].end - v[i].begin;
	}
	for (i = 0; i < n_work; i++) {
		e[m++] = (struct edge){ w[i].begin, 1, 0 };
		e[m++] = (struct edge){ w[i].end, -1, 0 };
		working += w[i].end - w[i].begin;
	}
	qsort(e, m, sizeof(*e), cmp_edge);
	for (i = 0; i < m; i++) {
		out->together += pairs(in) * (e[i].at - last);
		both += pairs(k) * (e[i].at - last);
		any += in > 0 ? e[i].at - last : 0;
		last = e[i].at;
		k += e[i].work;
		in += e[i].in;
	}
	out->taken = inside > 0 ? any / inside : 1;
	share = working > 0 ? inside / working : 0;
	out->chance = both * share * share;
	free(e);
	return 0;
}

/* Half of the time is spent in stays that are no longer. */
static int usual_stay(const struct pt_wi_visit *v, size_t n, double *out)
{
	double *x = malloc(n * sizeof(*x)), all = 0, sum = 0;
	size_t i;

	if (!x)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		all += x[i] = v[i].end - v[i].begin;
	qsort(x, n, sizeof(*x), pt_by_double);
	for (i = 0; i + 1 < n && sum + x[i] < all / 2; i++)
		sum += x[i];
	*out = x[i];
	free(x);
	return 0;
}

/* As far back as stays are that may reach into this one. */
#define BACK 64

/* Of the others: the last end behind `after`, up to `until`; -1: none. */
static double last_end(const struct pt_wi_visit *v, size_t i, double after, double until)
{
	size_t k = i > BACK ? i - BACK : 0;
	double last = -1;

	for (; k < i; k++)
		if (v[k].worker != v[i].worker && v[k].end > after && v[k].end <= until)
			last = fmax(last, v[k].end);
	return last;
}

/* When those end that were inside as it began; -1: nobody was. */
static double others_end(const struct pt_wi_visit *v, size_t i)
{
	return last_end(v, i, v[i].begin, INFINITY);
}

/* Does each begin where another ends, more often than by chance? */
static bool takes_turns(const struct pt_wi_visit *v, size_t n, double stay)
{
	double near = fmin(ADJACENT_MS, stay / ADJACENT_PART), chance, last;
	size_t i, hits = 0;

	for (i = 0; i < n; i++) {
		last = last_end(v, i, -INFINITY, v[i].begin);
		hits += last >= 0 && v[i].begin - last <= near;
	}
	chance = (double)n * near * (double)n / (v[n - 1].end - v[0].begin);
	return (double)hits >= fmax(EVENTS_MIN, ADJACENT_TIMES * chance) &&
	       (double)hits >= ADJACENT_SHARE * (double)n;
}

struct line { /* y over x, by least squares */
	double n, x, y, xx, xy, yy;
};

static void add_point(struct line *l, double x, double y)
{
	l->n++;
	l->x += x;
	l->y += y;
	l->xx += x * x;
	l->xy += x * y;
	l->yy += y * y;
}

static void solve(const struct line *l, double *slope, double *error)
{
	struct pt_products s = { l->xx - l->x * l->x / l->n, l->xy - l->x * l->y / l->n,
				 l->yy - l->y * l->y / l->n, l->n - 1 };

	*slope = 0;
	*error = INFINITY;
	if (l->n > 3 && s.xx > 1e-9)
		pt_fit_slope(&s, slope, error);
}

/* How far a stay follows the end of those that were there before it. */
static void follow(const struct pt_wi_visit *v, size_t n, double stay,
		   struct pt_wi_verdict *out)
{
	struct line ends = { 0 };
	size_t i;

	for (i = 0; i < n; i++) {
		double d = v[i].end - v[i].begin, other = others_end(v, i);

		if (other < 0 || d > OUTLIER * stay)
			continue;
		add_point(&ends, other - v[i].begin, d);
		out->followed++;
		out->at_once += fabs(v[i].end - other) < stay / AT_ONCE_PART;
	}
	solve(&ends, &out->slope, &out->error);
}

/* How far from their median half of them are; sorts and overwrites. */
static double scatter(double *x, size_t n, double median)
{
	size_t i;

	for (i = 0; i < n; i++)
		x[i] = fabs(x[i] - median);
	return pt_median(x, n);
}

/* Are the ends steadier than the stays? */
static bool are_steadier(double *own, double usual, double *all, size_t n, double stay)
{
	double varies = scatter(all, n, pt_median(all, n));

	return varies > VARIES * stay && scatter(own, n, usual) < STEADIER * varies;
}

/* Do those that were waited for end evenly one behind another? */
static int are_even(const struct pt_wi_visit *v, size_t n, double stay, struct pt_wi_verdict *out)
{
	double *own = malloc(2 * n * sizeof(*own)), *all, usual;
	size_t i, count = 0, near = 0;
	uint32_t workers = 0;

	if (!own)
		return -ENOMEM;
	all = own + n;
	for (i = 0; i < n; i++) {
		workers = v[i].worker >= workers ? v[i].worker + 1 : workers;
		if (others_end(v, i) < 0)
			continue;
		all[count] = v[i].end - v[i].begin;
		own[count++] = v[i].own;
	}
	usual = pt_median(own, count);
	for (i = 0; i < count; i++)
		near += fabs(own[i] - usual) <= EVEN * usual;
	out->even = count >= 2 * EVENTS_MIN && usual < 0.7 * stay &&
		    (double)near >= EVEN_SHARE * (double)count;
	out->regular = out->even &&
		       (workers > 2 || are_steadier(own, usual, all, count, stay));
	free(own);
	return 0;
}

static enum pt_wi_place_class decide(const struct pt_wi_verdict *o,
				     const struct pt_wi_visit *v, size_t n,
				     double stay, bool timer)
{
	/* stays together, by chance or seen */
	if (fmax(o->chance, o->together) < EVENTS_MIN * stay)
		return PT_WI_UNKNOWN;
	if (o->together < NEVER * o->chance)
		return takes_turns(v, n, stay) ? PT_WI_SERIAL : PT_WI_UNKNOWN;
	if (o->together < AS_CHANCE * o->chance)
		return PT_WI_UNKNOWN;
	if (timer)
		return PT_WI_INDEPENDENT;
	if (o->followed < EVENTS_MIN)
		return PT_WI_UNKNOWN;
	if (o->slope - SLOPE_ERRORS * o->error > FOLLOWS || o->regular)
		return o->at_once > AT_ONCE * (double)n ? PT_WI_UNKNOWN : PT_WI_IN_TURN;
	/* where nothing varies, nothing follows; and two that end evenly may do so either way */
	if (!(o->error < ERROR_MOST) || o->even || o->slope < -1 ||
	    o->slope + SLOPE_ERRORS * o->error > FOLLOWS_NOT)
		return PT_WI_UNKNOWN;
	return PT_WI_INDEPENDENT;
}

int pt_wi_judge_place(struct pt_wi_visit *v, size_t n, const struct pt_wi_work *w,
		      size_t n_work, bool timer, struct pt_wi_verdict *out)
{
	double stay, last;
	size_t i;
	int err;

	memset(out, 0, sizeof(*out));
	if (!n)
		return 0;
	err = sweep(v, n, w, n_work, out);
	err = err ?: usual_stay(v, n, &stay);
	if (err)
		return err;
	for (i = 0; i < n; i++) {
		last = last_end(v, i, -INFINITY, v[i].end);
		v[i].own = v[i].end - fmax(v[i].begin, last);
	}
	if (!(stay > 0))
		return 0;
	follow(v, n, stay, out);
	err = are_even(v, n, stay, out);
	out->what = decide(out, v, n, stay, timer);
	for (i = 0; i < n; i++) /* who was behind whom is chance */
		v[i].own = (v[i].end - v[i].begin) * out->taken;
	return err;
}
