/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file that is too long to be held in memory at once: read in pieces, each
 * looked at by a process of its own beside the reader, which goes on meanwhile.
 * The next one starts as soon as it is known where the piece ends, so that two or
 * three are at work where there are cores for them. What is done is joined with all
 * before it, in time's order (analysis/parts/part.h), and the report is of that.
 */
#ifndef PT_PIECES_H
#define PT_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/analysis.h"
#include "model/past.h"
#include "base/vec.h"
#include "model/model.h"
#include "report/report.h"

struct pt_piece_room { /* what a piece at work lies in, with the process that makes it */
	void *shared;
	int pid;
	int known; /* a byte can be read when its head is there; -1: it is */
};

/* Of what is held, a piece has so much. The rest is what follows it, of which an
 * eighth of its length is looked at with it; that, and as much from before, is
 * held on, moved to the front and looked at again. */
#define PT_PIECE_SHARE 0.8
/* Of a live trace, whose length nobody knows: ask_every. */
#define PT_ASK_MARKED 4

struct pt_long {
	struct pt_join *done;		    /* NULL: none is */
	PT_VEC(struct pt_piece_room) rooms; /* of those at work, in time's order */
	struct pt_past *past; /* what is dropped is summed up there; or NULL */
	size_t n;	   /* pieces, those at work too */
	size_t ask_every;  /* what-if of every so-many-th piece; 0: of none */
	size_t at_once;	   /* processes at work; 0: as many as there are cores */
	uint64_t records;  /* that the model had taken when it was cut last */
	bool broken;	   /* a piece is lost: the report is of the last alone */
};

/* Look at PT_PIECE_SHARE of the timelines, the oldest, and drop it; where it was done
 * just before, nothing. 0 or -errno. */
int pt_long_cut(struct pt_long *l, struct pt_model *m,
		const struct pt_analysis_opts *o);
/* ... where the timelines take more than `max_bytes`. */
int pt_long_spill(struct pt_long *l, struct pt_model *m,
		  const struct pt_analysis_opts *o, uint64_t max_bytes);
/* Would the next cut wait for the process of the last one? */
bool pt_long_busy(const struct pt_long *l);
/* Behind the last record: pt_analyze() of them and of what the model still holds, in one
 * report, whose they are then; what that does not show is in the limits. */
int pt_long_report(struct pt_long *l, struct pt_model *m,
		   const struct pt_analysis_opts *o, struct pt_report *r);
void pt_long_free(struct pt_long *l);

#endif
