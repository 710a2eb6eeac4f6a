/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"

#include "fleet/fleet.h"

#define LATE_SHARE 0.10
#define LATE_SIGMAS 4.0
#define SIGMA_OF_MAD 1.4826

PT_ORDER(by_value, double, pt_cmp(*x, *y))

PT_ORDER(by_group, struct pt_fleet_member,
	 strcmp(x->group, y->group) ?: pt_cmp(x->index, y->index))

static double median(double *v, size_t n)
{
	if (!n)
		return NAN;
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Of one figure of the members, where it is known; `at`: its place. */
static double median_of(const struct pt_fleet_member *m, size_t n, size_t at, double *v)
{
	size_t i, k = 0;

	for (i = 0; i < n; i++) {
		double x = *(const double *)(const void *)((const char *)&m[i] + at);

		if (!isnan(x))
			v[k++] = x;
	}
	return median(v, k);
}
#define MEDIAN(what) median_of(m, n, offsetof(struct pt_fleet_member, what), v)

static void judge_group(struct pt_fleet_member *m, size_t n, double *v)
{
	double own = MEDIAN(own_s), data = MEDIAN(data_s), step = MEDIAN(length_s);
	double mad, limit;
	size_t i;

	for (i = 0; i < n; i++)
		v[i] = fabs(m[i].own_s - own);
	mad = median(v, n);
	limit = own + fmax(LATE_SHARE * (isnan(step) ? own : step),
			   LATE_SIGMAS * SIGMA_OF_MAD * mad);
	for (i = 0; i < n; i++) {
		m[i].median_s = own;
		m[i].mad_s = mad;
		m[i].members = n;
		m[i].straggles = n >= PT_FLEET_PEERS && m[i].own_s > limit;
		m[i].by_data = m[i].data_s - data >= (m[i].own_s - own) / 2;
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
