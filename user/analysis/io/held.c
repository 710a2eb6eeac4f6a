/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is the data held back above the disk? A throttle (io.max, blkio.throttle) lets
 * requests of a tenth of a second through at once and then none, so that a wait does
 * not go with what it is for. But the disk answers what it is asked in a small part of
 * the time that was waited for.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/io/units.h"
#include "analysis/verdicts/thresholds.h"

/* Many rounds of a throttle, whose slices are of a tenth of a second. */
#define BIN_NS NS_PER_S
#define MIN_BINS 5
/* Standard deviation of a logarithm: lengths that vary by less tell nothing. */
#define MIN_SPREAD 0.01

struct bin {
	double bytes, count;
};

/*
 * Is it the bytes or the requests that are limited? The longer the reads of a second,
 * the fewer there are, in proportion, or else as many as in any other. So the logarithm
 * of their number is fitted by that of their mean length: slope -1, or 0; by least
 * squares, told apart where the slope is on one side of the middle but for a chance of
 * 5 % (Student's t, to 0.1 from three degrees of freedom on).
 */
static enum pt_io_limit limit_of(const struct bin *v, size_t n)
{
	double mx = 0, my = 0, sxx = 0, sxy = 0, rss = 0, b, se, df;
	size_t i, used = 0;

	for (i = 0; i < n; i++) {
		if (v[i].count < 2)
			continue;
		used++;
		mx += log(v[i].bytes / v[i].count);
		my += log(v[i].count);
	}
	if (used < MIN_BINS)
		return PT_IO_LIMIT_UNKNOWN;
	mx /= (double)used;
	my /= (double)used;
	for (i = 0; i < n; i++) {
		double dx = v[i].count < 2 ? 0 : log(v[i].bytes / v[i].count) - mx;

		sxx += dx * dx;
		sxy += v[i].count < 2 ? 0 : dx * (log(v[i].count) - my);
	}
	if (!(sqrt(sxx / (double)used) >= MIN_SPREAD))
		return PT_IO_LIMIT_UNKNOWN;
	b = sxy / sxx;
	for (i = 0; i < n; i++) {
		double e = v[i].count < 2 ? 0 : log(v[i].count) - my -
			   b * (log(v[i].bytes / v[i].count) - mx);

		rss += e * e;
	}
	df = (double)used - 2;
	se = sqrt(rss / df / sxx) * (1.645 + 2.2 / df);
	return b + se < -0.5 ? PT_IO_LIMIT_BYTES :
	       b - se > -0.5 ? PT_IO_LIMIT_COUNT : PT_IO_LIMIT_UNKNOWN;
}

static int find_limit(const struct pt_an *an, const pt_io_units *v,
		      struct pt_io *o)
{
	size_t n = (size_t)((an->t1 - an->t0) / BIN_NS), i, at;
	struct bin *bins;

	if (n < MIN_BINS)
		return 0;
	bins = calloc(n, sizeof(*bins));
	if (!bins)
		return -ENOMEM;
	for (i = 0; i < v->n; i++) {
		if (v->v[i].end < an->t0 || !(v->v[i].n > 0))
			continue;
		at = (size_t)((v->v[i].end - an->t0) / BIN_NS);
		if (at >= n)
			continue;
		bins[at].bytes += v->v[i].n;
		bins[at].count++;
	}
	o->limit = limit_of(bins, n);
	free(bins);
	return 0;
}

int pt_io_held(const struct pt_an *an, const pt_io_units *v, struct pt_io *o)
{
	double answered = 0, bytes = 0, waited = 0, requests = 0;
	double wall = pt_sec(an->t1 - an->t0);
	size_t i;

	o->held = NAN;
	o->limit = PT_IO_LIMIT_UNKNOWN;
	pt_each_of(const struct pt_r_disk, d, an->r->disks, an->r->n_disks) {
		if (d->reads <= 0 || !isfinite(d->read_latency_ms.mean))
			continue;
		requests += (double)d->reads;
		bytes += (double)d->read_bytes;
		answered += (double)d->reads * d->read_latency_ms.mean;
	}
	for (i = 0; i < v->n; i++)
		waited += v->v[i].t;
	if (requests < PT_IO_REQUESTS || !(waited > 0) ||
	    !(bytes >= PT_IO_SEEN * o->fetched_per_s * wall))
		return 0;
	o->held = fmax(0, 1 - answered / waited);
	return find_limit(an, v, o);
}
