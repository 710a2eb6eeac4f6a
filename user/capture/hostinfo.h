/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts about the machine, for the stream and the report. */
#ifndef PT_HOSTINFO_H
#define PT_HOSTINFO_H

#include <stdint.h>
#include <sys/types.h>

#include "abi.h"

/* 0: unknown. */
int64_t pt_online_cores(void);

/* CPU quota of a process's cgroup and its parents in 1/1000 core; 0 none. */
uint64_t pt_quota_mcores(pid_t pid);

/* Fill the record, header included, but for the doors. */
void pt_host_record(pid_t trainer, uint64_t now_ns, struct pt_rec_host *out);

#endif
