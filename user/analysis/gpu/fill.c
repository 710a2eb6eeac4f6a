/* SPDX-License-Identifier: BSD-2-Clause */
/* gpu of the report: one entry per device of the trainer. */
#include <errno.h>
#include <math.h>

#include "analysis/gpu/passes.h"

static double share(uint64_t ns, uint64_t of)
{
	return of ? fmin(1, (double)ns / (double)of) : 0;
}

static void fill_shares(struct pt_r_gpu *g, const struct pt_dev *d,
			uint64_t wall)
{
	g->idle_hard[0] = share(d->idle_hard_ns, wall);
	g->idle_hard[1] = 1 - share(d->busy_hard_ns, wall);
	g->idle_likely[0] = g->idle_hard[0];
	g->idle_likely[1] = g->idle_hard[1];
	g->certainty = PT_BOUNDED;
	g->busy_share = g->idle_share = NAN;
	if (d->known) {
		g->certainty = d->measured ? PT_MEASURED : PT_ESTIMATED;
		g->idle_share = share(d->idle_likely_ns, wall);
		g->busy_share = 1 - g->idle_share;
		g->idle_likely[0] = 1 - share(d->busy_hi_ns, wall);
		g->idle_likely[1] = 1 - share(d->busy_lo_ns, wall);
	}
	g->busy_hard[0] = 1 - g->idle_hard[1];
	g->busy_hard[1] = 1 - g->idle_hard[0];
	g->busy_likely[0] = 1 - g->idle_likely[1];
	g->busy_likely[1] = 1 - g->idle_likely[0];
	g->compute = g->copy = g->collective = NAN;
	if (d->known && d->compute_ns != UINT64_MAX) {
		g->compute = share(d->compute_ns, wall);
		g->copy = share(d->copy_ns, wall);
		g->collective = share(d->collective_ns, wall);
	}
}

static void fill_counts(struct pt_r_gpu *g, const struct pt_dev_counts *c)
{
	g->kernels = c->graphs_unknown ? PT_NULL :
					 (int64_t)(c->kernels + c->graph_kernels);
	g->graph_launches = (int64_t)c->graph_launches;
	g->collectives = (int64_t)c->collectives;
	g->collective_bytes = (int64_t)c->collective_bytes;
	g->copies_h2d = (int64_t)c->h2d;
	g->copies_d2h = (int64_t)c->d2h;
	g->copies_other = (int64_t)c->other_copies;
	g->copy_bytes = (int64_t)c->copy_bytes;
	g->syncs = (int64_t)c->syncs;
}

int64_t pt_dev_index(const struct pt_dev *d)
{
	return d->ordinal == PT_DEV_NO_ORDINAL ? PT_NULL : d->ordinal;
}

int pt_measure_gpu(struct pt_an *an, struct pt_trainer *t)
{
	struct pt_r_gpu *g = pt_arena_calloc(an->a, t->devs.n + 1, sizeof(*g));
	size_t i;
	int err = g ? pt_share_gpu(an, t) : -ENOMEM;

	for (i = 0; i < t->devs.n && !err; i++) {
		g[i].index = pt_dev_index(&t->devs.v[i]);
		if (t->devs.v[i].known)
			err = pt_fill_idle_causes(an, t, &t->devs.v[i], &g[i]);
	}
	err = err ?: pt_fill_alloc_failures(an, t, g);
	an->r->gpu = g;
	an->r->n_gpu = t->devs.n;
	return err;
}

static void take_row(struct pt_r_gpu *o, const struct pt_report *rows)
{
	pt_each_of(const struct pt_r_gpu, g, rows->gpu, rows->n_gpu) {
		if (g->index != o->index)
			continue;
		o->idle_causes = g->idle_causes;
		o->n_idle_causes = g->n_idle_causes;
		o->failed_allocations = g->failed_allocations;
		o->alloc_failures = g->alloc_failures;
		o->n_alloc_failures = g->n_alloc_failures;
	}
}

int pt_fill_gpu(struct pt_an *an, const struct pt_trainer *t,
		const struct pt_report *rows)
{
	uint64_t wall = an->t1 - an->t0;
	struct pt_r_gpu *g = pt_arena_calloc(an->a, t->devs.n + 1, sizeof(*g));
	size_t i;

	if (!g)
		return -ENOMEM;
	for (i = 0; i < t->devs.n; i++) {
		const struct pt_dev *d = &t->devs.v[i];

		g[i].index = pt_dev_index(d);
		fill_shares(&g[i], d, wall);
		fill_counts(&g[i], &d->counts);
		g[i].starved_share[0] = share(d->starved_lo_ns, wall);
		g[i].starved_share[1] = share(d->starved_likely_ns, wall);
		g[i].pageable_share = d->pageable_share;
		g[i].mem_reserved = g[i].mem_peak = g[i].mem_total = PT_NULL;
		g[i].mem_growth_per_min = NAN;
		take_row(&g[i], rows);
	}
	an->r->gpu = g;
	an->r->n_gpu = t->devs.n;
	return 0;
}
