/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Clients: who asks the job for something, from outside. They connect, or speak first; and there are
 * callers, which ask by their own clock: a thread that speaks when its pauses are over, whatever the
 * job does, in a process that the job answers behind each step. None of them is a supplier, however
 * long it is waited for.
 */
#ifndef PT_CALLERS_H
#define PT_CALLERS_H

#include "analysis/internal.h"

/* Of the processes that are followed from outside: ids of their threads, into `out`, which the
 * caller frees. 0 or -ENOMEM. */
int pt_find_callers(const struct pt_an *an, pt_ids *out);
bool pt_is_caller(const struct pt_an *an, uint32_t tid);

/* Does it wait until somebody connects? Nobody need have come yet. */
bool pt_listens(const struct pt_thread *th, const struct pt_iv *iv);
/* Does `th` sleep in `iv` until somebody from outside asks the job? */
bool pt_waits_for_client(const struct pt_an *an, const struct pt_thread *th,
			 const struct pt_iv *iv);

#endif
