/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A part: what is left of a stretch of time once it was looked at. Parts follow each
 * other without a gap, each from the begin of a step to the begin of another, so that
 * no wait and no hand-off is cut. What lies before and behind one is there while it is
 * looked at, and counts in none but its own.
 *
 *   pt_part_make   the model's stretch, through all passes, into a part (part.c)
 *   pt_join_add    ... to those before it, which it is then no more needed for (join*.c)
 *   pt_finish      the report of one, or of those that were joined (finish.c)
 *
 * An ordinary capture is one part. One that is too long to be held has many, which
 * are made and joined while it is read: always the next one to all before it, so that
 * it is the same whenever that happens, and what is held goes with what was seen in
 * the capture and not with the number of parts. What a join keeps:
 *
 *  exact    steps and all that is told of them, the waits and their charges, the
 *           breakdown, phases, counts, bytes, what each worker and file took; samples
 *           (memory, NVML, disks' counters) are kept for the whole
 *  bounded  busy times of a device: the sums of the parts' bounds, which still
 *           hold. At a part's begin nothing is known of what the device has to
 *           do, so they are wider, by less than a step each time
 *  sampled  what-if, from some parts, with a range over their ranges
 *  means    quantiles of single calls (operations, disks, peers)
 *  rows     of files, written files and peers those that cost most, many times more
 *           than are shown; of a charge that is none of the largest, the sum by cause
 *           and thread
 *
 * Of each part a line of `windows` and some sums stay, 300 bytes, and its steps, 250 bytes
 * each.
 */
#ifndef PT_ANALYSIS_PART_H
#define PT_ANALYSIS_PART_H

#include "analysis/io/kind.h"
#include "analysis/parts/fields.h"
#include "analysis/ranks/meets.h"
#include "analysis/verdicts/verdict.h"

/* What the next part must know of one: where it begins, and the workers, which
 * may not be waited for in it. */
struct pt_part_worker {
	const struct pt_proc *trainer;
	struct pt_proc *proc;
	struct pt_thread *main;
};
struct pt_part_head {
	uint64_t end;
	struct pt_part_worker *workers;
	size_t n_workers;
};

#define PT_PHASES 6 /* see steps/phases.c */
struct pt_phases {
	uint64_t ns[PT_PHASES];
	size_t steps, backward; /* whole ones; those with a backward pass */
	bool told; /* steps with and without an update differ */
};

/* What a trainer's judges ask that only the records tell. */
struct pt_measured {
	struct pt_phases phases;
	struct pt_pool_time pool;
	struct pt_hung hung;
	struct pt_item item;
	struct pt_gpu_balance balance;
	struct pt_fault_file faults;
	struct pt_io io;
	/* workers, operations and what pt_measure_gpu() fills; never NULL */
	const struct pt_report *rows;
	const struct pt_report *asked; /* what-if; NULL: not asked */
};

struct pt_part {
	uint64_t t0, t1;
	size_t step0; /* the number of its first step */
	bool window, asked; /* less than the model has; as the user asked */
	const struct pt_part_head *head;
	struct pt_trainer *t;	 /* n of them */
	struct pt_measured *got; /* of each */
	size_t n;
	struct pt_hung hung;	 /* where there is no trainer */
	struct pt_read_calls reads;
	struct pt_report *r;	 /* tables that are not of one trainer */
	struct pt_r_window row;	 /* its line in `windows`, where that was asked for */
	struct pt_meets meets;	 /* of the trainers in their order */
};

#define PT_PART_FILES 1024 /* rows of a part; of the report there are fewer */
/* So much of what lies behind a cut is looked at too, and must be kept of what
 * lies before it when the part is dropped: of the part's length. */
#define PT_PART_MARGIN 8

/* Whom the part points to stays when `m` is folded. */
void pt_part_hold(struct pt_model *m, const struct pt_part *p);
/* Of several ranks the one that the report shows, the worst; NULL: there is none. */
struct pt_trainer *pt_top_of(struct pt_trainer *t, size_t n);
static inline uint64_t pt_part_ns(const struct pt_part *p)
{
	return p->t1 - p->t0;
}

/* Of a part that was joined with others, what is kept of it by itself: of a trainer. */
struct pt_stretch {
	uint64_t t0, t1, idle_ns, starved_ns; /* likely */
	struct pt_gpu_balance balance;
	bool known; /* ... what its devices did */
};
/* ... in time's order. */
const struct pt_stretch *pt_join_past(const struct pt_join *j, size_t trainer,
				      size_t *n);
/* join.c: all of them as one; nothing can be added then. `an`: m, o, th and a are set. */
int pt_join_end(struct pt_an *an, struct pt_join *j, struct pt_part *to);

/* finish.c: the report of `p` or, where that is NULL, of those that were joined. 0 or
 * -ENOMEM. */
int pt_finish(const struct pt_model *m, const struct pt_analysis_opts *o,
	      struct pt_part *p, struct pt_join *j, struct pt_report *r);
/* ... of one, as its line in `windows`. */
int pt_finish_row(const struct pt_model *m, const struct pt_analysis_opts *o,
		  struct pt_part *p);

/* lanes.c: what can be drawn, into the report's arena. */
int pt_fill_lanes(struct pt_an *an, const struct pt_join *j, struct pt_lanes *out);

#endif
