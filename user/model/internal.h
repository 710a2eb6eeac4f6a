/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_MODEL_INTERNAL_H
#define PT_MODEL_INTERNAL_H

#include "model/timeline.h"

/* Find or make; NULL when out of memory. `fresh`: a new process has taken
 * this id. */
struct pt_proc *pt_proc_make(struct pt_model *m, uint32_t tgid, bool fresh);
struct pt_thread *pt_thread_make(struct pt_model *m, uint32_t tid,
				 uint32_t tgid, uint32_t start, uint64_t ts);

#endif
