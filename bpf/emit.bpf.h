/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From an event to a record: armed, target, threshold, reserve, zero, fill,
 * submit. A record that finds no room still takes a sequence number.
 */
#ifndef PT_EMIT_BPF_H
#define PT_EMIT_BPF_H

#include "compat.bpf.h"

static __always_inline void pt_lost(__u32 cause)
{
	if (cause < PT_LOSS_NR)
		__sync_fetch_and_add(&pt_loss[cause], 1);
}

static __always_inline bool pt_is_armed(void)
{
	return *(volatile __u32 *)&pt_armed == PT_ARMED;
}

/* For what the process tree does, which is followed in a quiet time too. */
static __always_inline bool pt_is_watching(void)
{
	return *(volatile __u32 *)&pt_armed != 0;
}

/* The thread's state if it is of the target, else NULL. Never creates. */
static __always_inline struct pt_thread *pt_thread_of(struct task_struct *t)
{
	struct pt_thread *th = bpf_task_storage_get(&pt_threads, t, 0, 0);

	return th && th->live ? th : NULL;
}

/* For what every process of the machine does all the time. Where it is looked at, the
 * verifier since 6.4 goes through all of the kernel's types, by name, up to four times:
 * 0.8 ms each time that a program is loaded. */
static __always_inline struct pt_thread *pt_hot_thread_of(struct task_struct *t)
{
	return pt_task_has_storage(t) ? pt_thread_of(t) : NULL;
}

/*
 * A hook has met this thread. Of so many times one is timed: the programs' part of what a
 * hook costs, in the job itself. By kind, for a thread may be woken while it is in another
 * hook; what one kind does to a thread it does one after the other.
 */
#define PT_TIMED_EACH 32
#define PT_TIMED_MAX_NS 100000 /* longer: it lost its core */

static __always_inline void pt_hit(struct pt_thread *th, __u32 kind)
{
	if (!(++th->hits[kind] & (PT_TIMED_EACH - 1)))
		th->hit_ts[kind] = bpf_ktime_get_ns();
}

static __always_inline void pt_hit_over(struct pt_thread *th, __u32 kind)
{
	__u64 ns = th->hit_ts[kind];

	if (!ns)
		return;
	th->hit_ts[kind] = 0;
	ns = bpf_ktime_get_ns() - ns;
	if (ns > PT_TIMED_MAX_NS)
		return;
	__sync_fetch_and_add(&pt_hits.timed[kind], 1);
	__sync_fetch_and_add(&pt_hits.timed_ns[kind], ns);
}

static __always_inline bool pt_saves(__u32 what)
{
	return *(volatile __u32 *)&pt_saved & what;
}

static __always_inline void pt_hdr_fill(struct pt_hdr *h, __u16 size, __u16 kind,
					struct pt_thread *th,
					struct task_struct *t, __u64 ts)
{
	h->size = size;
	h->kind = kind;
	h->cpu = (__u16)bpf_get_smp_processor_id();
	h->ts = ts;
	h->tid = t->pid;
	h->tgid = t->tgid;
	h->seq = __sync_fetch_and_add(&th->seq, 1);
	h->start = th->start;
}

/* A zeroed record with its header, or NULL with the loss counted. */
#define pt_rec_new(type, kind, th, task, ts)                                   \
	({                                                                     \
		type *__r = bpf_ringbuf_reserve(&pt_ring, sizeof(type), 0);    \
		if (__r) {                                                     \
			__builtin_memset(__r, 0, sizeof(type));                \
			pt_hdr_fill(&__r->hdr, sizeof(type), kind, th, task,   \
				    ts);                                       \
		} else {                                                       \
			__sync_fetch_and_add(&(th)->seq, 1);                   \
			pt_lost(PT_LOSS_RING_FULL);                            \
		}                                                              \
		__r;                                                           \
	})

/* A zeroed record that is not numbered among a thread's, or NULL with the loss
 * counted. */
#define pt_rec_apart(type, what, when, thread, process)                        \
	({                                                                     \
		type *__r = bpf_ringbuf_reserve(&pt_ring, sizeof(type), 0);    \
		if (__r) {                                                     \
			__builtin_memset(__r, 0, sizeof(type));                \
			__r->hdr.size = sizeof(type);                          \
			__r->hdr.kind = what;                                  \
			__r->hdr.cpu = (__u16)bpf_get_smp_processor_id();      \
			__r->hdr.ts = when;                                    \
			__r->hdr.tid = thread;                                 \
			__r->hdr.tgid = process;                               \
		} else {                                                       \
			pt_lost(PT_LOSS_RING_FULL);                            \
		}                                                              \
		__r;                                                           \
	})

/* Wake the reader by backlog only: it also looks by itself on a timer. */
static __always_inline void pt_rec_submit(void *rec)
{
	__u64 flags = BPF_RB_NO_WAKEUP;

	if (bpf_ringbuf_query(&pt_ring, BPF_RB_AVAIL_DATA) > pt_cfg.wake_bytes)
		flags = BPF_RB_FORCE_WAKEUP;
	bpf_ringbuf_submit(rec, flags);
}

/* Totals as of now; the caller adds the interval that it closes. */
static __always_inline void pt_totals_fill(struct pt_totals *o,
					   struct pt_thread *th,
					   struct task_struct *t)
{
	struct pt_totals io = {};

	pt_task_ioac(t, &io);
	o->run_ns = th->tot.run_ns;
	o->runq_ns = th->tot.runq_ns;
	o->iowait_ns = th->tot.iowait_ns;
	o->block_ns = th->tot.block_ns;
	o->rchar = io.rchar - th->base.rchar;
	o->wchar = io.wchar - th->base.wchar;
	o->read_bytes = io.read_bytes - th->base.read_bytes;
	o->write_bytes = io.write_bytes - th->base.write_bytes;
}

/* Begin to follow a thread. The caller says whether it is on a CPU. */
static __always_inline void pt_thread_init(struct pt_thread *th,
					   struct task_struct *t, __u64 now)
{
	/* Microseconds fit a boot of 71 minutes before they wrap; two tasks
	 * of one tid that started a multiple of that apart are unlikely. */
	th->start = (__u32)(t->start_time / 1000);
	th->since = now;
	th->syscall = PT_SYSCALL_NONE;
	th->waker_syscall = PT_SYSCALL_NONE;
	pt_task_ioac(t, &th->base);
	th->fetch_seen = pt_task_fetched(t);
	th->live = 1;
}

#endif
