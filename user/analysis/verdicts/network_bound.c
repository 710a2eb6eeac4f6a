/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/verdicts/verdict.h"

#define DNS_PORT 53

struct net_wait {
	uint32_t peer; /* that was waited for longest: 1 + its index; 0 unknown */
	uint64_t ns, awaited_ns; /* for it */
	const struct pt_r_peer *row; /* of the report; NULL none */
	bool latency;
};

/* The charges have been joined by what they name, not summed over threads. */
static int find_peer(struct pt_an *an, const struct pt_trainer *t,
		     struct net_wait *w)
{
	size_t n = HASH_COUNT(an->m->peers) + 1, i;
	uint64_t *sum = calloc(2 * n, sizeof(*sum)), *awaited = sum + n;

	if (!sum)
		return -ENOMEM;
	for (i = 0; i < t->charges.n; i++) {
		const struct pt_charge *c = &t->charges.v[i];

		if (c->cause != PT_CAUSE_NETWORK || c->peer >= n)
			continue;
		sum[c->peer] += c->ns;
		awaited[c->peer] += c->awaited ? c->ns : 0;
	}
	for (i = 0; i < n; i++) {
		if (sum[i] <= w->ns)
			continue;
		w->peer = (uint32_t)i;
		w->ns = sum[i];
		w->awaited_ns = awaited[i];
	}
	free(sum);
	w->latency = (double)w->awaited_ns > PT_LATENCY_SHARE * (double)w->ns;
	/* the table has the peer that was waited for longest first */
	if (w->peer && an->r->n_peers && an->r->peers[0].data_wait_s > 0)
		w->row = &an->r->peers[0];
	return 0;
}

static void add_evidence(const struct pt_facts *f, const struct net_wait *w,
			 struct pt_r_verdict *v)
{
	uint64_t all = 0;
	size_t i;

	for (i = 0; i < PT_CAUSE_NR; i++)
		all += f->t->cause_ns[i];
	pt_evidence_against(v, "data_wait.network_share", f->cause[PT_CAUSE_NETWORK],
			    "share", f->th->root_share);
	if (!w->row)
		return;
	pt_evidence_add(v, "peers.data_wait_share", all ? (double)w->ns / (double)all : NAN,
			"share", NAN, w->row->certainty);
	if (isfinite(w->row->first_byte_share))
		pt_evidence_add(v, "peers.first_byte_share",
				(double)w->awaited_ns / (double)w->ns, "share",
				PT_LATENCY_SHARE, w->row->certainty);
	if (w->row->first_byte_ms.n)
		pt_evidence(v, "peers.first_byte_ms.p50", w->row->first_byte_ms.p50, "ms");
	if (isfinite(w->row->rate_bps))
		pt_evidence(v, "peers.rate_bps", w->row->rate_bps, "bytes/s");
	if (w->row->opened > 0)
		pt_evidence(v, "peers.opened", (double)w->row->opened, "count");
}

static bool reconnects(const struct pt_r_peer *p)
{
	return p->first_byte_ms.n && p->opened > 0 &&
	       (double)p->opened >= PT_RECONNECTS * (double)p->first_byte_ms.n;
}

static const char *advise(struct pt_an *an, const struct pt_facts *f,
			  const struct net_wait *w)
{
	const struct pt_r_peer *p = w->row;
	const char *keep = p && reconnects(p) ?
		"keep connections open instead of opening one per request, " : "";

	if (p && p->port == DNS_PORT)
		return "Host names are resolved over and over: keep connections open, or let "
		       "a local resolver cache them.";
	if (p && w->latency && p->first_byte_ms.n)
		return pt_sentence(an,
			"A response takes %.1f ms to start (median): %srequest more at a time "
			"(larger ranges, several items per request), keep more requests in "
			"flight (num_workers is %zu today; waiting costs no core), or bring "
			"the data closer (a nearer store, a cache on a local disk).",
			p->first_byte_ms.p50, keep, f->t->concurrent);
	if (p && !w->latency && p->bytes != PT_NULL && p->wait_s > 0)
		return pt_sentence(an,
			"Responses start soon but arrive slowly, at %.1f MB/s while a worker "
			"waits: fetch less (compressed items, only the ranges that are used), "
			"use more connections where each is limited (num_workers is %zu "
			"today), or bring the data closer (a nearer store, a cache on a local "
			"disk).",
			(double)p->bytes / p->wait_s / 1e6, f->t->concurrent);
	return pt_sentence(an,
		"Keep more requests in flight (num_workers is %zu today; waiting costs no core), fetch larger pieces, or cache the data on a local disk.",
		f->t->concurrent);
}

/* A service on this machine that sleeps is late to answer, as one far away may be: of that
 * only the network would be seen. */
static bool is_late_service(const struct pt_an *an, const struct pt_facts *f)
{
	return f->largest == PT_GROUP_SLEEP && f->group[PT_GROUP_SLEEP] >= f->th->root_share &&
	       pt_served_by(f) && an->r->n_peers &&
	       an->r->peers[0].wait_s >= f->th->slow_share * pt_sec(f->t->data_wait_ns);
}

static int judge_late(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_worker *w = pt_served_by(f);

	pt_evidence_starved(f, v);
	pt_evidence_against(v, "data_wait.sleep_share", f->group[PT_GROUP_SLEEP], "share",
			    f->th->root_share);
	v->subject_pid = w->proc->tgid;
	v->title = pt_sentence(an,
		"The GPU waits for a service outside the job (process %u) that sleeps before it "
		"answers: %.0f %% of the data wait.",
		pt_real_id(w->proc->tgid), 100 * f->group[PT_GROUP_SLEEP]);
	pt_at_most(&v->certainty, PT_CONF_MEDIUM);
	return 1;
}

/* Workers wait for the network, and the trainer for them. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	struct net_wait w = { 0 };
	const char *who = NULL;

	if (is_late_service(an, f))
		return judge_late(an, f, v);
	if (f->largest != PT_GROUP_NETWORK ||
	    f->group[PT_GROUP_NETWORK] < f->th->root_share)
		return 0;
	if (find_peer(an, f->t, &w))
		return -ENOMEM;
	pt_evidence_starved(f, v);
	add_evidence(f, &w, v);
	if (w.peer)
		who = pt_peer_name(an, w.peer - 1);
	v->subject_peer = who;
	v->title = pt_sentence(an,
		"The GPU waits for the network: %.0f %% of the data wait is workers waiting "
		"for %s to %s.",
		100 * f->group[PT_GROUP_NETWORK], who ? who : "a remote side",
		w.row && !w.latency ? "send" : "answer");
	v->advice = advise(an, f, &w);
	pt_replayed_speedup(an, "workers", v);
	return 1;
}

const struct pt_verdict pt_verdict_network_bound = { .asked = { { PT_V_WHAT, judge } },
	.lines = { PT_LINES_WORKERS, 1u << PT_CAUSE_NETWORK,
		   "the workers' network waits" },
};
