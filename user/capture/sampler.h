/* SPDX-License-Identifier: BSD-2-Clause */
/* The one-second sample of a process: memory, CPU, bytes, descriptors. */
#ifndef PT_SAMPLER_H
#define PT_SAMPLER_H

#include <stdint.h>
#include <sys/types.h>

#include "abi.h"

/*
 * Fill a whole record, header included (hdr.ts = now_ns, CLOCK_MONOTONIC).
 * A counter that could not be read is ~0 where abi.h says so, else 0.
 * 0, or -errno when the process is gone (the record is then not to be used).
 */
int pt_sample_process(pid_t pid, uint64_t now_ns, struct pt_rec_sample *out);

/* What the process was started with; what cannot be read is PT_PROC_UNKNOWN. */
void pt_proc_facts(pid_t pid, uint64_t now_ns, struct pt_rec_proc *out);

/* How many numbers a kernel list like "0-3,8" names; -1: it is none. Separate
 * for its unit test. */
int pt_list_count(const char *text);

/* Nanoseconds that the process's cgroup was throttled; ~0 unknown. */
uint64_t pt_throttled_ns(pid_t pid);

#endif
