/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts about the machine and the target, for the report and the stream. */
#ifndef PT_HOSTINFO_H
#define PT_HOSTINFO_H

#include <stdint.h>
#include <sys/types.h>

#include "abi.h"
#include "report/report.h"

/* CPU quota of a process's cgroup and its parents in 1/1000 core; 0 none. */
uint64_t pt_quota_mcores(pid_t pid);

/* Fill the record, header included, but for the doors. */
void pt_host_record(pid_t trainer, uint64_t now_ns, struct pt_rec_host *out);

/*
 * Fill r->host, strings in the report's arena; what cannot be read stays
 * null. 0 or -ENOMEM.
 */
int pt_host_report(struct pt_report *r, pid_t trainer, const char *lockdown);

/* Fill r->target; `given` is the pid that the user asked for. Call while the
 * target lives. 0 or -ENOMEM. */
int pt_target_report(struct pt_report *r, pid_t trainer, pid_t given);

#endif
