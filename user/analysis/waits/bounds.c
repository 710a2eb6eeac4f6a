/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Its sleeps are seen, and whom it asked; the time on the CPU before the first of
 * these and behind the last belongs to it as far as a loader needs it: the gaps of
 * the loop show how much that is. What is more is the loop's own work.
 */
#include "analysis/waits/bounds.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* A loader written in Python computes for 0.05 to 0.5 ms before it first sleeps
 * or wakes somebody (measured; most after a long sleep, with cold caches). Where a
 * loop's gaps have more, it does something else first. */
#define LEAD_IN_NS 100000ull
#define LEAD_IN_MAX_NS 700000ull
/* In a loop that asks at once, so much more than usual is the loop's own work
 * of some steps only (a log line); less may be the loader's bad luck. */
#define LEAD_EXTRA_NS 1000000ull
/* From the refill to the loop's having its batch: a queue's locks and a few
 * returns, 0.1 to 0.2 ms in a loader written in Python (measured). */
#define LEAD_OUT_NS 200000ull
#define LEAD_OUT_MIN_NS 100000ull
/* Obtaining a batch that was ready: unpickle and map. Used only where neither its
 * begin nor its hand-over can be seen. */
#define READY_NS 2000000ull

/* ---- the consumer's CPU time ---------------------------------------------------------- */

/* The moment in [from, limit] at which `th` has run for `ns` since `from`. */
static uint64_t cpu_forward(const struct pt_thread *th, uint64_t from,
			    uint64_t limit, uint64_t ns)
{
	uint64_t pos = from;

	pt_each_iv(iv, th, from, limit) {
		if (iv->begin >= pos + ns)
			break;
		if (iv->begin > pos)
			ns -= iv->begin - pos;
		pos = pt_max64(pos, iv->end);
	}
	return pt_min64(pos + ns, limit);
}

/* ... in [floor, to] from which on it runs for `ns` until `to`. */
static uint64_t cpu_back(const struct pt_thread *th, uint64_t to, uint64_t floor,
			 uint64_t ns)
{
	uint64_t own = pt_cpu_ns(th, floor, to);

	return own <= ns ? floor : cpu_forward(th, floor, to, own - ns);
}

/* ---- one gap ------------------------------------------------------------------------------ */

uint64_t pt_gap_first(const struct pt_bounds *o, const struct pt_host_gap *g)
{
	/* a few of many reads sleep: not the first, where reads are not traced */
	uint64_t at = g->supplied_ns || g->reads || o->sleeps_first ? g->begins : 0;

	if (g->asked && (!at || g->asked < at))
		at = g->asked;
	if (g->reads && (!at || g->read_first < at))
		at = g->read_first;
	return at;
}

static uint64_t last_evidence(const struct pt_host_gap *g)
{
	return pt_max64(pt_max64(g->ends, g->started),
			g->reads ? g->read_last : 0);
}

/* Nothing is seen of the loader from then on. */
uint64_t pt_gap_last_seen(const struct pt_host_gap *g)
{
	return pt_max64(pt_max64(last_evidence(g), g->told), g->asked);
}

/* A call that has returned takes the interpreter again: so little of its own time
 * comes before, in pieces so small that they are switches. */
#define RETAKE_NS 60000ull
#define SWITCH_NS 40000ull

/* ... where a loader is stopped and started anew, what the consumer waits for is its end. */
bool pt_is_else(const struct pt_host_gap *g, const struct pt_host_piece *x)
{
	switch (x->what) {
	case PT_HOST_COMPUTING:
	case PT_HOST_QUEUED:
	case PT_HOST_SUPPLIED:
	case PT_HOST_READING:
	case PT_HOST_HELPED:
		return false;
	case PT_HOST_LOCK:
		return x->plain_lock;
	case PT_HOST_CHILD:
	case PT_HOST_OTHER:
		return !g->started;
	default:
		return true;
	}
}

/* The consumer did something else until then: it launched, wrote, slept, started
 * the loader, or waited for the interpreter behind a call. */
uint64_t pt_gap_free(const struct pt_bounds *o, const struct pt_host_gap *g)
{
	uint64_t b = g->g.begin, first = pt_gap_first(o, g), own = 0;
	size_t i;

	if (!first)
		first = g->g.end;
	for (i = g->first; i < g->first + g->n; i++) {
		const struct pt_host_piece *x = &o->h->pieces.v[i];
		bool cut = pt_is_else(g, x);

		if (x->begin >= first)
			break;
		if (x->what == PT_HOST_COMPUTING && x->end - x->begin > SWITCH_NS)
			own += x->end - x->begin;
		cut |= x->what == PT_HOST_LOCK && own < RETAKE_NS;
		if (cut)
			b = pt_min64(x->end, first);
	}
	return b;
}

/* Less is a switch, not a lack of cores. */
#define LACKS_NS 100000ull

bool pt_lacks_core(const struct pt_bounds *o, const struct pt_host_gap *g,
		   const struct pt_host_piece *x)
{
	/* who loads by itself needs one for that */
	if (x->what != PT_HOST_QUEUED || x->end - x->begin < LACKS_NS || !o->t->workers.n)
		return false;
	return x->begin < g->g.begin + SWITCH_NS || (!pt_gap_first(o, g) && !g->told);
}

static uint64_t own_lead(const struct pt_bounds *o, const struct pt_host_gap *g, uint64_t from)
{
	uint64_t first = pt_gap_first(o, g);

	return first > from ? pt_cpu_ns(g->g.th, from, first) : 0;
}

/* From a sender's getting a batch to the consumer's taking it: pickled, written,
 * read, all of them with a core to wait for. */
#define JUST_SENT_NS 5000000ull

/*
 * Was a batch given to its sender shortly before `ts`? Then the consumer has most
 * likely waited for it, though no sleep was seen: a few switches reach no
 * tracepoint, and a sleep that is missing looks like work of its own.
 */
static bool just_sent(const struct pt_trainer *t, uint64_t ts)
{
	size_t i, at;

	for (i = 0; i < t->workers.n; i++) {
		const struct pt_worker *w = &t->workers.v[i];

		at = pt_times_until(&w->done, ts);
		if (w->feeder != w->main && at &&
		    w->done.v[at - 1] + JUST_SENT_NS >= ts)
			return true;
	}
	return false;
}

/* Of the gaps in which its own reading lets it sleep, reads themselves not being traced, so
 * many have the first sleep where the gap begins: then the others' are no bad luck. */
#define AT_ONCE_PART 0.9
#define SLEEPS_MIN 10

static void learn_sleeps(struct pt_bounds *o)
{
	size_t all = 0, at_once = 0;

	pt_each(const struct pt_host_gap, g, &o->h->gaps) {
		if (g->started || g->supplied_ns || g->reads || !g->read_ns || !g->begins ||
		    pt_place_between(o->p, g->g.prev, g->g.next) != o->p->best)
			continue;
		all++;
		at_once += pt_cpu_ns(g->g.th, pt_gap_free(o, g), g->begins) <= LEAD_IN_MAX_NS;
	}
	o->sleeps_first = all >= SLEEPS_MIN &&
			  (double)at_once >= AT_ONCE_PART * (double)all;
}

/* What is not seen stays 0. */
static int learn_leads(struct pt_bounds *o)
{
	size_t i, nl = 0, nr = 0, n = o->h->gaps.n;
	double *lead, *behind, *ready;

	if (!o->p->best || !o->p->best->data)
		return 0;
	lead = malloc((3 * n + 1) * sizeof(*lead));
	if (!lead)
		return -ENOMEM;
	behind = lead + n;
	ready = behind + n;
	for (i = 0; i < n; i++) {
		const struct pt_host_gap *g = &o->h->gaps.v[i];
		uint64_t from;

		if (g->started || pt_place_between(o->p, g->g.prev, g->g.next) != o->p->best)
			continue;
		from = pt_gap_free(o, g);
		if (pt_gap_first(o, g)) {
			behind[nl] = (double)pt_cpu_ns(g->g.th, pt_gap_last_seen(g), g->g.end);
			lead[nl++] = (double)own_lead(o, g, from);
		} else
			ready[nr++] = (double)pt_cpu_ns(g->g.th, from, g->g.end);
	}
	if (nl) {
		o->usual.lead = (uint64_t)pt_median(lead, nl);
		o->usual.behind = (uint64_t)pt_median(behind, nl);
	}
	if (nr)
		o->usual.ready = (uint64_t)pt_median(ready, nr);
	free(lead);
	return 0;
}

/* A second loop that loads by itself (an evaluation's loader without workers) calls the device
 * from where the first one does: only its Python tells. */
#define BARE_PART 0.5

static void learn_bare(struct pt_bounds *o)
{
	pt_each(const struct pt_host_gap, g, &o->h->gaps) {
		const struct pt_place_at *at = pt_place_between(o->p, g->g.prev, g->g.next);

		if (!at || !at->data || pt_gap_is_evident(g))
			continue;
		pt_add_looks(&o->bare.name, g);
	}
	o->bare.by_name = o->bare.name.looks >= PT_LOOKS_MIN &&
			  o->bare.name.named >= BARE_PART * o->bare.name.looked;
}

/* Of the gaps that have much more own time than usual so many end just behind a hand-over
 * where sleeps are missing; by chance fewer do. */
#define UNSEEN_PART 0.8

static void learn_unseen(struct pt_bounds *o)
{
	size_t long_ones = 0, sent = 0;

	pt_each(const struct pt_host_gap, g, &o->h->gaps) {
		if (!pt_gap_first(o, g) || g->started ||
		    own_lead(o, g, pt_gap_free(o, g)) <= o->usual.lead + LEAD_EXTRA_NS)
			continue;
		long_ones++;
		sent += just_sent(o->t, pt_gap_first(o, g));
	}
	o->unseen = (double)sent >= UNSEEN_PART * (double)long_ones;
}

/* A job that is traced from its first instruction imports, and builds its model, in one
 * gap with the start of its loader: that begins with the first worker. */
static uint64_t first_born(const struct pt_bounds *o, const struct pt_host_gap *g,
			   uint64_t from)
{
	uint64_t first = UINT64_MAX;
	size_t i;

	for (i = 0; i < o->t->workers.n; i++) {
		uint64_t at = o->t->workers.v[i].main->first;

		if (at > from && at <= g->g.end)
			first = pt_min64(first, at);
	}
	return first == UINT64_MAX ? from : first;
}

/* When a batch was asked for of which something was seen. */
static uint64_t asked_at(const struct pt_bounds *o, const struct pt_host_gap *g,
			 uint64_t from)
{
	uint64_t usual = o->usual.lead, first = pt_gap_first(o, g);
	uint64_t own = own_lead(o, g, from), most = usual + LEAD_EXTRA_NS;
	bool at_once = usual <= LEAD_IN_MAX_NS;

	if (!at_once)
		usual = most = LEAD_IN_NS;
	if (g->started) /* the loader was started: that belongs to it */
		return g->g.prev ? from : first_born(o, g, from);
	if (at_once && o->unseen && just_sent(o->t, first))
		return pt_min64(from, first);
	if (isfinite(o->fetching.lead) && first > from)
		return cpu_back(g->g.th, first, from, (uint64_t)(o->fetching.lead * (double)own));
	if (own <= most)
		return pt_min64(from, first);
	return cpu_back(g->g.th, first, from, usual);
}

/* When the loop has the batch, from `at` on, as looks at it tell; 0: they do not. */
static uint64_t taken_at(const struct pt_bounds *o, const struct pt_host_gap *g, uint64_t at)
{
	uint64_t own = pt_cpu_ns(g->g.th, at, g->g.end);

	/* no look counts where the loader was started: the loop's own start lies there, too */
	if (g->started)
		own = pt_min64(own, o->usual.behind + LEAD_EXTRA_NS);
	return !isfinite(o->fetching.behind) ? 0 :
	       cpu_forward(g->g.th, at, g->g.end, (uint64_t)(o->fetching.behind * (double)own));
}

/* ... else: some time behind the refill. Half way is least
 * wrong, but for what a refill takes and no later than it can be. */
static uint64_t behind_refill(const struct pt_bounds *o, const struct pt_host_gap *g)
{
	uint64_t own = pt_cpu_ns(g->g.th, g->told, g->g.end), told = taken_at(o, g, g->told);
	uint64_t after = pt_max64(pt_min64(own / 2, LEAD_OUT_NS),
				  LEAD_OUT_MIN_NS);

	if (told)
		return told;
	/* who reads it out of a pipe makes room there, and unpickles it then */
	after = pt_max64(after, (uint64_t)(o->taken * (double)own));
	return cpu_forward(g->g.th, g->told, g->g.end, after);
}

/* A thread that has its batch, and has worked for a moment, waits for the interpreter
 * to go on with the step. */
static uint64_t before_retaking(const struct pt_bounds *o, const struct pt_host_gap *g,
				uint64_t last)
{
	uint64_t own = 0;
	size_t i;

	for (i = g->first; i < g->first + g->n; i++) {
		const struct pt_host_piece *x = &o->h->pieces.v[i];

		if (x->begin < last)
			continue;
		if (x->what == PT_HOST_COMPUTING && x->end - x->begin > SWITCH_NS)
			own += x->end - x->begin;
		if (x->what == PT_HOST_LOCK && own >= LEAD_OUT_MIN_NS)
			return x->begin;
	}
	return g->g.end;
}

/* ... behind its last sleep: what it unpickles, and a few returns. */
static uint64_t behind_sleep(const struct pt_bounds *o, const struct pt_host_gap *g)
{
	uint64_t last = pt_max64(last_evidence(g), g->asked), own, told;

	/* a loader that was just started is waited for in any case */
	if (g->started == last || (!g->g.next && last >= g->g.end))
		return g->g.end;
	told = taken_at(o, g, last);
	if (told)
		return told;
	own = pt_cpu_ns(g->g.th, last, g->g.end);
	return own <= LEAD_IN_MAX_NS ?
		       before_retaking(o, g, last) :
		       cpu_forward(g->g.th, last, g->g.end,
				   pt_max64(LEAD_IN_NS, (uint64_t)(o->taken * (double)own)));
}

/* A thread that calls the device gives the interpreter away first, and may lose its core to
 * whom that wakes. */
static bool woke_its_own(const struct pt_thread *th, uint64_t at)
{
	const struct pt_proc *p = th->proc;
	size_t i;

	for (i = 0; i < p->threads.n; i++) {
		const struct pt_thread *x = p->threads.v[i];

		pt_each_iv(iv, x, at - pt_min64(at, SWITCH_NS), at + SWITCH_NS) {
			if (iv->valid_wake && iv->waker_tid == th->tid &&
			    iv->ready + SWITCH_NS >= at && iv->ready <= at + SWITCH_NS)
				return true;
		}
	}
	return false;
}

/* When that was, right before the call that ends the gap; else that end. */
static uint64_t before_waking(const struct pt_bounds *o, const struct pt_host_gap *g)
{
	size_t i = g->first + g->n;
	const struct pt_host_piece *x;

	while (i > g->first) {
		x = &o->h->pieces.v[--i];
		if (x->what == PT_HOST_QUEUED && x->end - x->begin >= LACKS_NS &&
		    x->begin >= pt_gap_last_seen(g) && g->g.next)
			return woke_its_own(g->g.th, x->begin) ? x->begin : g->g.end;
		if (x->what != PT_HOST_COMPUTING || x->end - x->begin > SWITCH_NS)
			break;
	}
	return g->g.end;
}

/* The consumer reads by itself: until it has worked on the last of what it read as
 * long as on the others. */
static uint64_t behind_reads(const struct pt_host_gap *g)
{
	uint64_t own = pt_cpu_ns(g->g.th, g->read_last, g->g.end);
	uint64_t between = g->read_last - g->read_first, each;

	if (g->reads < 2)
		return g->g.end;
	each = between / (g->reads - 1);
	return own <= each + each / 2 + READY_NS ?
		       g->g.end :
		       cpu_forward(g->g.th, g->read_last, g->g.end, each);
}

/* Nothing was seen, for the batch was there: how much of the consumer's CPU time
 * in the gap was for it. */
static uint64_t ready_ns(const struct pt_bounds *o, uint64_t own)
{
	uint64_t rest = o->usual.lead > LEAD_IN_MAX_NS ? o->usual.lead - LEAD_IN_NS : 0;

	if (isfinite(o->fetching.ready))
		return (uint64_t)(o->fetching.ready * (double)own);
	if (rest) /* the loop's own work varies more than the loader's */
		return pt_min64(pt_max64(o->usual.ready - pt_min64(o->usual.ready, rest),
					 LEAD_IN_NS),
				pt_min64(own, READY_NS));
	return own > READY_NS ? pt_min64(o->usual.ready, READY_NS) : own;
}

/* A job that ends shuts its loader down: from the first worker's end on there is no batch to
 * come. A trainer that is killed in a wait ends before them. */
static void end_with_loader(const struct pt_bounds *o, const struct pt_host_gap *g,
			    struct pt_span *w)
{
	if (!pt_gap_is_last(g))
		return;
	pt_each(const struct pt_worker, x, &o->t->workers) {
		uint64_t at = pt_thread_end(o->an, x->main);

		if (x->main->exited && at > g->g.begin && at < g->g.th->last)
			w->end = pt_min64(w->end, at);
	}
	w->begin = pt_min64(w->begin, w->end);
}

void pt_bound_gap(const struct pt_bounds *o, const struct pt_host_gap *g,
		  struct pt_span *w)
{
	uint64_t from = pt_gap_free(o, g), first = pt_gap_first(o, g);

	*w = (struct pt_span){ .begin = from, .end = g->g.end };
	if (g->told > from && g->told >= last_evidence(g))
		w->end = behind_refill(o, g);
	else if (g->supplied_ns || g->started)
		w->end = behind_sleep(o, g);
	else if (g->reads)
		w->end = behind_reads(g);
	else if (g->asked)
		w->end = taken_at(o, g, g->asked) ?: g->g.end;
	if (first > from) {
		w->begin = asked_at(o, g, from);
	} else if (!first && !g->read_bytes) {
		w->begin = cpu_back(g->g.th, w->end, from,
				    ready_ns(o, pt_cpu_ns(g->g.th, from, w->end)));
		/* it slept for its own reading, of which nothing else is seen */
		if (g->read_ns && g->begins)
			w->begin = pt_min64(w->begin,
					    cpu_back(g->g.th, g->begins, from,
						     READY_NS));
	}
	w->end = pt_max64(w->begin, pt_min64(w->end, before_waking(o, g)));
	end_with_loader(o, g, w);
}

/* Only the thread's Python tells that it obtains data in these gaps: so much of one, and
 * there, as looks found it in its iterator. By those at this gap, where they are many, or where
 * gaps are for one thing as a whole (the loop does something else in every tenth, which is then
 * longer): in so many of those with several looks all found the same. */
#define OWN_LOOKS 8
#define WHOLE_MIN 5
#define WHOLE_PART 0.8
static void bound_by_name(const struct pt_bounds *o, const struct pt_place_at *at,
			  const struct pt_host_gap *g, struct pt_span *w)
{
	uint64_t end = before_waking(o, g);
	struct pt_name_sum own = { 0 };
	const struct pt_name_sum *by = &at->name;
	bool whole = at->several >= WHOLE_MIN &&
		     (double)at->whole >= WHOLE_PART * (double)at->several;
	double named, middle, part, from, len = (double)(end - g->g.begin);

	pt_add_looks(&own, g);
	if (own.looks >= OWN_LOOKS || (whole && own.looks && own.looked > 0))
		by = &own;
	named = by->named;
	middle = by->named_at;
	part = whole && by != &own ? at->parts / (double)at->looked_at : named / by->looked;

	*w = (struct pt_span){ .begin = end, .end = end };
	if (named <= 0)
		return;
	from = fmin(fmax(middle / named - part / 2, 0), 1 - part);
	w->begin = g->g.begin + (uint64_t)(from * len);
	w->end = pt_min64(end, w->begin + (uint64_t)(part * len));
}

/* A gap that the capture's begin or end cuts is where its other end says. */
static const struct pt_place_at *place_of(const struct pt_period *p, const struct pt_gap *g)
{
	const struct pt_place_at *at = pt_place_between(p, g->prev, g->next), *best = p->best;

	if (at || !best)
		return at;
	return (!g->prev && g->next == best->next) || (!g->next && g->prev == best->prev) ? best : NULL;
}

bool pt_bound_named(const struct pt_bounds *o, const struct pt_host_gap *g, struct pt_span *w)
{
	const struct pt_place_at *at = place_of(o->p, &g->g);

	if (!at || pt_gap_is_evident(g) || !(at->by_name || (at->data && o->bare.by_name)) ||
	    (at->data && isfinite(o->fetching.ready)))
		return false;
	bound_by_name(o, at->by_name ? at : &o->bare, g, w);
	return true;
}

int pt_learn_bounds(struct pt_bounds *o)
{
	int err;

	learn_sleeps(o);
	err = learn_leads(o);
	learn_unseen(o);
	learn_bare(o);
	return err ?: pt_learn_fetching(o);
}
