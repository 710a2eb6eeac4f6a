/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Page faults are summed per thread and mapped file like short reads, and
 * written when the thread faults on another file, ends, or the sum is old. Only
 * the thread itself touches its sum, but for the final pass.
 */
#ifndef PT_FAULT_BPF_H
#define PT_FAULT_BPF_H

#include "name.bpf.h"
#include "off.bpf.h"

#define PT_FAULTS_MAX_NS 100000000 /* age at which a sum is written */

static __noinline int pt_faults_flush(struct pt_thread *th,
				      struct task_struct *task)
{
	struct pt_rec_faults *r;

	if (!th || !task || !th->faults.count)
		return 0;
	r = pt_rec_new(struct pt_rec_faults, PT_REC_FAULTS, th, task,
		       th->faults.end);
	if (r) {
		r->begin_ts = th->faults.begin;
		r->inode = th->faults.inode;
		r->bytes = th->faults.bytes;
		r->offset = th->faults.offset;
		r->dev = th->faults.dev;
		r->count = th->faults.count;
		r->major = th->faults.major;
		r->door = pt_cfg.fault_door;
		r->hdr.flags |= th->faults.flags;
		pt_rec_submit(r);
	}
	th->faults.count = 0;
	return 0;
}

/* The thread ends, or the capture does. */
static __always_inline void pt_faults_last(struct pt_thread *th,
					   struct task_struct *task)
{
	if (th->faults.count && !*(volatile __u32 *)&th->faults.in_use)
		pt_faults_flush(th, task);
}

/* The thread blocks: a fault that is not over goes on being summed. */
static __always_inline void pt_faults_block(struct pt_thread *th,
					    struct task_struct *task, __u64 now)
{
	__u64 arg[3];

	if (now - th->faults.begin <= PT_FAULTS_MAX_NS ||
	    *(volatile __u32 *)&th->faults.in_use ||
	    pt_in_fault(th, task, pt_task_syscall(task, arg)))
		return;
	pt_faults_flush(th, task);
}

#endif
