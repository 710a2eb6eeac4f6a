/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host's own work between GPU calls: how much of it there is, of which kind, and
 * how much of the device's idle time it costs. Where a loop waits for its device in
 * each step, idle time behind the sync is the host's work and the sync's doing both:
 * without the sync the device would have the next step's work, but no more than
 * that. So of each gap's idle time as much as the device works in a step would be
 * hidden without the sync, and over all no more than it works, or than the host leaves
 * of the time: the loop takes as long as that in any case. What passes behind a sync
 * until another rank or a client comes is theirs, and no sync's; and what works on
 * results that were copied back could not have begun without it.
 */
#include <string.h>

#include "analysis/gpu/passes.h"
#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"
#include "analysis/waits/look.h"

/* What threads of its own do for it is its own computing. PT_HOST_NR: no host work. */
static unsigned kind_of(const struct pt_host_piece *x)
{
	return x->what == PT_HOST_HELPED ? PT_HOST_COMPUTING :
	       x->what < PT_HOST_NR	 ? x->what :
					   PT_HOST_NR;
}

/* Of `ns` of work in [b,e) of the time that is looked at, what falls into idle time (likely,
 * or certain) of all devices, as a mean. */
static uint64_t idle_of(const struct pt_trainer *t, uint64_t ns, uint64_t b,
			uint64_t e, bool certain)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < t->devs.n; i++)
		sum += pt_spans_in(certain ? &t->devs.v[i].idle_hard :
					     &t->devs.v[i].idle_likely, b, e);
	if (!t->devs.n)
		return certain ? 0 : ns;
	/* a wait in the middle of a piece is seldom, and short; of seconds the product does
	 * not fit 64 bits */
	return (uint64_t)((double)ns * (double)(sum / t->devs.n) / (double)pt_max64(e - b, 1));
}

/* What counts as host work of a gap, by its largest kind. */
struct work {
	uint64_t ns[PT_HOST_NR], all, idle;
	uint64_t output; /* of the peers' part: until somebody takes what it hands out */
	uint64_t plain_lock; /* of the locks' */
	uint64_t longest[PT_HOST_NR]; /* of its pieces */
	uint64_t naps;	 /* sleeps by a timer */
	uint64_t others; /* certainly idle while another rank, or a client, is late */
};

static bool hands_out(const struct pt_host_piece *x, const struct pt_givers *g)
{
	const struct pt_giver *by;

	if (x->what != PT_HOST_PEER || !x->iv)
		return false;
	by = pt_giver_of(g, x->iv);
	return (by && by->takes) || (x->iv->valid_wake && x->iv->wake == PT_WAKE_ROOM);
}

/* Does it mostly wait for something that is no work of its own? Then that is what to
 * mend, also where it could be hidden. */
static bool mostly_waits(const struct work *w)
{
	return 2 * (w->ns[PT_HOST_COMPUTING] + w->ns[PT_HOST_QUEUED]) < w->all;
}

/* Outside of data waits. */
static void sum_gap(const struct pt_an *an, const struct pt_trainer *t,
		    const struct pt_host_gap *g, size_t *hint, struct work *w)
{
	const struct pt_host *h = &t->look->host;
	size_t i;

	memset(w, 0, sizeof(*w));
	for (i = g->first; i < g->first + g->n; i++) {
		const struct pt_host_piece *x = &h->pieces.v[i];
		uint64_t b = pt_max64(x->begin, an->t0), e = pt_min64(x->end, an->t1);
		uint64_t ns = kind_of(x) == PT_HOST_NR || e <= b ?
				      0 : e - b - pt_waits_in(t, hint, b, e);

		if (!ns)
			continue;
		w->ns[kind_of(x)] += ns;
		w->longest[kind_of(x)] = pt_max64(w->longest[kind_of(x)], ns);
		w->naps += x->what == PT_HOST_SLEEPING;
		w->output += hands_out(x, &t->look->givers) ? ns : 0;
		w->plain_lock += x->plain_lock ? ns : 0;
		if (x->what == PT_HOST_WRITING)
			continue;
		if (x->what == PT_HOST_COLLECTIVE || x->what == PT_HOST_CLIENT) {
			w->others += idle_of(t, ns, b, e, true);
			continue;
		}
		w->all += ns;
		w->idle += idle_of(t, ns, b, e, false);
	}
}

/* Behind a copy of results, and the sync that waits for it, the host works on those: it could
 * not begin before. */
static bool works_on_results(const struct pt_trainer *t, const struct pt_host_gap *g)
{
	uint32_t tid = g->g.th->tid;
	const struct pt_gpu_call *c = pt_last_call(t->proc, tid, g->g.begin);

	if (c && pt_call_is_sync(c) && c->begin)
		c = pt_last_call(t->proc, tid, c->begin - 1);
	return c && pt_brings_results(c);
}

static void note_place(struct pt_trainer *t, const struct pt_host_gap *g,
		       const struct work *w)
{
	struct pt_host_place *p = NULL, fresh = { .prev = g->g.prev,
						  .next = g->g.next };
	size_t i;

	for (i = 0; i < t->host_places.n && !p; i++)
		if (t->host_places.v[i].prev == g->g.prev &&
		    t->host_places.v[i].next == g->g.next)
			p = &t->host_places.v[i];
	if (!p) {
		if (t->host_places.n == PT_HOST_PLACES ||
		    pt_vec_push(&t->host_places, fresh))
			return;
		p = &t->host_places.v[t->host_places.n - 1];
	}
	p->n++;
	p->idle_ns += w->idle;
	p->naps += w->naps;
	for (i = 0; i < PT_HOST_NR; i++)
		p->ns[i] += w->ns[i];
}

void pt_sum_host(const struct pt_an *an, struct pt_trainer *t)
{
	const struct pt_host *h = &t->look->host;
	uint64_t wall = an->t1 - an->t0, step, own = 0, idle = 0, hidden = 0, others = 0;
	uint64_t busy = wall - pt_min64(wall, t->idle_likely_ns);
	size_t k, hint = 0;
	struct work w;

	step = t->steps.n ? busy / t->steps.n : 0;
	pt_each_iv(iv, t->main, an->t0, an->t1) {
		if (iv->wait == PT_WAIT_STOPPED)
			t->stopped_ns += pt_overlap(iv->begin, iv->ready, an->t0, an->t1);
	}
	pt_each(const struct pt_host_gap, g, &h->gaps) {
		if (g->g.end <= an->t0 || g->g.begin >= an->t1)
			continue;
		sum_gap(an, t, g, &hint, &w);
		for (k = 0; k < PT_HOST_NR; k++) {
			t->host_ns[k] += w.ns[k];
			t->host_longest[k] = pt_max64(t->host_longest[k], w.longest[k]);
		}
		t->output_ns += w.output;
		t->plain_lock_ns += w.plain_lock;
		others += w.others;
		own += w.all;
		/* what comes before the first call, or behind the last one of a job that
		 * ends, is no part of a loop */
		if (w.all <= PT_LAUNCH_GAP_NS || !g->g.prev || pt_gap_is_last(g))
			continue;
		idle += w.idle;
		hidden += mostly_waits(&w) || works_on_results(t, g) ?
				  0 : pt_min64(w.idle, step);
		note_place(t, g, &w);
	}
	t->sync_ns -= pt_min64(t->sync_ns, others);
	if (!t->gpu_known)
		idle = pt_min64(idle, t->idle_likely_ns);
	t->host_idle_ns = idle;
	hidden = pt_min64(hidden, wall - pt_min64(wall, own));
	t->host_hidden_ns = pt_min64(pt_min64(hidden, busy), idle);
}

bool pt_is_hosts(const struct pt_trainer *t)
{
	return (double)t->host_hidden_ns < PT_SYNC_HIDDEN * (double)t->host_idle_ns;
}

uint64_t pt_idle_by_syncs(const struct pt_trainer *t)
{
	return t->sync_ns - pt_min64(t->sync_ns, pt_is_hosts(t) ? t->host_idle_ns : 0);
}
