/* SPDX-License-Identifier: BSD-2-Clause */
/* From a finished model to steps, breakdown, workers and verdicts. Pure. */
#ifndef PT_ANALYSIS_H
#define PT_ANALYSIS_H

#include "model/model.h"
#include "report/report.h"

struct pt_thresholds; /* analysis/verdicts/thresholds.h */
struct pt_lanes;      /* report/lanes.h */

struct pt_analysis_opts {
	int64_t batch_size; /* 0: unknown */
	/* NULL: the defaults; others are told in the report. The caller's. */
	const struct pt_thresholds *thresholds;
	/* Where what can be drawn goes; NULL: not wanted. The caller's; what
	 * it points to is the report's. Empty after an error. */
	struct pt_lanes *lanes;
	/* Only this part of the capture, in ns from its begin; until_ns 0: to
	 * its end. And of that, with by_steps, only steps first_step to
	 * last_step (counted from 0, both included; by the step marker where it
	 * was called). */
	uint64_t from_ns, until_ns;
	int64_t first_step, last_step;
	bool by_steps;
	/* Where these begin and end is known already, CLOCK_MONOTONIC ns: the
	 * model does not hold all the steps before them. until 0: to its end. */
	bool steps_known;
	uint64_t steps_from, steps_until;
};

/*
 * Fill `r`'s loader, steps, breakdown, data_wait, gpu, workers, ranks,
 * operations, files, series, memory and verdicts, and capture's duration,
 * begin, end, events, lost and limits, from `m` (finished). host, target,
 * capture.hooks, mode and tracer_cpu_s are the caller's.
 * 0; -ENOMEM; -ERANGE: the capture has no such part (capture.duration and, with
 * by_steps, steps.count say what it has). On error the report stays
 * printable.
 */
int pt_analyze(struct pt_model *m, const struct pt_analysis_opts *o,
	       struct pt_report *r);

/*
 * A provisional look at a running capture for the live line, over the last
 * `window_ns`. `out` may ask for steps since a moment; else zeroed. Any of the outputs may be unknown (-1, NAN, NULL).
 */
struct pt_provisional {
	uint64_t since_ns;    /* in: for steps_since */
	int64_t steps_since;  /* steps that began behind it, the last left out */
	uint64_t newest_ns;   /* the last one of them began; 0: none */
	int64_t steps;
	double data_wait_share;
	const char *verdict; /* static string */
};
void pt_analyze_live(struct pt_model *m, const struct pt_analysis_opts *o,
		     uint64_t now_ns, uint64_t window_ns,
		     struct pt_provisional *out);

/*
 * One part of a capture, [t0, t1) of CLOCK_MONOTONIC ns, in short; `m` may still
 * be fed afterwards. 0 or -ENOMEM.
 */
int pt_analyze_part(struct pt_model *m, const struct pt_analysis_opts *o,
		    uint64_t t0, uint64_t t1, struct pt_r_window *out);

/*
 * A stretch of the model as a part of a capture (parts/part.h). The caller of
 * pt_part_make() has `a`, in which it lies but for its trainers, and drops it.
 */
struct pt_part;
struct pt_part_head; /* what the next part must know of one */
struct pt_part_ask {
	/* Parts that follow each other: this one is from the end of the one before
	 * (NULL: the model's begin) to the first step that begins at `cut` or later
	 * (0: the model's end). The model holds a margin before the begin, if it had
	 * begun by then, and as much behind `cut`. */
	const struct pt_part_head *before;
	uint64_t cut;
	/* Or this stretch, CLOCK_MONOTONIC ns; until 0: all of the model, or what
	 * the options say. */
	uint64_t from, until;
	bool as_it_is; /* intervals that have not ended are left out */
	bool tables;   /* with what is listed: workers, operations, files ... */
	bool whatif;   /* ... and what a change would win */
	bool row;      /* and its line in `windows` */
	/* Called with what the next part must know, long before all is done; it
	 * lies in the arena. Or NULL. */
	void (*known)(void *ctx, const struct pt_part_head *head);
	void *ctx;
};
/* 0, -ENOMEM, or -ERANGE: there is no such stretch. Drop *out in any case. */
int pt_part_make(struct pt_model *m, const struct pt_analysis_opts *o,
		 const struct pt_part_ask *ask, struct pt_arena *a,
		 struct pt_part **out);
void pt_part_drop(struct pt_part *p); /* NULL: nothing */
/* Once more into the arena alone: nothing is to be dropped then. 0 or -ENOMEM. */
int pt_part_keep(struct pt_part *p, struct pt_arena *a);
const struct pt_part_head *pt_part_head(const struct pt_part *p);
uint64_t pt_part_end(const struct pt_part_head *h); /* the next one begins */

/* Parts that follow each other, as one (parts/join.c). */
struct pt_join;
struct pt_join *pt_join_new(void); /* NULL: out of memory */
/* The next one; it may be dropped then. 0 or -ENOMEM, and then there is no report of
 * them. */
int pt_join_add(struct pt_join *j, struct pt_part *p);
const struct pt_part_head *pt_join_head(const struct pt_join *j); /* of the latest */
/* Whom they point to stays when `m` is folded. */
void pt_join_hold(struct pt_model *m, const struct pt_join *j);
void pt_join_free(void *j);
/* pt_analyze() of a finished model that holds what is behind these (and the margin), of
 * which there is no window. NULL: there are none. They stay as long as the report. */
int pt_analyze_parts(struct pt_model *m, const struct pt_analysis_opts *o,
		     struct pt_join *j, struct pt_report *r);

#endif
