/* SPDX-License-Identifier: BSD-2-Clause */
/* What a live report says of the machine and the target. */
#ifndef PT_CMD_HOST_H
#define PT_CMD_HOST_H

#include <sys/types.h>

#include "report/report.h"

/*
 * Fill r->host, strings in the report's arena; what cannot be read stays
 * null. 0 or -ENOMEM.
 */
int pt_host_report(struct pt_report *r, pid_t trainer, const char *lockdown);

/* Fill r->target; `given` is the pid that the user asked for. Call while the
 * target lives. 0 or -ENOMEM. */
int pt_target_report(struct pt_report *r, pid_t trainer, pid_t given);

#endif
