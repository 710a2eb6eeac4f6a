/* SPDX-License-Identifier: BSD-2-Clause */
/* inject.c to job.c: the work itself, in the process that ends with it. */
#ifndef PT_INJECT_JOB_H
#define PT_INJECT_JOB_H

#include "inject/inject.h"

/* *touched becomes 1 when a thread is borrowed. */
int pt_inject_work(const struct pt_inject_opts *o, bool retract,
		   struct pt_injected *io, struct pt_err *err, uint32_t *touched);

#endif
