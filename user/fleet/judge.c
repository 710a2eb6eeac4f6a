/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/fleet.h"

#define LATE_SHARE 0.10
#define LATE_SIGMAS 4.0
#define SIGMA_OF_MAD 1.4826

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int by_group(const void *a, const void *b)
{
	const struct pt_fleet_member *x = a, *y = b;
	int c = strcmp(x->group, y->group);

	return c ? c : (x->index > y->index) - (x->index < y->index);
}

static double median(double *v, size_t n)
{
	if (!n)
		return NAN;
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static double median_step(const struct pt_fleet_member *m, size_t n, double *v)
{
	size_t i;

	for (i = 0; i < n; i++)
		v[i] = m[i].step_s;
	return median(v, n);
}

static double median_data(const struct pt_fleet_member *m, size_t n, double *v)
{
	size_t i, k = 0;

	for (i = 0; i < n; i++)
		if (!isnan(m[i].data_s))
			v[k++] = m[i].data_s;
	return median(v, k);
}

static void judge_group(struct pt_fleet_member *m, size_t n, double *v)
{
	double step = median_step(m, n, v), data = median_data(m, n, v), mad, limit;
	size_t i;

	for (i = 0; i < n; i++)
		v[i] = fabs(m[i].step_s - step);
	mad = median(v, n);
	limit = step + fmax(LATE_SHARE * step, LATE_SIGMAS * SIGMA_OF_MAD * mad);
	for (i = 0; i < n; i++) {
		m[i].median_s = step;
		m[i].mad_s = mad;
		m[i].median_data_s = data;
		m[i].members = n;
		m[i].straggles = n >= PT_FLEET_PEERS && m[i].step_s > limit;
		m[i].by_data = m[i].data_s - data >= (m[i].step_s - step) / 2;
	}
}

void pt_fleet_judge(struct pt_fleet_member *m, size_t n, double *scratch,
		    size_t *groups, size_t *small)
{
	size_t i, k;

	*groups = *small = 0;
	if (!n)
		return;
	qsort(m, n, sizeof(*m), by_group);
	for (i = 0; i < n; i = k) {
		for (k = i + 1; k < n && !strcmp(m[i].group, m[k].group); k++)
			;
		judge_group(m + i, k - i, scratch);
		*groups += k - i > 1;
		*small += k - i > 1 && k - i < PT_FLEET_PEERS;
	}
}
