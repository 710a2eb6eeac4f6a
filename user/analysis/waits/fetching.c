/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the loop's time on the CPU in a gap goes: to its batches, or to its own work? Looks at
 * its Python between the first and the last sign of the loader found what the loop calls for a
 * batch; of the looks before, behind, and in gaps without a sign those in that call count.
 */
#include <errno.h>
#include <math.h>

#include "analysis/waits/bounds.h"

/* Where looks in the midst of obtaining found it, or this shortly before its first sign: so many
 * tell, and what has so many of them. */
#define WITHIN_NS 200000ull
#define WITHIN_MIN 3
#define WITHIN_PART 0.25

struct place_looks {
	struct pt_loop_place at;
	size_t within, shortly, before; /* that sign */
	size_t takes; /* of all of them: in Python's own ways of handing over */
	size_t taking; /* ... but for those that hand something out */
};
typedef PT_VEC(struct place_looks) place_looks;

static struct place_looks *looks_at(place_looks *v, const struct pt_loop_place *at)
{
	struct place_looks x = { .at = *at };

	pt_each(struct place_looks, k, v) {
		if (pt_same_loop_place(&k->at, at))
			return k;
	}
	return pt_vec_push(v, x) ? NULL : &v->v[v->n - 1];
}

static const struct pt_host_gap *fetching_gap(const struct pt_bounds *o,
					      const struct pt_host_look *l)
{
	const struct pt_host_gap *g = &o->h->gaps.v[l->gap];
	const struct pt_place_at *at = pt_place_between(o->p, g->g.prev, g->g.next);

	return !g->started && ((at && at->data) || pt_gap_is_evident(g)) ? g : NULL;
}

static int count_looks(const struct pt_bounds *o, place_looks *v)
{
	pt_each(const struct pt_host_look, l, &o->h->looks) {
		const struct pt_host_gap *g = fetching_gap(o, l);
		uint64_t first = g ? pt_gap_first(o, g) : 0;
		struct place_looks *x;

		if (!first || !l->at.line || l->begin < pt_gap_free(o, g))
			continue;
		x = looks_at(v, &l->at);
		if (!x)
			return -ENOMEM;
		if (l->begin < pt_gap_last_seen(g))
			*(l->begin >= first ? &x->within :
			  l->begin + WITHIN_NS >= first ? &x->shortly : &x->before) += 1;
		x->takes += l->takes;
		x->taking += l->takes && !l->gives && (l->running || l->supplied);
	}
	return 0;
}

static size_t fetching_looks(const struct place_looks *x)
{
	return x->within + (x->shortly >= x->before ? x->shortly : 0);
}

/* Between the first and the last that a gap shows of the loader the thread is in its call:
 * where in the loop that is made. */
static int learn_places(struct pt_bounds *o)
{
	place_looks v = { 0 };
	size_t n = 0, taking = 0;
	int err = count_looks(o, &v);

	pt_each(const struct place_looks, x, &v) {
		n += fetching_looks(x);
		taking = pt_max64(taking, x->taking);
	}
	pt_each(const struct place_looks, x, &v) {
		if (n >= WITHIN_MIN && o->n_at < PT_FETCH_PLACES &&
		    (double)fetching_looks(x) >= WITHIN_PART * (double)n)
			o->at[o->n_at++] = x->at;
	}
	/* what it does with a batch in the very line that takes it is for it, and so is what the
	 * function does that the loop calls for it */
	pt_each(const struct place_looks, x, &v) {
		if (x->takes >= WITHIN_MIN && o->n_at < PT_FETCH_PLACES)
			o->at[o->n_at++] = (struct pt_loop_place){ .line = x->at.line };
		if (x->taking >= WITHIN_MIN && 2 * x->taking >= taking && x->at.called &&
		    o->n_at < PT_FETCH_PLACES)
			o->at[o->n_at++] = x->at;
	}
	pt_vec_free(&v);
	return err;
}

static bool is_fetching(const struct pt_bounds *o, const struct pt_host_look *l)
{
	size_t i;

	for (i = 0; i < o->n_at; i++)
		if (pt_same_loop_place(&l->at, &o->at[i]))
			return true;
	return l->takes;
}

/* Too few looks leave what is usual. Half a look more, in either place: a few of them all miss a
 * call that is short (Jeffreys' estimate of a share is (n + 1/2) / (N + 1)). */
#define PHASE_LOOKS 5

struct phase {
	size_t all, in, above, takes, staged; /* looks */
};

static double part_of(const struct phase *x, size_t in)
{
	return x->all >= PHASE_LOOKS ? ((double)in + 0.5) / (double)(x->all + 1) : NAN;
}

/* All but what sends batches up. Few looks tell no part. */
static double part_unstaged(const struct phase *x)
{
	return x->staged >= WITHIN_MIN ? part_of(x, x->all - x->staged) : NAN;
}

/* Behind what is seen of the loader the thread unpickles its batch, and goes on with the
 * loop; before it, the loop is at something else, and then asks. */
static void learn_parts(struct pt_bounds *o)
{
	struct phase lead = { 0 }, behind = { 0 }, ready = { 0 }, *x;
	bool by_name = o->p->best && o->p->best->by_name;

	o->fetching.lead = o->fetching.behind = o->fetching.ready = NAN;
	pt_each(const struct pt_host_look, l, &o->h->looks) {
		const struct pt_host_gap *g = fetching_gap(o, l);
		uint64_t first = g ? pt_gap_first(o, g) : 0;

		if (!g || !l->running || l->begin < pt_gap_free(o, g))
			continue;
		x = !first ? &ready : l->begin < first ? &lead : &behind;
		if (x == &behind && l->begin < pt_gap_last_seen(g))
			continue;
		x->all++;
		x->in += is_fetching(o, l);
		x->above += l->above;
		x->takes += l->takes;
		x->staged += l->staged;
	}
	o->taken = behind.all >= PT_LOOKS_MIN ? (double)behind.takes / (double)behind.all : 0;
	if (o->n_at) {
		o->fetching.lead = part_of(&lead, lead.in);
		o->fetching.behind = part_of(&behind, behind.in);
		o->fetching.ready = part_of(&ready, ready.in);
	} else if (behind.above >= PT_LOOKS_MIN) {
		/* what it took was there, and it works on that before it goes up */
		o->fetching.behind = part_of(&behind, behind.above);
	} else {
		o->fetching.behind = part_unstaged(&behind);
		o->fetching.ready = by_name ? NAN : part_unstaged(&ready);
	}
}

int pt_learn_fetching(struct pt_bounds *o)
{
	int err = learn_places(o);

	if (!err)
		learn_parts(o);
	return err;
}
