/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What vmlinux.h has of x86-64 alone. */

struct pt_regs {
	unsigned long r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, sp;
};

struct thread_struct {
	unsigned long fsbase;
};
