/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is one file slower than the others? A file that is merely large takes longer,
 * and one that is not in memory takes longer than one that is: so only visits in
 * which storage was waited for are compared, and by what they returned.
 */
#include <errno.h>
#include <math.h>

#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"

/* Files that are looked at closely: those that take the most time. */
#define MAX_CANDIDATES 8

struct group { /* the visits to one file */
	size_t first, n;
	uint64_t ns;
};

struct looking {
	const struct pt_an *an;
	const pt_visits *v;
	size_t files;
	pt_doubles own, peers; /* ms */
};

PT_ORDER(by_file, struct pt_visit,
	 pt_cmp(x->dev, y->dev) ?: pt_cmp(x->inode, y->inode) ?:
	 pt_cmp(x->begin, y->begin))

static bool same(const struct pt_visit *x, const struct pt_visit *y)
{
	return x->inode == y->inode && x->dev == y->dev;
}

/* What a visit to this file returns, median; else the file's size; NAN. */
static int usual_bytes(const struct looking *k, const struct group *g, double *out)
{
	const struct pt_visit *x = &k->v->v[g->first];
	const struct pt_file *f = pt_model_file(k->an->m, x->dev, x->inode);
	pt_doubles all = { 0 };
	size_t i;

	for (i = 0; i < g->n; i++)
		if (x[i].bytes && pt_vec_push(&all, (double)x[i].bytes)) {
			pt_vec_free(&all);
			return -ENOMEM;
		}
	*out = pt_median(all.v, all.n);
	if (!all.n && f && f->size)
		*out = (double)f->size;
	pt_vec_free(&all);
	return 0;
}

/*
 * How long visits to other files take, for so many bytes: those of half to twice
 * the size as they are; where there are too few, all, and of smaller ones as
 * much more as they are smaller. That is at most too long: part of a visit's time
 * does not go with its bytes.
 */
static int find_peers(struct looking *k, const struct pt_visit *of, double bytes)
{
	bool near;
	int pass;

	for (pass = 0; pass < 2; pass++) {
		k->peers.n = 0;
		pt_each(const struct pt_visit, x, k->v) {
			double b = (double)x->bytes;

			near = b >= bytes / 2 && b <= bytes * 2;
			if (!x->bytes || same(x, of) || (!pass && !near))
				continue;
			if (pt_vec_push(&k->peers, pt_ms(x->ns) *
					(near ? 1 : fmax(1, bytes / b))))
				return -ENOMEM;
		}
		if (k->peers.n >= PT_ITEM_VISITS)
			return 0;
	}
	k->peers.n = 0;
	return 0;
}

/* The file of `g` against its peers, into the latter half of `o`. */
static int compare(struct looking *k, const struct group *g, struct pt_item *o)
{
	const struct pt_visit *x = &k->v->v[g->first];
	size_t i;
	int err;

	k->own.n = 0;
	for (i = 0; i < g->n; i++)
		if (pt_vec_push(&k->own, pt_ms(x[i].ns)))
			return -ENOMEM;
	o->waits = g->n;
	o->usual_ms = pt_median(k->own.v, k->own.n);
	err = usual_bytes(k, g, &o->bytes);
	if (err || isnan(o->bytes))
		return err;
	err = find_peers(k, x, o->bytes);
	o->peers = k->peers.n;
	o->peers_ms = pt_median(k->peers.v, k->peers.n);
	if (err || !(o->peers_ms > 0))
		return err;
	o->slower = o->usual_ms / o->peers_ms;
	if (g->n < PT_SLOW_FILE_VISITS || o->slower < PT_SLOW_FILE_FACTOR ||
	    o->usual_ms < k->an->th->item_ms)
		return 0;
	err = pt_rank_sum_chance(k->own.v, k->own.n, k->peers.v, k->peers.n,
				 &o->chance);
	/* looked at because it is the slowest of so many (Bonferroni) */
	o->chance = fmin(1, o->chance * (double)k->files);
	o->repeated = !err && o->chance <= k->an->th->slow_chance;
	return err;
}

/* Share of the trainer's data wait that is charged to this file. */
static double charged(const struct pt_trainer *t, const struct pt_visit *x)
{
	uint64_t all = 0, own = 0;

	pt_each(const struct pt_charge, c, &t->charges) {
		all += c->ns;
		if (c->inode == x->inode && c->dev == x->dev)
			own += c->ns;
	}
	return all ? (double)own / (double)all : 0;
}

/* The groups that take the most time, at most MAX_CANDIDATES of them. */
static size_t candidates(struct looking *k, struct group *best)
{
	size_t i = 0, n = 0, j;

	while (i < k->v->n) {
		struct group g = { i, 0, 0 };

		for (; i < k->v->n && same(&k->v->v[i], &k->v->v[g.first]); i++) {
			g.n++;
			g.ns += k->v->v[i].ns;
		}
		k->files++;
		if (n == MAX_CANDIDATES && g.ns <= best[n - 1].ns)
			continue;
		j = n < MAX_CANDIDATES ? n++ : n - 1;
		for (; j && best[j - 1].ns < g.ns; j--)
			best[j] = best[j - 1];
		best[j] = g;
	}
	return n;
}

/* The visits to one file. */
static struct group group_of(const pt_visits *v, uint32_t dev, uint64_t inode)
{
	struct group g = { 0 };
	size_t i;

	for (i = 0; i < v->n; i++) {
		if (v->v[i].dev != dev || v->v[i].inode != inode)
			continue;
		if (!g.n++)
			g.first = i;
		g.ns += v->v[i].ns;
	}
	return g;
}

static void forget(struct pt_item *o)
{
	o->waits = o->peers = 0;
	o->bytes = o->usual_ms = o->peers_ms = o->slower = o->chance = NAN;
	o->repeated = false;
}

/* The file that is slower than its peers, and waited for the most. */
static int find_slower(struct looking *k, const struct pt_trainer *t,
		       const struct group *best, size_t n, struct pt_item *out)
{
	double most = 0;
	size_t i;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		const struct pt_visit *x = &k->v->v[best[i].first];
		struct pt_item o = *out;
		double share = charged(t, x);

		forget(&o);
		err = compare(k, &best[i], &o);
		if (err || !o.repeated || share <= most)
			continue;
		most = share;
		o.thread = NULL;
		o.inode = x->inode;
		o.dev = x->dev;
		o.ms = k->own.v[k->own.n - 1]; /* sorted */
		o.slow_share = fmax(o.slow_share, share);
		*out = o;
	}
	return err;
}

int pt_compare_files(const struct pt_an *an, const struct pt_trainer *t,
		     pt_visits *v, struct pt_item *out)
{
	struct looking k = { .an = an, .v = v };
	struct group best[MAX_CANDIDATES], g;
	size_t n;
	int err = 0;

	forget(out);
	if (!v->n)
		return 0;
	pt_vec_sort(v, by_file);
	n = candidates(&k, best);
	g = group_of(v, out->dev, out->inode);
	if (out->thread && out->ms >= an->th->slow_item_ms) {
		if (g.n)
			err = compare(&k, &g, out);
	} else {
		err = find_slower(&k, t, best, n, out);
	}
	pt_vec_free(&k.own);
	pt_vec_free(&k.peers);
	return err;
}
