// SPDX-License-Identifier: BSD-2-Clause
/*
 * Steps for the page's plots. They are base64 of numbers (LEB128), one step or a
 * group of neighbours after the other:
 *   steps  begin less that before (us), mean period + 1 and, in groups, least
 *          and largest + 1 (us), data wait + 1 (us, mean), cause, worker + 1;
 *          0 where it is not known
 *   feeds  begin of the wait less that before (us), its length (us), 0 or 1 + when
 *          the batch was made before the end of the wait (us), worker + 1
 */
#include <math.h>
#include <stdlib.h>

#include "base/minmax.h"
#include "view/html/html_int.h"

#define BINS 48

/* A time of the report's, in us; 0: unknown. */
static uint64_t us_plus(double ms)
{
	double v = ms * 1e3;

	return v >= 0 && v < 1e15 ? (uint64_t)(v + 0.5) + 1 : 0;
}

static uint64_t us_since(uint64_t ts, uint64_t begin)
{
	return ts > begin ? (ts - begin) / 1000 : 0;
}

/* Which of the workers' lanes; 0 none. */
static uint64_t worker_of(const struct pt_lane_trainer *t, int64_t pid)
{
	size_t i;

	for (i = 0; t && pid > 0 && i < t->n_workers; i++)
		if (pt_real_id(t->workers[i].tgid) == (uint32_t)pid)
			return i + 1;
	return 0;
}

struct group {
	double sum, least, most, wait;
	size_t n, n_wait;
	const struct pt_r_step *longest;
};

static void put_group(struct pt_bytes *s, const struct group *g, bool grouped,
		      const struct pt_lane_trainer *t)
{
	pt_bytes_number(s, us_plus(g->n ? g->sum / (double)g->n : NAN));
	if (grouped) {
		pt_bytes_number(s, us_plus(g->n ? g->least : NAN));
		pt_bytes_number(s, us_plus(g->n ? g->most : NAN));
	}
	pt_bytes_number(s, us_plus(g->n_wait ? g->wait / (double)g->n_wait :
					       NAN));
	pt_bytes_number(s, g->longest->cause);
	pt_bytes_number(s, worker_of(t, g->longest->worker));
}

static void add_step(struct group *g, const struct pt_r_step *s)
{
	if (!g->longest || s->data_wait_ms > g->longest->data_wait_ms)
		g->longest = s;
	if (!isnan(s->data_wait_ms)) {
		g->wait += s->data_wait_ms;
		g->n_wait++;
	}
	if (isnan(s->period_ms))
		return;
	g->least = g->n && g->least < s->period_ms ? g->least : s->period_ms;
	g->most = g->n && g->most > s->period_ms ? g->most : s->period_ms;
	g->sum += s->period_ms;
	g->n++;
}

json_t *pt_html_steps(struct pt_jb *b, const struct pt_export *x)
{
	const struct pt_r_steps *r = &x->r->steps;
	const struct pt_lane_trainer *top = NULL;
	struct pt_bytes out = { 0 };
	uint64_t begin = (uint64_t)x->r->capture.begin_ns, last = 0, at;
	size_t i, j, per = (r->n_list + PT_HTML_STEPS - 1) / PT_HTML_STEPS;
	json_t *o;

	if (!r->n_list)
		return json_null();
	for (i = 0; i < x->lanes->n_trainers; i++)
		if (x->lanes->trainers[i].top)
			top = &x->lanes->trainers[i];
	for (i = 0; i < r->n_list; i += per) {
		struct group g = { 0 };

		for (j = i; j < i + per && j < r->n_list; j++)
			add_step(&g, &r->list[j]);
		at = us_since((uint64_t)r->list[i].begin_ns, begin);
		at = at > last ? at : last;
		pt_bytes_number(&out, at - last);
		last = at;
		put_group(&out, &g, per > 1, top);
	}
	o = json_object();
	pt_j_put(b, o, "count", json_integer((json_int_t)r->n_list));
	pt_j_put(b, o, "per", json_integer((json_int_t)per));
	pt_j_put(b, o, "first", json_integer(r->list[0].index));
	pt_j_put(b, o, "data", pt_bytes_json(b, &out));
	pt_j_put(b, o, "histogram",
		 pt_html_histogram(b, &r->list[0].period_ms,
				   sizeof(r->list[0]), r->n_list, 0, 0));
	return o;
}

/* ---- who fed them ------------------------------------------------------------ */

static uint64_t wait_of(const struct pt_lane_step *s)
{
	return s->n_wait ? s->wait[s->n_wait - 1].end - s->wait[0].begin : 0;
}

PT_ORDER(by_length, uint64_t, pt_cmp(*y, *x))

/* The shortest wait that is kept, so that they are not too many. -1: no memory. */
static int64_t least_wait(const struct pt_lane_trainer *t)
{
	uint64_t *v, least;
	size_t i;

	if (t->n_steps <= PT_HTML_STEPS)
		return 0;
	v = calloc(t->n_steps, sizeof(*v));
	if (!v)
		return -1;
	for (i = 0; i < t->n_steps; i++)
		v[i] = wait_of(&t->steps[i]);
	qsort(v, t->n_steps, sizeof(*v), by_length);
	least = v[PT_HTML_STEPS] + 1;
	free(v);
	return (int64_t)(least & INT64_MAX);
}

json_t *pt_html_feeds(struct pt_jb *b, const struct pt_export *x,
		      const struct pt_lane_trainer *t)
{
	uint64_t origin = (uint64_t)x->r->capture.begin_ns, last = 0;
	int64_t least = least_wait(t);
	struct pt_bytes out = { 0 };
	size_t i;

	if (least < 0) {
		b->failed = true;
		return NULL;
	}
	for (i = 0; i < t->n_steps; i++) {
		const struct pt_lane_step *s = &t->steps[i];
		uint64_t begin, end;

		if (!s->n_wait || s->worker < 0 || wait_of(s) < (uint64_t)least)
			continue;
		begin = us_since(s->wait[0].begin, origin);
		end = us_since(s->wait[s->n_wait - 1].end, origin);
		if (begin < last || end < begin)
			continue;
		pt_bytes_number(&out, begin - last);
		last = begin;
		pt_bytes_number(&out, end - begin);
		pt_bytes_number(&out, s->made == UINT64_MAX ? 0 :
			us_since(s->wait[s->n_wait - 1].end, s->made) + 1);
		pt_bytes_number(&out, (uint64_t)s->worker + 1);
	}
	return pt_bytes_json(b, &out);
}

/* ---- how often which length ---------------------------------------------------- */

static double at_of(const double *ms, size_t stride, size_t i)
{
	return *(const double *)((const char *)ms + i * stride);
}

void pt_html_extent(const double *ms, size_t stride, size_t n, double *low,
		    double *high)
{
	size_t i;

	*low = INFINITY;
	*high = 0;
	for (i = 0; i < n; i++) {
		double v = at_of(ms, stride, i);

		if (!(v > 0) || isinf(v))
			continue;
		*low = v < *low ? v : *low;
		*high = v > *high ? v : *high;
	}
}

json_t *pt_html_histogram(struct pt_jb *b, const double *ms, size_t stride,
			  size_t n, double low, double high)
{
	size_t counts[BINS] = { 0 }, i;
	json_t *o, *edges, *values;
	double v, ratio;

	if (!(low < high))
		pt_html_extent(ms, stride, n, &low, &high);
	if (!(low > 0) || !(high > low))
		return json_null();
	/* equal ratios: a long tail does not squeeze the rest into one bin */
	ratio = log(high / low) / BINS;
	for (i = 0; i < n; i++) {
		v = at_of(ms, stride, i);
		if (v >= low && v <= high) {
			size_t bin = (size_t)(log(v / low) / ratio);

			counts[bin < BINS ? bin : BINS - 1]++;
		}
	}
	o = json_object();
	edges = json_array();
	values = json_array();
	for (i = 0; i <= BINS; i++)
		pt_j_add(b, edges, pt_j_num(low * exp(ratio * (double)i),
					    PT_J_FINE));
	for (i = 0; i < BINS; i++)
		pt_j_add(b, values, json_integer((json_int_t)counts[i]));
	pt_j_put(b, o, "edges", edges);
	pt_j_put(b, o, "counts", values);
	return o;
}
