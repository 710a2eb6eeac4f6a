/* SPDX-License-Identifier: BSD-2-Clause */
/* What the agent and its samples may do, and nothing else. */
#ifndef PT_AGENT_PRIVILEGES_H
#define PT_AGENT_PRIVILEGES_H

#include "base/err.h"

/*
 * Drops every capability but these, for itself and all that it will start, and
 * for good (no_new_privs):
 *   CAP_BPF, CAP_PERFMON     load and attach the programs, read kernel memory
 *   CAP_SYS_PTRACE           other users' maps, environment and memory in /proc
 *   CAP_DAC_READ_SEARCH      libraries and programs in other users' folders
 *   CAP_CHECKPOINT_RESTORE   /proc/PID/map_files: libraries inside containers
 * Before the first thread: capabilities are a thread's. 0; -EPERM with a
 * sentence where the first two are not there to keep, or -errno.
 */
int pt_privileges_drop(struct pt_err *err);

#endif
