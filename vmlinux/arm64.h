/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What vmlinux.h has of arm64 alone. */

struct pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 orig_x0;
	__s32 syscallno;
};

/* by libbpf's macros */
struct user_pt_regs {
	__u64 regs[31];
	__u64 pc;
};

struct thread_info {
	struct {
		__u32 count;
	} preempt;
};
