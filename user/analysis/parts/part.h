/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A part: what is left of a stretch of time once it was looked at. Parts follow each
 * other without a gap, each from the begin of a step to the begin of another, so that
 * no wait and no hand-off is cut. What lies before and behind one is there while it is
 * looked at, and counts in none but its own.
 *
 *   pt_part_make   the model's stretch, through all passes, into a part (part.c)
 *   pt_join_parts  several into one, in order; one alone stays as it is (join*.c)
 *   pt_finish      the report of that one (finish.c)
 *
 * An ordinary capture is one part. One that is too long to be held has many, which
 * are made while it is read. What a join keeps:
 *
 *  exact    steps and all that is told of them, the waits and their charges, the
 *           breakdown, phases, counts, bytes, what each worker and file took; samples
 *           (memory, NVML, disks' counters) are kept for the whole
 *  bounded  busy times of a device: the sums of the parts' bounds, which still
 *           hold. At a part's begin nothing is known of what the device has to
 *           do, so they are wider, by less than a step each time
 *  sampled  what-if, from some parts, with a range over their ranges
 *  means    quantiles of single calls (operations, disks, peers)
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

struct pt_parts_of { /* a capture, in time's order */
	struct pt_part *const *v;
	size_t n;
};

#define PT_PART_FILES 1024 /* rows of a part; of the report there are fewer */
/* So much of what lies behind a cut is looked at too, and must be kept of what
 * lies before it when the part is dropped: of the part's length. */
#define PT_PART_MARGIN 8

/* The trainer of this process, and its index in `t` and `got`; or NULL. */
const struct pt_trainer *pt_part_trainer(const struct pt_part *p,
					 const struct pt_proc *proc, size_t *index);
/* Of several ranks the one that the report shows, the worst; NULL: there is none. */
struct pt_trainer *pt_top_of(struct pt_trainer *t, size_t n);
static inline uint64_t pt_part_ns(const struct pt_part *p)
{
	return p->t1 - p->t0;
}

/* What was measured of the trainer that `an` shows, in part `i`; or NULL. */
const struct pt_measured *pt_part_got(const struct pt_an *an,
				      const struct pt_parts_of *all, size_t i);

/* join.c: all of them as one, in `a`; what is made for it is pt_join_free()d.
 * `an`: m, o, th and a are set; the trainers and the top one follow. */
int pt_join_parts(struct pt_an *an, const struct pt_parts_of *all,
		  struct pt_part *to);
void pt_join_free(const struct pt_parts_of *all, struct pt_part *joined);
/* join_rank.c, join_host.c, join_facts.c: of the top trainer; of the target. */
int pt_join_rank(struct pt_an *an, const struct pt_parts_of *all,
		 struct pt_measured *to);
void pt_join_facts(struct pt_an *an, const struct pt_parts_of *all,
		   struct pt_measured *to);
int pt_join_host(struct pt_an *an, const struct pt_parts_of *all);
/* What a part could not show, the whole does not; one reason each, the latest. */
int pt_join_limits(struct pt_report *to, const struct pt_report *from);

/* finish.c: the report of these. 0 or -ENOMEM. */
int pt_finish(const struct pt_model *m, const struct pt_analysis_opts *o,
	      const struct pt_parts_of *all, struct pt_report *r);
/* ... of one, as its line in `windows`. */
int pt_finish_row(const struct pt_model *m, const struct pt_analysis_opts *o,
		  struct pt_part *p);

/* lanes.c: what can be drawn, into the report's arena. */
int pt_fill_lanes(struct pt_an *an, const struct pt_parts_of *all,
		  struct pt_lanes *out);

#endif
