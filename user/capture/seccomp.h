/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_SECCOMP_H
#define PT_SECCOMP_H

#include <stddef.h>
#include <sys/types.h>

struct sock_filter;
struct pt_seccomp;

/*
 * To read the seccomp filters of threads. Nobody is stopped, and the caller may have a filter
 * of its own, as ptrace() does not allow. NULL and errno: this kernel or our rights do not
 * allow it. Some 30 ms.
 */
struct pt_seccomp *pt_seccomp_open(void);
/*
 * The thread's filter number `which`, from the last one that was set on. How many instructions
 * it has, which stand in *code until the next call; 0: it has no such filter; -ESRCH: no such
 * thread; -ENODATA: what it is cannot be read (kernels without CONFIG_CHECKPOINT_RESTORE).
 */
int pt_seccomp_filter(struct pt_seccomp *s, pid_t tid, unsigned which,
		      const struct sock_filter **code);
void pt_seccomp_close(struct pt_seccomp *s);

#endif
