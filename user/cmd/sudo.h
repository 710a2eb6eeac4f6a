/* SPDX-License-Identifier: BSD-2-Clause */
/* The user behind sudo: owns what we write and runs what we start. */
#ifndef PT_SUDO_H
#define PT_SUDO_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct pt_invoker {
	uid_t uid;
	gid_t gid;
};

/* 1 when we are root on behalf of somebody else, 0 when not; -EINVAL with `err` filled
 * where sudo's variables are there, but say nothing of use. */
int pt_invoker(struct pt_invoker *out, struct pt_err *err);

/* True after pt_give_up() made us somebody else. */
bool pt_asked_by(uid_t *uid);

enum pt_rights {
	PT_RIGHTS_LOOK, /* at /proc */
	PT_RIGHTS_TRACE,
	PT_RIGHTS_INJECT, /* a trace with --cupti */
	PT_RIGHTS_FILES,  /* from files to files */
	PT_RIGHTS_NET,	  /* ... and questions to other machines */
};

enum { PT_STAY = 1, PT_PERF_DOOR = 2 };

/*
 * Leave to call us by sudo is no leave to be root, and what reads a job's names need
 * not be: from now on this process is the user behind sudo (uid, gid, groups) with
 * the capabilities that `what` needs and no other; where there is nobody behind it,
 * or with PT_STAY, it stays who it is, with those. PT_PERF_DOOR: uprobes are to go by
 * perf_event_open(). Behind a filter of system calls. For
 * good, and before the first thread. 0, or -errno after a sentence.
 */
int pt_give_up(enum pt_rights what, unsigned how);
/* The same of a trace that has stopped: what is left is to say what was seen. Errors
 * leave it as it is. */
void pt_give_up_rest(void);

/* Become that user for good, groups and HOME included. For a child before
 * exec. 0 or -errno. */
int pt_become(const struct pt_invoker *who);

#endif
