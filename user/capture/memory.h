/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_CAPTURE_MEMORY_H
#define PT_CAPTURE_MEMORY_H

#include <stdint.h>
#include <sys/types.h>

#include "abi.h"

/*
 * Memory of this machine, by /proc/meminfo and /proc/vmstat, and of the
 * tightest memory limit on the process `pid`, version 1 or 2. What cannot be
 * read is PT_MEMORY_UNKNOWN. Bytes.
 */
void pt_memory_record(pid_t pid, uint64_t now_ns, struct pt_rec_memory *out);

#endif
