/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sockets that the target's threads wait on: their two ends and what came in.
 *
 * A wait's length is the scheduler's business. Here is what tells one kind of
 * wait from another: whether the socket had been written to and had not
 * answered yet when the wait began (a request under way: latency), or bytes
 * were coming in already (bandwidth). TCP's own counters tell that at the
 * switch, so that no system call needs a hook.
 */
#ifndef PT_SOCK_BPF_H
#define PT_SOCK_BPF_H

#include "object.bpf.h"

#define PT_AF_VSOCK 40
#define PT_IPPROTO_TCP 6
#define PT_TCP_ESTABLISHED 1
#define PT_TCP_SYN_SENT 2
#define PT_TCP_SYN_RECV 3
#define PT_TCP_CLOSE 7
#define PT_TCP_LISTEN 10
#define PT_SOCK_DONE 0x2 /* skc_flags: the other end's FIN has come */
#define PT_SOCK_NOTE_NS 1000000000 /* a socket that is waited on, so often */

#define PT_NR_RECVFROM 45
#define PT_NR_RECVMSG 47
#define PT_NR_EPOLL_WAIT 232
#define PT_NR_EPOLL_PWAIT 281
#define PT_NR_RECVMMSG 299
#define PT_NR_EPOLL_PWAIT2 441

/* A socket of the target, by the address of its struct sock. */
struct pt_sock {
	__u64 inode;
	__u64 opened, connect_ns; /* as in pt_rec_sock */
	__u64 noted;		  /* time of its last record */
	__u64 received;		  /* when `pending` was set */
	__u32 write_seq;	  /* at the last wait */
	__u32 pending;		  /* written to, and no answer since */
	__u32 tid, tgid, start;	  /* who was seen with it first */
	__u32 port;		  /* local; given back before the last record */
	__u32 ports;		  /* both, as pt_sock_ports() has them; 0 unknown */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PT_MAX_SOCKS);
	__type(key, __u64);
	__type(value, struct pt_sock);
} pt_socks __weak SEC(".maps");

static __always_inline bool pt_nr_epoll(__s32 nr)
{
	return nr == PT_NR_EPOLL_WAIT || nr == PT_NR_EPOLL_PWAIT ||
	       nr == PT_NR_EPOLL_PWAIT2;
}

/* Calls that wait for something to come in. */
static __always_inline bool pt_nr_receives(__s32 nr)
{
	return nr == PT_NR_READ || nr == PT_NR_READV || nr == PT_NR_RECVFROM ||
	       nr == PT_NR_RECVMSG || nr == PT_NR_RECVMMSG ||
	       nr == PT_NR_POLL || nr == PT_NR_PPOLL || nr == PT_NR_SELECT ||
	       nr == PT_NR_PSELECT6 || pt_nr_epoll(nr);
}

static __always_inline struct sock *pt_file_sock(__u64 file)
{
	struct socket *socket = BPF_CORE_READ((struct file *)file, private_data);

	return socket ? BPF_CORE_READ(socket, sk) : NULL;
}

static __always_inline bool pt_is_tcp(const struct sock *sk, __u16 family)
{
	return (family == PT_AF_INET || family == PT_AF_INET6) &&
	       BPF_CORE_READ(sk, sk_protocol) == PT_IPPROTO_TCP;
}

/* Payload bytes that came in; a FIN is counted there as one. */
static __always_inline __u64 pt_tcp_received(const struct sock *sk)
{
	__u64 n = BPF_CORE_READ((const struct tcp_sock *)sk, bytes_received);
	unsigned long flags = BPF_CORE_READ(sk, __sk_common.skc_flags);

	return n && flags & PT_SOCK_DONE ? n - 1 : n;
}

/* A Unix socket's other end is a process of the target. One that listens has none: there it is who
 * called listen(). */
static __always_inline bool pt_unix_inside(const struct sock *sk)
{
	__u32 tgid = BPF_CORE_READ(sk, sk_peer_pid, numbers[0].nr);
	struct pt_target *v;

	if (BPF_CORE_READ(sk, __sk_common.skc_state) == PT_TCP_LISTEN)
		return false;
	v = tgid ? bpf_map_lookup_elem(&pt_targets, &tgid) : NULL;
	return v && !v->outside;
}

static __always_inline void pt_unix_name(struct pt_rec_sock *r,
					 const struct sock *sk)
{
	const struct unix_sock *u = (const struct unix_sock *)sk;
	struct unix_address *a;
	const struct sock *peer;
	__u32 len;

	if (!bpf_core_type_exists(struct unix_sock))
		return;
	peer = BPF_CORE_READ(u, peer);
	a = peer ? BPF_CORE_READ((const struct unix_sock *)peer, addr) : NULL;
	if (!a) {
		a = BPF_CORE_READ(u, addr);
		/* accept() gives the listener's name; and without another end it takes
		 * datagrams from whoever sends some */
		if (a)
			r->hdr.flags |= PT_F_ACCEPTED;
	}
	if (!a)
		return;
	/* Behind its end lies other memory of the kernel. */
	len = BPF_CORE_READ(a, len) - sizeof(__u16);
	if ((__s32)len <= 0)
		return;
	if (len > sizeof(r->path))
		len = sizeof(r->path);
	bpf_probe_read_kernel(r->path, len, &a->name[0].sun_path);
}

static __always_inline void pt_sock_ends(struct pt_rec_sock *r,
					 const struct sock *sk)
{
	__u16 port = BPF_CORE_READ(sk, __sk_common.skc_dport);

	r->remote_port = __builtin_bswap16(port);
	if (r->family == PT_AF_INET) {
		bpf_core_read(r->remote, 4, &sk->__sk_common.skc_daddr);
		bpf_core_read(r->local, 4, &sk->__sk_common.skc_rcv_saddr);
	} else if (bpf_core_field_exists(sk->__sk_common.skc_v6_daddr)) {
		bpf_core_read(r->remote, 16, &sk->__sk_common.skc_v6_daddr);
		bpf_core_read(r->local, 16, &sk->__sk_common.skc_v6_rcv_saddr);
	}
}

/* Write what is known of a socket. `state`: it is about to have that one. */
static __noinline int pt_sock_note(struct pt_sock *s, const struct sock *sk,
				   __u32 state, __u64 now)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct pt_rec_sock *r;
	__u16 port;

	if (!s)
		return 0;
	r = pt_rec_apart(struct pt_rec_sock, PT_REC_SOCK, now, s->tid, s->tgid);
	if (!r)
		return 0;
	r->hdr.start = s->start;
	if (!s->opened)
		r->hdr.flags |= PT_F_SINCE_UNKNOWN;
	r->inode = s->inode;
	r->opened = s->opened;
	r->connect_ns = s->connect_ns;
	r->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	r->protocol = BPF_CORE_READ(sk, sk_protocol);
	r->state = state;
	r->received = r->sent = PT_SOCK_UNKNOWN;
	if (r->family == PT_AF_UNIX)
		pt_unix_name(r, sk);
	else if (r->family != PT_AF_VSOCK)
		pt_sock_ends(r, sk);
	port = BPF_CORE_READ(sk, __sk_common.skc_num);
	if (port)
		s->port = port;
	r->local_port = s->port;
	if (pt_is_tcp(sk, r->family)) {
		r->received = pt_tcp_received(sk);
		r->sent = BPF_CORE_READ(tp, bytes_sent);
		r->srtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
		r->retransmits = BPF_CORE_READ(tp, total_retrans);
		if (bpf_core_field_exists(tp->rcv_ooopack))
			r->out_of_order = BPF_CORE_READ(tp, rcv_ooopack);
	}
	s->noted = now;
	pt_rec_submit(r);
	return 0;
}

/* The entry of a connected socket of the target, or of a Unix one that listens, made when new; NULL:
 * not one to follow. */
static __always_inline struct pt_sock *pt_sock_get(const struct sock *sk,
						   __u64 inode,
						   struct task_struct *t)
{
	__u64 key = (__u64)sk;
	struct pt_sock *s = bpf_map_lookup_elem(&pt_socks, &key);
	struct pt_sock new = {};
	__u16 family, state;

	if (s && s->inode == inode)
		return s;
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	state = BPF_CORE_READ(sk, __sk_common.skc_state);
	if (family == PT_AF_UNIX ? pt_unix_inside(sk) :
	    family != PT_AF_INET && family != PT_AF_INET6 &&
		    family != PT_AF_VSOCK)
		return NULL;
	/* a poll for many sockets is one for the first of them, which may be what clients connect to */
	if (state == PT_TCP_LISTEN && family != PT_AF_UNIX)
		return NULL;
	new.inode = inode;
	new.tid = t->pid;
	new.tgid = t->tgid;
	new.start = (__u32)(t->start_time / 1000);
	if (pt_is_tcp(sk, family))
		new.write_seq = BPF_CORE_READ((const struct tcp_sock *)sk,
					      write_seq);
	if (bpf_map_update_elem(&pt_socks, &key, &new, BPF_ANY))
		return NULL;
	return bpf_map_lookup_elem(&pt_socks, &key);
}

/*
 * Thread `t` waits on a socket (`over`: has just waited, found when it ended).
 * PT_F_AWAITED and PT_F_AGAIN, where they hold; PT_F_INSIDE. In the upper half
 * the socket's ports, where it has any.
 */
static __noinline __attribute__((unused)) __u64
pt_sock_wait(struct task_struct *t, __u64 file, __u64 inode, __s32 nr,
	     bool over)
{
	const struct sock *sk;
	struct pt_sock *s;
	__u32 seq, flags = 0;
	__u64 now, received, ports;

	if (!t)
		return 0;
	sk = pt_file_sock(file);
	if (!sk)
		return 0;
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == PT_AF_UNIX &&
	    pt_unix_inside(sk))
		return PT_F_INSIDE;
	s = pt_sock_get(sk, inode, t);
	if (!s)
		return 0;
	now = bpf_ktime_get_ns();
	if (now - s->noted > PT_SOCK_NOTE_NS)
		pt_sock_note(s, sk, BPF_CORE_READ(sk, __sk_common.skc_state),
			     now);
	/* connect() begins before the socket has a port of its own */
	if (!(s->ports >> 16))
		s->ports = pt_sock_ports(sk);
	ports = (__u64)s->ports << 32;
	if (!pt_is_tcp(sk, BPF_CORE_READ(sk, __sk_common.skc_family)))
		return ports;
	seq = BPF_CORE_READ((const struct tcp_sock *)sk, write_seq);
	received = pt_tcp_received(sk);
	if (seq != s->write_seq) {
		s->write_seq = seq;
		s->pending = 1;
		s->received = received;
	} else if (s->pending && (over || received != s->received)) {
		s->pending = 0;
	} else if (s->pending) {
		flags = PT_F_AGAIN;
	}
	if (!s->pending || !pt_nr_receives(nr))
		return ports;
	if (over)
		s->pending = 0;
	return ports | flags | PT_F_AWAITED;
}

/* The struct eventpoll of an epoll's file. */
static __always_inline __u64 pt_file_epoll(__u64 file)
{
	return (__u64)BPF_CORE_READ((struct file *)file, private_data);
}

/* The file that is first in an epoll's list of ready ones; 0 none. */
static __always_inline __u64 pt_epoll_ready(__u64 epoll)
{
	struct eventpoll *ep = (struct eventpoll *)epoll;
	__u64 list = epoll + bpf_core_field_offset(struct eventpoll, rdllist);
	__u64 first = (__u64)BPF_CORE_READ(ep, rdllist.next);
	struct epitem *item;

	if (!first || first == list)
		return 0;
	item = (struct epitem *)(first -
				 bpf_core_field_offset(struct epitem, rdllink));
	return (__u64)BPF_CORE_READ(item, ffd.file);
}

#endif
