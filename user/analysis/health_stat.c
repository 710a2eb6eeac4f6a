/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/health.h"

#define MAX_POINTS 400 /* pairs grow with the square */

int pt_theil_sen(const double *x, const double *y, size_t n, double *slope)
{
	size_t m = n > MAX_POINTS ? MAX_POINTS : n, i, j, k = 0;
	double *s;

	*slope = NAN;
	if (m < 2)
		return 0;
	s = malloc(m * (m - 1) / 2 * sizeof(*s));
	if (!s)
		return -ENOMEM;
	for (i = 0; i < m; i++) {
		for (j = i + 1; j < m; j++) {
			size_t a = i * (n - 1) / (m - 1);
			size_t b = j * (n - 1) / (m - 1);

			if (x[b] > x[a])
				s[k++] = (y[b] - y[a]) / (x[b] - x[a]);
		}
	}
	*slope = pt_median(s, k);
	free(s);
	return 0;
}

double pt_mann_kendall(const double *y, size_t n)
{
	double s = 0, var, ties = 0;
	size_t i, j;

	if (n < 3)
		return 0;
	for (i = 0; i < n; i++) {
		double same = 1;
		bool seen = false;

		for (j = 0; j < i; j++)
			seen |= y[j] == y[i];
		for (j = i + 1; j < n; j++) {
			s += (y[j] > y[i]) - (y[j] < y[i]);
			same += y[j] == y[i];
		}
		if (!seen)
			ties += same * (same - 1) * (2 * same + 5);
	}
	var = ((double)n * (double)(n - 1) * (double)(2 * n + 5) - ties) / 18;
	if (var <= 0 || s == 0)
		return 0;
	return (s - (s > 0 ? 1 : -1)) / sqrt(var);
}

struct ranked {
	double v, rank;
	size_t at;
};

static int by_value(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	return x->v < y->v ? -1 : x->v > y->v;
}

static int by_place(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

/* Equal values share the mean of their ranks. */
static void rank(struct ranked *r, const double *v, size_t n)
{
	size_t i, j, k;

	for (i = 0; i < n; i++)
		r[i] = (struct ranked){ v[i], 0, i };
	qsort(r, n, sizeof(*r), by_value);
	for (i = 0; i < n; i = j) {
		for (j = i; j < n && r[j].v == r[i].v; j++)
			;
		for (k = i; k < j; k++)
			r[k].rank = (double)(i + j - 1) / 2;
	}
	qsort(r, n, sizeof(*r), by_place);
}

int pt_spearman(const double *x, const double *y, size_t n, double *rho)
{
	double mean = (double)(n - 1) / 2, xx = 0, yy = 0, xy = 0;
	struct ranked *r;
	size_t i;

	*rho = NAN;
	if (n < 3)
		return 0;
	r = malloc(2 * n * sizeof(*r));
	if (!r)
		return -ENOMEM;
	rank(r, x, n);
	rank(r + n, y, n);
	for (i = 0; i < n; i++) {
		double a = r[i].rank - mean, b = r[n + i].rank - mean;

		xx += a * a;
		yy += b * b;
		xy += a * b;
	}
	free(r);
	if (xx > 0 && yy > 0)
		*rho = xy / sqrt(xx * yy);
	return 0;
}
