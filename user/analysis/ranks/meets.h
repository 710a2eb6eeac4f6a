/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Meetings of ranks: the k-th collective of a communicator, in which no rank goes
 * on before all have come. Who comes last, by how much, and what it did instead.
 *
 *   meets_list   a rank's collectives in order: calls, or kernels where they are
 *		  measured
 *   meets_join   which of one rank is which of another: communicators have other
 *		  addresses in each process, and tracing began in mid-series
 *   meets        the lateness, and its reasons
 */
#ifndef PT_MEETS_H
#define PT_MEETS_H

#include "analysis/internal.h"

#define PT_MEETS_MIN 10 /* fewer tell nothing */

struct pt_meet {
	uint64_t at;   /* this rank came: its call, or its kernel began */
	uint64_t done; /* it was over by then; UINT64_MAX: not seen */
	uint64_t sig;  /* the same on all ranks: what and how much */
};
typedef PT_VEC(struct pt_meet) pt_meets_list;

/* What a late rank does more than the others between the moment at which all
 * had come to the meeting before and its own coming to this one. */
enum pt_late_part {
	PT_LATE_DATA, /* waits for data */
	PT_LATE_GPU,  /* its device works: measured, or the host waits for it */
	PT_LATE_WRITE, /* writes files */
	PT_LATE_HOST, /* everything else */
	PT_LATE_NR
};
/* "data_wait", "gpu", "checkpoint", "host". Static. */
const char *pt_late_part_name(enum pt_late_part p);

struct pt_meet_rank { /* of one trainer, in their order */
	uint64_t last;	  /* meetings to which it clearly came last */
	uint64_t held_ns; /* all others were there, and only it was not */
	uint64_t cost_ns; /* ... and its device had no other work: what they lose */
	uint64_t waits_ns; /* it was there, and somebody was not */
	int64_t part_ns[PT_LATE_NR]; /* where it was last: more than the others */
	struct pt_dist late_ms; /* behind the first one, where one was clearly last */
};

struct pt_meets {
	bool known;	/* else `why` */
	const char *why; /* static; NULL: the ranks have no collectives */
	bool measured;	/* by device times, else by calls */
	bool sure;	/* only one way to join them is possible */
	bool several;	/* a rank has other communicators with much traffic */
	uint64_t n;	/* meetings that all ranks came to */
	uint64_t clear; /* ... of those, to which one clearly came last */
	struct pt_meet_rank *rank; /* trainers.n of them */
};

/* Fills an->meets, with at least two trainers. 0 or -ENOMEM. */
int pt_find_meets(struct pt_an *an);
void pt_meets_free(struct pt_meets *m);
/* The part that weighs most in a late rank's excess. */
enum pt_late_part pt_late_reason(const struct pt_meet_rank *r);
/* The rank that costs the others most, an index in trainers, and by how much
 * more than the next one, ns; -1: none. */
int pt_meets_worst(const struct pt_an *an, uint64_t *excess_ns);

/* ---- meets_list.c ------------------------------------------------------------ */
/* The calls of the communicator that the process uses most; *several: another one
 * has a fifth of them or more. 0 or -ENOMEM. */
int pt_meets_calls(const struct pt_an *an, const struct pt_proc *p,
		   pt_meets_list *out, bool *several);
/* The stretch in which all work of its devices was recorded, the longest one. */
bool pt_meets_measured(const struct pt_proc *p, uint64_t *begin, uint64_t *end);
/* Kernels of collectives as they were measured; none where several devices of the
 * process have some. */
int pt_meets_kernels(const struct pt_an *an, const struct pt_proc *p,
		     pt_meets_list *out);

/* ---- meets_join.c ------------------------------------------------------------- */
/* Entry i of `a` is the meeting of entry i + *shift of `b`. False: no way to join
 * them holds. *sure: no other one does. */
bool pt_meets_join(const pt_meets_list *a, const pt_meets_list *b,
		   int64_t *shift, bool *sure);

#endif
