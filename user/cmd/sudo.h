/* SPDX-License-Identifier: BSD-2-Clause */
/* The user behind sudo: owns what we write and runs what we start. */
#ifndef PT_SUDO_H
#define PT_SUDO_H

#include <stdbool.h>
#include <sys/types.h>

struct pt_invoker {
	uid_t uid;
	gid_t gid;
};

/* True when we are root on behalf of somebody else. */
bool pt_invoker(struct pt_invoker *out);

/* Become that user for good, groups and HOME included. For a child before
 * exec. 0 or -errno. */
int pt_become(const struct pt_invoker *who);

#endif
