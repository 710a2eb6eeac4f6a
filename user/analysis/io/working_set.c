/* SPDX-License-Identifier: BSD-2-Clause */
/* What the job reads, against the memory that there is for it. */

#include "analysis/io/places.h"

/* Read so often that the window has gone round: whatever is read again is most
 * of what is read. */
#define ROUND 0.5

static int64_t known(uint64_t v)
{
	return v > INT64_MAX ? PT_NULL : (int64_t)v;
}

/* What pages of files may take: on the machine what the kernel calls available
 * (Documentation/filesystems/proc.rst: MemAvailable), in a limited cgroup what
 * nothing else in it holds. */
static int64_t room_in(const struct pt_rec_memory *m)
{
	uint64_t room = m->available, held;

	if (m->limit == PT_MEMORY_UNKNOWN)
		return known(room);
	if (m->used == PT_MEMORY_UNKNOWN || m->used_cache == PT_MEMORY_UNKNOWN ||
	    m->used_shm == PT_MEMORY_UNKNOWN)
		return PT_NULL;
	held = m->used - pt_min64(m->used, m->used_cache -
					   pt_min64(m->used_cache, m->used_shm));
	return known(pt_min64(room, m->limit - pt_min64(m->limit, held)));
}

void pt_measure_memory(struct pt_an *an)
{
	struct pt_r_memory *o = &an->r->memory;
	const struct pt_rec_memory *first = NULL, *last = NULL;

	pt_each(const struct pt_rec_memory, m, &an->m->memory) {
		if (m->hdr.ts > an->t1 + NS_PER_S)
			break;
		if (!first || m->hdr.ts <= an->t0)
			first = m;
		last = m;
	}
	if (!last) {
		pt_report_limit(an->r, "memory.total", "The recording does not say how much memory there was.");
		return;
	}
	o->total = known(last->total);
	o->available = known(last->available);
	o->cache = known(last->cache);
	o->limit = known(last->limit);
	o->used = known(last->used);
	o->room = room_in(last);
	if (first == last || first->refaulted == PT_MEMORY_UNKNOWN ||
	    last->refaulted == PT_MEMORY_UNKNOWN ||
	    first->refaulted_in != last->refaulted_in ||
	    last->refaulted < first->refaulted)
		return;
	o->refaulted = known(last->refaulted - first->refaulted);
	o->refaulted_in = last->refaulted_in == PT_MEMORY_CGROUP ? "cgroup" :
								   "host";
	o->refault_s = pt_sec(last->hdr.ts - first->hdr.ts);
}

static void find_fits(struct pt_r_memory *m)
{
	struct pt_r_working_set *o = &m->set;

	if (m->room == PT_NULL)
		return;
	if (o->whole[1] != PT_NULL && o->whole[1] <= m->room)
		o->fits = 1;
	else if (o->whole[0] > m->room)
		o->fits = 0;
}

/*
 * The whole set: no less than what was seen of it (reads whose records were lost may be of
 * other bytes, or of the same again). No more than that where the
 * window held an epoch from end to end, nor than the files' sizes where it went
 * round them; else more may follow.
 */
static void fill_set(const struct pt_an *an, struct pt_r_memory *m)
{
	const struct pt_places *p = an->places;
	struct pt_r_working_set *o = &m->set;
	uint64_t again = p->bytes - pt_min64(p->bytes, p->distinct_hi);
	uint64_t missed = pt_missed_read_bytes(an);

	if (!p->known)
		return;
	o->read_bytes = known(p->bytes + missed);
	o->files = (int64_t)p->files;
	o->seen[0] = known(p->distinct_lo);
	o->seen[1] = known(p->distinct_hi + missed);
	o->certainty = p->sampled ? PT_ESTIMATED :
		       p->distinct_lo == p->distinct_hi && !missed ? PT_MEASURED :
							  PT_BOUNDED;
	o->whole[0] = o->seen[0];
	if ((double)again >= ROUND * (double)p->bytes && !p->unsized && !missed)
		o->whole[1] = known(pt_max64(p->size, p->distinct_hi));
}

void pt_measure_working_set(struct pt_an *an)
{
	pt_measure_memory(an);
	fill_set(an, &an->r->memory);
}

void pt_finish_working_set(struct pt_report *r)
{
	struct pt_r_working_set *o = &r->memory.set;

	if (o->read_bytes == PT_NULL)
		return;
	if (r->steps.n_epochs >= 3 && /* the first and the last may be cut */
	    (o->whole[1] == PT_NULL || o->seen[1] < o->whole[1]))
		o->whole[1] = o->seen[1];
	if (o->whole[1] != PT_NULL && o->whole[1] < o->whole[0])
		o->whole[1] = PT_NULL; /* another epoch was of more */
	if (o->whole[1] != PT_NULL && o->seen[1] > o->whole[1])
		o->seen[1] = o->whole[1];
	find_fits(&r->memory);
}
