/* SPDX-License-Identifier: BSD-2-Clause */
/* Which of the words, semaphores and tokens that threads sleep on are locks. */
#ifndef PT_WAITS_LOCKS_H
#define PT_WAITS_LOCKS_H

#include <stdbool.h>

#include "model/timeline.h"

/* What is remembered from walk to walk: of each word who slept on it, and who ended that. */
struct pt_paths;
/* consumer: the process that waits for data. NULL: no memory. */
struct pt_paths *pt_paths_new(const struct pt_model *m, const struct pt_proc *consumer);
void pt_paths_free(struct pt_paths *p);
const struct pt_model *pt_paths_model(const struct pt_paths *p);

/*
 * What one and the same thread sleeps on, and ends others' sleeps on, is a lock: a
 * futex, a semaphore, a token in a pipe. Where only the receiver sleeps it is a
 * hand-over. Is what `th` slept on in `iv` a lock? The kernel's own always are.
 */
bool pt_is_lock(const struct pt_paths *p, const struct pt_thread *th,
		const struct pt_iv *iv);
/* ... CPython's own, which threads that run its code take turns with? It is known by how it is
 * asked for. And was it asked for there? Else it had been given up, and it was waited for until
 * the next one had it. */
bool pt_is_interpreter_lock(const struct pt_paths *p, const struct pt_thread *th,
			    const struct pt_iv *iv);
bool pt_asks_interpreter(const struct pt_paths *p, const struct pt_thread *th,
			 const struct pt_iv *iv);
/* What the thread's Python was at in this sleep; NULL: nobody looked. */
const struct pt_code_look *pt_look_in(const struct pt_thread *th, const struct pt_iv *iv);
/* Was it for a lock of the job's own (threading.Lock)? There it sleeps where a `with` is entered. */
bool pt_is_plain_lock(const struct pt_paths *p, const struct pt_thread *th,
		      const struct pt_iv *iv);
/* ... for the lock of a threading.Condition (a queue.Queue's, too), not until it is notified? */
bool pt_is_condition(const struct pt_paths *p, const struct pt_thread *th, const struct pt_iv *iv);

#endif
