/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of a capture that were judged each by itself, a line each. */
#include <math.h>

#include "view/text/blocks.h"

#define ROWS_SHOWN 24

struct all { /* over the parts; times weigh them */
	double seconds, waited, starved;
	int64_t steps;
	bool waits, starves;
};

static void add_window(struct all *k, const struct pt_r_window *w)
{
	k->seconds += w->duration;
	k->steps += w->steps > 0 ? w->steps : 0;
	k->waits &= isfinite(w->data_wait_share);
	k->starves &= isfinite(w->starved_share);
	k->waited += w->duration * w->data_wait_share;
	k->starved += w->duration * w->starved_share;
}

static void row(struct pt_tx *t, const struct pt_r_window *w, bool all)
{
	pt_tx_cell(t, pt_tx_sec(t, w->at), 10, true);
	pt_tx_cell(t, pt_tx_sec(t, w->duration), 9, true);
	pt_tx_cell(t, pt_tx_int(t, w->steps), 8, true);
	pt_tx_cell(t, pt_tx_ms(t, w->step_ms), 9, true);
	pt_tx_cell(t, pt_tx_ms(t, w->step_p95_ms), 9, true);
	pt_tx_cell(t, pt_tx_pct(t, w->data_wait_share), 10, true);
	pt_tx_cell(t, pt_tx_pct(t, w->starved_share), 9, true);
	pt_tx_cell(t, pt_tx_pct(t, w->gpu_busy_share), 9, true);
	pt_tx_printf(t, "  %s%s\n",
		     w->n_verdicts && w->verdicts[0] ? w->verdicts[0] : "-",
		     w->reported && !all ? " (this report)" : "");
}

void pt_tx_windows(struct pt_tx *t, const struct pt_report *r)
{
	struct all k = { .waits = true, .starves = true };
	size_t i, from = r->n_windows > ROWS_SHOWN ? r->n_windows - ROWS_SHOWN : 0;
	size_t reported = 0;

	if (!r->n_windows)
		return;
	for (i = 0; i < r->n_windows; i++) {
		add_window(&k, &r->windows[i]);
		reported += r->windows[i].reported;
	}
	pt_tx_label(t, "Parts");
	pt_tx_printf(t, "%zu, %s, %s steps; waiting for data %s, GPU starved "
		     "~%s of it\n", r->n_windows, pt_tx_sec(t, k.seconds),
		     pt_tx_int(t, k.steps),
		     pt_tx_pct(t, k.waits ? k.waited / k.seconds : NAN),
		     pt_tx_pct(t, k.starves ? k.starved / k.seconds : NAN));
	pt_tx_put(t, "      from     long   steps  mean ms   p95 ms data wait"
		     "  starved GPU busy  first verdict\n");
	if (from)
		pt_tx_printf(t, "%*sthe first %zu are in the JSON\n",
			     PT_TX_LABEL + 2, "", from);
	for (i = from; i < r->n_windows; i++)
		row(t, &r->windows[i], reported == r->n_windows);
}
