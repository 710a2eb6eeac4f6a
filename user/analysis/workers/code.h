/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether two threads do the same, by the job's own Python functions in which each always is. */
#ifndef PT_WORKERS_CODE_H
#define PT_WORKERS_CODE_H

#include <stdbool.h>

#include "model/timeline.h"

/* Is each always in a function in which the other never is? They need not do the same work then. */
bool pt_run_other_code(const struct pt_model *m, const struct pt_thread *x,
		       const struct pt_thread *y);
/* Are both always in one function, in which `other` is not? What all were forked from tells nothing. */
bool pt_run_same_code(const struct pt_model *m, const struct pt_thread *x,
		      const struct pt_thread *y, const struct pt_thread *other);

#endif
