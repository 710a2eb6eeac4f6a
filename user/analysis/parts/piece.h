/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A capture too long to be held at once, looked at in pieces that follow each
 * other without a gap: each from the begin of a step to the begin of another,
 * so that no wait and no hand-off is cut. What lies before and behind a piece is
 * there while it is looked at, and counts in none but its own.
 *
 * A piece keeps what the report needs of it: the passes' results and the tables.
 * merge.c makes one report of all, as if the whole had been looked at:
 *
 *  exact    steps and all that is told of them, the waits and their charges, the
 *           breakdown, counts, bytes, what each worker and file took; samples
 *           (memory, NVML, disks' counters) are kept for the whole
 *  bounded  busy times of a device: the sums of the pieces' bounds, which still
 *           hold. At a piece's begin nothing is known of what the device has to
 *           do, so they are wider, by less than a step each time
 *  sampled  what-if, from some pieces, with a range over their ranges
 *  means    quantiles of single calls (operations, disks, peers)
 */
#ifndef PT_ANALYSIS_PIECE_H
#define PT_ANALYSIS_PIECE_H

#include "analysis/io/kind.h"
#include "analysis/ranks/meets.h"
#include "analysis/verdicts/verdict.h"

/* What the next piece must know of one: where it begins, and the workers, which
 * may not be waited for in it. */
struct pt_piece_worker {
	const struct pt_proc *trainer;
	struct pt_proc *proc;
	struct pt_thread *main;
};
struct pt_piece_head {
	uint64_t end;
	struct pt_piece_worker *workers;
	size_t n_workers;
};

/* Which: steps that begin in [from, the first step that begins from `cut` on);
 * cut 0: all that follow. */
struct pt_piece;
struct pt_piece_at {
	uint64_t from, cut;
	const struct pt_piece_head *before; /* NULL: it is the first */
};

struct pt_piece_rank { /* one trainer */
	struct pt_trainer t; /* without spans of devices and what only passes
			      * need; its arrays lie in the arena */
	const struct pt_report *r;
	struct pt_facts f;
	struct pt_io io;
	bool io_known, whatif;
};

struct pt_piece {
	uint64_t t0, t1;
	const struct pt_piece_head *head;
	struct pt_piece_rank *rank;
	size_t n;
	const struct pt_report *r; /* what is not of one trainer */
	struct pt_meets meets;	   /* of the trainers in their order */
	struct pt_r_window row;
};

struct pt_pieces {
	struct pt_piece **v;
	size_t n;
};

#define PT_PIECE_FILES 1024 /* rows of a piece; of the whole there are fewer */
/* So much of what lies behind a cut is looked at too, and must be kept of what
 * lies before it when the piece is dropped: of the piece's length. */
#define PT_PIECE_MARGIN 8

/* merge.c: all trainers of the pieces into an->trainers. 0 or -ENOMEM. */
int pt_merge_trainers(struct pt_an *an);
/* ... and their meetings, into an->meets. */
int pt_merge_meets(struct pt_an *an);
/* Kernels of collectives per step, of one trainer. */
void pt_merge_collectives(const struct pt_an *an, const struct pt_trainer *t,
			  struct pt_dist *out);
/* The trainer `proc` in a piece, or NULL. */
const struct pt_piece_rank *pt_piece_rank_of(const struct pt_piece *p,
					     const struct pt_proc *proc);
/* Length of a piece. */
static inline uint64_t pt_piece_ns(const struct pt_piece *p)
{
	return p->t1 - p->t0;
}

/* merge_report.c, merge_tables.c: parts of the report. 0 or -ENOMEM each. */
int pt_merge_phases(struct pt_an *an);
int pt_merge_gpu(struct pt_an *an, const struct pt_trainer *t,
		 struct pt_r_gpu *g);
int pt_merge_workers(struct pt_an *an);
int pt_merge_operations(struct pt_an *an);
int pt_merge_whatif(struct pt_an *an);
int pt_merge_limits(struct pt_an *an);
int pt_merge_files(struct pt_an *an);
int pt_merge_disks(struct pt_an *an);
int pt_merge_writes(struct pt_an *an);
int pt_merge_peers(struct pt_an *an);
void pt_merge_set(struct pt_an *an);
/* merge_facts.c: what the judges ask, that only the pieces can tell. */
void pt_merge_facts(struct pt_an *an, struct pt_facts *f);
void pt_merge_io(struct pt_an *an, struct pt_io *out);
void pt_merge_steady(const struct pt_an *an, struct pt_steady *out);
void pt_merge_faults(const struct pt_an *an, struct pt_fault_facts *out);

/* Two distributions as one: count, mean, deviation and extremes exact, the
 * quantiles the mean by count, which lies between theirs. */
void pt_dist_join(struct pt_dist *to, const struct pt_dist *d);

#endif
