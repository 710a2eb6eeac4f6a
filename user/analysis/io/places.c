/* SPDX-License-Identifier: BSD-2-Clause */
/* In which order files were read; see places.h. */
#include "analysis/io/places.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/io/places_int.h"
#include "analysis/verdicts/thresholds.h"

/* A door that sees pages knows places to one. */
#define PAGE 4096

/* How one thread goes through one file. */
struct reader {
	struct pt_file_key key;
	struct pt_place *p;
	uint64_t last, run; /* where the last read ended, and its run began */
	int64_t stride;
	bool run_known;
	UT_hash_handle hh;
};

/* linux/magic.h */
bool pt_fs_is_memory(uint32_t magic)
{
	switch (magic) {
	case 0x01021994: /* tmpfs */
	case 0x858458f6: /* ramfs */
	case 0x9fa0:	 /* proc */
	case 0x62656572: /* sysfs */
	case 0x27e0eb:	 /* cgroup */
	case 0x63677270: /* cgroup2 */
	case 0x64626720: /* debugfs */
	case 0x74726163: /* tracefs */
	case 0x958458f6: /* hugetlbfs */
	case 0x1cd1:	 /* devpts */
		return true;
	}
	return false;
}

static struct pt_place *place_make(struct pt_places *all,
				   const struct pt_file_key *key)
{
	struct pt_place *p;

	HASH_FIND(hh, all->all, key, sizeof(*key), p);
	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->key = *key;
	HASH_ADD(hh, all->all, key, sizeof(p->key), p);
	if (!PT_HASHED(p)) {
		free(p);
		return NULL;
	}
	return p;
}

const struct pt_place *pt_place_of(const struct pt_places *all,
				   const struct pt_file_key *key)
{
	struct pt_place *p;

	HASH_FIND(hh, all->all, key, sizeof(*key), p);
	return p;
}

/* As wide, where places are known to the page only or exactly. */
static bool as_wide(int64_t a, int64_t b, bool pages)
{
	uint64_t off = (uint64_t)a - (uint64_t)b;

	return pages ? off + PAGE < 2 * PAGE + 1 : !off;
}

/* The stride that more than half of the votes are for, if one is (Boyer and
 * Moore's majority vote). */
static void vote(struct pt_place *p, int64_t stride, uint64_t n, bool pages)
{
	if (as_wide(p->stride, stride, pages)) {
		p->votes += n;
	} else if (p->votes >= n) {
		p->votes -= n;
	} else {
		p->stride = stride;
		p->votes = n - p->votes;
	}
}

static bool goes_on(const struct reader *t, const struct pt_read *r)
{
	uint64_t off = r->offset - t->last;

	if (r->door == PT_DOOR_PAGES)
		return off + PAGE - 1 < 2 * PAGE - 1;
	return !off;
}

/* From the reader's last read to where `r` begins. */
static void move_to(struct reader *t, const struct pt_read *r)
{
	struct pt_place *p = t->p;
	int64_t stride = 0;

	if (goes_on(t, r)) {
		p->on++;
		return;
	}
	if (!r->offset)
		p->again++;
	else
		p->jumps++;
	if (t->run_known)
		stride = (int64_t)(r->offset - t->run);
	if (r->offset && stride && t->stride &&
	    as_wide(stride, t->stride, r->door == PT_DOOR_PAGES)) {
		p->strided++;
		vote(p, stride, 1, r->door == PT_DOOR_PAGES);
	}
	t->stride = stride;
	t->run = r->offset;
	t->run_known = true;
}

static void take_read(const struct pt_thread *th, struct reader *t,
		      const struct pt_read *r, bool first)
{
	const struct pt_scatter *s = r->more ? &th->scatters.v[r->more - 1] : NULL;
	struct pt_place *p = t->p;

	if (first) {
		p->starts++;
		p->from_0 |= !r->offset;
		t->run = r->offset;
		t->run_known = true;
	} else {
		move_to(t, r);
	}
	if (!s) {
		if (r->count > r->empty)
			p->on += r->count - r->empty - 1;
		t->last = r->offset + (uint64_t)r->ret;
		return;
	}
	p->on += s->contiguous;
	p->again += s->again;
	p->jumps += (uint64_t)s->forward + s->backward;
	p->strided += s->strided;
	if (s->strided)
		vote(p, s->stride, s->strided, r->door == PT_DOOR_PAGES);
	t->last = s->last;
	t->stride = s->stride;
	t->run_known = false;
}

static struct reader *reader_make(struct reader **all, struct pt_places *places,
				  const struct pt_file_key *key)
{
	struct reader *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->key = *key;
	t->p = place_make(places, key);
	if (t->p)
		HASH_ADD(hh, *all, key, sizeof(t->key), t);
	if (!t->p || !PT_HASHED(t)) {
		free(t);
		return NULL;
	}
	return t;
}

static int take_thread(const struct pt_an *an, const struct pt_thread *th,
		       struct pt_places *places)
{
	struct reader *readers = NULL, *t, *tmp;
	int err = 0;
	size_t i;

	for (i = 0; i < th->reads.n && !err; i++) {
		const struct pt_read *r = &th->reads.v[i];
		struct pt_file_key key = { r->inode, r->dev };
		bool first = false;

		if (!pt_read_counts(an, r))
			continue;
		HASH_FIND(hh, readers, &key, sizeof(key), t);
		if (!t) {
			first = true;
			t = reader_make(&readers, places, &key);
			if (!t) {
				err = -ENOMEM;
				break;
			}
		}
		t->p->calls += r->count > r->empty ? r->count - r->empty : 0;
		t->p->bytes += (uint64_t)r->ret;
		if (!r->placed) {
			if (first) { /* its first place is still to come */
				HASH_DEL(readers, t);
				free(t);
			}
			continue;
		}
		t->p->placed += (uint64_t)r->ret;
		take_read(th, t, r, first);
	}
	HASH_ITER(hh, readers, t, tmp) {
		HASH_DEL(readers, t);
		free(t);
	}
	return err;
}

int pt_find_places(const struct pt_an *an, struct pt_places *out)
{
	int err = 0;
	size_t i;

	*out = (struct pt_places){ 0 };
	for (i = 0; i < an->m->all_threads.n && !err; i++)
		err = take_thread(an, an->m->all_threads.v[i], out);
	err = err ?: pt_find_distinct(an, out);
	return err;
}

void pt_free_places(struct pt_places *places)
{
	struct pt_place *p, *tmp;

	HASH_ITER(hh, places->all, p, tmp) {
		HASH_DEL(places->all, p);
		free(p);
	}
}

/* Share of the moves that went on or began again; NAN: no move. */
static double sequential(const struct pt_place *p)
{
	uint64_t moves = p->on + p->again + p->jumps;

	return moves ? (double)(p->on + p->again) / (double)moves : NAN;
}

double pt_place_run(const struct pt_place *p)
{
	uint64_t runs = p->starts + p->again + p->jumps;

	return runs ? (double)p->placed / (double)runs : NAN;
}

const char *pt_place_kind(const struct pt_place *p)
{
	uint64_t moves = p->on + p->again + p->jumps;
	double jumps;

	if (!p->starts)
		return NULL;
	if (!p->jumps)
		return moves || p->from_0 ? "sequential" : NULL;
	if (moves < PT_PATTERN_MOVES)
		return NULL;
	jumps = (double)p->jumps / (double)moves;
	if (jumps <= PT_PATTERN_SOME)
		return "sequential";
	/* what went by the stride of most, of the strided ones, at least */
	if ((double)p->strided >= PT_PATTERN_STRIDE * (double)p->jumps &&
	    p->votes)
		return "stride";
	return jumps >= PT_PATTERN_MANY ? "random" : "mixed";
}

void pt_fill_place(const struct pt_places *places, struct pt_r_file *o)
{
	struct pt_file_key key = { o->inode, o->dev };
	const struct pt_place *p = pt_place_of(places, &key);

	o->reread_bytes = o->reread_lo = o->reread_hi = PT_NULL;
	o->pattern = (struct pt_r_pattern){ NULL, NAN, NAN, NAN, PT_NULL,
					    PT_NULL };
	if (!p || !p->starts)
		return;
	o->pattern.kind = pt_place_kind(p);
	o->pattern.sequential = sequential(p);
	o->pattern.read_bytes = (double)p->bytes / (double)p->calls;
	o->pattern.run_bytes = pt_place_run(p);
	o->pattern.readers = (int64_t)p->starts;
	if (o->pattern.kind && !strcmp(o->pattern.kind, "stride"))
		o->pattern.stride = p->stride;
	if (!p->distinct_known || places->sampled)
		return;
	o->reread_lo = (int64_t)(p->bytes - p->distinct_hi);
	o->reread_hi = (int64_t)(p->bytes - p->distinct_lo);
	if (o->reread_lo == o->reread_hi)
		o->reread_bytes = o->reread_lo;
}
