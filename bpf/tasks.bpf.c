// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The target set follows the process tree: fork, exec, exit, names. */
#include "agg.bpf.h"
#include "off.bpf.h"
#include "run.bpf.h"
#include "write.bpf.h"
#include "fault.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline void copy_comm(char *to, const void *from)
{
	bpf_probe_read_kernel_str(to, PT_COMM_LEN, from);
}

static __always_inline void task_record(__u16 kind, struct pt_thread *th,
					struct task_struct *task,
					const void *comm, __u32 old_tid)
{
	struct pt_rec_task *r;

	r = pt_rec_new(struct pt_rec_task, kind, th, task, bpf_ktime_get_ns());
	if (!r)
		return;
	r->ppid = BPF_CORE_READ(task, real_parent, tgid);
	r->old_tid = old_tid;
	copy_comm(r->comm, comm);
	pt_rec_submit(r);
}

/* Name a process outside of the tree that is followed from here on. */
static __always_inline void outside_record(struct pt_thread *th,
					   struct task_struct *task,
					   const struct pt_target *v, __u64 now)
{
	struct pt_rec_outside *r;

	r = pt_rec_apart(struct pt_rec_outside, PT_REC_OUTSIDE, now, task->pid,
			 task->tgid);
	if (!r)
		return;
	r->hdr.start = th->start;
	r->slept_ns = v->slept_ns;
	r->wakes = v->wakes;
	r->waiter = v->waiter;
	r->ppid = BPF_CORE_READ(task, real_parent, tgid);
	copy_comm(r->comm, task->comm);
	pt_rec_submit(r);
}

/* Put a child into the set. False: it is not to be followed. */
static __always_inline bool add_child(__u32 tgid, struct pt_target *v)
{
	if (v->outside &&
	    __sync_fetch_and_add(&pt_outsiders, 1) >= PT_MAX_OUTSIDE) {
		__sync_fetch_and_add(&pt_outsiders, -1);
		return false;
	}
	if (!bpf_map_update_elem(&pt_targets, &tgid, v, BPF_ANY))
		return true;
	if (v->outside)
		__sync_fetch_and_add(&pt_outsiders, -1);
	pt_lost(PT_LOSS_TARGETS_FULL);
	return false;
}

static __always_inline void drop_target(__u32 tgid)
{
	struct pt_target *v = bpf_map_lookup_elem(&pt_targets, &tgid);
	__u32 outside = v ? v->outside : 0;

	/* of two last threads that exit at once one deletes it */
	if (v && !bpf_map_delete_elem(&pt_targets, &tgid) && outside)
		__sync_fetch_and_add(&pt_outsiders, -1);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(pt_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 ptgid = parent->tgid, ctgid = child->tgid;
	struct pt_target v = {}, *of;
	struct pt_thread *pth, *cth;
	struct pt_rec_fork *r;
	__u64 now;

	of = bpf_map_lookup_elem(&pt_targets, &ptgid);
	if (!of)
		return 0;
	now = bpf_ktime_get_ns();
	pth = pt_thread_of(parent);
	v.since = now;
	v.outside = of->outside;
	v.waiter = ptgid;
	v.named = pth != NULL;
	if (ctgid != ptgid && !add_child(ctgid, &v))
		return 0;
	/* The pass that makes it one of us is under way: it or the next names
	 * the child, too. */
	if (v.outside && !pth)
		return 0;
	cth = bpf_task_storage_get(&pt_threads, child, 0,
				   BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!cth) {
		pt_lost(PT_LOSS_NO_STORAGE);
		return 0;
	}
	/* Runnable from now on; there is no wake-up event for a new task. */
	pt_thread_init(cth, child, now);
	cth->flags = PT_F_PREEMPTED;
	cth->off_ts = now;

	if (!pth || !pt_is_watching())
		return 0;
	r = pt_rec_new(struct pt_rec_fork, PT_REC_FORK, pth, parent, now);
	if (!r)
		return 0;
	if (ctgid == ptgid)
		r->hdr.flags |= PT_F_THREAD;
	r->child_tid = child->pid;
	r->child_tgid = ctgid;
	r->child_start = cth->start;
	copy_comm(r->comm, child->comm);
	pt_rec_submit(r);
	if (v.outside && ctgid != ptgid)
		outside_record(cth, child, &v, now);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(pt_exec, struct task_struct *task, pid_t old_pid)
{
	struct pt_thread *th;

	if (!pt_is_watching())
		return 0;
	th = pt_thread_of(task);
	if (!th)
		return 0;
	pt_run_end(th, task);
	/* A thread that execs takes over the leader's tid and start time. */
	th->start = (__u32)(task->start_time / 1000);
	task_record(PT_REC_EXEC, th, task, task->comm, old_pid);
	return 0;
}

static __always_inline void count_gone(struct pt_thread *th)
{
	int i;

	for (i = 0; i < PT_HIT_NR; i++)
		if (th->hits[i])
			__sync_fetch_and_add(&pt_hits.gone[i], th->hits[i]);
	__sync_fetch_and_add(&pt_hits.gone_run_ns, th->tot.run_ns);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(pt_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;
	struct pt_rec_exit *r;
	struct pt_thread *th;
	bool dead;
	__u64 now;

	/* 6.16 gained an argument for this; two last threads that exit at
	 * once may both see 0, and deleting twice does no harm. */
	dead = BPF_CORE_READ(task, signal, live.counter) == 0;
	th = pt_thread_of(task);
	if (th && pt_is_watching()) {
		pt_agg_last(th, task);
		pt_wagg_block(th, task);
		pt_faults_last(th, task);
		pt_run_end(th, task);
		if (pt_cfg.read_door == PT_DOOR_KPROBE && th->read_ts)
			pt_lost(PT_LOSS_RETURN);
		now = bpf_ktime_get_ns();
		r = pt_rec_new(struct pt_rec_exit, PT_REC_EXIT, th, task, now);
		if (r) {
			if (dead)
				r->hdr.flags |= PT_F_GROUP_DEAD;
			r->exit_code = task->exit_code;
			pt_totals_fill(&r->tot, th, task);
			if (!th->off_ts && now > th->since)
				r->tot.run_ns += now - th->since;
			pt_rec_submit(r);
		}
	}
	if (th) {
		count_gone(th);
		th->live = 0;
	}
	/* Also one that never got storage: who gets its number is a stranger. */
	if (dead)
		drop_target(tgid);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(pt_rename, struct task_struct *task, const char *comm)
{
	struct pt_thread *th;

	if (!pt_is_watching())
		return 0;
	th = pt_thread_of(task);
	if (th)
		task_record(PT_REC_COMM, th, task, comm, 0);
	return 0;
}

/* ---- the iterator: threads that events do not show ---------------------- */

#define PT_TASK_EXITING 0x4 /* PF_EXITING */

static __always_inline void seed(struct task_struct *task, __u64 now)
{
	__u32 tgid = task->tgid;
	struct pt_target *v;
	struct pt_thread *th;

	v = bpf_map_lookup_elem(&pt_targets, &tgid);
	/* A dying thread has said so already; it is not one that is new. */
	if (!v || task->exit_state || task->flags & PT_TASK_EXITING)
		return;
	th = bpf_task_storage_get(&pt_threads, task, 0,
				  BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!th) {
		pt_lost(PT_LOSS_NO_STORAGE);
		return;
	}
	if (th->live)
		return;
	pt_thread_init(th, task, now);
	if (!pt_task_running(task))
		pt_off_begin(th, task, pt_task_state(task), false, now);
	task_record(PT_REC_TASK, th, task, task->comm, 0);
	if (!v->outside || v->named)
		return;
	v->named = 1;
	outside_record(th, task, v, now);
}

static __always_inline void write_open(struct task_struct *task, __u64 now,
				       bool final)
{
	struct pt_thread *th = pt_thread_of(task);
	__u64 off_ts, since, wake = 0;
	struct pt_rec_off *r;

	if (!th)
		return;
	pt_run_end(th, task);
	if (final) {
		pt_agg_last(th, task);
		pt_wagg_block(th, task);
		pt_faults_last(th, task);
	}
	off_ts = *(volatile __u64 *)&th->off_ts;
	since = th->since;
	if (!off_ts && !final)
		return;
	if (off_ts > now)
		return;
	r = bpf_ringbuf_reserve(&pt_ring, sizeof(*r), 0);
	if (!r) {
		__sync_fetch_and_add(&th->seq, 1);
		pt_lost(PT_LOSS_RING_FULL);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	if (off_ts) {
		wake = pt_wake_time(th, off_ts);
		if (wake > now)
			wake = 0;
		pt_off_fill(r, th, task, off_ts, wake);
	} else {
		r->off_ts = now;
		r->syscall = PT_SYSCALL_NONE;
		r->waker_syscall = PT_SYSCALL_NONE;
		pt_totals_fill(&r->tot, th, task);
		if (now > since)
			r->tot.run_ns += now - since;
	}
	/* Switched meanwhile: its own record says more, and this is torn. */
	if (*(volatile __u64 *)&th->off_ts != off_ts ||
	    *(volatile __u64 *)&th->since != since) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		return;
	}
	r->hdr.flags |= PT_F_OPEN;
	{
		__u16 flags = r->hdr.flags;

		pt_hdr_fill(&r->hdr, sizeof(*r), PT_REC_OFF, th, task, now);
		r->hdr.flags = flags;
	}
	pt_rec_submit(r);
}

/* What happened in a quiet time was not seen: begin anew from what is so now.
 * A thread that moves on meanwhile is met at its next switch. */
static __always_inline void again(struct task_struct *task, __u64 now)
{
	struct pt_thread *th = pt_thread_of(task);

	if (!th)
		return;
	th->wake_ts = 0;
	th->since = now;
	th->off_ts = 0;
	if (!pt_task_running(task))
		pt_off_begin(th, task, pt_task_state(task), false, now);
}

/* The sums are made anew by each pass that counts; user space clears them before. */
static __noinline int count_live(struct pt_thread *th, __u64 now)
{
	__u64 run;
	int i;

	if (!th)
		return 0;
	for (i = 0; i < PT_HIT_NR; i++)
		pt_hits.live[i] += th->hits[i];
	run = th->tot.run_ns;
	if (!*(volatile __u64 *)&th->off_ts && now > th->since)
		run += now - th->since;
	pt_hits.live_run_ns += run;
	return 0;
}

SEC("iter/task")
int pt_iter(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u64 now;

	if (!task)
		return 0;
	/* Whoever reads the iterator: its number here, whatever its name space calls it. */
	pt_tracer = bpf_get_current_pid_tgid() >> 32;
	now = pt_pass_ts ? pt_pass_ts : bpf_ktime_get_ns();
	if (pt_pass == PT_PASS_SEED) {
		seed(task, now);
	} else if (pt_pass == PT_PASS_AGAIN) {
		again(task, now);
	} else {
		count_live(pt_thread_of(task), now);
		if (pt_pass != PT_PASS_COUNT)
			write_open(task, now, pt_pass == PT_PASS_FINAL);
	}
	return 0;
}
