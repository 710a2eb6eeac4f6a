/* SPDX-License-Identifier: BSD-2-Clause */
/* In which order files were read; see places.h. */
#include "analysis/io/places.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

struct pt_place *pt_place_of(const struct pt_places *all, uint32_t dev, uint64_t inode)
{
	struct pt_file_key key = { inode, dev };
	struct pt_place *p;

	HASH_FIND(hh, all->all, &key, sizeof(key), p);
	return p;
}

static struct pt_place *place_make(struct pt_places *all, uint32_t dev, uint64_t inode)
{
	struct pt_file_key key = { inode, dev };

	return pt_hash_make(all->all, key, &key);
}

static int take_waits(const struct pt_an *an, const struct pt_thread *th,
		      struct pt_places *all)
{
	struct pt_place *p;

	pt_each_iv(iv, th, an->t0, an->t1) {
		if ((iv->wait != PT_WAIT_DISK && iv->wait != PT_WAIT_FAULT) ||
		    iv->obj_kind != PT_OBJ_FILE)
			continue;
		p = place_make(all, iv->dev, iv->object);
		if (!p)
			return -ENOMEM;
		*(iv->wait == PT_WAIT_FAULT ? &p->fault_ns : &p->blocked_ns) +=
			pt_overlap(an->t0, an->t1, iv->begin, iv->ready);
	}
	pt_each(const struct pt_fault_sum, s, &th->faults) {
		if (!s->major || s->end < an->t0 || s->end > an->t1)
			continue;
		p = place_make(all, s->dev, s->inode);
		if (!p)
			return -ENOMEM;
		p->faults += s->major;
		p->fault_bytes += s->bytes;
	}
	return 0;
}

static void add_read(struct pt_place *p, const struct pt_read *r)
{
	p->reads += r->count;
	p->read_ns += r->busy;
	p->untimed |= !r->timed;
	p->unfetched |= r->fetched == UINT32_MAX;
	if (r->fetched != UINT32_MAX)
		p->fetched += (uint64_t)r->fetched << 9;
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

static int take_thread(const struct pt_an *an, const struct pt_thread *th,
		       struct pt_places *places)
{
	struct reader *readers = NULL, *t;
	int err = take_waits(an, th, places);

	pt_each_ok(const struct pt_read, r, &th->reads, err) {
		struct pt_file_key key = { r->inode, r->dev };
		struct pt_place *p;
		bool first = false;

		if (!pt_read_in(an, r))
			continue;
		p = place_make(places, r->dev, r->inode);
		if (!p) {
			err = -ENOMEM;
			break;
		}
		add_read(p, r);
		if (r->ret <= 0)
			continue;
		HASH_FIND(hh, readers, &key, sizeof(key), t);
		if (!t) {
			first = true;
			t = pt_hash_make(readers, key, &key);
			if (!t) {
				err = -ENOMEM;
				break;
			}
			t->p = p;
		}
		p->calls += r->count > r->empty ? r->count - r->empty : 0;
		p->bytes += (uint64_t)r->ret;
		if (!r->placed) {
			if (first) { /* its first place is still to come */
				HASH_DEL(readers, t);
				free(t);
			}
			continue;
		}
		p->placed += (uint64_t)r->ret;
		take_read(th, t, r, first);
	}
	pt_hash_free(readers);
	return err;
}

int pt_find_places(const struct pt_an *an, struct pt_places *out)
{
	int err = 0;
	size_t i;

	*out = (struct pt_places){ 0 };
	for (i = 0; i < an->m->all_threads.n && !err; i++)
		err = take_thread(an, an->m->all_threads.v[i], out);
	return err ?: pt_find_distinct(an, out);
}

void pt_free_places(struct pt_places *places)
{
	pt_hash_free(places->all);
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

void pt_fill_place(const struct pt_places *all, const struct pt_place *p,
		   struct pt_r_file *o)
{
	o->reread_bytes = o->reread_lo = o->reread_hi = PT_NULL;
	o->pattern = (struct pt_r_pattern){ NULL, NAN, NAN, NAN, PT_NULL,
					    PT_NULL };
	if (!p->starts)
		return;
	o->pattern.kind = pt_place_kind(p);
	o->pattern.sequential = sequential(p);
	o->pattern.read_bytes = (double)p->bytes / (double)p->calls;
	o->pattern.run_bytes = pt_place_run(p);
	o->pattern.readers = (int64_t)p->starts;
	if (o->pattern.kind && !strcmp(o->pattern.kind, "stride"))
		o->pattern.stride = p->stride;
	if (!p->distinct_known || all->sampled)
		return;
	o->reread_lo = (int64_t)(p->bytes - p->distinct_hi);
	o->reread_hi = (int64_t)(p->bytes - p->distinct_lo);
	if (o->reread_lo == o->reread_hi)
		o->reread_bytes = o->reread_lo;
}
