/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * GPU calls whose beginning alone is watched (launches most of all) are kept with their
 * thread and written together: when there is no more room, when the first is old, before
 * the thread's next record of another GPU call, when it blocks or ends, and with each pass.
 * Its own program adds, any CPU may write them: whoever does not get the lock leaves it.
 */
#ifndef PT_RUN_BPF_H
#define PT_RUN_BPF_H

#include "miss.bpf.h"

#define PT_RUN_MAX_NS 10000000 /* of the first: then they are written */
#define PT_RUN_HEAD __builtin_offsetof(struct pt_ring_calls, call)

/* There is no room for them. */
static __always_inline void miss_calls(const struct pt_ring_calls *r, __u32 n, __u32 tgid)
{
	__u32 i;

	for (i = 0; i < PT_CALLS_MAX; i++) {
		if (i >= n)
			break;
		pt_miss(tgid, PT_COOKIE_API(r->call[i].id), 1, 0);
	}
}

/* With the lock. */
static __noinline int pt_run_write(struct pt_thread *th, struct task_struct *task)
{
	__u64 flags = BPF_RB_NO_WAKEUP, size;
	struct pt_ring_calls *r;
	__u32 n, last;

	if (!th || !task)
		return 0;
	r = &th->run.rec;
	last = th->run.n - 1;
	/* Linux 6.1's verifier learns from n != 0 nothing of n - 1: that is what it is shown */
	barrier_var(last);
	if (last >= PT_CALLS_MAX)
		return 0;
	n = last + 1;
	size = PT_RUN_HEAD + n * sizeof(r->call[0]);
	r->hdr.size = (__u16)size;
	r->hdr.kind = PT_REC_CALLS;
	r->hdr.cpu = (__u16)bpf_get_smp_processor_id();
	r->hdr.ts = r->begin_ts + (r->call[last].after & ~PT_CALL_UNREAD);
	r->hdr.tid = task->pid;
	r->hdr.tgid = task->tgid;
	r->hdr.start = th->start;
	if (bpf_ringbuf_query(&pt_ring, BPF_RB_AVAIL_DATA) > pt_cfg.wake_bytes)
		flags = BPF_RB_FORCE_WAKEUP;
	/* Last: a switch in between would make a later one, which came before. */
	r->hdr.seq = __sync_fetch_and_add(&th->seq, n);
	if (bpf_ringbuf_output(&pt_ring, r, size, flags)) {
		__sync_fetch_and_add(&pt_loss[PT_LOSS_RING_FULL], n);
		miss_calls(r, n, task->tgid);
	}
	th->run.n = 0;
	return 0;
}

static __always_inline void pt_run_end(struct pt_thread *th, struct task_struct *task)
{
	if (!*(volatile __u32 *)&th->run.n || PT_TRY_LOCK(&th->run.in_use))
		return;
	pt_run_write(th, task);
	PT_UNLOCK(&th->run.in_use);
}

/* Of a call that began `now`. False: somebody just writes them; it is to go by itself. */
static __always_inline bool pt_run_add(struct pt_thread *th, struct task_struct *task,
				       __u64 now, __u32 id, __u64 stream, __u64 v, __u16 flags)
{
	struct pt_run *run = &th->run;
	struct pt_ring_call *c;
	__u64 after;
	__u32 n;

	if (PT_TRY_LOCK(&run->in_use))
		return false;
	n = run->n;
	after = now - run->rec.begin_ts;
	if (n && (n >= PT_CALLS_MAX || after > PT_RUN_MAX_NS)) {
		pt_run_write(th, task);
		n = 0;
	}
	if (!n) {
		run->rec.begin_ts = now;
		after = 0;
	}
	if (n < PT_CALLS_MAX) { /* the verifier asks again */
		c = &run->rec.call[n];
		c->stream = stream;
		c->v = v;
		c->after = (__u32)after | (flags ? PT_CALL_UNREAD : 0);
		c->id = id;
		run->n = n + 1;
	}
	PT_UNLOCK(&run->in_use);
	return true;
}

#endif
