/* SPDX-License-Identifier: BSD-2-Clause */
#include "report/json_int.h"

json_t *pt_j_peers(struct pt_jb *b, const struct pt_report *r)
{
	json_t *a = json_array();

	for (size_t i = 0; i < r->n_peers; i++) {
		const struct pt_r_peer *p = &r->peers[i];
		json_t *o = json_object();

		pt_j_text(b, o, "address", p->address);
		pt_j_put(b, o, "port", pt_j_int(p->port));
		pt_j_text(b, o, "protocol", p->protocol);
		pt_j_put(b, o, "connections", pt_j_int(p->connections));
		pt_j_put(b, o, "opened", pt_j_int(p->opened));
		pt_j_put(b, o, "bytes", pt_j_int(p->bytes));
		pt_j_put(b, o, "rate_bps", pt_j_num(p->rate_bps, PT_J_WHOLE));
		pt_j_put(b, o, "wait_s", pt_j_num(p->wait_s, PT_J_STD));
		pt_j_put(b, o, "first_byte_share",
			 pt_j_num(p->first_byte_share, PT_J_STD));
		pt_j_put(b, o, "data_wait_s", pt_j_num(p->data_wait_s, PT_J_STD));
		pt_j_put(b, o, "connect_ms", pt_j_dist(&p->connect_ms));
		pt_j_put(b, o, "first_byte_ms", pt_j_dist(&p->first_byte_ms));
		pt_j_put(b, o, "round_trip_ms",
			 pt_j_num(p->round_trip_ms, PT_J_FINE));
		pt_j_put(b, o, "retransmits", pt_j_int(p->retransmits));
		pt_j_put(b, o, "out_of_order", pt_j_int(p->out_of_order));
		pt_j_put(b, o, "workers", pt_j_int(p->workers));
		pt_j_put(b, o, "certainty",
			 pt_j_name(pt_certainty_name(p->certainty)));
		pt_j_add(b, a, o);
	}
	return a;
}
