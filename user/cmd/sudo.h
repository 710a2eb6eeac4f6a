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

#define PT_SUDO_GROUPS 1024

/*
 * Leave to call us by sudo is no leave to be root: what this thread opens, makes,
 * renames and removes by a name between the two calls is done with the rights of
 * the user behind sudo (uid, gid and groups of the file system; nothing else
 * changes, and no other thread). Where there is nobody behind us nothing changes.
 * 0, or -errno: nothing must be opened then.
 */
struct pt_rights {
	bool other;
	gid_t groups[PT_SUDO_GROUPS];
	int n;
};
int pt_rights_take(struct pt_rights *old);
/* errno stays. */
void pt_rights_back(const struct pt_rights *old);

/* Become that user for good, groups and HOME included. For a child before
 * exec. 0 or -errno. */
int pt_become(const struct pt_invoker *who);

#endif
