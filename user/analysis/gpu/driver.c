/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device's idle time as the driver counts it, for jobs whose calls do not tell: they
 * hardly ever wait for the device. How much is idle, the driver says; where, the gaps
 * between the calls: a queue that holds so many seconds of work bridges each gap for as
 * long, and the device idles for the rest of it. With the gaps known, that length
 * follows from the sum.
 */
#include <math.h>

#include "analysis/gpu/passes.h"
#include "analysis/health.h"
#include "analysis/waits/look.h"

static struct pt_span clipped(const struct pt_an *an, const struct pt_gap *g)
{
	struct pt_span s = { pt_max64(g->begin, an->t0), pt_min64(g->end, an->t1) };

	s.end = pt_max64(s.begin, s.end);
	return s;
}

/* Idle time with a queue of `depth`. */
static uint64_t idle_with(const struct pt_an *an, const struct pt_host *h,
			  uint64_t depth)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < h->gaps.n; i++) {
		struct pt_span s = clipped(an, &h->gaps.v[i].g);
		uint64_t ns = s.end - s.begin;

		sum += ns > depth ? ns - depth : 0;
	}
	return sum;
}

static int place_idle(const struct pt_an *an, const struct pt_host *h,
		      struct pt_dev *d, uint64_t idle)
{
	/* the least with which no more is idle */
	uint64_t depth = 1 + pt_bisect(an->t1 - an->t0 - 1, n, idle_with(an, h, n + 1) > idle);
	size_t i;
	int err;

	d->idle_likely.n = 0;
	err = pt_spans_append(&d->idle_likely, &d->idle_hard);
	for (i = 0; i < h->gaps.n && !err; i++) {
		struct pt_span s = clipped(an, &h->gaps.v[i].g);

		s.begin += depth;
		if (s.begin < s.end)
			err = pt_vec_push(&d->idle_likely, s);
	}
	pt_spans_tidy(&d->idle_likely, an->t0, an->t1);
	err = err ?: pt_spans_remove(&d->idle_likely, &d->busy_hard);
	d->idle_likely_ns = pt_spans_sum(&d->idle_likely);
	d->unplaced_ns = idle - pt_min64(idle, d->idle_likely_ns);
	d->by_driver = true;
	return err;
}

/* Does the driver's figure rule out what the calls tell? It counts a microsecond or two
 * beside each kernel (an H100 under its own tracer), so no less than there is. */
static bool contradicts(const struct pt_dev *d, double wall, double least, double most)
{
	double kernels = d->compute_ns == UINT64_MAX ? 0 :
			 (double)(d->compute_ns + d->collective_ns);

	/* what is certain is believed */
	if ((double)d->idle_likely_ns > most * wall)
		return (double)d->idle_hard_ns <= most * wall;
	return kernels > wall * (1 - least) &&
	       (double)d->busy_hard_ns <= kernels;
}

int pt_take_driver(const struct pt_an *an, struct pt_trainer *t, double idle,
		   double least, double most)
{
	double wall = (double)(an->t1 - an->t0);
	struct pt_dev *d = t->devs.v;

	if (!isfinite(idle) || t->devs.n != 1 || d->measured || !t->look)
		return 0;
	/* a guess that the driver contradicts is none */
	if (contradicts(d, wall, least, most))
		d->known = false;
	return d->known ? 0 :
			  place_idle(an, &t->look->host, d, (uint64_t)(idle * wall));
}

void pt_limit_by_driver(const struct pt_an *an, struct pt_trainer *t, double idle,
			double most)
{
	double wall = (double)(an->t1 - an->t0);
	uint64_t ns;

	if (!isfinite(idle) || t->gpu_known)
		return;
	ns = pt_max64((uint64_t)(most * wall), t->idle_hard_ns);
	t->starved_hi_ns = pt_min64(t->starved_hi_ns, ns);
	ns = pt_max64((uint64_t)(idle * wall), t->idle_hard_ns);
	t->idle_likely_ns = pt_min64(t->idle_likely_ns, ns);
	t->starved_likely_ns = pt_max64(pt_min64(t->starved_likely_ns, ns),
					t->starved_lo_ns);
}
