/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What differs between processors: registers, where a call's arguments and its way back
 * are, numbers of system calls. Here, in struct pt_regs (vmlinux/) and nowhere else.
 * Whatever the processor, a program and its records have x86-64's numbers.
 */
#ifndef PT_ARCH_BPF_H
#define PT_ARCH_BPF_H

#include "maps.bpf.h"

static __always_inline __u64 pt_user_word(__u64 at, __u16 *flags)
{
	__u64 v = 0;

	if (bpf_probe_read_user(&v, sizeof(v), (void *)at))
		*flags |= PT_F_READ_FAILED;
	return v;
}

/* A lock that is tried, never waited for: 0 got it. */
#define PT_TRY_LOCK(p) __sync_lock_test_and_set(p, 1)

#ifdef __TARGET_ARCH_arm64
/* ---- arm64: arguments in x0 to x7, then on the stack; the way back in x30 ---- */

#include "arm64_calls.h"

#define PT_PAGE_SHIFT pt_cfg.page_shift /* of 4, 16 or 64 KiB */

/* Volatile: else the compiler chooses between places first, and the verifier takes no
 * computed offset into the context. */
#define PT_REG(r, n) (*(volatile __u64 *)&(r)->regs[n])
#define PT_ARG0(r) PT_REG(r, 0)
#define PT_ARG1(r) PT_REG(r, 1)
#define PT_ARG2(r) PT_REG(r, 2)
#define PT_ARG3(r) PT_REG(r, 3)
#define PT_ARG4(r) PT_REG(r, 4)
#define PT_ARG5(r) PT_REG(r, 5)
#define PT_ARG6(r) PT_REG(r, 6)
#define PT_ARG7(r) PT_REG(r, 7)
#define PT_ARG_ON_STACK(r, slot) ((r)->sp + 8 * (__u64)((slot)-8))
#define PT_RESULT(r) ((r)->regs[0])
#define PT_UNLOCK(p) ((void)__sync_lock_test_and_set(p, 0)) /* stores pass each other */
#define PT_RETURN_POPS 0 /* bytes of the stack */

#define PT_FRAMES 16 /* looked through between two functions */
#define PT_CODE_MASK 0x0000ffffffffffffull /* without a signature (PAC) */

static __always_inline __u64 pt_caller(struct pt_regs *r, __u16 *flags)
{
	return r->regs[30] & PT_CODE_MASK;
}

/*
 * Does the function still run that was entered with this stack, to go back to `ra`?
 * Its frame, the last below, has that; frames are chained from x29 on. Where the
 * caller has none it cannot be told: that counts as yes.
 */
static __always_inline bool pt_still_runs(struct pt_regs *r, __u64 sp, __u64 ra,
					  __u16 *flags)
{
	__u64 fp = r->regs[29], rec[2];
	int i;

	for (i = 0; i < PT_FRAMES; i++) {
		if (fp >= sp)
			return !i;
		if (bpf_probe_read_user(rec, sizeof(rec), (void *)fp))
			return true;
		if (!((rec[1] ^ ra) & PT_CODE_MASK))
			return true;
		if (rec[0] <= fp)
			return true;
		fp = rec[0];
	}
	return true;
}

static __always_inline long pt_nr(long nr)
{
	if (nr < 0 || nr >= PT_CALLS_SAME)
		return nr;
	return pt_arm64_calls[nr & 511];
}

/* The first argument's register has the result when the call is over. */
#define PT_CALL_NR(r) pt_nr((r)->syscallno)
#define PT_CALL_ARG0(r) ((r)->orig_x0)
#define PT_CALL_ARG1(r) ((r)->regs[1])
#define PT_CALL_ARG2(r) ((r)->regs[2])
#define PT_CALL_ARG3(r) ((r)->regs[3])

/* The count of preemptions and interrupts, which is the task's. (Of preemptions it has
 * none in a kernel that is never preempted.) */
#define PT_COUNT_FOUND 0
static __always_inline bool pt_preempt_count(struct task_struct *cur, __u32 *count)
{
	*count = cur->thread_info.preempt.count;
	return true;
}

#else
/* ---- x86-64: the way back lies on the stack, arguments above it -------------- */

#define PT_PAGE_SHIFT 12

#define PT_ARG0(r) ((r)->di)
#define PT_ARG1(r) ((r)->si)
#define PT_ARG2(r) ((r)->dx)
#define PT_ARG3(r) ((r)->cx)
#define PT_ARG4(r) ((r)->r8)
#define PT_ARG5(r) ((r)->r9)
#define PT_ARG_ON_STACK(r, slot) ((r)->sp + 8 * (__u64)((slot)-5))
#define PT_RESULT(r) ((r)->ax)
#define PT_UNLOCK(p) (*(volatile __u32 *)(p) = 0) /* behind all stores before it */
#define PT_RETURN_POPS 8

#define pt_caller(r, flags) pt_user_word((r)->sp, flags)

/* Does the function still run that was entered with this stack, to go back to `ra`?
 * That must still stand where it stood. */
#define pt_still_runs(r, sp, ra, flags) (pt_user_word(sp, flags) == (ra) && !*(flags))

static __always_inline long pt_nr(long nr)
{
	return nr;
}

#define PT_CALL_NR(r) ((long)(r)->orig_ax)
#define PT_CALL_ARG0(r) ((r)->di)
#define PT_CALL_ARG1(r) ((r)->si)
#define PT_CALL_ARG2(r) ((r)->dx)
#define PT_CALL_ARG3(r) ((r)->r10)

/*
 * The count of preemptions and interrupts, which is the CPU's. A program may take the
 * address of a variable of each CPU's only where the kernel has the names of data
 * (CONFIG_KALLSYMS_ALL). But the current task points to its CPU's run queue, which is
 * another of these variables, and BTF says how far apart the two lie
 * (user/capture/percpu.c). False: not known.
 */
#define PT_COUNT_FOUND 1 /* it is found, so what it holds is looked at */
static __always_inline bool pt_preempt_count(struct task_struct *cur, __u32 *count)
{
	return pt_cfg.count_off && bpf_core_field_exists(cur->se.cfs_rq) &&
	       !bpf_probe_read_kernel(count, sizeof(*count), (void *)BPF_CORE_READ(cur, se.cfs_rq, rq) +
						    pt_cfg.count_off);
}
#endif

#endif
