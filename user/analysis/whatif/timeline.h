/* SPDX-License-Identifier: BSD-2-Clause */
/* What-if: what each worker did, piece by piece. */
#ifndef PT_WHATIF_TIMELINE_H
#define PT_WHATIF_TIMELINE_H

#include "analysis/whatif/job.h"

enum pt_wi_what { PT_WI_IDLE, PT_WI_CPU, PT_WI_QUEUE, PT_WI_SLEEP, PT_WI_LOCKED };

struct pt_wi_piece { /* times since the window's begin */
	double begin, end;
	double own;	/* of a sleep: see struct pt_wi_visit */
	uint8_t what, place, lock;
	int16_t by;	/* LOCKED: the worker that ended it; -1 unknown */
};
typedef PT_VEC(struct pt_wi_piece) pt_wi_pieces;

struct pt_wi_look {
	const struct pt_an *an;
	const struct pt_trainer *t;
	const struct pt_worker *w; /* that is looked at; NULL: the trainer loads */
	struct pt_wi_job *o;
	pt_wi_pieces *v;   /* one per worker */
	pt_wi_pieces *now; /* of the one that is looked at */
	int index;
};

static inline double pt_wi_ms_of(const struct pt_wi_look *k, uint64_t ts)
{
	return (double)(int64_t)(ts - k->an->t0) / NS_PER_MS;
}

/* timeline.c: k->v of every worker, cut where locks were taken and given back; or
 * one list, of the trainer. 0 or -ENOMEM each. */
int pt_wi_take_pieces(struct pt_wi_look *k);
int pt_wi_take_own(struct pt_wi_look *k, pt_wi_pieces *out);
#endif
