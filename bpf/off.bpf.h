/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Off-CPU intervals: what is captured at switch-out, and their record. */
#ifndef PT_OFF_BPF_H
#define PT_OFF_BPF_H

#include "name.bpf.h"
#include "sock.bpf.h"

/*
 * The iterator found the thread off its CPU a moment ago, but it can be
 * preempted, by that very thread too: whatever the scheduler's programs noted
 * since then stands.
 */
static __always_inline void pt_off_seed(struct pt_thread *th, __u64 now)
{
	th->flags |= PT_F_SINCE_UNKNOWN;
	if (__sync_val_compare_and_swap(&th->off_ts, 0, now))
		return;
	if (*(volatile __u64 *)&th->since != now)
		__sync_val_compare_and_swap(&th->off_ts, now, 0);
}

/* Faults of the task that are over. One that has to wait and look again counts
 * when it is done, and so does one that the kernel makes for the thread. */
static __always_inline __u64 pt_faults_over(struct task_struct *t)
{
	return t->maj_flt + t->min_flt;
}

/* Is it still in the fault that was noted last? The count stands still in one
 * that failed too: the next call shows that it is over. */
static __always_inline bool pt_in_fault(const struct pt_thread *th,
					struct task_struct *t, __s32 nr)
{
	return th->faults.on && th->faults.nr == nr &&
	       th->faults.counted == pt_faults_over(t);
}

/* The fault brings something in, or waits: that makes it a major one. */
static __always_inline void pt_fault_hit(struct pt_thread *th)
{
	if (th->faults.hit)
		return;
	th->faults.hit = 1;
	th->faults.major++;
}

/* Why the thread left the CPU. `own` as in pt_call_object: true in the
 * scheduler's program, false in the iterator. */
static __always_inline void pt_off_begin(struct pt_thread *th,
					 struct task_struct *task, __u16 state,
					 bool own, __u64 now)
{
	struct pt_object o = {};
	__u64 arg[3] = {}, sock;
	__u16 flags = 0;

	th->exec_ns = task->se.sum_exec_runtime;
	th->syscall = pt_task_syscall(task, arg);
	th->arg[0] = arg[0];
	th->arg[1] = arg[1];
	th->arg[2] = arg[2];
	if (state) {
		if (BPF_CORE_READ_BITFIELD(task, in_iowait))
			flags |= PT_F_IOWAIT;
		if (pt_task_reclaims(task))
			flags |= PT_F_RECLAIM;
		if (own && pt_in_fault(th, task, th->syscall)) {
			o.id = th->faults.inode;
			o.dev = th->faults.dev;
			o.kind = PT_OBJ_FILE;
			flags |= PT_F_FAULT;
			pt_fault_hit(th);
		} else {
			pt_call_object(task, th->syscall, arg, own, &o);
			flags |= o.failed;
		}
	} else {
		flags |= PT_F_PREEMPTED;
	}
	th->epoll = 0;
	th->ports = 0;
	if (own && pt_cfg.sockets && o.kind == PT_OBJ_SOCK) {
		sock = pt_sock_wait(task, o.file, o.id, th->syscall, false);
		flags |= (__u16)sock;
		th->ports = sock >> 32;
	} else if (own && pt_cfg.epoll && o.file && pt_nr_epoll(th->syscall)) {
		th->epoll = pt_file_epoll(o.file);
	}
	th->object = o.id;
	th->dev = o.dev;
	th->obj_kind = o.kind;
	th->state = state;
	th->flags = flags;
	/* From here on the iterator sees it. */
	if (own)
		th->off_ts = now;
	else
		pt_off_seed(th, now);
	if (o.kind == PT_OBJ_FILE && o.file) {
		struct pt_file_key key = { .inode = o.id, .dev = o.dev };

		pt_file_note(th, task, o.file, &key, now);
	}
}

/* An epoll wait is over: it was for the first thing that is ready. */
static __always_inline void pt_off_epoll(struct pt_thread *th,
					 struct task_struct *task)
{
	struct pt_object o = {};
	__u64 file = pt_epoll_ready(th->epoll), sock;

	th->epoll = 0;
	if (!file)
		return;
	pt_wait_object(file, &o);
	if (o.kind == PT_OBJ_SOCK) {
		sock = pt_sock_wait(task, file, o.id, th->syscall, true);
		th->flags |= (__u16)sock;
		th->ports = sock >> 32;
	} else if (o.kind != PT_OBJ_PIPE && o.kind != PT_OBJ_ANON) {
		return;
	}
	th->flags |= PT_F_READY_FIRST;
	th->object = o.id;
	th->dev = o.dev;
	th->obj_kind = o.kind;
}

/* Are the waker's socket and the one that was waited on the two ends of one
 * connection? One port alone may have been translated on the way. */
static __always_inline __u16 pt_ports_match(const struct pt_thread *th)
{
	__u16 to = __builtin_bswap16(th->waker_ports), from = th->waker_ports >> 16;
	__u16 remote = __builtin_bswap16(th->ports), local = th->ports >> 16;

	if (!th->ports || !to) /* no connection */
		return 0;
	if (to == local)
		return from == remote ? PT_WAKER_PEER : 0;
	return from == remote ? 0 : PT_WAKER_STRANGER;
}

static __always_inline void pt_off_fill(struct pt_rec_off *r, struct pt_thread *th,
					struct task_struct *t, __u64 off_ts,
					__u64 wake_ts)
{
	r->hdr.flags |= th->flags;
	r->off_ts = off_ts;
	r->object = th->object;
	r->arg[0] = th->arg[0];
	r->arg[1] = th->arg[1];
	r->arg[2] = th->arg[2];
	r->dev = th->dev;
	r->syscall = th->syscall;
	r->state = th->state;
	r->obj_kind = th->obj_kind;
	r->waker_syscall = PT_SYSCALL_NONE;
	r->wake_ts = wake_ts;
	if (wake_ts) {
		r->waker_object = th->waker_object;
		r->waker_dev = th->waker_dev;
		r->waker_tid = th->waker_tid;
		r->waker_tgid = th->waker_tgid;
		r->waker_syscall = th->waker_syscall;
		r->waker_obj_kind = th->waker_obj_kind;
		r->waker_arg0 = th->waker_arg0;
		r->waker_in = th->waker_in;
		if (th->waker_ports)
			r->waker_in |= pt_ports_match(th);
	}
	pt_totals_fill(&r->tot, th, t);
}

/*
 * When the thread was made runnable, seen from the end of its interval; 0 for
 * a runnable one and where no wake-up was seen. A wake-up stamped before the
 * switch-out is that of this interval if none came later, for something ended
 * it: its waker ran while the thread was still on its way out.
 */
static __always_inline __u64 pt_wake_time(const struct pt_thread *th, __u64 off_ts)
{
	if (!th->state || !th->wake_ts)
		return 0;
	return th->wake_ts < off_ts ? off_ts : th->wake_ts;
}

#endif
