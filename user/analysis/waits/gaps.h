/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host's time between GPU calls. All threads of a process that feed its
 * device are one actor. The gaps are those between the calls of the thread that
 * leads; where no thread does, between the calls of all. What the others do
 * meanwhile belongs to a gap where the lead waited for them, as a walk back from
 * its end shows.
 */
#ifndef PT_WAITS_GAPS_H
#define PT_WAITS_GAPS_H

#include "analysis/internal.h"

/* A number or two is no batch: so many bytes, at least. */
#define PT_BATCH_MIN 100

/* Bytes that may be a batch's and go up with the call; 1: how many is not known. */
static inline uint64_t pt_uploads(const struct pt_gpu_call *c)
{
	if (!pt_call_is_copy(c) || c->v[2] != PT_COPY_H2D)
		return 0;
	return !c->v[1] ? 1 : c->v[1] < PT_BATCH_MIN ? 0 : c->v[1];
}

struct pt_lead_call {
	uint64_t begin, end, site; /* pt_call_site() */
	const struct pt_thread *th;
	bool syncs; /* the host waits for the device in it */
	bool launches; /* a kernel, or a graph of them */
	bool graph;    /* ... a graph */
	bool results;  /* pt_brings_results() */
	uint64_t uploads; /* bytes that it copies to the device */
};

struct pt_actor {
	const struct pt_proc *proc;
	const struct pt_thread *lead; /* makes most calls; NULL: there are none */
	PT_VEC(const struct pt_thread *) threads; /* all that call the device */
	PT_VEC(struct pt_lead_call) calls;	  /* by begin */
};

/* The actor of `proc` in [t0,t1). 0 or -ENOMEM; free in any case. */
int pt_find_actor(const struct pt_model *m, const struct pt_proc *proc,
		  uint64_t t0, uint64_t t1, struct pt_actor *out);
void pt_actor_free(struct pt_actor *a);
bool pt_is_actor(const struct pt_actor *a, const struct pt_thread *th);

/* The last call of `tid`, a thread of `p`, that begins at `ts` or before; NULL: none in the
 * second before, if others called then. */
const struct pt_gpu_call *pt_last_call(const struct pt_proc *p, uint32_t tid, uint64_t ts);
/* Was `tid`, a thread of `p`, inside a call of the GPU's at `ts`? The CUDA library
 * has threads of its own, which its calls wake. */
bool pt_inside_call(const struct pt_proc *p, uint32_t tid, uint64_t ts);

/* Shorter gaps are launching: no thread sleeps and is woken in less (a context
 * switch there and back costs about 3 us). */
#define PT_GAP_MIN_NS 20000ull

/* The gap before call `i`, or behind the last one (i == calls.n). */
struct pt_gap {
	uint64_t begin, end;
	const struct pt_thread *th; /* whose call ends it; the lead at the end */
	uint64_t prev, next;	    /* call sites around it; 0: not seen */
};

/* Between which two call sites it lies, as a number. */
static inline uint64_t pt_gap_kind(const struct pt_gap *g)
{
	return g->prev * 31 + g->next;
}

/* False: it is shorter than PT_GAP_MIN_NS. */
bool pt_gap_before(const struct pt_actor *a, size_t i, uint64_t t0, uint64_t t1,
		   struct pt_gap *out);

#endif
