/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where in their files the reads were: in which order, and how much of it was
 * read more than once. Each thread's reads of a file are looked at by
 * themselves: eight readers that share a file each go through their own part.
 */
#ifndef PT_ANALYSIS_PLACES_H
#define PT_ANALYSIS_PLACES_H

#include "analysis/internal.h"

/*
 * A move is the step from one read with data to the thread's next in the same
 * file. It goes on (where the last one ended), begins at 0 again, or jumps. A
 * run is what is read between two jumps or beginnings.
 */
struct pt_place {
	struct pt_file_key key;
	/* What the threads did with it, and how long they were blocked for it. */
	uint64_t reads, read_ns, fetched;
	uint64_t blocked_ns, fault_ns, faults, fault_bytes;
	bool untimed;	  /* some reads' time is not known */
	bool unfetched;	  /* ... what they had fetched from storage is not */
	uint64_t waited_ns; /* by those who make the batches: see kind.c */
	uint64_t calls;	  /* that returned data */
	uint64_t bytes;	  /* of all */
	uint64_t placed;  /* bytes whose place is known, at least as a span */
	uint64_t starts;  /* readers */
	uint64_t on, again, jumps, strided; /* moves; strided: jumps too */
	int64_t stride;	  /* what most of `strided` went by */
	uint64_t votes;
	bool from_0;	  /* some reader began at the file's begin */
	bool rough;	  /* places are known to the page only */
	/* Different bytes read, of those: bounds. */
	bool distinct_known;
	uint64_t distinct_lo, distinct_hi;
	UT_hash_handle hh;
};

struct pt_places {
	struct pt_place *all; /* uthash, by key */
	uint64_t bytes;	      /* read from files that have a disk behind them */
	/* ... of which so many were different ones; bounds, or with `sampled`
	 * both the estimate from every so-and-so-many-th MiB */
	bool known, sampled;
	uint64_t distinct_lo, distinct_hi;
	uint64_t size; /* of those files, as far as their sizes are known */
	uint64_t files, unsized;
};

/* Look at all reads and waits for files of the window. 0 or -ENOMEM; free in any case. */
int pt_find_places(const struct pt_an *an, struct pt_places *out);
void pt_free_places(struct pt_places *p);
struct pt_place *pt_place_of(const struct pt_places *p, uint32_t dev, uint64_t inode);

/* "sequential", "random", "stride" or "mixed"; NULL: too little was seen. */
const char *pt_place_kind(const struct pt_place *p);
/* Bytes between two jumps or beginnings; NAN unknown. */
double pt_place_run(const struct pt_place *p);

/* A read of a regular file in the window. */
static inline bool pt_read_in(const struct pt_an *an, const struct pt_read *r)
{
	return r->obj_kind == PT_OBJ_FILE && r->end >= an->t0 && r->end <= an->t1;
}
/* ... that returned data. */
static inline bool pt_read_counts(const struct pt_an *an, const struct pt_read *r)
{
	return pt_read_in(an, r) && r->ret > 0;
}

/* distinct.c: fill in how many different bytes were read. 0 or -ENOMEM. */
int pt_find_distinct(const struct pt_an *an, struct pt_places *places);

/* What the report says of a file's order, and of what was read again. */
void pt_fill_place(const struct pt_places *all, const struct pt_place *p,
		   struct pt_r_file *o);

/* Is a file's data in memory only, or made up by the kernel? */
bool pt_fs_is_memory(uint32_t magic);

#endif
