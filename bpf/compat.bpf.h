/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Differences between kernels, here and nowhere else. The oldest kernel that
 * is meant to work is 5.15 (bpf_task_pt_regs, bpf_get_attach_cookie). What
 * differs between processors: arch.bpf.h.
 *
 * Task fields are read through BTF pointers. What BTF cannot type (an array
 * of file pointers) is read with bpf_probe_read_kernel, which a kernel locked
 * down for confidentiality refuses at run time: PT_F_READ_FAILED then. So is a
 * pointer that a task has: each place and each state of a program in which one is
 * taken through BTF makes the verifier, since 6.4, look through all of the kernel's
 * types by name, up to four times: 0.2 ms each.
 */
#ifndef PT_COMPAT_BPF_H
#define PT_COMPAT_BPF_H

#include "arch.bpf.h"

#define PT_PF_KTHREAD 0x00200000 /* include/linux/sched.h, unchanged since 2.6 */
#define PT_TASK_WAKING 0x0200	 /* since 4.14 */

/*
 * State of a task that is being switched out: 0 runnable, else the low byte.
 * 5.14 renamed state to __state. sched_switch got the state as a fourth
 * argument in 5.18, which older kernels' programs may not touch, so read the
 * field: it differs only when a waker on another CPU was quick enough to set
 * TASK_WAKING already, and then the task did block.
 */
static __always_inline __u16 pt_task_state(struct task_struct *t)
{
	__u32 state;

	if (bpf_core_field_exists(t->__state)) {
		state = t->__state;
	} else {
		struct task_struct___pre514 *old = (void *)t;

		state = (__u32)BPF_CORE_READ(old, state);
	}
	/* Modifier bits (FREEZABLE, WAKEKILL, NOLOAD, ...) lie above. */
	if (state & 0xff)
		return state & 0xff;
	if (state & PT_TASK_WAKING)
		return 1;
	return state ? 2 : 0; /* RTLOCK_WAIT, FROZEN: uninterruptible */
}

/*
 * False: no program ever stored anything with the task, so ours did not either.
 * A look at one field, where a lookup is a call: that is what every process of
 * the machine pays for each event that is not the target's. 5.11, where task
 * storage came, to at least 6.18.
 */
static __always_inline bool pt_task_has_storage(struct task_struct *t)
{
	return !bpf_core_field_exists(t->bpf_storage) || t->bpf_storage;
}

/* CONFIG_SMP only, as every kernel that runs such jobs is. */
static __always_inline bool pt_task_running(struct task_struct *t)
{
	return bpf_core_field_exists(t->on_cpu) ? t->on_cpu != 0 :
						  pt_task_state(t) == 0;
}

/*
 * Is this CPU in an interrupt? The preemption count tells, whose bits are the same
 * since 3.16. 0: not known.
 */
#define PT_COUNT_SOFTIRQ 0x000100
#define PT_COUNT_HARDIRQ 0xff0000 /* and NMI */
#define PT_COUNT_NEVER 0x7f000000

static __always_inline __u16 pt_waker_context(struct task_struct *cur)
{
	__u32 count = 0;

	if (!pt_preempt_count(cur, &count))
		return 0;
	/* A tracepoint's program cannot be preempted: else this is no count. */
	if (PT_COUNT_FOUND && (count & PT_COUNT_NEVER || !(count & 0xff)))
		return 0;
	return PT_WAKER_KNOWN |
	       (count & PT_COUNT_SOFTIRQ ? PT_WAKER_SOFTIRQ : 0) |
	       (count & PT_COUNT_HARDIRQ ? PT_WAKER_HARDIRQ : 0);
}

/*
 * Call fn(i, ctx) up to `most` times, until it returns 1. The helper (5.17) makes the
 * verifier look at fn once; before it goes through each turn, so there are `few`.
 */
#define PT_LOOP(most, few, fn, ctx)                                            \
	do {                                                                   \
		__u32 i_;                                                      \
                                                                               \
		if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop)) \
			bpf_loop(most, fn, ctx, 0);                            \
		else                                                           \
			for (i_ = 0; i_ < (few); i_++)                         \
				if (fn(i_, ctx))                               \
					break;                                 \
	} while (0)

#define PT_PF_EXITING 0x00000004 /* include/linux/sched.h, unchanged since 2.6 */
#define PT_PF_MEMALLOC 0x00000800

static __always_inline __u16 pt_waker_in(struct task_struct *t)
{
	return pt_waker_context(t) |
	       (t->flags & PT_PF_EXITING ? PT_WAKER_EXITING : 0) |
	       (t->flags & PT_PF_KTHREAD ? PT_WAKER_KTHREAD : 0);
}

/* It frees memory for itself, or is held back because there is none; not where
 * it waits for a page that has to be fetched again. */
static __always_inline bool pt_task_reclaims(struct task_struct *t)
{
	if (t->flags & PT_PF_MEMALLOC)
		return true;
	return bpf_core_field_exists(t->in_memstall) &&
	       BPF_CORE_READ_BITFIELD(t, in_memstall) &&
	       !BPF_CORE_READ_BITFIELD(t, in_iowait);
}

/* System call that the task is in and its first three arguments. */
static __always_inline __s32 pt_task_syscall(struct task_struct *t, __u64 arg[3])
{
	struct pt_regs *regs;
	long nr;

	/* A kernel thread's register frame is whatever its stack holds. */
	if (t->flags & PT_PF_KTHREAD)
		return PT_SYSCALL_NONE;
	regs = (struct pt_regs *)bpf_task_pt_regs(t);
	nr = PT_CALL_NR(regs);
	if (nr < 0 || nr > 0xffff)
		return PT_SYSCALL_NONE;
	arg[0] = PT_CALL_ARG0(regs);
	arg[1] = PT_CALL_ARG1(regs);
	arg[2] = PT_CALL_ARG2(regs);
	return (__s32)nr;
}

/* CONFIG_TASK_XACCT and CONFIG_TASK_IO_ACCOUNTING, each optional. */
static __always_inline void pt_task_ioac(struct task_struct *t, struct pt_totals *o)
{
	if (bpf_core_field_exists(t->ioac.rchar)) {
		o->rchar = t->ioac.rchar;
		o->wchar = t->ioac.wchar;
	}
	if (bpf_core_field_exists(t->ioac.read_bytes)) {
		o->read_bytes = t->ioac.read_bytes;
		o->write_bytes = t->ioac.write_bytes;
	}
}

/* Bytes that the task had fetched from storage so far; ~0 unknown. */
static __always_inline __u64 pt_task_fetched(struct task_struct *t)
{
	return bpf_core_field_exists(t->ioac.read_bytes) ? t->ioac.read_bytes :
							   ~0ULL;
}

/* The descriptor's file as an address for the readers below; 0 none. */
static __always_inline __u64 pt_fd_file(struct task_struct *t, __u64 fd)
{
	struct fdtable *fdt = BPF_CORE_READ(t, files, fdt);
	struct file **slots;
	__u64 file = 0;

	if (!fdt || (__u32)fd >= BPF_CORE_READ(fdt, max_fds))
		return 0;
	slots = BPF_CORE_READ(fdt, fd);
	if (bpf_probe_read_kernel(&file, sizeof(file), slots + (__u32)fd))
		return 0;
	return file;
}

#define PT_OVERLAYFS 0x794c7630 /* OVERLAYFS_SUPER_MAGIC */

/* The inode below an overlay's open file, by its open file there; 0 unknown.
 * 6.13 put a structure between the two. */
static __always_inline __u64 pt_overlay_inode(__u64 file)
{
	struct file *below = BPF_CORE_READ((struct file *)file, private_data);

	if (bpf_core_type_exists(struct ovl_file))
		below = BPF_CORE_READ((struct ovl_file *)below, realfile);
	return (__u64)BPF_CORE_READ(below, f_inode);
}

/*
 * The path that a file was opened by. f_path is a plain member up to 6.12 and
 * one of a union later: same name. Mapping an overlay's file maps the one below
 * it; that has the overlay's path in f_path up to 6.7, and behind itself since
 * 6.8, in which case a bit of its mode says so: FMODE_BACKING, which 6.14
 * renumbered (the release that also gave dentries d_shortname).
 */
static __always_inline struct dentry *pt_file_dentry(__u64 file,
						     struct vfsmount **mnt)
{
	struct file *f = (struct file *)file;
	struct path path = {};

	if (bpf_core_field_exists(struct backing_file, user_path)) {
		__u32 bit = bpf_core_field_exists(struct dentry, d_shortname) ?
				    1u << 24 : 1u << 25;

		if (BPF_CORE_READ(f, f_mode) & bit) {
			struct backing_file *b = (struct backing_file *)file;
			struct dentry *d = BPF_CORE_READ(b, user_path.dentry);
			struct vfsmount *m = BPF_CORE_READ(b, user_path.mnt);

			/* or the bit means something else by now */
			if (d && m && BPF_CORE_READ(d, d_sb) ==
					      BPF_CORE_READ(m, mnt_sb)) {
				*mnt = m;
				return d;
			}
		}
	}
	bpf_core_read(&path, sizeof(path), &f->f_path);
	*mnt = path.mnt;
	return path.dentry;
}

/*
 * Pages of a folio: one, or a power of two. Larger ones are told by PG_head in
 * their first word, which is the flags whatever type they have. Their order is
 * in the low byte of the next page's since 6.6, and a byte of its own before.
 */
static __always_inline __u64 pt_folio_pages(struct folio *folio)
{
	__u32 head = bpf_core_enum_value(enum pageflags, PG_head);
	unsigned long flags = 0;
	__u32 order = 0;

	if (bpf_probe_read_kernel(&flags, sizeof(flags), folio) ||
	    !(flags & (1ul << (head & 63))))
		return 1;
	if (bpf_core_field_exists(folio->_folio_order))
		order = BPF_CORE_READ(folio, _folio_order);
	else if (bpf_core_field_exists(folio->_flags_1))
		order = BPF_CORE_READ(folio, _flags_1) & 0xff;
	return order < 20 ? 1ull << order : 1;
}

#endif
