/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Steps from the pattern of the GPU calls, whatever feeds them. A loop comes back
 * to one place between two calls; "place" is the pair of call sites around the
 * gap. Of the places that stand out of the launch cadence, or at which data is
 * obtained, the one that divides the calls into equal parts is the begin of a
 * step.
 */
#ifndef PT_STEPS_PERIOD_H
#define PT_STEPS_PERIOD_H

#include "analysis/waits/host.h"

/* Looks in gaps, as in struct pt_host_gap. */
struct pt_name_sum {
	uint64_t looks;
	double looked, named, named_at;
};

static inline void pt_add_looks(struct pt_name_sum *to, const struct pt_host_gap *g)
{
	to->looks += g->looks;
	to->looked += g->looked;
	to->named += g->named;
	to->named_at += g->named_at;
}

/* A place of the loop. */
struct pt_place_at {
	union {
		struct {
			uint64_t prev, next; /* call sites */
		};
		uint64_t key[2]; /* the same, for the table */
	};
	uint64_t n;	     /* how often the calls come by */
	uint64_t gaps;	     /* ... with a gap worth the name */
	uint64_t ns;	     /* of those */
	uint64_t big_ns;     /* ... that stand out of the cadence */
	uint64_t evident;    /* with evidence of obtaining */
	uint64_t reads;	     /* ... by the consumer's own reading */
	struct pt_name_sum name; /* of its gaps */
	/* gaps with looks, and the sum of the parts of each that are named; with several, and
	 * of these such in which all looks found the same */
	uint64_t looked_at, several, whole;
	double parts;
	bool syncs;	     /* its first call waits for the device */
	bool graphs; /* ... leads to the launch of one */
	uint64_t uploads;    /* bytes that its second calls copy to the device */
	uint64_t clients;    /* with a wait for a client */
	uint64_t peers;	     /* gaps with a wait for a peer: their bytes are not in that */
	bool data;	     /* data is obtained here, as a rule */
	bool by_name;	     /* ... of which only its Python tells */
	bool begins;	     /* a step begins here */
	bool partly;	     /* ... where the gap stands out */
	UT_hash_handle hh;
};

struct pt_period {
	struct pt_place_at *places; /* uthash, by key */
	struct pt_place_at *best; /* where most steps begin; NULL: none */
	uint64_t cadence_ns; /* a gap from here on stands out */
};

/* 0 or -ENOMEM; free in any case. */
int pt_find_period(const struct pt_host *h, struct pt_period *out);
void pt_period_free(struct pt_period *p);
const struct pt_place_at *pt_place_between(const struct pt_period *p, uint64_t prev,
					   uint64_t next);
/* Does a step begin before call `i`? g: the gap there, if it is worth the name. */
bool pt_begins_at(const struct pt_period *p, const struct pt_actor *a,
		  const struct pt_host_gap *g, size_t i);

#endif
