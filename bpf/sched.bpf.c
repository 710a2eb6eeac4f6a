// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Off-CPU time of the target's threads: switches and wake-ups. */
#include "agg.bpf.h"
#include "block.bpf.h"
#include "off.bpf.h"
#include "run.bpf.h"
#include "write.bpf.h"
#include "fault.bpf.h"

static __always_inline void switch_in(struct pt_thread *th,
				      struct task_struct *task, __u64 now)
{
	__u64 off_ts = th->off_ts, wake, blocked;
	struct pt_rec_off *r;

	th->since = now;
	if (!off_ts)
		return;
	wake = pt_wake_time(th, off_ts);
	th->off_ts = 0;
	th->wake_ts = 0;
	if (now < off_ts || wake > now) {
		pt_lost(PT_LOSS_CLOCK);
		return;
	}
	blocked = th->state ? (wake ? wake : now) - off_ts : 0;
	th->tot.runq_ns += now - off_ts - blocked;
	if (th->flags & PT_F_IOWAIT)
		th->tot.iowait_ns += blocked;
	else
		th->tot.block_ns += blocked;
	if (now - off_ts < pt_cfg.min_off_ns ||
	    (pt_saves(PT_SAVE_WAITS) && now - off_ts < PT_SHORT_OFF_NS))
		return;
	if (pt_cfg.epoll && th->epoll)
		pt_off_epoll(th, task);
	r = pt_rec_new(struct pt_rec_off, PT_REC_OFF, th, task, now);
	if (!r)
		return;
	pt_off_fill(r, th, task, off_ts, wake);
	pt_rec_submit(r);
}

/*
 * The thread leaves the CPU, and is off it already: that it came back was not seen. (A
 * kernel may hide what one of its tasks does; a virtual machine's agent is such a one.)
 * The scheduler's own count tells how long it has run since.
 */
static __noinline void missed_in(struct pt_thread *th, struct task_struct *task,
				      __u64 now)
{
	__u64 ran = task->se.sum_exec_runtime - th->exec_ns, at = th->off_ts;

	if (ran < now - at)
		at = now - ran;
	if (th->wake_ts > at && th->wake_ts < now)
		at = th->wake_ts;
	switch_in(th, task, at);
}

static __always_inline void switch_out(struct pt_thread *th,
				       struct task_struct *task, bool preempt,
				       __u64 now)
{
	__u64 since;

	if (th->off_ts)
		missed_in(th, task, now);
	since = th->since;
	if (now >= since)
		th->tot.run_ns += now - since;
	else
		pt_lost(PT_LOSS_CLOCK);
	/* A wake-up of an earlier block, or one that found it running. */
	if (th->wake_ts < since)
		th->wake_ts = 0;
	th->since = now;
	if (!preempt && (th->agg.count || th->pages.active))
		pt_agg_block(th, task);
	if (!preempt)
		pt_wagg_block(th, task);
	if (!preempt)
		pt_run_end(th, task);
	if (!preempt && th->faults.count)
		pt_faults_block(th, task, now);
	pt_off_begin(th, task, preempt ? 0 : pt_task_state(task), true, now);
	pt_block_note(th, task);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(pt_sched_switch, bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	struct pt_thread *th;
	__u64 now = 0;

	if (!pt_is_armed())
		return 0;
	/* One behind the other: the verifier would walk through the first for each
	 * thing that the second can be. */
	th = pt_hot_thread_of(prev);
	if (th) {
		now = bpf_ktime_get_ns();
		pt_hit(th, PT_HIT_OUT);
		switch_out(th, prev, preempt, now);
		pt_hit_over(th, PT_HIT_OUT);
	}
	th = pt_hot_thread_of(next);
	if (th) {
		pt_hit(th, PT_HIT_IN);
		switch_in(th, next, now ? now : bpf_ktime_get_ns());
		pt_hit_over(th, PT_HIT_IN);
	}
	return 0;
}

static __always_inline void nobody(struct pt_thread *th)
{
	th->waker_tid = th->waker_tgid = 0;
	th->waker_syscall = -1;
	th->waker_arg0 = th->waker_object = 0;
	th->waker_in = th->waker_ports = th->waker_dev = 0;
	th->waker_obj_kind = 0;
}

static __always_inline void woken(struct pt_thread *th)
{
	struct task_struct *cur = bpf_get_current_task_btf();
	struct pt_object o = {};
	__u64 arg[3] = {};

	/* The tracer holds locks of the target's memory while it reads there, and lets
	 * go of a command that it started: nobody's work, as an interrupt's wake-up. */
	if (pt_saves(PT_SAVE_WAKERS) ||
	    (pt_tracer && (__u32)cur->tgid == pt_tracer)) {
		nobody(th);
		return;
	}
	th->waker_tid = cur->pid;
	th->waker_tgid = cur->tgid;
	th->waker_syscall = pt_task_syscall(cur, arg);
	th->waker_arg0 = arg[0];
	th->waker_in = pt_waker_in(cur);
	th->waker_ports = 0;
	/* A poll's descriptors say nothing about what it wakes: not read. */
	pt_call_object(cur, th->waker_syscall, arg, false, &o);
	if (o.kind == PT_OBJ_SOCK)
		pt_sock_peer(&o, &th->waker_ports);
	th->waker_object = o.id;
	th->waker_dev = o.dev;
	th->waker_obj_kind = o.kind;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(pt_sched_waking, struct task_struct *task)
{
	struct pt_thread *th;

	if (!pt_is_armed())
		return 0;
	th = pt_hot_thread_of(task);
	if (!th)
		return 0;
	pt_hit(th, PT_HIT_WAKE);
	if (!th->off_ts || th->wake_ts < th->off_ts) {
		woken(th);
		th->wake_ts = bpf_ktime_get_ns();
	}
	pt_hit_over(th, PT_HIT_WAKE);
	return 0;
}
