/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The model: records in, per-thread timelines out. Pure: libc memory and
 * strings only, no I/O, no clock, no globals. A live ring and a recorded
 * stream enter by the same door, pt_model_feed().
 *
 * Records may come late, twice, damaged or not at all; the model never
 * trusts one further than its own size.
 */
#ifndef PT_MODEL_H
#define PT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

struct pt_model;

/* NULL when out of memory. */
struct pt_model *pt_model_new(void);
void pt_model_free(struct pt_model *m);

/* Take one record of `len` bytes. 0; -EINVAL: malformed, counted and skipped;
 * -ENOMEM: counted, skipped, the model stays usable. */
int pt_model_feed(struct pt_model *m, const void *rec, size_t len);

/* All the memory that the model holds, bytes. */
uint64_t pt_model_bytes(const struct pt_model *m);
/* ... of it, what cuts and folding can drop. */
uint64_t pt_model_timelines(const struct pt_model *m);

/* Drop what lies before `before` (CLOCK_MONOTONIC ns), as trimming does. 0 or
 * -ENOMEM. */
int pt_model_cut(struct pt_model *m, uint64_t before);
/* From now on cuts leave what comes once a second (samples, step markers), up to
 * 32 MiB of it: the figures that rest on it are of the whole capture. */
void pt_model_keep_samples(struct pt_model *m);
/* The moment in the middle of what is held. */
uint64_t pt_model_middle(const struct pt_model *m);

/*
 * What a job can make by the million: threads and processes that ended before what is
 * held begins, and names that nothing held refers to. Where there are very many they
 * become sums (struct pt_gone). Whoever points to a thread or process has it kept before.
 */
void pt_model_fold(struct pt_model *m);
bool pt_model_foldable(const struct pt_model *m); /* there may be very many */
struct pt_thread;
struct pt_proc;
void pt_thread_keep(struct pt_model *m, const struct pt_thread *t); /* NULL: nothing */
void pt_proc_keep(const struct pt_proc *p);

/* Drop the older half of the capture, and fold, when the model holds more than
 * `max_bytes`; what is left is analysed and the report says so. 0 or -ENOMEM. */
int pt_model_trim(struct pt_model *m, uint64_t max_bytes);
/* Would it drop that half? Timelines do not pay for what a cut does not reach. */
bool pt_model_halves(const struct pt_model *m, uint64_t max_bytes);
int pt_model_halve(struct pt_model *m); /* drop it, and fold. 0 or -ENOMEM */

/* Sort and close every timeline at the end mark; feed nothing afterwards. */
int pt_model_finish(struct pt_model *m);

#endif
