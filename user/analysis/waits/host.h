/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the host did in each gap between GPU calls, and on what evidence a part
 * of it may be called obtaining data: somebody who supplies ended its sleep, it
 * read by itself, or it asked a supplier for more. Everything else is host work.
 */
#ifndef PT_WAITS_HOST_H
#define PT_WAITS_HOST_H

#include "analysis/waits/loader.h"
#include "analysis/waits/loop.h"

struct pt_host_piece {
	uint64_t begin, end;
	const struct pt_iv *iv; /* of a sleep */
	uint8_t what;
	bool plain_lock; /* pt_is_plain_lock() */
	bool for_results; /* of a giver's */
};

struct pt_host_gap {
	struct pt_gap g;
	size_t call;	 /* it lies before this call of the lead */
	size_t first, n; /* its pieces, in order of time; they cover it */
	/* Evidence of obtaining; times are 0 where there is none. */
	uint64_t supplied_ns, read_ns;
	uint64_t own_ns; /* of the gap; the rest is launching */
	uint64_t begins, ends; /* of its first such sleep, of its last */
	uint64_t asked; /* a supplier was woken first */
	uint64_t told;	/* ... and given something to do last */
	uint64_t started; /* the last supplier was born in it */
	uint32_t asks;	  /* items asked for */
	uint32_t asks_after; /* ... since the first evidence */
	bool burst;	     /* every worker was asked at once */
	uint64_t read_first, read_last; /* its own reads of files */
	uint32_t reads;			/* ... in so many turns */
	uint64_t read_bytes; /* where single reads are not traced */
	/* Looks at the thread's Python in it: how many; what they stand for (pt_weigh_looks());
	 * of that in the data iterator; and that, times where in the gap it was, summed. */
	uint32_t looks;
	double looked, named, named_at;
};

/* A look at the thread's Python in a gap. */
struct pt_host_look {
	uint64_t begin;
	size_t gap;
	struct pt_loop_place at; /* where the loop calls no device */
	bool running;
	bool takes; /* pt_takes_batch() */
	bool gives; /* pt_hands_out() */
	bool above; /* at work above all lines that call the device, and a batch goes up behind */
	bool staged; /* in a function that only copies batches, and sends them up */
	bool supplied; /* asleep until somebody supplies */
};

struct pt_host {
	const struct pt_actor *a;
	PT_VEC(struct pt_host_piece) pieces;
	PT_VEC(struct pt_host_gap) gaps;
	PT_VEC(struct pt_host_look) looks; /* by begin */
	bool supplied; /* some supplier is known */
	/* looks that found it above the loop's calls; a vote for one line of the job's own */
	size_t above, one_votes;
	/* looks while it waits for others; above those calls, where a batch goes up behind */
	size_t others, others_above;
	const struct pt_code_line *one_line;
};

static inline bool pt_gap_is_evident(const struct pt_host_gap *g)
{
	return g->supplied_ns || g->asked || g->reads || g->read_bytes ||
	       g->read_ns || g->started;
}

/* Is a piece of the gap of this kind? */
static inline bool pt_gap_has(const struct pt_host *h, const struct pt_host_gap *g, uint8_t what)
{
	size_t i;

	for (i = g->first; i < g->first + g->n; i++)
		if (h->pieces.v[i].what == what)
			return true;
	return false;
}

/* The trainer ended in it: part of it is the job's way out of its loop. */
static inline bool pt_gap_is_last(const struct pt_host_gap *g)
{
	return !g->g.next && g->g.th->exited;
}

/* 0 or -ENOMEM; free in any case. `writing`: when files were written. */
int pt_find_host(const struct pt_an *an, const struct pt_actor *a,
		 const struct pt_givers *givers, const pt_spans *writing,
		 struct pt_host *out);
void pt_host_free(struct pt_host *h);
/* named.c: the looks, and into the gaps how often the thread was seen in its data iterator.
 * 0 or -ENOMEM. */
int pt_find_named(const struct pt_an *an, struct pt_loop *loop, struct pt_host *h);
/* May what the loop computes before its batches go up be a spin until others have made them? */
bool pt_may_spin(const struct pt_an *an, const struct pt_host *h);
/* So many looks at a running thread tell what it does. */
#define PT_LOOKS_MIN 10
/* Of all looks at a thread's Python, or at a kind of its sleeps, `n` found the same: enough to be
 * no chance? */
#define PT_TELLS_MIN 4
#define PT_TELLS_SHARE 0.8
static inline bool pt_looks_tell(size_t n, size_t all)
{
	return all >= PT_TELLS_MIN && (double)n >= PT_TELLS_SHARE * (double)all;
}

/* Where the thread computes while it obtains a batch, is it mostly in the job's own code, which
 * the loader calls, or which works on what it receives? Then that is no hand-over. Behind the
 * waits. */
void pt_find_computing(const struct pt_an *an, struct pt_trainer *t);
/* Does it receive from a socket where it obtains no batch, as far as is seen, in a part of its time
 * that is worth a word? Likewise. */
void pt_find_receiving(const struct pt_an *an, struct pt_trainer *t);
/* Between which two calls of the device `ts` lies, as a number; 0: in no gap, or in one at the
 * capture's ends. */
uint64_t pt_gap_kind_at(struct pt_host *h, uint64_t ts);
/* Put into the gaps what the loader shows: whom the consumer asked, and who was
 * born. */
void pt_host_take_asks(struct pt_host *h, const struct pt_trainer *t,
		       const pt_asks *asks);

#endif
