// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Connections as they come and go. The tracepoint fires a few times in a
 * connection's life, whoever has it; the iterator runs when tracing begins and
 * when it ends.
 */
#include "sock.bpf.h"

/* A new socket at this address: what was known is another's, whose end was not
 * seen. */
static __always_inline void born(const struct sock *sk)
{
	__u64 key = (__u64)sk;

	if (bpf_map_lookup_elem(&pt_socks, &key))
		bpf_map_delete_elem(&pt_socks, &key);
}

/* connect(), in its caller's context. */
static __always_inline void connecting(const struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_sock s = {};
	__u64 key = (__u64)sk;
	struct pt_thread *th;

	th = pt_thread_of(task);
	if (th)
		s.inode = BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
	if (!s.inode) { /* another process', or the kernel's own */
		born(sk);
		return;
	}
	s.opened = bpf_ktime_get_ns();
	s.tid = task->pid;
	s.tgid = task->tgid;
	s.start = th->start;
	bpf_map_update_elem(&pt_socks, &key, &s, BPF_ANY);
}

/* listen(), likewise: what is connected to it from inside is no network. */
static __always_inline void listening(const struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_sock s = {};

	if (!pt_thread_of(task))
		return;
	s.inode = BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
	if (!s.inode)
		return;
	s.tid = task->pid;
	s.tgid = task->tgid;
	pt_sock_note(&s, sk, PT_TCP_LISTEN, bpf_ktime_get_ns());
}

/* The first program below runs on this CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} pt_sock_busy SEC(".maps");

static __always_inline int changed(const struct sock *sk, int from, int to)
{
	__u64 key = (__u64)sk, now;
	struct pt_sock *s;

	if (to == PT_TCP_SYN_SENT) {
		connecting(sk);
		return 0;
	}
	if (to == PT_TCP_SYN_RECV) {
		born(sk);
		return 0;
	}
	if (to == PT_TCP_LISTEN) {
		listening(sk);
		return 0;
	}
	if (from != PT_TCP_SYN_SENT && from != PT_TCP_ESTABLISHED &&
	    to != PT_TCP_CLOSE)
		return 0;
	s = bpf_map_lookup_elem(&pt_socks, &key);
	if (!s)
		return 0;
	now = bpf_ktime_get_ns();
	if (from == PT_TCP_SYN_SENT && to == PT_TCP_ESTABLISHED &&
	    now > s->opened) {
		s->connect_ns = now - s->opened;
		s->write_seq = BPF_CORE_READ((const struct tcp_sock *)sk,
					     write_seq);
	}
	pt_sock_note(s, sk, (__u32)to, now);
	if (to == PT_TCP_CLOSE)
		bpf_map_delete_elem(&pt_socks, &key);
	return 0;
}

/*
 * The kernel skips a program that an interrupt runs again on the same CPU while
 * it is running there. TCP's timers end whole crowds of connections in one such
 * interrupt, so a second program takes what the first had to skip.
 */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(pt_sock_state, const struct sock *sk, int from, int to)
{
	__u32 zero = 0, *busy;

	if (!pt_is_armed())
		return 0;
	busy = bpf_map_lookup_elem(&pt_sock_busy, &zero);
	if (!busy)
		return 0;
	*(volatile __u32 *)busy = 1;
	changed(sk, from, to);
	*(volatile __u32 *)busy = 0;
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(pt_sock_nested, const struct sock *sk, int from, int to)
{
	__u32 zero = 0, *busy;

	if (!pt_is_armed())
		return 0;
	busy = bpf_map_lookup_elem(&pt_sock_busy, &zero);
	if (busy && *(volatile __u32 *)busy)
		changed(sk, from, to);
	return 0;
}

SEC("iter/task_file")
int pt_iter_socks(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	const struct sock *sk;
	struct pt_sock *s, listener = {};
	struct inode *inode;
	__u32 tgid;
	__u64 now;

	if (!task || !file)
		return 0;
	tgid = task->tgid;
	if (!bpf_map_lookup_elem(&pt_targets, &tgid))
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	if (pt_mode_kind(BPF_CORE_READ(inode, i_mode)) != PT_OBJ_SOCK)
		return 0;
	sk = pt_file_sock((__u64)file);
	if (!sk)
		return 0;
	now = pt_pass_ts ? pt_pass_ts : bpf_ktime_get_ns();
	if (BPF_CORE_READ(sk, __sk_common.skc_state) == PT_TCP_LISTEN &&
	    pt_is_tcp(sk, BPF_CORE_READ(sk, __sk_common.skc_family))) {
		listener.inode = BPF_CORE_READ(inode, i_ino);
		listener.tid = task->pid;
		listener.tgid = tgid;
		pt_sock_note(&listener, sk, PT_TCP_LISTEN, now);
		return 0;
	}
	if (!BPF_CORE_READ(sk, __sk_common.skc_dport)) /* not connected */
		return 0;
	s = pt_sock_get(sk, BPF_CORE_READ(inode, i_ino), task);
	/* Once, though workers inherit their trainer's. */
	if (s && s->noted != now &&
	    (pt_pass != PT_PASS_SEED || !s->noted))
		pt_sock_note(s, sk, BPF_CORE_READ(sk, __sk_common.skc_state),
			     now);
	return 0;
}
