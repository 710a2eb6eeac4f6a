/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/compare/bootstrap.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/minmax.h"

/* A longer series is first averaged in runs of equal length: the mean stays,
 * and so does what distant runs have in common. */
#define VALUES_MAX 4096
#define MOST_CORRELATED 0.98 /* beyond: a drift, no series to average */
#define Z_975 1.959963984540054

static double mean_of(const double *v, size_t n)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < n; i++)
		sum += v[i];
	return sum / (double)n;
}

static double autocovariance(const double *v, size_t n, double mean, size_t lag)
{
	double sum = 0;
	size_t i;

	for (i = 0; i + lag < n; i++)
		sum += (v[i] - mean) * (v[i + lag] - mean);
	return sum / (double)n;
}

/* The first lag behind which a run of lags shows no correlation (Politis and
 * White, their footnote c: 2 sqrt(log10 n / n)); else the last that does. */
static size_t correlated_lags(const double *v, size_t n, double mean,
			      size_t run, size_t max)
{
	double r0 = autocovariance(v, n, mean, 0);
	double bar = 2 * sqrt(log10((double)n) / (double)n);
	size_t lag, last = 0, quiet = 0;

	for (lag = 1; lag <= max + run; lag++) {
		if (fabs(autocovariance(v, n, mean, lag) / r0) > bar) {
			last = lag;
			quiet = 0;
		} else if (++quiet == run) {
			break;
		}
	}
	return last < 1 ? 1 : last;
}

double pt_block_length(const double *v, size_t n)
{
	double mean, g = 0, spectrum, b, weight, r, longest = (double)n / 3;
	size_t run, max, m, k;

	if (n < 9)
		return 1;
	mean = mean_of(v, n);
	spectrum = autocovariance(v, n, mean, 0);
	if (!(spectrum > 0))
		return 1; /* nothing varies */
	run = (size_t)fmax(5, ceil(sqrt(log10((double)n))));
	max = (size_t)ceil(sqrt((double)n)) + run;
	m = 2 * correlated_lags(v, n, mean, run, max);
	m = m > max ? max : m;
	for (k = 1; k <= m; k++) {
		/* flat-top window */
		weight = fmin(1, 2 * (1 - (double)k / (double)m));
		r = 2 * weight * autocovariance(v, n, mean, k);
		spectrum += r;
		g += r * (double)k;
	}
	longest = fmin(longest, 3 * sqrt((double)n));
	/* strongly alternating series: the estimate can reach 0 */
	if (!(spectrum > 0))
		return floor(longest);
	b = pow(1.5 * g * g / (spectrum * spectrum) * (double)n, 1.0 / 3);
	b = fmax(round(b), floor(pow((double)n, 1.0 / 3)));
	return fmax(1, fmin(b, floor(longest)));
}

/* splitmix64 (Steele, Lea and Flood 2014), and a draw below n. */
static uint64_t draw(uint64_t *state, uint64_t n)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	z ^= z >> 31;
	return (uint64_t)(((unsigned __int128)z * n) >> 64);
}

struct series {
	double *sums; /* prefix sums of the series written twice in a row */
	size_t n, block, group;
	double mean, freedom, widen, variance, floor;
};

/*
 * A block sees no correlation that reaches over its end, so that blocks alone
 * make slowly varying series look too sure. The variance of the mean of a
 * first-order autoregression with the series' own correlation, corrected for
 * its bias (Kendall 1954), serves as a floor: how much wider than independent
 * values the mean of positively correlated ones spreads.
 */
static double floor_variance(const double *v, size_t n, double mean)
{
	double r0 = autocovariance(v, n, mean, 0), rho;

	if (!(r0 > 0))
		return 0;
	rho = autocovariance(v, n, mean, 1) / r0;
	rho = fmin(rho + (1 + 3 * rho) / (double)n, MOST_CORRELATED);
	if (rho <= 0)
		return 0;
	return r0 / (double)(n - 1) * (1 + rho) / (1 - rho) / (mean * mean);
}

static int prepare(struct series *s, const double *v, size_t n)
{
	double *w, sum = 0;
	size_t i;

	if (n < PT_BOOT_MIN)
		return -ERANGE;
	s->mean = mean_of(v, n);
	if (!isfinite(s->mean) || s->mean <= 0)
		return -ERANGE;
	s->group = (n + VALUES_MAX - 1) / VALUES_MAX;
	s->n = n / s->group;
	w = malloc(s->n * sizeof(*w));
	s->sums = malloc((2 * s->n + 1) * sizeof(*s->sums));
	if (!w || !s->sums) {
		free(w);
		return -ENOMEM;
	}
	for (i = 0; i < s->n; i++)
		w[i] = mean_of(v + i * s->group, s->group);
	s->block = (size_t)pt_block_length(w, s->n);
	for (i = 0; i < 2 * s->n; i++) {
		s->sums[i] = sum;
		sum += w[i % s->n];
	}
	s->sums[2 * s->n] = sum;
	s->floor = floor_variance(w, s->n, s->mean);
	free(w);
	s->freedom = (double)s->n / (double)s->block - 1;
	s->widen = sqrt((s->freedom + 1) / s->freedom);
	return 0;
}

/* Logarithm of one resampled mean, against that of the series itself. */
static double resample(const struct series *s, uint64_t *state)
{
	double sum = 0, whole = s->sums[s->n];
	size_t left, len, at;

	for (left = s->n; left; left -= len) {
		len = left < s->block ? left : s->block;
		at = (size_t)draw(state, s->n);
		sum += s->sums[at + len] - s->sums[at];
	}
	/* durations: a resample of zeros alone is as good as any other */
	return sum > 0 ? log(sum / whole) * s->widen : 0;
}

/* The 97.5 % quantile of Student's t over that of the normal distribution
 * (expansion 26.7.5 of Abramowitz and Stegun; within 1 % from 2 on). */
static double t_over_z(double v)
{
	double z = Z_975, z2 = z * z;
	double g1 = (z2 + 1) / 4;
	double g2 = ((5 * z2 + 16) * z2 + 3) / 96;
	double g3 = (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384;
	double g4 = ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) /
		    92160;

	return 1 + (g1 + (g2 + (g3 + g4 / v) / v) / v) / v;
}

PT_ORDER(ascending, double, pt_cmp(*x, *y))

/* Deviations of the log ratio in the first half of `dev`, ascending; fills the
 * variance of either part. */
static void replicate(struct series *s, double *dev, size_t reps)
{
	uint64_t state = PT_BOOT_SEED;
	double scale[2] = { 1, 1 };
	size_t i, k;

	for (k = 0; k < 2; k++) {
		for (i = 0; i < reps; i++) {
			dev[k * reps + i] = resample(&s[k], &state);
			s[k].variance += dev[k * reps + i] *
					 dev[k * reps + i] / (double)reps;
		}
		if (s[k].variance > 0 && s[k].variance < s[k].floor) {
			scale[k] = sqrt(s[k].floor / s[k].variance);
			s[k].variance = s[k].floor;
		}
	}
	for (i = 0; i < reps; i++)
		dev[i] = scale[0] * dev[i] - scale[1] * dev[reps + i];
	qsort(dev, reps, sizeof(*dev), ascending);
}

static double welch(const struct series *s)
{
	double a = s[0].variance, b = s[1].variance;
	double parts = a * a / s[0].freedom + b * b / s[1].freedom;

	if (!(parts > 0))
		return fmin(s[0].freedom, s[1].freedom);
	return (a + b) * (a + b) / parts;
}

int pt_boot_ratio(const double *x, size_t nx, const double *y, size_t ny,
		  struct pt_boot *out)
{
	size_t reps = PT_BOOT_REPLICATES;
	size_t tail = (size_t)((1 - PT_BOOT_LEVEL) / 2 * (double)reps);
	struct series s[2] = { { .n = 0 } };
	double *dev = NULL, widen;
	int err;

	err = prepare(&s[0], x, nx);
	err = err ?: prepare(&s[1], y, ny);
	if (err)
		goto out;
	dev = malloc(2 * reps * sizeof(*dev));
	if (!dev) {
		err = -ENOMEM;
		goto out;
	}
	replicate(s, dev, reps);
	out->freedom = welch(s);
	widen = t_over_z(out->freedom);
	out->value = s[0].mean / s[1].mean;
	out->low = out->value * exp(widen * dev[tail]);
	out->high = out->value * exp(widen * dev[reps - 1 - tail]);
	out->block[0] = (double)(s[0].block * s[0].group);
	out->block[1] = (double)(s[1].block * s[1].group);
out:
	free(dev);
	free(s[0].sums);
	free(s[1].sums);
	return err;
}
