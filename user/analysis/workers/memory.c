/* SPDX-License-Identifier: BSD-2-Clause */
/* Does memory grow: the target's, from its samples, and the device's, from
 * the allocations that were seen. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"

#define MAX_POINTS 400 /* the tests take the square of them */

/* Points of the series with a sample; of very many, evenly chosen ones. */
static size_t points(const struct pt_report *r, double *x, double *y)
{
	size_t i, n = 0, stride = r->n_series / MAX_POINTS + 1;

	for (i = 0; i < r->n_series; i += stride) {
		double m = r->series[i].rss + r->series[i].shm;

		if (isnan(m))
			continue;
		x[n] = r->series[i].t;
		y[n++] = m;
	}
	return n;
}

int pt_measure_growth(const struct pt_an *an, struct pt_growth *out)
{
	size_t n = an->r->n_series, half;
	double *x = malloc((3 * n + 1) * sizeof(*x)), *y = x + n, slope, late;
	double *copy = x + 2 * n;
	int err = 0;

	*out = (struct pt_growth){ 0, NAN, NAN, NAN, NAN, 1, 1 };
	if (!x)
		return -ENOMEM;
	n = points(an->r, x, y);
	out->points = n;
	if (n < PT_GROWTH_MIN_POINTS)
		goto out;
	err = pt_theil_sen(x, y, n, &slope);
	half = n / 2;
	err = err ?: pt_theil_sen(x + half, y + half, n - half, &late);
	if (err)
		goto out;
	out->half_per_min = 60 * late;
	out->per_min = 60 * slope;
	out->total = slope * (x[n - 1] - x[0]);
	out->chance = pt_rise_chance(y, n);
	out->half_chance = pt_rise_chance(y + half, n - half);
	for (size_t i = 0; i < n; i++)
		copy[i] = y[i];
	out->level = pt_median(copy, n);
out:
	free(x);
	return err;
}

bool pt_growth_shown(const struct pt_growth *g)
{
	/* fewer than five in the half: no order of them is that rare */
	return g->points >= PT_GROWTH_MIN_POINTS &&
	       g->chance <= PT_GROWTH_CHANCE &&
	       (g->half_chance <= PT_GROWTH_HALF_CHANCE ||
		g->points < 2 * PT_GROWTH_MIN_POINTS) &&
	       g->half_per_min >= PT_GROWTH_HALF_PACE * g->per_min;
}

int pt_fill_memory(struct pt_an *an)
{
	struct pt_growth g;
	int err = pt_measure_growth(an, &g);

	if (err)
		return err;
	/* of so few samples only a clear rise makes a slope */
	if (g.points < PT_GROWTH_SURE_POINTS && !pt_growth_shown(&g)) {
		pt_report_limit(an->r, "memory.growth_per_min",
			"Too few memory samples for a slope: %zu, and it takes %d (one a second).",
			g.points, PT_GROWTH_SURE_POINTS);
		return 0;
	}
	an->r->mem_growth_per_min = g.per_min;
	an->r->mem_growth_certainty = PT_ESTIMATED;
	return 0;
}

/* ---- the device ----------------------------------------------------------------- */

/* A free does not tell how much: it is taken for a mean allocation. Growth
 * is shown only where the balance rises in all parts of the window but the
 * first (allocators that keep memory take it while they warm up). */
double pt_gpu_growth(const struct pt_gpu_balance *b, uint64_t wall)
{
	double late = 0, minutes;
	size_t i;

	if (!b->allocs || !wall)
		return NAN;
	for (i = 1; i < PT_GPU_PARTS; i++) {
		if (b->net[i] <= 0)
			return NAN;
		late += (double)b->net[i];
	}
	minutes = pt_sec(wall) / 60 * (PT_GPU_PARTS - 1) / PT_GPU_PARTS;
	return late * b->bytes / (double)b->allocs / minutes;
}

void pt_measure_balance(const struct pt_an *an, const struct pt_trainer *t,
			struct pt_gpu_balance *out)
{
	uint64_t wall = an->t1 - an->t0;

	*out = (struct pt_gpu_balance){ 0 };
	pt_each_call(c, t->proc, an->t0, an->t1) {
		bool get = c->cls == PT_API_ALLOC && !c->open && c->ret <= 0;
		size_t k = (size_t)((c->begin - an->t0) * PT_GPU_PARTS / wall);

		if (get && (c->ret == 0 || c->ret == INT64_MIN)) {
			out->allocs++;
			out->bytes += (double)c->v[1];
			out->net[k]++;
		} else if (c->cls == PT_API_FREE && c->v[0]) {
			out->frees++;
			out->net[k]--;
		}
	}
}
