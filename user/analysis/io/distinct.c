/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many different bytes were read. Each record is a stretch of its file;
 * the union of a file's stretches is what was read once or more. Where a record
 * tells only a span that its reads lie in, the union is bounded: none of it new,
 * or all of it.
 *
 * Memory is bounded: with more stretches than EXTENTS_MAX, only what lies in
 * some of the files' blocks of 1 MiB is looked at, chosen by a hash of file and
 * block. A byte that is read again is in the same block again, so the share of
 * different bytes in the chosen blocks is, but for chance, that of all
 * (sampling in space; Waldspurger et al., SHARDS, FAST 2015).
 */
#include <errno.h>

#include "analysis/io/places.h"

#define EXTENTS_MAX (1u << 20)
#define BLOCK_SHIFT 20
#define PAGE 4096
/* A stretch of so many blocks is damage. */
#define BLOCKS_MAX (1u << 20)

struct extent {
	struct pt_place *p;
	uint64_t begin, end;
	bool span;  /* its reads lie in it; else they fill it */
};
typedef PT_VEC(struct extent) extents;

struct look {
	extents v;
	unsigned shift; /* one block of 2^shift is looked at */
	uint64_t seen;	/* bytes in those, each time that they were read */
};

static uint64_t mix(uint64_t x)
{
	/* splitmix64's finalizer (Steele, Lea and Flood 2014) */
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static bool chosen(const struct look *l, const struct pt_place *p,
		   uint64_t block)
{
	uint64_t h = mix(p->key.inode + mix(p->key.dev + mix(block)));

	return !(h & ((1ull << l->shift) - 1));
}

static int push(struct look *l, struct pt_place *p, uint64_t begin,
		uint64_t end, bool span)
{
	struct extent x = { p, begin, end, span };
	uint64_t b;

	if (!l->shift) {
		l->seen += end - begin;
		return pt_vec_push(&l->v, x);
	}
	if (((end - begin) >> BLOCK_SHIFT) > BLOCKS_MAX)
		return 0;
	for (b = begin >> BLOCK_SHIFT; b << BLOCK_SHIFT < end; b++) {
		if (!chosen(l, p, b))
			continue;
		x.begin = pt_max64(begin, b << BLOCK_SHIFT);
		x.end = pt_min64(end, (b + 1) << BLOCK_SHIFT);
		l->seen += x.end - x.begin;
		if (pt_vec_push(&l->v, x))
			return -ENOMEM;
	}
	return 0;
}

/* Reads whose place is only a span add to the upper bound at once, and to
 * the span's union in the sweep. */
static int collect(const struct pt_an *an, const struct pt_thread *th,
		   struct pt_places *all, struct look *l)
{
	struct pt_place *p = NULL;

	pt_each(const struct pt_read, r, &th->reads) {
		const struct pt_scatter *s = r->more ?
			&th->scatters.v[r->more - 1] : NULL;
		uint64_t n = (uint64_t)r->ret;

		if (!pt_read_counts(an, r))
			continue;
		if (!p || p->key.inode != r->inode || p->key.dev != r->dev)
			p = pt_place_of(all, r->dev, r->inode);
		if (!p)
			continue;
		if (!r->placed || s)
			p->distinct_hi += n;
		else if (r->door == PT_DOOR_PAGES) /* it may begin later */
			p->distinct_hi += pt_min64(n, PAGE - 1);
		p->rough |= r->door == PT_DOOR_PAGES;
		if (!r->placed || (s && l->shift))
			continue; /* of a sample the bounds would be none */
		if (push(l, p, s ? s->low : r->offset,
			 s ? s->high : r->offset + n, s))
			return -ENOMEM;
	}
	return 0;
}

PT_ORDER(by_place, struct extent,
	 pt_cmp(x->p, y->p) ?: pt_cmp(x->begin, y->begin) ?: pt_cmp(x->end, y->end))

/* Unions of a file's extents from `i` on: of those that are filled, and of all.
 * Returns where the next file begins. */
static size_t sweep(const extents *v, size_t i, uint64_t *filled, uint64_t *all)
{
	const struct pt_place *p = v->v[i].p;
	uint64_t end_filled = 0, end_all = 0;

	*filled = *all = 0;
	for (; i < v->n && v->v[i].p == p; i++) {
		const struct extent *x = &v->v[i];

		if (x->end > end_all) {
			*all += x->end - pt_max64(x->begin, end_all);
			end_all = x->end;
		}
		if (!x->span && x->end > end_filled) {
			*filled += x->end - pt_max64(x->begin, end_filled);
			end_filled = x->end;
		}
	}
	return i;
}

static size_t count_reads(const struct pt_an *an)
{
	size_t i, k, n = 0;

	for (i = 0; i < an->m->all_threads.n; i++) {
		const struct pt_thread *th = an->m->all_threads.v[i];

		for (k = 0; k < th->reads.n; k++)
			n += pt_read_counts(an, &th->reads.v[k]);
	}
	return n;
}

/* Each file's bounds from its unions; all of the bytes are different at most. */
static void set_bounds(struct look *l)
{
	size_t i = 0;

	while (i < l->v.n) {
		struct pt_place *p = l->v.v[i].p;
		uint64_t filled, all;

		i = sweep(&l->v, i, &filled, &all);
		p->distinct_known = true;
		p->distinct_lo = filled;
		p->distinct_hi += filled;
		/* places that are known lie in the spans; others may not */
		if (p->placed == p->bytes && !p->rough)
			p->distinct_hi = pt_min64(p->distinct_hi,
						  pt_max64(all, filled));
		p->distinct_hi = pt_min64(p->distinct_hi, p->bytes);
		p->distinct_lo = pt_min64(p->distinct_lo, p->distinct_hi);
	}
}

static void add_up(const struct pt_an *an, struct pt_places *all)
{
	struct pt_place *p;

	for (p = all->all; p; p = p->hh.next) {
		const struct pt_file *f = pt_model_file(
			an->m, (uint32_t)p->key.dev, p->key.inode);

		if (!p->bytes || (f && pt_fs_is_memory(f->fs_magic)))
			continue;
		all->bytes += p->bytes;
		all->files++;
		if (f && f->size && f->size < 1ull << 50)
			all->size += f->size;
		else
			all->unsized++;
		if (!p->distinct_known)
			p->distinct_hi = p->bytes;
		all->distinct_lo += p->distinct_lo;
		all->distinct_hi += p->distinct_hi;
		all->known |= p->placed > 0;
	}
}

/* The share of different ones in the sample, of all bytes. */
static void estimate(struct pt_places *all, struct look *l)
{
	uint64_t different = 0, filled, any;
	size_t i = 0;

	while (i < l->v.n) {
		i = sweep(&l->v, i, &filled, &any);
		different += filled;
	}
	all->sampled = true;
	all->known = l->seen > 0;
	all->distinct_lo = all->distinct_hi = !l->seen ? 0 :
		(uint64_t)((double)all->bytes * (double)different /
			   (double)l->seen);
}

int pt_find_distinct(const struct pt_an *an, struct pt_places *all)
{
	size_t i, n = count_reads(an);
	struct look l = { .shift = 0 };
	int err = 0;

	while (n >> l.shift > EXTENTS_MAX)
		l.shift++;
	for (i = 0; i < an->m->all_threads.n && !err; i++)
		err = collect(an, an->m->all_threads.v[i], all, &l);
	pt_vec_sort(&l.v, by_place);
	if (!err && !l.shift)
		set_bounds(&l);
	if (!err)
		add_up(an, all);
	if (!err && l.shift)
		estimate(all, &l);
	pt_vec_free(&l.v);
	return err;
}
