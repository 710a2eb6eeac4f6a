/* SPDX-License-Identifier: BSD-2-Clause */
/* What-if, for the rest of the analysis. */
#ifndef PT_WHATIF_H
#define PT_WHATIF_H

#include "analysis/internal.h"
#include "analysis/io/kind.h"

/*
 * Simulate the top trainer's steps with one thing changed each; fills the
 * report's whatif and best_workers. What cannot be told has NAN and a note, or
 * one limit for all of it. `io`: what its makers wait for at a disk. 0 or -ENOMEM.
 */
int pt_whatif(struct pt_an *an, const struct pt_io *io);

/*
 * What a change wins: old step time over new. `value` as in the report's row;
 * PT_NULL with "workers" means the best count. False, and *out untouched, when
 * it cannot be told.
 */
bool pt_speedup_of(const struct pt_an *an, const char *change, int64_t value,
		   struct pt_range *out);

#endif
