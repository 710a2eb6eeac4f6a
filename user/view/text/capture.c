/* SPDX-License-Identifier: BSD-2-Clause */
/* The foot of the text report: how it was captured, and what it cannot see. */
#include <math.h>

#include "report/verdicts.h"
#include "view/text/blocks.h"


static void losses(struct pt_tx *t, struct pt_line *l,
		   const struct pt_r_capture *c)
{
	bool first = true;

	if (c->lost_total == PT_NULL) {
		pt_line_item(t, l, "losses unknown");
		return;
	}
	if (!c->lost_total) {
		pt_line_item(t, l, "none lost");
		return;
	}
	pt_line_item(t, l, "%s" NB "LOST", pt_tx_int(t, c->lost_total));
	for (size_t i = 0; i < c->n_lost; i++) {
		if (c->lost[i].count == PT_NULL || !c->lost[i].count)
			continue;
		pt_line_add(l, "%s%s" NB "%s", first ? " (" : ", ",
			    pt_tx_esc(t, c->lost[i].cause, 32),
			    pt_tx_int(t, c->lost[i].count));
		first = false;
	}
	if (!first)
		pt_line_add(l, ")");
}

static void summary(struct pt_tx *t, const struct pt_r_capture *c)
{
	const struct pt_range *over = &c->target_overhead;
	struct pt_line l = { .n = 0 };

	if (isfinite(c->duration))
		pt_line_item(t, &l, "%s", pt_tx_sec(t, c->duration));
	if (!c->complete)
		pt_line_item(t, &l, "BROKE OFF EARLY");
	if (c->mode)
		pt_line_item(t, &l, "%s" NB "mode", pt_tx_esc(t, c->mode, 16));
	if (c->events != PT_NULL)
		pt_line_item(t, &l, "%s" NB "events", pt_tx_int(t, c->events));
	losses(t, &l, c);
	if (isfinite(c->tracer_cpu_s)) {
		pt_line_item(t, &l, "tracer used %s of CPU",
			     pt_tx_sec(t, c->tracer_cpu_s));
		if (c->duration > 0)
			pt_line_add(&l, " (%s of one core)",
				    pt_tx_pct(t, c->tracer_cpu_s /
							 c->duration));
	}
	if (isfinite(over->value)) {
		pt_line_item(t, &l, "cost to the job %s",
			     pt_tx_pct(t, over->value));
		if (isfinite(over->low) && isfinite(over->high))
			pt_line_add(&l, " (%s to %s)", pt_tx_pct(t, over->low),
				    pt_tx_pct(t, over->high));
	}
	pt_tx_line(t, "Capture", &l);
}

static void doors(struct pt_tx *t, const struct pt_r_capture *c)
{
	struct pt_line l = { .n = 0 };

	for (size_t i = 0; i < c->n_hooks; i++) {
		const struct pt_r_hook *h = &c->hooks[i];

		if (!h->need)
			continue;
		pt_line_item(t, &l, "%s" NB "%s", pt_tx_esc(t, h->need, 24),
			     pt_tx_esc(t, h->door ? h->door : "unknown", 32));
		if (t->o.verbose && h->note && *h->note)
			pt_line_add(&l, " (%s)", pt_tx_esc(t, h->note, 0));
	}
	pt_tx_line(t, "Hooks", &l);
}

void pt_tx_capture(struct pt_tx *t, const struct pt_report *r)
{
	const struct pt_r_capture *c = &r->capture;
	size_t shown = 0, left;

	summary(t, c);
	if (t->o.verbose)
		doors(t, c);
	for (size_t i = 0; i < c->n_limits; i++) {
		char text[PT_TX_SLOT * 2];

		if (!t->o.verbose && !pt_limit_matters(r, c->limits[i].what))
			continue;
		snprintf(text, sizeof(text), "%s: %s",
			 pt_tx_esc(t, c->limits[i].what, 40),
			 pt_tx_esc(t, c->limits[i].reason, 0));
		pt_tx_label(t, shown++ ? "" : "Limits");
		pt_tx_wrap(t, PT_TX_LABEL, text);
	}
	if (c->n_limits == shown)
		return;
	pt_tx_label(t, shown ? "" : "Limits");
	left = c->n_limits - shown;
	pt_tx_printf(t, "%zu %slimitation%s that %s not affect these verdicts (-v lists %s)\n",
		     left, shown ? "more " : "", left > 1 ? "s" : "", left > 1 ? "do" : "does",
		     left > 1 ? "them" : "it");
}
