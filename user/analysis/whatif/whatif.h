/* SPDX-License-Identifier: BSD-2-Clause */
/* What-if, for the rest of the analysis. */
#ifndef PT_WHATIF_H
#define PT_WHATIF_H

#include "analysis/internal.h"

/*
 * Simulate the top trainer's steps with one thing changed each; fills the
 * report's whatif and best_workers. What cannot be told has NAN and a note, or
 * one limit for all of it. 0 or -ENOMEM.
 */
int pt_whatif(struct pt_an *an);

/*
 * What a change wins: old step time over new. `value` as in the report's row;
 * PT_NULL with "workers" means the best count. False, and *out untouched, when
 * it cannot be told (fall back to pt_speedup_bound).
 */
bool pt_speedup_of(const struct pt_an *an, const char *change, int64_t value,
		   struct pt_range *out);

/* Where the workers can be only one at a time, of all places the one with most of
 * their time. */
struct pt_serial {
	double share;	 /* of the workers' work in it, and waiting for it; 0: there
			  * is none */
	uint8_t cause;	 /* enum pt_cause: what it looks like by itself */
	uint64_t object; /* the lock, device, peer (1 + index) or call, by cause */
	bool in_turn;	 /* they wait in it together and are served one by one: a
			  * disk or server; else a lock, seen or out of sight */
	bool seen;	 /* they sleep for the lock itself */
};
/* 0 or -ENOMEM. */
int pt_serial_share(const struct pt_an *an, const struct pt_trainer *t,
		    struct pt_serial *out);

#endif
