/* SPDX-License-Identifier: BSD-2-Clause */
/* A recording, again and again: the same job for as long as one likes. */
#ifndef PT_BENCH_REPEAT_H
#define PT_BENCH_REPEAT_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"

struct pt_repeat;

/* Read a record stream whole. NULL after one line on standard error. */
struct pt_repeat *pt_repeat_open(const char *path);
void pt_repeat_close(struct pt_repeat *r);

/* Records of one round, about. */
size_t pt_repeat_records(const struct pt_repeat *r);

/*
 * Hand the records of round `round` (counted from 0, in order) to `fn`: times
 * move on by a round's length, numbers and totals of threads go on, and a
 * thread that ends in the recording is another one in each round. Marks come
 * in the first round and, with `last`, at the end.
 */
void pt_repeat_round(struct pt_repeat *r, unsigned round, int last,
		     void (*fn)(void *ctx, const void *rec, size_t len),
		     void *ctx);

#endif
