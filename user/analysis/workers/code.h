/* SPDX-License-Identifier: BSD-2-Clause */
/* What a thread does, and whether two do the same, by the job's own Python functions. */
#ifndef PT_WORKERS_CODE_H
#define PT_WORKERS_CODE_H

#include <stdbool.h>

#include "model/timeline.h"

#define PT_LOOKS_MAX 64 /* more of a thread are not asked */

/* Is each always in a function in which the other never is? They need not do the same work then. */
bool pt_run_other_code(const struct pt_model *m, const struct pt_thread *x,
		       const struct pt_thread *y);
/* Are both always in one function, in which `other` is not? What all were forked from tells nothing. */
bool pt_run_same_code(const struct pt_model *m, const struct pt_thread *x,
		      const struct pt_thread *y, const struct pt_thread *other);
/* What the thread was started with, as nearly all looks have it: the outermost of the job's own
 * functions. NULL: not known. */
const struct pt_code_line *pt_started_with(const struct pt_model *m, const struct pt_thread *th);

#endif
