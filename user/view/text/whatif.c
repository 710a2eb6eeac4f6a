/* SPDX-License-Identifier: BSD-2-Clause */
/* What a change would win, by the simulation of the observed job. */
#include <math.h>
#include <string.h>

#include "view/text/blocks.h"

/* More counts than these are for the JSON report. */
#define COUNTS_SHOWN 5

static const char *name_of(const char *change)
{
	static const struct {
		const char *id, *text;
	} names[] = {
		{ "no_disk_wait", "no waiting for the disk" },
		{ "no_network_wait", "no waiting for the network" },
		{ "no_lock", "no contention between workers" },
		{ "slow_items_fixed", "no outlier batches" },
		{ "any_order", "out-of-order delivery" },
		{ "cores", "a core more" },
		{ "no_host_pause", "no sleeps in the loop" },
		{ "slow_worker_fixed", "slow worker at its peers' speed" },
		{ "transfers_overlapped", "copies overlapped" },
		{ "fewer_syncs", "no per-step sync" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i].id, change))
			return names[i].text;
	return change;
}

static bool is_workers(const struct pt_r_whatif *w)
{
	return w->change && !strcmp(w->change, "workers");
}

static void factor(struct pt_tx *t, struct pt_line *l,
		   const struct pt_r_whatif *w, bool range)
{
	pt_line_add(l, "%.2fx", w->speedup.value);
	if (range && isfinite(w->speedup.low) && isfinite(w->speedup.high))
		pt_line_add(l, " (%.2f%s%.2f)", w->speedup.low, pt_tx_dash(t),
			    w->speedup.high);
}

static void counts(struct pt_tx *t, const struct pt_report *r,
		   struct pt_line *l)
{
	size_t shown = 0;
	int64_t last = 0;

	for (;;) { /* by count: the best one stands first in the report */
		const struct pt_r_whatif *next = NULL;

		for (size_t i = 0; i < r->n_whatif; i++) {
			const struct pt_r_whatif *w = &r->whatif[i];

			if (is_workers(w) && w->value > last &&
			    isfinite(w->speedup.value) &&
			    (!next || w->value < next->value))
				next = w;
		}
		if (!next || shown == COUNTS_SHOWN)
			break;
		last = next->value;
		shown++;
		pt_line_item(t, l, "%s" NB "%s" NB, pt_tx_int(t, last),
			     last == 1 ? "worker" : "workers");
		factor(t, l, next, last == r->best_workers);
		if (last == r->best_workers)
			break; /* those beyond are no better */
	}
	if (shown && r->best_workers != PT_NULL)
		pt_line_item(t, l, "best: %s", pt_tx_int(t, r->best_workers));
}

static bool wins(const struct pt_report *r)
{
	for (size_t i = 0; i < r->n_whatif; i++)
		if (r->whatif[i].speedup.low > 1)
			return true;
	return false;
}

void pt_tx_whatif(struct pt_tx *t, const struct pt_report *r)
{
	struct pt_line l = { .n = 0 };

	counts(t, r, &l);
	for (size_t i = 0; i < r->n_whatif; i++) {
		const struct pt_r_whatif *w = &r->whatif[i];

		/* what wins nothing is for the JSON report */
		if (!w->change || is_workers(w) || !(w->speedup.low > 1))
			continue;
		pt_line_item(t, &l, "%s" NB, name_of(w->change));
		factor(t, &l, w, true);
	}
	/* that fewer workers would do is news, that more win nothing is not */
	if (!l.n || (!wins(r) && r->best_workers == PT_NULL))
		return;
	pt_tx_line(t, "What if", &l);
}
