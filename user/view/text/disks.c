/* SPDX-License-Identifier: BSD-2-Clause */
/* Storage and network peers in the text report. */
#include <string.h>

#include "report/verdicts.h"
#include "view/text/blocks.h"

#define DISKS_SHOWN 4
#define WRITES_SHOWN 10
#define PEERS_SHOWN 10
#define BUSY_SHOWN 0.05 /* a disk that idles holds nobody up */
#define REQUESTS_SHOWN 16 /* fewer are a start-up's, not the job's */

void pt_tx_disks(struct pt_tx *t, const struct pt_report *r)
{
	typedef struct pt_r_disk row_t;
	static const struct pt_tx_col cols[] = {
		PT_TX_COL("name", -9, TEXT, name), PT_TX_COL("reads", 9, INT, reads),
		PT_TX_COL("read", 10, SIZE, read_bytes), PT_TX_COL("written", 10, SIZE, write_bytes),
		PT_TX_STAT("mean ms", 9, latency_ms, mean), PT_TX_STAT("p99 ms", 9, latency_ms, p99),
		PT_TX_COL("depth", 7, NUM, depth_mean), PT_TX_COL("busy", 6, PCT, busy_share),
	};
	size_t shown = 0;

	for (size_t i = 0; i < r->n_disks && shown < DISKS_SHOWN; i++) {
		const struct pt_r_disk *d = &r->disks[i];

		if (!t->o.verbose && (d->reads + d->writes < REQUESTS_SHOWN ||
				      d->busy_share < BUSY_SHOWN))
			continue;
		if (!shown++) {
			pt_tx_label(t, "Disks");
			pt_tx_titles(t, PT_TX_COLS(cols));
			pt_tx_put(t, "\n");
		}
		pt_tx_label(t, NULL);
		pt_tx_cells(t, PT_TX_COLS(cols), d);
		pt_tx_put(t, "\n");
	}
}

void pt_tx_writes(struct pt_tx *t, const struct pt_report *r)
{
	typedef struct pt_r_write row_t;
	static const struct pt_tx_col cols[] = {
		PT_TX_COL("calls", 8, INT, calls), PT_TX_COL("bytes", 12, SIZE, bytes),
		PT_TX_COL("write s", 10, SEC, write_s), PT_TX_COL("fsync s", 9, SEC, fsync_s),
		PT_TX_COL("blocked", 9, SEC, blocked_s),
	};
	size_t n = pt_tx_rows(t, WRITES_SHOWN, r->n_writes);

	if (!n)
		return;
	pt_tx_label(t, "Writes");
	pt_tx_titles(t, PT_TX_COLS(cols));
	pt_tx_put(t, "  path\n");
	for (size_t i = 0; i < n; i++) {
		pt_tx_label(t, NULL);
		pt_tx_cells(t, PT_TX_COLS(cols), &r->writes[i]);
		pt_tx_printf(t, "  %s\n", pt_tx_path(t, r->writes[i].path, pt_tx_room(t, 60)));
	}
	pt_tx_more(t, n, r->n_writes);
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
	typedef struct pt_r_peer row_t;
	static const struct pt_tx_col cols[] = {
		PT_TX_COL("conns", 8, INT, connections), PT_TX_COL("bytes", 12, SIZE, bytes),
		PT_TX_COL("wait s", 8, SEC, wait_s), PT_TX_COL("for data", 10, SEC, data_wait_s),
		PT_TX_STAT("first byte ms", 15, first_byte_ms, p50),
	};
	size_t n = pt_tx_rows(t, PEERS_SHOWN, r->n_peers);

	if (!n || (!t->o.verbose && !pt_verdicts_rest_on(r, "peers.wait_s")))
		return;
	pt_tx_label(t, "Peers");
	pt_tx_titles(t, PT_TX_COLS(cols));
	pt_tx_put(t, "  peer\n");
	for (size_t i = 0; i < n; i++) {
		pt_tx_label(t, NULL);
		pt_tx_cells(t, PT_TX_COLS(cols), &r->peers[i]);
		peer_name(t, &r->peers[i]);
	}
	pt_tx_more(t, n, r->n_peers);
}
