/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/health.h"

#define MAX_POINTS 400 /* pairs grow with the square */

void pt_fit_slope(const struct pt_products *s, double *slope, double *error)
{
	*slope = s->xy / s->xx;
	*error = sqrt(fmax(0, s->yy - *slope * s->xy) / (s->free - 1) / s->xx);
}

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

/* One-sided chance of a normal deviate of at least z. */
static double beyond(double z)
{
	return 0.5 * erfc(z / sqrt(2));
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

#define COUNTED 10 /* points; from here on the normal deviate is good */
#define PAIRS (COUNTED * (COUNTED - 1) / 2)

/* Orders of n values by their pairs that fall: k pairs are those of n - 1
 * values with the last one put before 0 to n - 1 of them. */
static double rise_counted(const double *y, size_t n)
{
	double ways[PAIRS + 1] = { 1 }, next[PAIRS + 1], few = 0, all = 1;
	size_t i, j, k, not_rising = 0;

	for (i = 0; i < n; i++)
		for (j = i + 1; j < n; j++)
			not_rising += y[j] <= y[i];
	for (i = 2; i <= n; i++) {
		for (k = 0; k <= PAIRS; k++) {
			next[k] = 0;
			for (j = 0; j < i && j <= k; j++)
				next[k] += ways[k - j];
		}
		for (k = 0; k <= PAIRS; k++)
			ways[k] = next[k];
		all *= (double)i;
	}
	for (k = 0; k <= not_rising; k++)
		few += ways[k];
	return few / all;
}

double pt_rise_chance(const double *y, size_t n)
{
	if (n < 3)
		return 1;
	return n < COUNTED ? rise_counted(y, n) : beyond(pt_mann_kendall(y, n));
}

struct ranked {
	double v, rank;
	size_t at;
};

PT_ORDER(by_value, struct ranked, pt_cmp(x->v, y->v))

PT_ORDER(by_place, struct ranked, pt_cmp(x->at, y->at))

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

/* Up to so many pairs each order of the two samples is counted; beyond, and where values are
 * equal, the normal distribution is near enough. */
#define EXACT_PAIRS 400

/* Of all orders of nx and ny different values, the share whose U is `u` or more: the
 * coefficients of the Gaussian binomial (Mann and Whitney, 1947). */
static double orders_beyond(size_t nx, size_t ny, double u)
{
	double ways[EXACT_PAIRS + 1] = { 1 }, all = 0, some = 0;
	size_t i, k, most = nx * ny;

	for (i = 1; i <= nx; i++) {
		for (k = most; k >= ny + i; k--)
			ways[k] -= ways[k - ny - i];
		for (k = i; k <= most; k++)
			ways[k] += ways[k - i];
	}
	for (k = 0; k <= most; k++) {
		all += ways[k];
		some += (double)k >= u ? ways[k] : 0;
	}
	return some / all;
}

int pt_rank_sum_chance(const double *x, size_t nx, const double *y, size_t ny,
		       double *chance)
{
	double n = (double)(nx + ny), sum = 0, ties = 0, mean, var, same;
	struct ranked *r;
	double *all;
	size_t i, j;

	*chance = 1;
	if (!nx || !ny)
		return 0;
	r = malloc((nx + ny) * sizeof(*r));
	all = malloc((nx + ny) * sizeof(*all));
	if (!r || !all) {
		free(r);
		free(all);
		return -ENOMEM;
	}
	for (i = 0; i < nx + ny; i++)
		all[i] = i < nx ? x[i] : y[i - nx];
	rank(r, all, nx + ny);
	for (i = 0; i < nx; i++)
		sum += r[i].rank;
	qsort(r, nx + ny, sizeof(*r), by_value);
	for (i = 0; i < nx + ny; i = j) {
		for (j = i; j < nx + ny && r[j].v == r[i].v; j++)
			;
		same = (double)(j - i);
		ties += same * (same * same - 1);
	}
	/* ranks count from 0: U is their sum less the least it can be */
	sum -= (double)nx * (double)(nx - 1) / 2;
	mean = (double)nx * (double)ny / 2;
	var = (double)nx * (double)ny / 12 * (n + 1 - ties / (n * (n - 1)));
	if (ties == 0 && nx * ny <= EXACT_PAIRS)
		*chance = orders_beyond(nx, ny, sum);
	else if (var > 0)
		*chance = beyond((sum - mean - 0.5) / sqrt(var));
	free(r);
	free(all);
	return 0;
}
