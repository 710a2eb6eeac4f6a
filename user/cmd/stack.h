/* SPDX-License-Identifier: BSD-2-Clause */
/* What the two ways of "pipetrace stack" share. */
#ifndef PT_CMD_STACK_H
#define PT_CMD_STACK_H

#include <sys/types.h>

#include "cmd/options.h"

#define PT_STACK_PROCESSES 1024 /* of a tree that are looked at */

/* "process 12 python train.py"; `flags` as of pt_str_term(). */
void pt_put_process(pid_t pid, const char *cmdline, unsigned flags);

/* The rest of a line: "train.py:12". */
void pt_put_place(const char *file, int line, unsigned flags);

/* stacksample.c: look for o->duration seconds, or until a signal; print where the time
 * went. The exit status; every error has been told. */
int pt_stack_sample(const struct pt_opts *o);

#endif
