/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>
#include <string.h>

#include "report/verdicts.h"
#include "view/text/blocks.h"

#define PEERS_SHOWN 10

static double bytes_of(int64_t n)
{
	return n == PT_NULL ? NAN : (double)n;
}

static void peer_name(struct pt_tx *t, const struct pt_r_peer *p)
{
	bool v6 = p->address && strchr(p->address, ':');
	const char *port = p->port == PT_NULL ? "" : pt_tx_id(t, p->port);

	pt_tx_printf(t, "  %s%s%s%s%s%s\n", v6 ? "[" : "",
		     p->address ? pt_tx_path(t, p->address, 40) : p->protocol,
		     v6 ? "]" : "", *port ? ":" : "", port,
		     p->protocol && !strcmp(p->protocol, "udp") ? " udp" : "");
}

void pt_tx_peers(struct pt_tx *t, const struct pt_report *r)
{
	size_t n = pt_tx_rows(t, PEERS_SHOWN, r->n_peers);

	if (!n || (!t->o.verbose && !pt_verdicts_rest_on(r, "peers.wait_s")))
		return;
	pt_tx_label(t, "Peers");
	pt_tx_put(t, "   conns       bytes  wait s  for data  first byte ms"
		     "  peer\n");
	for (size_t i = 0; i < n; i++) {
		const struct pt_r_peer *p = &r->peers[i];
		const struct pt_dist *d = &p->first_byte_ms;

		pt_tx_printf(t, "%*s", PT_TX_LABEL, "");
		pt_tx_cell(t, pt_tx_int(t, p->connections), 8, true);
		pt_tx_cell(t, pt_tx_bytes(t, bytes_of(p->bytes)), 12, true);
		pt_tx_cell(t, pt_tx_sec(t, p->wait_s), 8, true);
		pt_tx_cell(t, pt_tx_sec(t, p->data_wait_s), 10, true);
		pt_tx_cell(t, pt_tx_ms(t, d->n ? d->p50 : NAN), 15, true);
		peer_name(t, p);
	}
	if (r->n_peers > n)
		pt_tx_printf(t, "%*sand %zu more\n", PT_TX_LABEL + 2, "",
			     r->n_peers - n);
}
