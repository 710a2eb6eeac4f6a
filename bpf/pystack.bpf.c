// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * In which stack of Python is a thread that runs? A clock of each core asks, in the thread's
 * own context: what it does stands still meanwhile, so that its stack is never torn. What
 * is read is the process' memory and may be anything: each address is only ever read from,
 * as the process itself could, and chains are bounded. A page that is not in memory
 * cannot be fetched here; such a sample is dropped and counted, not told in part.
 */
#include "emit.bpf.h"

/* By process id. Filled from user space, and only looked up here. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PT_PY_SAMPLED);
	__type(key, __u32);
	__type(value, struct pt_py_where);
} pt_py_processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, PT_PY_RING_BYTES);
} pt_py_ring SEC(".maps");

/* One of each core, and no sample comes into another. */
struct scratch {
	__u64 raw[PT_PY_RAW / 8]; /* of a frame */
	struct pt_py_sample s;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} pt_py_scratch SEC(".maps");

#define OWNED_BY_C 3 /* the frame between C and Python, which has no code of its own */

static __always_inline bool read_word(__u64 at, __u64 *out)
{
	return at && !bpf_probe_read_user(out, sizeof(*out), (void *)at);
}

/* By what its interpreter knows the current thread. */
static __always_inline __u64 own_id(struct task_struct *t, const struct pt_py_where *p)
{
	__u32 size = bpf_core_type_size(struct upid), nr = 0, at;
	struct pid *pid;

	if (!p->native) {
#ifdef __TARGET_ARCH_arm64
		return 0; /* there it is not what the register points to */
#else
		return BPF_CORE_READ(t, thread.fsbase);
#endif
	}
	if (!p->apart)
		return (__u32)t->pid;
	pid = BPF_CORE_READ(t, thread_pid);
	at = bpf_core_field_offset(struct pid, numbers) +
	     bpf_core_field_offset(struct upid, nr) + BPF_CORE_READ(pid, level) * size;
	bpf_probe_read_kernel(&nr, sizeof(nr), (char *)pid + at);
	return nr;
}

#define UNREAD 1 /* no address: something is not in memory, or nowhere */

/* Looking for a thread among an interpreter's. */
struct search {
	const struct pt_py_where *p;
	__u64 at, id;
	__u64 found;
};

static long next_state(__u32 i, struct search *s)
{
	__u64 has = 0;

	if (!read_word(s->at + s->p->id, &has)) {
		s->found = UNREAD;
		return 1;
	}
	if (has == s->id) {
		s->found = s->at;
		return 1;
	}
	return !read_word(s->at + s->p->next, &s->at) || !s->at;
}

/* Its PyThreadState; 0: it has none. Kept with the thread, and asked each time whether it
 * is still this thread's. */
static __always_inline __u64 own_state(struct pt_thread *th, const struct pt_py_where *p,
				       __u64 id)
{
	struct search s = { .p = p, .id = id };
	__u64 at = th->py_state, has = 0;

	if (at && read_word(at + p->id, &has) && has == id)
		return at;
	th->py_state = 0;
	if (th->py_away) {
		th->py_away--;
		return 0;
	}
	if (!id)
		return 0;
	if (!read_word(p->runtime + p->interpreters, &s.at) || !read_word(s.at + p->threads, &s.at))
		return UNREAD;
	PT_LOOP(PT_PY_STATES, PT_PY_STATES_FEW, next_state, &s);
	if (!s.found)
		th->py_away = PT_PY_AWAY;
	else if (s.found != UNREAD)
		th->py_state = s.found;
	return s.found;
}

struct walk {
	struct scratch *s;
	const struct pt_py_where *p;
	__u64 frame;
	__u64 unread;
};

static long next_frame(__u32 i, struct walk *w)
{
	const struct pt_py_where *p = w->p;
	struct scratch *s = w->s;
	__u32 size = p->size, n = s->s.n, owner;

	if (n >= PT_PY_FRAMES)
		return 1;
	if (size > PT_PY_RAW || bpf_probe_read_user(s->raw, size, (void *)w->frame)) {
		w->unread = 1;
		return 1;
	}
	owner = p->owner;
	if (owner >= PT_PY_RAW ||
	    (__u8)(s->raw[owner / 8 & (PT_PY_RAW / 8 - 1)] >> (owner % 8 * 8)) != OWNED_BY_C) {
		s->s.at[n].code = s->raw[p->code / 8 & (PT_PY_RAW / 8 - 1)];
		s->s.at[n].instr = s->raw[p->instr / 8 & (PT_PY_RAW / 8 - 1)];
		s->s.n = n + 1;
	}
	w->frame = s->raw[p->previous / 8 & (PT_PY_RAW / 8 - 1)];
	return !w->frame;
}

/* Where it left for the kernel, by a call or by the clock. */
static __always_inline __u64 user_ip(struct task_struct *t)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(t);

	return regs ? PT_REGS_IP_CORE(regs) : 0;
}

#define COUNT(what, by) __sync_fetch_and_add(&pt_py_counts.what, by)

static __always_inline void sample(struct task_struct *t, struct pt_thread *th,
				   const struct pt_py_where *p, struct scratch *s)
{
	__u64 state = own_state(th, p, own_id(t, p)), frame = 0;
	struct walk w = { .s = s, .p = p };
	__u32 n;

	if (state && (state == UNREAD || !read_word(state + p->frame, &frame))) {
		COUNT(unread, 1);
		return;
	}
	if (frame && p->cframe < PT_PY_NOWHERE && !read_word(frame + p->cframe, &frame)) {
		COUNT(unread, 1);
		return;
	}
	if (!frame) {
		COUNT(no_stack, 1);
		return;
	}
	w.frame = frame;
	s->s.n = 0;
	PT_LOOP(PT_PY_CHAIN, PT_PY_CHAIN_FEW, next_frame, &w);
	if (w.unread) {
		COUNT(unread, 1);
		return;
	}
	s->s.tid = (__u32)t->pid;
	s->s.tgid = (__u32)t->tgid;
	s->s.ip = user_ip(t);
	n = s->s.n;
	if (!n || n > PT_PY_FRAMES)
		return;
	if (bpf_ringbuf_output(&pt_py_ring, &s->s, 32 + n * sizeof(s->s.at[0]), BPF_RB_NO_WAKEUP))
		COUNT(full, 1);
	else
		COUNT(samples, 1);
}

SEC("perf_event")
int pt_py_clock(void *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct pt_thread *th = pt_hot_thread_of(t);
	struct pt_py_where *p;
	struct scratch *s;
	__u32 tgid, key = 0;
	__u64 ts;

	if (!th || !pt_is_armed() || pt_saves(PT_SAVE_LINES))
		return 0;
	ts = bpf_ktime_get_ns();
	tgid = (__u32)t->tgid;
	p = bpf_map_lookup_elem(&pt_py_processes, &tgid);
	s = p ? bpf_map_lookup_elem(&pt_py_scratch, &key) : NULL;
	if (!s)
		return 0;
	s->s.ts = ts;
	sample(t, th, p, s);
	COUNT(tried, 1);
	COUNT(ns, bpf_ktime_get_ns() - ts + pt_py_tick);
	return 0;
}
