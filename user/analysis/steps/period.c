/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/steps/period.h"

#include <errno.h>
#include <stdlib.h>

/* What stands out: so many times the usual gap between two launches. */
#define STANDS_OUT 5
/* So many of a place's gaps have evidence where it is its rule: by chance a lock,
 * or an interrupt, makes some. */
#define RULE_PART 5
/* A place that leads to the same call and comes so seldom is the loop's begin by
 * another way: behind the sync, or the loss, of every N-th step. */
#define SELDOM_PART 5
/* Without evidence: so many places are looked at, and so much of all calls must
 * have their kind in each of the parts that a place makes. */
#define TRY_MAX 12
#define SOME_GAPS 10 /* one in so many visits has one */
#define WHOLE_SHARE 0.9
/* What else there is comes in few of the parts (an evaluation, a log line); what is in
 * every second one says that two parts make a turn. */
#define ALL_SHARE 0.995
#define EXTRA_PARTS 0.2
#define EXTRA_SHARE 0.97

static struct pt_place_at *place_make(struct pt_period *p, uint64_t prev,
				      uint64_t next)
{
	uint64_t key[2] = { prev, next };

	return pt_hash_make(p->places, key, key);
}

const struct pt_place_at *pt_place_between(const struct pt_period *p, uint64_t prev,
					   uint64_t next)
{
	uint64_t key[2] = { prev, next };
	struct pt_place_at *x;

	HASH_FIND(hh, p->places, key, sizeof(key), x);
	return x;
}

void pt_period_free(struct pt_period *p)
{
	pt_hash_free(p->places);
}

/* ---- counting ---------------------------------------------------------------------- */

static bool is_cut(const struct pt_host_gap *g)
{
	return !g->g.prev || !g->g.next;
}

static int find_cadence(const struct pt_host *h, uint64_t *out)
{
	const struct pt_actor *a = h->a;
	double *v = malloc((a->calls.n + 1) * sizeof(*v));
	size_t i, n = 0, k = 0;

	if (!v)
		return -ENOMEM;
	for (i = 1; i < a->calls.n; i++) {
		while (k < h->gaps.n && h->gaps.v[k].call < i)
			k++;
		if (k < h->gaps.n && h->gaps.v[k].call == i)
			v[n++] = (double)h->gaps.v[k].own_ns;
		else if (a->calls.v[i].begin > a->calls.v[i - 1].end)
			v[n++] = (double)(a->calls.v[i].begin -
					  a->calls.v[i - 1].end);
	}
	*out = n ? (uint64_t)(STANDS_OUT * pt_median(v, n)) : 0;
	free(v);
	return 0;
}

static int count_places(const struct pt_host *h, struct pt_period *p)
{
	const struct pt_actor *a = h->a;
	struct pt_place_at *x;
	size_t i, k = 0;

	for (i = 1; i < a->calls.n; i++) {
		x = place_make(p, a->calls.v[i - 1].site, a->calls.v[i].site);
		if (!x)
			return -ENOMEM;
		while (k < h->gaps.n && h->gaps.v[k].call < i)
			k++;
		x->n++;
		x->syncs = a->calls.v[i - 1].syncs;
		x->graphs = a->calls.v[i].graph;
		/* what goes up behind a wait for a peer came from that: parameters, not a batch */
		if (k < h->gaps.n && h->gaps.v[k].call == i &&
		    pt_gap_has(h, &h->gaps.v[k], PT_HOST_PEER))
			x->peers++;
		else
			x->uploads += a->calls.v[i].uploads;
	}
	pt_each(const struct pt_host_gap, g, &h->gaps) {
		uint64_t ns = g->own_ns;

		if (is_cut(g) || (!ns && !pt_gap_is_evident(g)))
			continue;
		x = place_make(p, g->g.prev, g->g.next);
		if (!x)
			return -ENOMEM;
		x->gaps++;
		x->ns += ns;
		if (ns >= p->cadence_ns)
			x->big_ns += ns;
		x->evident += pt_gap_is_evident(g);
		x->clients += pt_gap_has(h, g, PT_HOST_CLIENT);
		x->reads += g->reads || g->read_bytes || g->read_ns;
		pt_add_looks(&x->name, g);
		if (g->looks && g->looked > 0) {
			x->looked_at++;
			x->parts += g->named / g->looked;
			x->several += g->looks > 1;
			x->whole += g->looks > 1 && (g->named <= 0 || g->named >= g->looked);
		}
	}
	return 0;
}

/* ---- with evidence ------------------------------------------------------------------ */

/* Data is obtained at a place where evidence is the rule. Where both call sites
 * are the same it may be any pause between two launches: then most have it. */
static bool is_rule(const struct pt_place_at *x)
{
	return x->evident * (x->prev != x->next ? RULE_PART : 2) >= x->n;
}

static struct pt_place_at *most_evident(struct pt_period *p)
{
	struct pt_place_at *best = NULL, *x;

	for (x = p->places; x; x = x->hh.next)
		if (!best || x->evident > best->evident)
			best = x;
	return best && best->evident >= 2 ? best : NULL;
}

/* A gap is the rule; behind a sync a batch may be there at once. */
static bool has_gaps(const struct pt_place_at *x)
{
	return x->syncs || x->gaps * 10 >= x->n * 8;
}

/*
 * The ways to the loop's begin: they lead to the same call. Either a gap is the
 * rule there (a micro-batch that is fetched by itself), or it comes seldom (behind
 * the sync of every N-th step). Micro-batches that are fetched together have a gap
 * before the first only.
 */
static void mark_begins(struct pt_period *p, struct pt_place_at *best)
{
	struct pt_place_at *x;
	bool any = false;

	for (x = p->places; x; x = x->hh.next)
		any |= x->next == best->next && x->prev != x->next && has_gaps(x);
	for (x = p->places; x; x = x->hh.next) {
		bool rule = has_gaps(x);

		x->begins = x == best || x->data;
		if (x->next != best->next || x->prev == x->next)
			continue;
		x->begins |= x->n * SELDOM_PART <= best->n;
		if (!best->data && !best->uploads)
			continue;
		x->begins |= rule || (!any && x->gaps * 10 >= x->n);
		x->partly = !rule && x->gaps * 10 >= x->n;
	}
	p->best = best;
}

/* ---- by name ----------------------------------------------------------------------------- */

/* Of the looks at the thread between these calls so many must have found it in the data
 * iterator, of no fewer than that. */
#define NAMED_PART 0.3
#define NAMED_LOOKS 5

/* What it iterates over may be requests, as it sometimes waits for one there. */
static bool is_named(const struct pt_place_at *x)
{
	return x->clients <= x->evident && x->name.looks >= NAMED_LOOKS && x->name.named > 0 &&
	       x->name.named >= NAMED_PART * x->name.looked;
}

/* The one with most of it; NULL: nothing is told. */
static struct pt_place_at *most_named(struct pt_period *p)
{
	struct pt_place_at *best = NULL, *x;

	for (x = p->places; x; x = x->hh.next)
		if (is_named(x) && (!best || x->name.named > best->name.named))
			best = x;
	return best;
}

static void choose_by_name(struct pt_period *p, struct pt_place_at *best)
{
	struct pt_place_at *x;

	for (x = p->places; x; x = x->hh.next)
		x->data = x->by_name = is_named(x);
	mark_begins(p, best);
}

/* ---- without ------------------------------------------------------------------------- */

struct site_count {
	uint64_t site, n, part; /* part: the last that it was seen in */
	uint64_t parts;		/* that have it */
	UT_hash_handle hh;
};

static bool is_at(const struct pt_actor *a, size_t i, const struct pt_place_at *x)
{
	return x && a->calls.v[i - 1].site == x->prev && a->calls.v[i].site == x->next;
}

/* Are the parts between two visits to the place (or to another one) the loop's turns,
 * not pieces of one? Nearly all calls are of kinds that are in nearly every part.
 * Negative: -ENOMEM. */
static int is_turn(const struct pt_actor *a, const struct pt_place_at *at,
		   const struct pt_place_at *other, double whole)
{
	struct site_count *all = NULL, *x, *tmp;
	uint64_t part = 0, n = 0, kept = 0, extra = 0;
	bool failed = false;
	size_t i;

	for (i = 1; i < a->calls.n && !failed; i++) {
		part += is_at(a, i, at) || is_at(a, i, other);
		/* a loop may sync every N steps */
		if (!part || a->calls.v[i].syncs)
			continue;
		x = pt_hash_make(all, site, &a->calls.v[i].site);
		failed = !x;
		if (failed)
			break;
		x->n++;
		n++;
		x->parts += x->part != part;
		x->part = part;
	}
	HASH_ITER(hh, all, x, tmp) {
		if ((double)x->parts >= WHOLE_SHARE * (double)part)
			kept += x->n;
		else if ((double)x->parts <= EXTRA_PARTS * (double)part)
			extra += x->n;
		HASH_DEL(all, x);
		free(x);
	}
	return failed ? -ENOMEM :
	       n && (double)kept >= whole * (double)n &&
	       (double)(kept + extra) >= EXTRA_SHARE * (double)n;
}

/* How unequal the parts between two visits are (or to another place): the variance of their
 * numbers of launches over the mean's square. What comes before the first visit is no whole one. */
static double parts_vary(const struct pt_actor *a, const struct pt_place_at *at,
			 const struct pt_place_at *other)
{
	double n = 0, sum = 0, squares = 0, calls = 0;
	bool begun = false;
	size_t i;

	for (i = 1; i < a->calls.n; i++) {
		if (is_at(a, i, at) || is_at(a, i, other)) {
			if (begun) {
				n++;
				sum += calls;
				squares += calls * calls;
			}
			begun = true;
			calls = 0;
		}
		calls += a->calls.v[i].launches;
	}
	return sum > 0 ? squares * n / (sum * sum) - 1 : 0;
}

/* Does a step begin there, too? Then the parts are whole turns, and as equal as before
 * (`alone`). */
static int begins_as_well(const struct pt_actor *a, const struct pt_place_at *at,
			  const struct pt_place_at *other, double whole, double alone)
{
	int turn = is_turn(a, at, other, whole);

	return turn > 0 ? parts_vary(a, at, other) <= alone : turn;
}

static int by_big(const struct pt_place_at *x, const struct pt_place_at *y)
{
	return pt_cmp(y->big_ns, x->big_ns) ?: pt_cmp(y->ns, x->ns) ?:
	       pt_cmp(x->next, y->next);
}

/* A loop written in Python leaves a gap at its begin each time; the kernel that is
 * launched once a layer does not. */
static bool has_breaks(const struct pt_place_at *x)
{
	return x->gaps * 2 >= x->n;
}

/* Of places that divide the calls into whole turns. Where gaps come with some visits only, as
 * of a kernel that is launched once a layer and first in the step, another that always has one
 * is better. Of those visited as often the first, whose gaps take the most time, stays: the stretch's
 * ends cut a visit off the one or the other. */
static bool is_better(const struct pt_place_at *x, const struct pt_place_at *best)
{
	if (has_breaks(x) != has_breaks(best))
		return has_breaks(x) && best->gaps * SOME_GAPS >= best->n;
	return x->n > best->n + 1;
}

/* A step begins where a batch is copied to the device, if that is seen. */
static bool may_begin(const struct pt_place_at *x, bool uploads)
{
	return x->n >= 3 && x->gaps &&
	       (!uploads || (x->uploads && x->prev != x->next));
}

/* The place that is visited most often of those that divide the calls into whole
 * turns; else the one whose gaps take the most time. */
static int choose_by_pattern(const struct pt_host *h, struct pt_period *p)
{
	struct pt_place_at *best = NULL, *first = NULL, *x;
	bool uploads = false;
	double alone;
	int tried = 0;

	for (x = p->places; x; x = x->hh.next)
		uploads |= may_begin(x, true);
	HASH_SORT(p->places, by_big);
	for (x = p->places; x && tried < TRY_MAX; x = x->hh.next) {
		int turn;

		if (!may_begin(x, uploads))
			continue;
		tried++;
		first = first ? first : x;
		if (uploads || (best && !is_better(x, best)))
			continue;
		turn = is_turn(h->a, x, NULL, WHOLE_SHARE);
		if (turn < 0)
			return turn;
		if (turn)
			best = x;
	}
	best = best ? best : first;
	if (!best)
		return 0;
	mark_begins(p, best);
	alone = parts_vary(h->a, best, NULL);
	for (x = p->places; x; x = x->hh.next) {
		if (x != best && x->begins)
			x->begins = parts_vary(h->a, best, x) <= alone;
	}
	for (x = p->places, tried = 0; x && tried < TRY_MAX; x = x->hh.next) {
		bool seldom = x->syncs || 2 * x->n <= best->n;
		bool like = x != best && x->next == best->next && !x->begins &&
			    (seldom || x->uploads);
		int turn = like && ++tried ? begins_as_well(h->a, best, x, seldom ? WHOLE_SHARE :
								 ALL_SHARE, alone) : 0;

		if (turn < 0)
			return turn;
		/* behind the sync, or what else comes only, of every N-th step; or all
		 * but that one, with a batch that was there. A micro-batch lacks the
		 * update. */
		x->begins |= turn;
		x->partly &= !turn;
	}
	return 0;
}

/* Behind a wait for a peer (a pool that scores, every so many steps) a batch may be there at
 * once: the parts tell whether what is uploaded there begins a step. */
static int add_behind_peers(const struct pt_actor *a, struct pt_period *p)
{
	double alone = parts_vary(a, p->best, NULL);
	struct pt_place_at *x;
	int tried = 0;

	for (x = p->places; x && tried < TRY_MAX; x = x->hh.next) {
		int turn = x->peers && !x->begins && x->next == p->best->next &&
			   x->prev != x->next && ++tried ?
				   begins_as_well(a, p->best, x, WHOLE_SHARE, alone) : 0;

		if (turn < 0)
			return turn;
		x->begins |= turn;
	}
	return 0;
}

/* Something else than a batch may be copied there in each turn, and nothing shows where it comes
 * from (rows that the loop looks up in a table). What begins a step is followed by the same calls. */
static int drop_other_copies(const struct pt_actor *a, struct pt_period *p)
{
	struct pt_place_at *x;
	int tried = 0, turn;

	for (x = p->places; x && tried < TRY_MAX; x = x->hh.next) {
		if (x == p->best || !x->begins || x->evident ||
		    x->n * SELDOM_PART <= p->best->n)
			continue;
		tried++;
		turn = is_turn(a, p->best, x, WHOLE_SHARE);
		if (turn < 0)
			return turn;
		x->begins = turn;
	}
	return 0;
}

static int choose_by_evidence(const struct pt_host *h, struct pt_period *p,
			      struct pt_place_at *best)
{
	struct pt_place_at *x;

	for (x = p->places; x; x = x->hh.next)
		x->data = x->evident && is_rule(x);
	best->data = true;
	mark_begins(p, best);
	return drop_other_copies(h->a, p) ?: add_behind_peers(h->a, p);
}

/* ---- begins ------------------------------------------------------------------------- */

/* Does a step begin in this gap? */
static bool begins_in(const struct pt_period *p, const struct pt_host_gap *g)
{
	const struct pt_place_at *x = pt_place_between(p, g->g.prev, g->g.next);

	if (!x) /* cut by the begin or the end of the time that is looked at: of
		 * what may yet come nothing is known */
		return pt_gap_is_evident(g) ||
		       (p->best && g->g.next == p->best->next);
	if (!x->begins)
		return false;
	if (x->partly && g->own_ns < p->cadence_ns && !pt_gap_is_evident(g))
		return false;
	/* One call site can serve a whole step (the same kernel over and over, but for a
	 * graph, which is all of it): then only the gaps that stand out count. */
	return x->prev != x->next || x->graphs || pt_gap_is_evident(g) ||
	       (x->big_ns * 10 >= x->ns * 9 && g->own_ns >= p->cadence_ns) ||
	       g->own_ns * x->gaps >= x->ns;
}

bool pt_begins_at(const struct pt_period *p, const struct pt_actor *a,
		  const struct pt_host_gap *g, size_t i)
{
	const struct pt_place_at *at;

	if (g)
		return begins_in(p, g);
	if (i == a->calls.n || !i)
		return false;
	at = pt_place_between(p, a->calls.v[i - 1].site, a->calls.v[i].site);
	return at && at->begins && at->prev != at->next && !at->partly;
}

/* ---- batches that were there -------------------------------------------------------- */

/* As parts_vary(), of the parts between the steps' begins as they are marked now. */
static double steps_vary(const struct pt_host *h, const struct pt_period *p)
{
	double n = 0, sum = 0, squares = 0, calls = 0;
	bool begun = false;
	size_t i, k = 0;

	for (i = 1; i < h->a->calls.n; i++) {
		const struct pt_host_gap *g;

		while (k < h->gaps.n && h->gaps.v[k].call < i)
			k++;
		g = k < h->gaps.n && h->gaps.v[k].call == i ? &h->gaps.v[k] : NULL;
		if (pt_begins_at(p, h->a, g, i)) {
			n += begun;
			sum += begun ? calls : 0;
			squares += begun ? calls * calls : 0;
			begun = true;
			calls = 0;
		}
		calls += h->a->calls.v[i].launches;
	}
	return sum > 0 ? squares * n / (sum * sum) - 1 : 0;
}

/*
 * Where data is obtained with a gap in some turns only: micro-batches that are fetched
 * together, or batches that were there at once. Of the latter, a begin at each visit
 * makes the parts more equal.
 */
static void settle_best(const struct pt_host *h, struct pt_period *p)
{
	double before;

	if (!p->best || !p->best->partly)
		return;
	before = steps_vary(h, p);
	p->best->partly = false;
	p->best->partly = steps_vary(h, p) >= before;
}

/* ---- the answer ------------------------------------------------------------------------ */

int pt_find_period(const struct pt_host *h, struct pt_period *out)
{
	struct pt_place_at *best;
	int err;

	*out = (struct pt_period){ 0 };
	err = find_cadence(h, &out->cadence_ns);
	err = err ?: count_places(h, out);
	if (err)
		return err;
	best = most_evident(out);
	if (best && is_rule(best))
		err = choose_by_evidence(h, out, best);
	else if ((best = most_named(out)))
		choose_by_name(out, best);
	else
		err = choose_by_pattern(h, out);
	if (!err)
		settle_best(h, out);
	return err;
}
