/* SPDX-License-Identifier: BSD-2-Clause */
/* The blocks of the text report, for it and for `top`. Each prints nothing when the
 * report has nothing for it. */
#ifndef PT_VIEW_TEXT_BLOCKS_H
#define PT_VIEW_TEXT_BLOCKS_H

#include "view/text/fmt.h"

void pt_tx_verdicts(struct pt_tx *t, const struct pt_report *r);
void pt_tx_gpu(struct pt_tx *t, const struct pt_r_gpu *g);
/* ... its first line alone: how busy, how long it waited for data. */
void pt_tx_busy(struct pt_tx *t, struct pt_line *l, const struct pt_r_gpu *g);
/* Allocations of a device that failed: what for, and what became of it. */
void pt_tx_alloc_failures(struct pt_tx *t, const struct pt_r_gpu *g);
/* "Time": where the trainer's time went, a bar and its parts. */
void pt_tx_time(struct pt_tx *t, const struct pt_r_breakdown *d);
/* What a worker did with its time, a bar of `cols`; and what its parts are. */
void pt_tx_worker_bar(struct pt_tx *t, const struct pt_r_worker *w, int cols);
void pt_tx_worker_legend(struct pt_tx *t);
void pt_tx_workers(struct pt_tx *t, const struct pt_report *r);
/* The lines of Python in which the trainer and the workers spent their time. */
void pt_tx_lines(struct pt_tx *t, const struct pt_report *r);
/* The one that most of them is spent in, workers' first, and the time of its kind; NULL:
 * none is known. And what time that is: "all workers, asleep (disk)". */
const struct pt_r_line *pt_tx_worst_line(const struct pt_tx *t, const struct pt_report *r,
					 double *seconds);
void pt_tx_lines_of(struct pt_tx *t, const struct pt_r_line *l);
void pt_tx_ranks(struct pt_tx *t, const struct pt_report *r);
void pt_tx_step_table(struct pt_tx *t, const struct pt_report *r);
void pt_tx_epochs(struct pt_tx *t, const struct pt_report *r);
void pt_tx_writes(struct pt_tx *t, const struct pt_report *r);
void pt_tx_disks(struct pt_tx *t, const struct pt_report *r);
void pt_tx_files(struct pt_tx *t, const struct pt_report *r);
/* Network peers; without --verbose where the network is what holds it up. */
void pt_tx_peers(struct pt_tx *t, const struct pt_report *r);
void pt_tx_mapped(struct pt_tx *t, const struct pt_report *r);
void pt_tx_operations(struct pt_tx *t, const struct pt_report *r);
void pt_tx_whatif(struct pt_tx *t, const struct pt_report *r);
void pt_tx_windows(struct pt_tx *t, const struct pt_report *r);
void pt_tx_capture(struct pt_tx *t, const struct pt_report *r);

/* How many of `n` rows are shown, where --top does not say it `usual` ones. */
size_t pt_tx_rows(const struct pt_tx *t, size_t usual, size_t n);
/* "and 3 more", where not all are shown. */
void pt_tx_more(struct pt_tx *t, size_t shown, size_t n);

/* What a cause costs through one worker, whichever the file; largest first. */
#define PT_TX_CHARGES 64
struct pt_tx_charge {
	struct pt_r_charge c;
	int64_t id;
	size_t files; /* different texts of `what` */
};
size_t pt_tx_charges(const struct pt_report *r, struct pt_tx_charge out[PT_TX_CHARGES]);
/* Its cause, or what kind of storage was waited for. */
const char *pt_tx_storage(const struct pt_r_charge *c);

/* Has this verdict no cause among the others? */
bool pt_tx_is_root(const struct pt_report *r, size_t i);
/* "3.3x faster"; nothing where there is nothing to do. */
void pt_tx_gain(struct pt_tx *t, struct pt_line *l, const struct pt_r_verdict *v);

/* Who a pid is to the reader: "trainer 42", "loader 43", "pid 44"; a dash for
 * PT_NULL. */
const char *pt_tx_who(struct pt_tx *t, const struct pt_report *r, int64_t pid,
		      int64_t tid);
/* A cause for the reader: "run queue". */
const char *pt_tx_cause(enum pt_cause c);

#endif
