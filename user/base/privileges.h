/* SPDX-License-Identifier: BSD-2-Clause */
/* What this process may still do, given up as early as can be and for good. */
#ifndef PT_PRIVILEGES_H
#define PT_PRIVILEGES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum {
	/*
	 * CAP_BPF, CAP_PERFMON     load and attach the programs, read kernel memory
	 * CAP_SYS_ADMIN            in their place where one of them is not there
	 */
	PT_KEEP_TRACE = 1,
	/*
	 * CAP_SYS_PTRACE           other users' maps, environment and memory in /proc
	 * CAP_DAC_READ_SEARCH      libraries and programs in other users' folders
	 * CAP_CHECKPOINT_RESTORE   /proc/PID/map_files: libraries inside containers
	 */
	PT_KEEP_LOOK = 16,
	/* CAP_SYS_NICE: a reader that is behind goes first, see capture/haste.h; of others
	 * pt_filter_set() refuses it */
	PT_KEEP_HASTE = 32,
	/* CAP_SYS_ADMIN: some kernels want it for each uprobe by perf_event_open() */
	PT_KEEP_ADMIN = 8,
	/* Kept, but not in effect before pt_privileges_wake(): CAP_DAC_OVERRIDE, the memory
	 * of another user's process */
	PT_KEEP_INJECT = 2,
	/* CAP_DAC_OVERRIDE, CAP_FOWNER: root's own files wherever root keeps them */
	PT_KEEP_FILES = 4,
};

struct pt_identity {
	uid_t uid;
	gid_t gid;
	const gid_t *groups;
	int n;
};

/*
 * Drops every capability but these (PT_KEEP_ bits; what is not there stays so), for
 * this process and all that it will start, and for good (no_new_privs). What it
 * starts has them, too, where `hand_on`. `who`: becomes this user meanwhile; NULL:
 * stays who it is. Before the first thread: capabilities are a thread's. 0, or
 * -errno with a sentence.
 */
int pt_privileges_keep(unsigned keep, const struct pt_identity *who, bool hand_on,
		       struct pt_err *err);
/* Puts into effect what PT_KEEP_INJECT kept: for the process that injects. */
void pt_privileges_wake(void);
/* What `fn` says while this thread does without CAP_SYS_ADMIN. */
bool pt_privileges_without_admin(bool (*fn)(void));
/*
 * CAP_DAC_READ_SEARCH of this thread, where it has it: not in effect, and in effect again.
 * Without it a path that the caller named leads no further than he could go himself.
 */
void pt_privileges_reach(bool far);
/* Does this thread have CAP_BPF and CAP_PERFMON? */
bool pt_privileges_trace(void);

enum pt_filter {
	/* Refused: what changes the machine or another process (modules, mounts, name
	 * spaces, clocks, keys, writing into memory, priorities), which no command ever does. */
	PT_FILTER_TRACE,
	PT_FILTER_INJECT, /* the same, but ptrace() is allowed */
	/* For commands that turn files into files: programs, sockets, tracing and
	 * other processes are refused, too. */
	PT_FILTER_FILES,
	/* For who looks at processes from outside: the same, but for reading their memory;
	 * files are opened for reading only, none is changed, and nobody else gets a signal. */
	PT_FILTER_LOOK,
	/* For a parser that is handed open files: everything is refused but memory,
	 * reading, messages, and the end. */
	PT_FILTER_PARSER,
};

/*
 * Puts a seccomp filter on this thread, its threads to come and its children:
 * what is refused fails with EPERM. no_new_privs is set. A kernel without seccomp
 * is let be. 0, or -errno with a sentence.
 */
int pt_filter_set(enum pt_filter f, struct pt_err *err);

/*
 * For a child that reads what others made: it dies with its parent, nobody may look into
 * it, it has no descriptor but `fd` and its memory may grow by `more` bytes, files by none.
 * 0 or -errno.
 */
int pt_confine_child(int fd, uint64_t more);

/* Of a system call of this machine; the caller frees it. NULL: not known. */
char *pt_syscall_name(int nr);

#endif
