/* SPDX-License-Identifier: BSD-2-Clause */
/* Storage in the text report. */
#include <math.h>

#include "view/text/blocks.h"

#define DISKS_SHOWN 4
#define WRITES_SHOWN 10
#define BUSY_SHOWN 0.05 /* a disk that idles holds nobody up */
#define REQUESTS_SHOWN 16 /* fewer are a start-up's, not the job's */

static double bytes(int64_t v)
{
	return v == PT_NULL ? NAN : (double)v;
}

void pt_tx_disks(struct pt_tx *t, const struct pt_report *r)
{
	size_t shown = 0;

	for (size_t i = 0; i < r->n_disks && shown < DISKS_SHOWN; i++) {
		const struct pt_r_disk *d = &r->disks[i];
		const struct pt_dist *l = &d->latency_ms;

		if (!t->o.verbose && (d->reads + d->writes < REQUESTS_SHOWN ||
				      d->busy_share < BUSY_SHOWN))
			continue;
		if (!shown++) {
			pt_tx_label(t, "Disks");
			pt_tx_put(t, "name         reads      read   written  "
				     "mean ms   p99 ms  depth  busy\n");
		}
		pt_tx_printf(t, "%*s", PT_TX_LABEL, "");
		pt_tx_cell(t, d->name ? pt_tx_esc(t, d->name, 10) :
					pt_tx_dash(t), 9, false);
		pt_tx_cell(t, pt_tx_int(t, d->reads), 9, true);
		pt_tx_cell(t, pt_tx_bytes(t, bytes(d->read_bytes)), 10, true);
		pt_tx_cell(t, pt_tx_bytes(t, bytes(d->write_bytes)), 10, true);
		pt_tx_cell(t, pt_tx_ms(t, l->n ? l->mean : NAN), 9, true);
		pt_tx_cell(t, pt_tx_ms(t, l->n ? l->p99 : NAN), 9, true);
		pt_tx_cell(t, pt_tx_num(t, d->depth_mean), 7, true);
		pt_tx_cell(t, pt_tx_pct(t, d->busy_share), 6, true);
		pt_tx_put(t, "\n");
	}
}

void pt_tx_writes(struct pt_tx *t, const struct pt_report *r)
{
	size_t n = pt_tx_rows(t, WRITES_SHOWN, r->n_writes);

	if (!n)
		return;
	pt_tx_label(t, "Writes");
	pt_tx_put(t, "   calls       bytes   write s  fsync s  blocked  path\n");
	for (size_t i = 0; i < n; i++) {
		const struct pt_r_write *w = &r->writes[i];

		pt_tx_printf(t, "%*s", PT_TX_LABEL, "");
		pt_tx_cell(t, pt_tx_int(t, w->calls), 8, true);
		pt_tx_cell(t, pt_tx_bytes(t, bytes(w->bytes)), 12, true);
		pt_tx_cell(t, pt_tx_sec(t, w->write_s), 10, true);
		pt_tx_cell(t, pt_tx_sec(t, w->fsync_s), 9, true);
		pt_tx_cell(t, pt_tx_sec(t, w->blocked_s), 9, true);
		pt_tx_printf(t, "  %s\n",
			     pt_tx_path(t, w->path, (size_t)t->width - 60));
	}
	if (r->n_writes > n)
		pt_tx_printf(t, "%*sand %zu more\n", PT_TX_LABEL + 2, "",
			     r->n_writes - n);
}
