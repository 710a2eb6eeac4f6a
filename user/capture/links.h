/* SPDX-License-Identifier: BSD-2-Clause */
/* Uprobes by multi-uprobe links (Linux 6.6) and by perf events, as the kernel has them. */
#ifndef PT_LINKS_H
#define PT_LINKS_H

#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PT_ATTACH_UPROBE_MULTI 48 /* BPF_TRACE_UPROBE_MULTI, Linux 6.6 */
#define PT_UPROBE_MULTI_RETURN 1  /* BPF_F_UPROBE_MULTI_RETURN */

/* One of a program that is written by hand. */
#define PT_INSN(c, d, s, o, i)                                                 \
	((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s),       \
			    .off = (o), .imm = (i) })

/* Link descriptor or -errno. pid 0: every process. */
int pt_uprobe_multi(int prog_fd, const char *path, const uint64_t *offsets,
		    const uint64_t *cookies, uint32_t n, uint32_t flags, pid_t pid);
/*
 * A perf event for a uprobe, not enabled yet; pid -1: in every process. Its program, with
 * a cookie, and enable it: the link's descriptor. Both close their descriptor to take the
 * probe out again, which takes a tenth of a second. Descriptor or -errno.
 */
int pt_uprobe_perf(const char *path, uint64_t offset, pid_t pid);
int pt_uprobe_perf_link(int prog_fd, int event, uint64_t cookie);
/* Close multi-uprobe links. Each close waits for the kernel to see every CPU and
 * task out of the breakpoints; threads wait side by side. -1 is skipped. */
void pt_close_links(int *fd, size_t n);

#endif
