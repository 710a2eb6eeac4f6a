/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * In which line of the job's Python its threads spent their time. How long a thread ran,
 * slept and why is known from the records to the nanosecond; looks at its stack tell where.
 * A sleep that was looked at is its line's, all of it. What it ran is shared out by the looks
 * that found it running.
 */
#ifndef PT_ANALYSIS_LINES_H
#define PT_ANALYSIS_LINES_H

#include "analysis/internal.h"
#include "analysis/parts/part.h"

/* Rows of `an->r`, the part's, for the trainer's main thread and its workers'. 0 or -ENOMEM. */
int pt_measure_lines(struct pt_an *an, const struct pt_trainer *t);
/* ... to those of the parts before. 0 or -ENOMEM. */
struct pt_join;
struct pt_join_rank;
int pt_join_lines(struct pt_join *j, struct pt_join_rank *r, const struct pt_report *rows);
/* Sums over the workers, shares, and each worker's own in its row; behind the workers'
 * rows of an->r. 0 or -ENOMEM. */
int pt_finish_lines(struct pt_an *an, const struct pt_report *rows);

/* In which function most of that was spent: its line with the most, the function's seconds,
 * and their share of it. False: looks do not tell. `pid`: the verdict's subject. */
bool pt_top_line(const struct pt_an *an, const struct pt_line_ask *ask, int64_t pid,
		 struct pt_r_line *out);
/* "RandomAugment.__call__ (data.py:88)" */
const char *pt_line_place(struct pt_an *an, const struct pt_r_line *l);
/* In a verdict on somebody who hangs: the stack in which `th` was looked at last, if that was
 * in the last `seconds`, and in the sentence behind `inside` ("it is inside") its line that
 * tells most. `trainer`: its main thread, where `th` is a worker's; else NULL. 0 or -ENOMEM. */
int pt_tell_stack(struct pt_an *an, const struct pt_thread *th, const struct pt_thread *trainer,
		  double seconds, const char *inside, struct pt_r_verdict *v);
/* In a verdict on a rank that is late: the line, and a stack that leads there, in which its
 * main thread spends most of the time in which it obtains data, or of all other. 0 or -ENOMEM. */
int pt_tell_late(struct pt_an *an, const struct pt_trainer *t, bool data,
		 struct pt_r_verdict *v);
/* ... both, 0: none, and the line's share of that time. 0 or -ENOMEM. */
int pt_late_line(struct pt_an *an, const struct pt_trainer *t, bool data, uint32_t *line,
		 uint32_t *stack, double *share);
/* While the training thread, in its data waits (`loading`, and workers at any time) or else, waits
 * for the interpreter's lock, and that is most of its waiting for locks: the line that most who had
 * the lock were in, its share of their samples, and how many those are. *line 0: too few tell. 0 or
 * -ENOMEM. */
int pt_holding_line(const struct pt_an *an, const struct pt_trainer *t, bool loading,
		    uint32_t *line, double *share, uint64_t *samples);
/* ... in a verdict on such waits. 0 or -ENOMEM. */
int pt_tell_holder(struct pt_an *an, const struct pt_trainer *t, bool loading,
		   struct pt_r_verdict *v);
/* What each stack has, as its line's that tells most: the line with most of it, 0: none, and how
 * much. 0 or -ENOMEM. */
int pt_most_line(const struct pt_model *m, const uint64_t *stacks, uint32_t *line,
		 uint64_t *most);
/* For how much of its time does each of its looks stand? Looks that were all made from outside
 * count 1 each. free() it, in any case. 0 or -ENOMEM. */
int pt_weigh_looks(const struct pt_an *an, const struct pt_thread *th, double **out);

/* Since when all looks found the thread in the line of the last one, as that tells most;
 * UINT64_MAX: there is no look. */
uint64_t pt_same_line_since(const struct pt_model *m, const struct pt_thread *th);
/* The line of a stack that tells most, as the report's lines have it; `trainer` as above.
 * *line 0: there is none. 0 or -ENOMEM. */
int pt_telling_line(const struct pt_model *m, const struct pt_thread *trainer, uint32_t stack,
		    uint32_t *line);
/* The verdict's sentence, evidence and subject with that place. */
void pt_name_line(struct pt_an *an, const struct pt_line_ask *ask, struct pt_r_verdict *v);

#endif
