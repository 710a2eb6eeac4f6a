/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is held of parts that were joined, between one and the next. Figures that a
 * report has by a division, an order or a bound are made at the end; until then there
 * are the sums that they come from.
 */
#ifndef PT_ANALYSIS_JOIN_H
#define PT_ANALYSIS_JOIN_H

#include "analysis/gpu/passes.h"
#include "analysis/parts/part.h"
#include "base/hash.h"

/* Rows held of a table whose report has the first 50; twice as many before those that
 * cost least are dropped. */
#define PT_JOIN_FILES (4 * PT_PART_FILES)
#define PT_JOIN_ROWS 512
/* Charges, likewise; those that are dropped lose their file and peer, not their time. */
#define PT_JOIN_CHARGES 16384
#define PT_JOIN_DISKS 50
#define PT_JOIN_WHATIF 64

typedef PT_VEC(struct pt_r_limit) pt_join_limits; /* their texts are from the heap */

/* A mean by weight; unknown ones are left out. */
struct pt_mean {
	double sum, weight;
};

struct pt_seen { /* of a device, or a trainer */
	uint64_t ns;	   /* of the parts that it was in */
	uint64_t known_ns; /* ... in which the model had footing */
	uint64_t bytes;	   /* copied, where it is known from what memory */
	double pageable;   /* ... bytes of those */
};

struct pt_join_gpu {
	int64_t index;
	struct pt_r_charge idle[2 * PT_CAUSE_NR];
	size_t n_idle;
	int64_t failed_allocations;
	PT_VEC(struct pt_r_alloc_failure) failures;
};

struct pt_join_op; /* an operation's row, by its kind and name */

/* Of one trainer, beside its pt_trainer and pt_measured. */
struct pt_join_rank {
	struct pt_seen self, dev[PT_NODES_MAX];
	struct pt_item_means {
		struct pt_mean median, slow;
		double most;
	} item;
	struct pt_io_means {
		struct pt_mean wait, depth, bytes, fetched, busy, read, by_bytes, se_bytes,
			by_share, se_share, opening, visits, visit, random, held;
		double most;
	} io;
	PT_VEC(struct pt_join_gpu) gpus;
	PT_VEC(struct pt_r_worker) workers;
	PT_VEC(struct pt_r_operation) ops;
	struct pt_join_op *names;
	PT_VEC(struct pt_r_line) lines;
	struct pt_r_whatif whatif[PT_JOIN_WHATIF];
	size_t n_whatif, asked, times[PT_JOIN_WHATIF]; /* parts; ... with that row */
	int64_t best_workers;
	pt_join_limits limits, asked_limits;
	PT_VEC(struct pt_stretch) past;
};

struct pt_join_file {
	struct {
		uint64_t inode, dev, path; /* path: a hash of it */
	} key;
	struct pt_r_file f;
	char *path; /* f's */
	int64_t most_distinct; /* in one piece, at least */
	bool fetched_unknown;
	UT_hash_handle hh;
};

struct pt_join_host {
	struct pt_join_file *files;
	bool files_cut, files_dropped; /* a part had more than it keeps; we had */
	PT_VEC(struct pt_r_disk) disks;
	double disk_ns[PT_JOIN_DISKS]; /* of the parts that it was in */
	PT_VEC(struct pt_r_write) writes;
	PT_VEC(struct pt_r_peer) peers;
	struct pt_r_working_set set;
	pt_join_limits limits;
};

struct pt_join {
	struct pt_arena *a; /* texts, each once */
	struct pt_join_text *texts;
	PT_VEC(struct pt_trainer) t;
	PT_VEC(struct pt_measured) got;	    /* of each ... */
	PT_VEC(struct pt_join_rank *) rank; /* ... likewise */
	PT_VEC(struct pt_r_window) windows;
	struct pt_part all; /* what is not of one trainer, but for the tables */
	struct pt_part_head head;
	struct pt_join_host host;
	size_t n; /* parts */
};

/* Ours, as long as the join is; NULL: it was, or the arena has failed. */
const char *pt_join_text(struct pt_join *j, const char *s);
const char *pt_join_known(const struct pt_join *j, const char *s); /* NULL: is not ours */
static inline bool pt_same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}
/* The row's texts become ours. */
void pt_join_own(struct pt_join *j, const struct pt_row *row, void *v);

/* join_rank.c: the rows of trainer `i`, from those of a part; at the end, in `to`. */
int pt_join_rank_add(struct pt_join *j, size_t i, const struct pt_measured *k);
int pt_join_rank_end(struct pt_an *an, struct pt_join *j, size_t i, struct pt_measured *to);
void pt_join_rank_free(struct pt_join_rank *r);
/* join_facts.c: what its judges ask. */
void pt_join_facts_begin(struct pt_join_rank *r, struct pt_measured *to);
void pt_join_facts_add(struct pt_join *j, size_t i, const struct pt_part *p,
		       const struct pt_trainer *t, const struct pt_measured *k);
void pt_join_facts_end(const struct pt_an *an, const struct pt_join_rank *r,
		       struct pt_measured *to);
/* join_host.c: tables of the whole target; at the end, in an->r. */
int pt_join_host_add(struct pt_join *j, const struct pt_part *p);
int pt_join_host_end(struct pt_an *an, struct pt_join *j);
void pt_join_host_free(struct pt_join_host *h);

/* What a part could not show, the whole does not; one reason each, the latest. */
int pt_join_limits_add(pt_join_limits *v, const struct pt_report *from);
int pt_join_limits_end(struct pt_report *to, const pt_join_limits *v);
void pt_join_limits_free(pt_join_limits *v);

#endif
