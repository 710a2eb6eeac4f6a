/* SPDX-License-Identifier: BSD-2-Clause */
/* The text report's lines on one device. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "view/text/blocks.h"

static void bounds(struct pt_tx *t, struct pt_line *l, const double v[2])
{
	bool lo = isfinite(v[0]), hi = isfinite(v[1]);

	if (lo && hi)
		pt_line_add(l, " (at least" NB "%s, at most" NB "%s)",
			    pt_tx_pct(t, v[0]), pt_tx_pct(t, v[1]));
	else if (lo)
		pt_line_add(l, " (at least" NB "%s)", pt_tx_pct(t, v[0]));
	else if (hi)
		pt_line_add(l, " (at most" NB "%s)", pt_tx_pct(t, v[1]));
}

static void gpu_counts(struct pt_tx *t, const struct pt_r_gpu *g)
{
	const struct {
		int64_t n;
		const char *name;
	} counts[] = {
		{ g->kernels, "kernels" },
		{ g->graph_launches ? g->graph_launches : PT_NULL,
		  "graph launches" },
		{ g->collectives ? g->collectives : PT_NULL, "collectives" },
		{ g->copies_h2d, "copies to the GPU" },
		{ g->copies_d2h, "back" },
		{ g->copies_other ? g->copies_other : PT_NULL, "other copies" },
		{ g->syncs, "syncs" },
		{ g->failed_allocations ? g->failed_allocations : PT_NULL,
		  "failed allocations" },
	};
	struct pt_line l = { .n = 0 };

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		if (counts[i].n != PT_NULL)
			pt_line_item(t, &l, "%s" NB "%s",
				     pt_tx_int(t, counts[i].n), counts[i].name);
	if (g->copy_bytes != PT_NULL)
		pt_line_item(t, &l, "%s copied",
			     pt_tx_size(t, g->copy_bytes));
	if (isfinite(g->pageable_share))
		pt_line_item(t, &l, "%s from pageable memory",
			     pt_tx_pct(t, g->pageable_share));
	pt_tx_line(t, NULL, &l);
}

/* Thermal and power faults slow a healthy job down unseen; a power cap is how
 * the machine was set. */
static bool is_fault(const char *reason)
{
	return strstr(reason, "slowdown") != NULL;
}

static void throttle_line(struct pt_tx *t, const struct pt_r_device *d)
{
	struct pt_line l = { .n = 0 };

	for (int fault = 1; fault >= 0; fault--) {
		for (size_t i = 0; i < d->n_throttle; i++) {
			char s[64];

			if (is_fault(d->throttle[i]) != fault)
				continue;
			snprintf(s, sizeof(s), "%s", d->throttle[i]);
			for (char *c = s; *c; c++)
				*c = *c == '_' ? ' ' : *c;
			pt_line_item(t, &l, "%s%s%s", l.n ? "" : "clocks held "
				     "down by ", s, fault ? "" : " (info)");
		}
	}
	pt_tx_line(t, NULL, &l);
}

/* What the driver says, if it was asked. */
static void device_lines(struct pt_tx *t, const struct pt_r_gpu *g)
{
	const struct pt_r_device *d = &g->device;
	struct pt_line l = { .n = 0 };

	if (d->known && d->name)
		pt_line_item(t, &l, "%s", pt_tx_esc(t, d->name, 40));
	if (d->known && d->util.n)
		pt_line_item(t, &l, "NVML utilisation %s",
			     pt_tx_pct(t, d->util.mean));
	if (g->mem_peak != PT_NULL)
		pt_line_item(t, &l, "memory peak %s",
			     pt_tx_size(t, g->mem_peak));
	if (g->mem_peak != PT_NULL && g->mem_total != PT_NULL)
		pt_line_add(&l, " of %s", pt_tx_size(t, g->mem_total));
	if (d->known && d->sm_mhz.n) {
		pt_line_item(t, &l, "%s", pt_tx_num(t, d->sm_mhz.mean));
		if (d->sm_max_mhz != PT_NULL)
			pt_line_add(&l, " of %s", pt_tx_id(t, d->sm_max_mhz));
		pt_line_add(&l, NB "MHz");
	}
	if (d->known && d->processes != PT_NULL && d->processes != d->traced)
		pt_line_item(t, &l, "%s processes on it, %s traced",
			     pt_tx_int(t, d->processes),
			     pt_tx_int(t, d->traced));
	pt_tx_line(t, NULL, &l);
	throttle_line(t, d);
}

/* Do the likely bounds say more than the certain ones, once rounded? */
static bool narrower(const struct pt_r_gpu *g)
{
	return g->certainty == PT_ESTIMATED &&
	       (g->busy_likely[0] - g->busy_hard[0] >= 0.01 ||
		g->busy_hard[1] - g->busy_likely[1] >= 0.01);
}

/* Why it idles; what is less than half a percent of the time is left out. */
static void idle_line(struct pt_tx *t, const struct pt_r_gpu *g)
{
	struct pt_line l = { .n = 0 };

	for (size_t i = 0; i < g->n_idle_causes && i < PT_CAUSES_SHOWN; i++) {
		const struct pt_r_charge *c = &g->idle_causes[i];

		if (c->share < 0.005)
			break;
		pt_line_item(t, &l, "%s%s %s", l.n ? "" : "idle: ",
			     pt_tx_pct(t, c->share), pt_tx_cause(c->cause));
		if (c->what)
			pt_line_add(&l, " (%s)", c->what);
	}
	pt_tx_line(t, NULL, &l);
}

void pt_tx_busy(struct pt_tx *t, struct pt_line *l, const struct pt_r_gpu *g)
{
	const char *how = pt_certainty_name(g->certainty);

	pt_line_add(l, "busy %s", isfinite(g->busy_share) ?
					   pt_tx_pct(t, g->busy_share) :
					   "unknown");
	if (isfinite(g->busy_share) && narrower(g))
		pt_line_add(l, ", likely %s to %s", pt_tx_pct(t, g->busy_likely[0]),
			    pt_tx_pct(t, g->busy_likely[1]));
	bounds(t, l, g->busy_hard);
	if (isfinite(g->busy_share) && how)
		pt_line_add(l, ", %s", how);
	if (isfinite(g->starved_share[0]) || isfinite(g->starved_share[1])) {
		pt_line_item(t, l, "idle waiting for data ");
		if (isfinite(g->starved_share[1]))
			pt_line_add(l, "%s",
				    pt_tx_pct(t, g->starved_share[1]));
		if (isfinite(g->starved_share[0]))
			pt_line_add(l, " (at least" NB "%s)",
				    pt_tx_pct(t, g->starved_share[0]));
	}
}

void pt_tx_gpu(struct pt_tx *t, const struct pt_r_gpu *g)
{
	struct pt_line l = { .n = 0 };
	char label[16] = "GPU";

	if (g->index != PT_NULL)
		snprintf(label, sizeof(label), "GPU %.5s",
			 pt_tx_id(t, g->index));
	pt_tx_busy(t, &l, g);
	pt_tx_line(t, label, &l);
	idle_line(t, g);
	gpu_counts(t, g);
	pt_tx_alloc_failures(t, g);
	device_lines(t, g);
}

void pt_tx_alloc_failures(struct pt_tx *t, const struct pt_r_gpu *g)
{
	size_t i;

	for (i = 0; i < g->n_alloc_failures; i++) {
		const struct pt_r_alloc_failure *f = &g->alloc_failures[i];
		struct pt_line l = { .n = 0 };
		char name[32];

		snprintf(name, sizeof(name), "error %lld", (long long)f->code);
		pt_line_item(t, &l, "%s" NB "allocations failed (%s)",
			     pt_tx_int(t, f->count), f->name ? f->name : name);
		if (f->smallest_bytes == f->largest_bytes)
			pt_line_item(t, &l, "of %s",
				     pt_tx_size(t, f->largest_bytes));
		else
			pt_line_item(t, &l, "of %s to %s",
				     pt_tx_size(t, f->smallest_bytes),
				     pt_tx_size(t, f->largest_bytes));
		if (f->recovered)
			pt_line_item(t, &l, "%s granted on retry",
				     pt_tx_int(t, f->recovered));
		if (f->held_bytes != PT_NULL)
			pt_line_item(t, &l, "%s held then, as far as seen",
				     pt_tx_size(t, f->held_bytes));
		if (f->free_bytes != PT_NULL)
			pt_line_item(t, &l, "%s free by the driver",
				     pt_tx_size(t, f->free_bytes));
		pt_tx_line(t, NULL, &l);
	}
}
