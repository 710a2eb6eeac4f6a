/* SPDX-License-Identifier: BSD-2-Clause */
/* The one-second sample of a process: memory, CPU, bytes, descriptors. */
#ifndef PT_SAMPLER_H
#define PT_SAMPLER_H

#include <stdint.h>
#include <sys/types.h>

#include "abi.h"

/* Of the control groups that were asked for last: those of one job mostly are the same, and
 * finding them on disk costs more than all the rest of a sample. */
struct pt_throttled {
	char groups[8192]; /* as the kernel lists them; "" at first */
	uint64_t ns;
};

/* Nanoseconds that the process's cgroup was throttled; ~0 unknown. */
uint64_t pt_throttled_ns(pid_t pid, struct pt_throttled *last);

/*
 * Fill a whole record, header included (hdr.ts = now_ns, CLOCK_MONOTONIC).
 * A counter that could not be read is ~0 where abi.h says so, else 0. `last` as below.
 * 0, or -errno when the process is gone (the record is then not to be used).
 */
int pt_sample_process(pid_t pid, uint64_t now_ns, struct pt_throttled *last,
		      struct pt_rec_sample *out);

/* What the process was started with; what cannot be read is PT_PROC_UNKNOWN. */
void pt_proc_facts(pid_t pid, uint64_t now_ns, struct pt_rec_proc *out);

/* How many numbers a kernel list like "0-3,8" names; -1: it is none. Separate
 * for its unit test. */
int pt_list_count(const char *text);


#endif
