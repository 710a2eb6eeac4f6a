/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Does something step out of the ordinary, in a capture that runs for days? Its last
 * seconds are looked at again and again (look.c); what is seen of steps, waits,
 * workers and ranks is held against conditions and against what was usual so far
 * (trigger.c). Pure, as all of the analysis: times come in with the records.
 */
#ifndef PT_ANALYSIS_WATCH_H
#define PT_ANALYSIS_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/when.h"

struct pt_arena;
struct pt_model;

/* Held against the usual, nothing shorter counts: nobody asks for it, and a busy
 * machine makes such pauses by itself. */
#define PT_WATCH_LEAST_NS 250000000ull
/* ... nor what is not so many times as long as 19 of 20 steps: where every eighth one
 * waits for the loader, that is usual. */
#define PT_WATCH_MOST 2
/* The share of data waits is of so much time, at least. */
#define PT_WATCH_SHARE_NS 10000000000ull

/* ---- what is seen (look.c) ------------------------------------------------------ */

struct pt_seen_step {
	uint64_t begin, end, wait_ns;
	bool partial; /* its begin was not seen */
};
struct pt_seen_trainer {
	uint32_t pid;
	const struct pt_seen_step *step; /* the last one still runs at `until` */
	size_t n;
};
struct pt_seen {
	uint64_t from, until; /* CLOCK_MONOTONIC ns */
	const struct pt_seen_trainer *t;
	size_t n;
	const uint32_t *gone; /* processes that ended in this time, or before */
	size_t n_gone;
	uint32_t worker; /* makes no progress; 0: none */
	uint64_t worker_ns;
	uint32_t rank; /* came latest of those that came late; 0: none */
	uint64_t late_ns;
};

/* The stretch [from, until) of a model that is still fed. `ask`: bits 1 << enum
 * pt_when_of; worker_ns: PT_WHEN_WORKER's limit. In `a`. 0 or -ENOMEM. */
int pt_watch_look(struct pt_model *m, uint64_t from, uint64_t until, unsigned ask,
		  uint64_t worker_ns, struct pt_arena *a, struct pt_seen *out);

/* ---- does it step out (trigger.c) ------------------------------------------------ */

struct pt_trigger_opts {
	const struct pt_when *when; /* n of them; the caller's */
	size_t n;
	unsigned warmup;      /* steps that are seen before anything is told */
	uint64_t cooldown_ns; /* from one event to the next, at least */
};

struct pt_event {
	const struct pt_when *when; /* the first condition that holds */
	uint32_t pid;	  /* of the trainer, worker or rank */
	uint64_t begin;	  /* it began to step out; at most `at` */
	uint64_t at;	  /* it was noticed */
	double value;	  /* ns; of PT_WHEN_SHARE a share */
	uint64_t usual_ns; /* a step takes; 0 unknown */
	bool running;	  /* it is not over */
};

struct pt_trigger;
struct pt_trigger *pt_trigger_new(const struct pt_trigger_opts *o); /* NULL: no memory */
void pt_trigger_free(struct pt_trigger *g);
/* Stretches in time's order that overlap or meet. 1: *out has stepped out; 0; -ENOMEM. */
int pt_trigger_see(struct pt_trigger *g, const struct pt_seen *s, struct pt_event *out);
/* What was told last, as far as it is known by now: how long it took in the end. */
const struct pt_event *pt_trigger_last(const struct pt_trigger *g);
/* Where the next stretch, to `until`, is to begin. */
uint64_t pt_trigger_from(const struct pt_trigger *g, uint64_t until);
/* What is known by now: steps seen of the trainer that has most, the median of one (ns;
 * 0: not yet), and what stepped out within a cool-down, untold. */
struct pt_trigger_state {
	uint64_t steps, usual_ns, untold;
};
void pt_trigger_state(const struct pt_trigger *g, struct pt_trigger_state *out);

/* ---- both (watch.c) ----------------------------------------------------------------- */

/* A model of its own, that holds no more than the looks need. */
struct pt_watch;
struct pt_watch *pt_watch_new(const struct pt_trigger_opts *o); /* NULL: no memory */
void pt_watch_free(struct pt_watch *w);
void pt_watch_feed(struct pt_watch *w, const void *rec, size_t len);
/* Look at what has come since the last time, every few seconds. As
 * pt_trigger_see(). */
int pt_watch_round(struct pt_watch *w, uint64_t now, struct pt_event *out);
const struct pt_event *pt_watch_last(const struct pt_watch *w);
void pt_watch_state(const struct pt_watch *w, struct pt_trigger_state *out);
uint64_t pt_watch_bytes(const struct pt_watch *w); /* that the model holds */

#endif
