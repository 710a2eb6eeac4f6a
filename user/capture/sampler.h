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

/* Nanoseconds that the process's cgroup was throttled; ~0 unknown. */
uint64_t pt_throttled_ns(pid_t pid);

#endif
