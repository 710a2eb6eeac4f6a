/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who asks the job for something by its own clock, from outside: a thread that speaks when its
 * pauses are over, whatever the job does, in a process that the job answers behind each step. It
 * is no supplier, however long it is waited for.
 */
#ifndef PT_CALLERS_H
#define PT_CALLERS_H

#include "analysis/internal.h"

/* Of the processes that are followed from outside: ids of their threads, into `out`, which the
 * caller frees. 0 or -ENOMEM. */
int pt_find_callers(const struct pt_an *an, pt_ids *out);
bool pt_is_caller(const struct pt_an *an, uint32_t tid);

#endif
