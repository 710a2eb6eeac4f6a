/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The replay's insides: whatif_maker.c is the workers, whatif_replay.c the
 * trainer, the device and the clock.
 */
#ifndef PT_ANALYSIS_WHATIF_SIM_H
#define PT_ANALYSIS_WHATIF_SIM_H

#include "analysis/whatif.h"

#define PT_WI_EPS 1e-9

enum pt_wi_phase { PT_WI_IDLE, PT_WI_CPU, PT_WI_DISK, PT_WI_LAT, PT_WI_LOCK };

struct pt_wi_task {
	enum pt_wi_phase phase;
	double left; /* ms of work (CPU, DISK) or of time (LAT) */
	double cap;  /* CPU: at most this share of a core */
	double rate;
};

struct pt_wi_draw { /* position in a pool of samples */
	size_t at, block;
	uint64_t rnd;
};

/* A CPU quota: so much left until it is filled up again. */
struct pt_wi_bucket {
	double left, refill_at, drain;
};

struct pt_wi_maker { /* a worker */
	struct pt_wi_task t;
	double cap;
	struct pt_wi_draw d;
	struct pt_wi_batch b, held; /* what is left of it: before it needs the
				     * lock, and with it */
	bool has_lock;
	size_t ticket; /* its place among those that wait for the lock */
	size_t next;   /* its next batch */
	struct pt_wi_bucket *quota; /* NULL: none */
};

struct pt_wi_makers {
	const struct pt_wi_run *r;
	struct pt_wi_maker *v;
	struct pt_wi_bucket *bucket;
	size_t n, n_buckets;
	bool lock_taken;
	size_t tickets, served;
};

void pt_wi_set(struct pt_wi_task *t, enum pt_wi_phase p, double left, double cap);
/* Index of the next of `n` samples: in order, or in random blocks. */
size_t pt_wi_draw_next(struct pt_wi_draw *d, size_t n, bool random);
/* A batch to make, from a pool. */
struct pt_wi_batch pt_wi_sample(const struct pt_wi_run *r,
				const struct pt_wi_pool *p,
				struct pt_wi_draw *d);
/* The next part of a batch; false when it is made. A thread with a quota of
 * its own never has more of a core than `cap`. */
bool pt_wi_next_part(const struct pt_wi_run *r, struct pt_wi_batch *b,
		     struct pt_wi_task *t, double cap);
double pt_wi_random(uint64_t *state); /* in [0, 1) */

/* 0 or -ENOMEM; free in any case. */
int pt_wi_makers_init(struct pt_wi_makers *k, const struct pt_wi_run *r);
void pt_wi_makers_free(struct pt_wi_makers *k);
/* Start what an idle worker may start: batches below `limit`. */
void pt_wi_makers_feed(struct pt_wi_makers *k, size_t limit);
/* Cores that they want; `readers` of them wait for the disk. */
double pt_wi_makers_want(struct pt_wi_makers *k, double now, size_t *readers);
/* Give each its rate: `scale` of what it wants. */
void pt_wi_makers_rate(struct pt_wi_makers *k, double scale, size_t readers);
/* Time to their next event; INFINITY none. */
double pt_wi_makers_soonest(const struct pt_wi_makers *k, double now);
/* Pass `dt` to `now`; `fn` is told of each batch that is made. */
void pt_wi_makers_pass(struct pt_wi_makers *k, double dt, double now,
		       void (*fn)(void *ctx, struct pt_wi_maker *w), void *ctx);
/* What those that compute lack of their cores in `dt`. */
double pt_wi_makers_lack(const struct pt_wi_makers *k, double dt);
/* How long worker `i` can do nothing more; 0: it can. */
double pt_wi_makers_throttled(const struct pt_wi_makers *k, size_t i,
			      double now);

#endif
