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

/* Memory of the timelines, bytes. */
uint64_t pt_model_bytes(const struct pt_model *m);

/* Drop what lies before `before` (CLOCK_MONOTONIC ns), as trimming does. 0 or
 * -ENOMEM. */
int pt_model_cut(struct pt_model *m, uint64_t before);
/* From now on cuts leave what comes once a second (samples, step markers), up to
 * 32 MiB of it: the figures that rest on it are of the whole capture. */
void pt_model_keep_samples(struct pt_model *m);
/* The moment in the middle of what is held. */
uint64_t pt_model_middle(const struct pt_model *m);

/* Drop the older half of the capture when the timelines take more than
 * `max_bytes`; what is left is analysed and the report says so. 0 or
 * -ENOMEM. */
int pt_model_trim(struct pt_model *m, uint64_t max_bytes);

/* Sort and close every timeline at the end mark; feed nothing afterwards. */
int pt_model_finish(struct pt_model *m);

#endif
