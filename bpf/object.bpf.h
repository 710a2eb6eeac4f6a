/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a system call works on: inode, socket, futex. */
#ifndef PT_OBJECT_BPF_H
#define PT_OBJECT_BPF_H

#include "emit.bpf.h"

struct pt_object {
	__u64 id;   /* inode or futex address */
	__u64 file; /* address of the struct file; 0 none */
	__u32 dev;
	__u16 kind;   /* PT_OBJ_* */
	__u16 failed; /* PT_F_READ_FAILED or 0 */
};

#define PT_NR_READ 0
#define PT_NR_WRITE 1
#define PT_NR_POLL 7
#define PT_NR_SELECT 23
#define PT_NR_PSELECT6 270
#define PT_NR_PWRITE64 18
#define PT_NR_WRITEV 20
#define PT_NR_FSYNC 74
#define PT_NR_FDATASYNC 75
#define PT_NR_PWRITEV 296
#define PT_NR_PWRITEV2 328
#define PT_NR_PREAD64 17
#define PT_NR_READV 19
#define PT_NR_SENDFILE 40
#define PT_NR_FUTEX 202
#define PT_NR_PPOLL 271
#define PT_NR_SPLICE 275
#define PT_NR_PREADV 295
#define PT_NR_COPY_RANGE 326
#define PT_NR_PREADV2 327
#define PT_NR_SEMOP 65
#define PT_NR_SEMCTL 66
#define PT_NR_MSGSND 69
#define PT_NR_MSGRCV 70
#define PT_NR_MSGCTL 71
#define PT_NR_SEMTIMEDOP 220
#define PT_NR_MQ_SEND 242
#define PT_NR_MQ_RECEIVE 243

/* Calls that read what a descriptor stands for. */
static __always_inline bool pt_nr_reads(long nr)
{
	return nr == PT_NR_READ || nr == PT_NR_PREAD64 || nr == PT_NR_READV ||
	       nr == PT_NR_PREADV || nr == PT_NR_PREADV2 ||
	       nr == PT_NR_SENDFILE || nr == PT_NR_SPLICE ||
	       nr == PT_NR_COPY_RANGE;
}

#define BIT64(n) (1ULL << ((n) & 63))

/* Calls whose first argument is the descriptor they work on. close is
 * not one: its descriptor is gone before anyone is woken. */
static const __u64 pt_fd_calls[8] = {
	/* read write fstat lseek ioctl pread64 pwrite64 readv writev sendfile
	 * connect accept sendto recvfrom sendmsg recvmsg shutdown */
	BIT64(0) | BIT64(1) | BIT64(5) | BIT64(8) | BIT64(16) | BIT64(17) |
		BIT64(18) | BIT64(19) | BIT64(20) | BIT64(40) | BIT64(42) |
		BIT64(43) | BIT64(44) | BIT64(45) | BIT64(46) | BIT64(47) |
		BIT64(48),
	/* fcntl flock fsync fdatasync ftruncate getdents */
	BIT64(72) | BIT64(73) | BIT64(74) | BIT64(75) | BIT64(77) | BIT64(78),
	/* readahead (187) */
	BIT64(187),
	/* getdents64 fadvise64 epoll_wait mq_timedsend mq_timedreceive */
	BIT64(217) | BIT64(221) | BIT64(232) | BIT64(242) | BIT64(243),
	/* splice tee sync_file_range vmsplice epoll_pwait fallocate accept4
	 * preadv pwritev recvmmsg syncfs sendmmsg */
	BIT64(275) | BIT64(276) | BIT64(277) | BIT64(278) | BIT64(281) |
		BIT64(285) | BIT64(288) | BIT64(295) | BIT64(296) |
		BIT64(299) | BIT64(306) | BIT64(307),
	/* copy_file_range preadv2 pwritev2 */
	BIT64(326) | BIT64(327) | BIT64(328),
	/* io_uring_enter epoll_pwait2 */
	BIT64(426) | BIT64(441),
	0,
};

static __always_inline bool pt_fd_first(__s32 nr)
{
	__u32 n = (__u32)nr;

	return n < 512 && (pt_fd_calls[(n >> 6) & 7] & BIT64(n));
}

#define PT_ANON_INODE_MAGIC 0x09041934

#define PT_ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define PT_SIP_ROUND(a, b, c, d)                                               \
	do {                                                                   \
		a += b, b = PT_ROTL(b, 13) ^ a, a = PT_ROTL(a, 32);            \
		c += d, d = PT_ROTL(d, 16) ^ c;                                \
		a += d, d = PT_ROTL(d, 21) ^ a;                                \
		c += b, b = PT_ROTL(b, 17) ^ c, c = PT_ROTL(c, 32);            \
	} while (0)

/* A number in place of a kernel address: SipHash-1-3 of that one word, keyed for
 * this session. 48 bits, which every reader of JSON takes for a whole number. */
static __noinline __attribute__((unused)) __u64 pt_hide(__u64 address)
{
	__u64 a = pt_cfg.secret[0] ^ 0x736f6d6570736575ULL;
	__u64 b = pt_cfg.secret[1] ^ 0x646f72616e646f6dULL;
	__u64 c = pt_cfg.secret[0] ^ 0x6c7967656e657261ULL;
	__u64 d = pt_cfg.secret[1] ^ 0x7465646279746573ULL ^ address;

	PT_SIP_ROUND(a, b, c, d);
	a ^= address;
	c ^= 0xff;
	PT_SIP_ROUND(a, b, c, d);
	PT_SIP_ROUND(a, b, c, d);
	PT_SIP_ROUND(a, b, c, d);
	return (a ^ b ^ c ^ d) >> 16;
}

static __always_inline __u16 pt_mode_kind(__u16 mode)
{
	switch (mode & 0170000) {
	case 0100000:
		return PT_OBJ_FILE;
	case 0010000:
		return PT_OBJ_PIPE;
	case 0140000:
		return PT_OBJ_SOCK;
	case 0020000:
		return PT_OBJ_CHR;
	case 0040000:
		return PT_OBJ_DIR;
	}
	return PT_OBJ_OTHER;
}

/* An overlay's file is known by the one that has its data: page faults and
 * the page cache know no other. The name stays the overlay's. */
static __always_inline void pt_any_object(__u64 file, struct pt_object *o,
					  bool waited)
{
	struct super_block *sb;
	struct inode *inode;
	__u64 below, magic;

	o->file = file;
	inode = BPF_CORE_READ((struct file *)file, f_inode);
	if (!inode) {
		o->failed = PT_F_READ_FAILED;
		return;
	}
	o->kind = pt_mode_kind(BPF_CORE_READ(inode, i_mode));
	/* Their numbers are their own, whatever device they are said to be of:
	 * each read is a call, and most waits are for one of these. */
	if (waited && (o->kind == PT_OBJ_PIPE || o->kind == PT_OBJ_SOCK)) {
		o->id = BPF_CORE_READ(inode, i_ino);
		return;
	}
	sb = BPF_CORE_READ(inode, i_sb);
	magic = o->kind == PT_OBJ_FILE ? BPF_CORE_READ(sb, s_magic) : 0;
	/* Epolls, eventfds, ... share one inode, which has no type, and inside
	 * the kernel is a regular file since 6.16. */
	if (magic == PT_ANON_INODE_MAGIC)
		o->kind = PT_OBJ_OTHER;
	if (waited && o->kind == PT_OBJ_OTHER) {
		o->kind = PT_OBJ_ANON;
		o->id = pt_hide(file);
		return;
	}
	if (magic == PT_OVERLAYFS) {
		below = pt_overlay_inode(file);
		if (below) {
			inode = (struct inode *)below;
			sb = BPF_CORE_READ(inode, i_sb);
		}
	}
	o->id = BPF_CORE_READ(inode, i_ino);
	o->dev = BPF_CORE_READ(sb, s_dev);
}

/* What is read, and what is waited for: a FIFO that is read is a file of its file
 * system, and of those that share an inode only a wait asks which it is. The programs for reads so call no function of their own, which
 * those on functions of the kernel may not on 6.1. */
static __always_inline void pt_file_object(__u64 file, struct pt_object *o)
{
	pt_any_object(file, o, false);
}

static __always_inline void pt_wait_object(__u64 file, struct pt_object *o)
{
	pt_any_object(file, o, true);
}

/* By BTF's type of the argument of a tracing program: plain loads, where every
 * step of pt_file_object is a call. */
static __always_inline void pt_typed_object(struct file *file, struct pt_object *o)
{
	struct inode *inode = file->f_inode;
	struct super_block *sb = inode->i_sb;

	o->kind = pt_mode_kind(inode->i_mode);
	if (sb->s_magic == PT_ANON_INODE_MAGIC)
		o->kind = PT_OBJ_OTHER;
	if (sb->s_magic == PT_OVERLAYFS && o->kind == PT_OBJ_FILE) {
		pt_file_object((__u64)file, o);
		return;
	}
	o->file = (__u64)file;
	o->id = inode->i_ino;
	o->dev = sb->s_dev;
}

#define PT_AF_UNIX 1
#define PT_AF_INET 2
#define PT_AF_INET6 10

/* The other end's and the own port, as the kernel keeps them in one word. */
static __always_inline __u32 pt_sock_ports(const struct sock *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_portpair);
}

/* A Unix socket's other end, where that has a descriptor; an internet socket's
 * ports into *ports. */
static __always_inline void pt_sock_peer(struct pt_object *o, __u32 *ports)
{
	struct file *file = (struct file *)o->file;
	struct socket *socket;
	struct sock *sk;
	__u16 family;
	__u64 id;

	socket = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(socket, sk);
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family == PT_AF_INET || family == PT_AF_INET6)
		*ports = pt_sock_ports(sk);
	if (family != PT_AF_UNIX || !bpf_core_type_exists(struct unix_sock))
		return;
	id = BPF_CORE_READ((struct unix_sock *)sk, peer, sk_socket, file,
			   f_inode, i_ino);
	if (id)
		o->id = id;
}

static __always_inline void pt_fd_object(struct task_struct *t, __u64 fd,
					 struct pt_object *o)
{
	__u64 file = pt_fd_file(t, fd);

	if (file)
		pt_wait_object(file, o);
	else
		o->failed = PT_F_READ_FAILED;
}

static __always_inline void pt_sysv_object(__s32 nr, const __u64 arg[3],
					   struct pt_object *o)
{
	if (nr == PT_NR_MSGSND || nr == PT_NR_MSGRCV || nr == PT_NR_MSGCTL)
		o->kind = PT_OBJ_MSGQ;
	else if (nr == PT_NR_SEMOP || nr == PT_NR_SEMCTL ||
		 nr == PT_NR_SEMTIMEDOP)
		o->kind = PT_OBJ_SEM;
	else
		return;
	o->id = (__u32)arg[0];
}

/* The number of the lowest bit that is set: clang 14 has no instruction for it. */
static __always_inline __u32 pt_lowest_bit(__u64 word)
{
	__u64 low = word & (~word + 1);

	return !!(low & 0xffffffff00000000ULL) << 5 | !!(low & 0xffff0000ffff0000ULL) << 4 |
	       !!(low & 0xff00ff00ff00ff00ULL) << 3 | !!(low & 0xf0f0f0f0f0f0f0f0ULL) << 2 |
	       !!(low & 0xccccccccccccccccULL) << 1 | !!(low & 0xaaaaaaaaaaaaaaaaULL);
}

#define PT_SELECT_WORDS 4 /* descriptors up to 255 */

/* The lowest descriptor that a select() of the current task waits to read, else to write;
 * -1: none, a higher one, or its memory is not there. */
static __always_inline __s32 pt_select_first(const __u64 arg[3])
{
	__u64 set = arg[1] ? arg[1] : arg[2], word = 0;
	__u32 i;

	for (i = 0; i < PT_SELECT_WORDS && set && i * 64 < (__u32)arg[0]; i++) {
		/* May not fault pages in here: then it just fails. */
		if (bpf_probe_read_user(&word, sizeof(word), (void *)(set + 8 * i)))
			return -1;
		if (word)
			return (__s32)(i * 64 + pt_lowest_bit(word));
	}
	return -1;
}

/*
 * The object of a call of task t. `own`: t is current, so that its memory
 * can be read (true at its switch-out too, for the old mm is still loaded).
 */
static __always_inline void pt_call_object(struct task_struct *t, __s32 nr,
					   const __u64 arg[3], bool own,
					   struct pt_object *o)
{
	__u64 fd = arg[0];

	if (nr == PT_NR_FUTEX) {
		o->kind = PT_OBJ_FUTEX;
		o->id = arg[0];
		return;
	}
	if (nr == PT_NR_POLL || nr == PT_NR_PPOLL) {
		struct pollfd pfd = {};

		if (!arg[1]) /* no descriptors: a sleep */
			return;
		/* May not fault pages in here: then it just fails. */
		if (!own || bpf_probe_read_user(&pfd, sizeof(pfd),
						(void *)arg[0])) {
			o->failed = PT_F_READ_FAILED;
			return;
		}
		if (pfd.fd < 0)
			return;
		fd = pfd.fd;
	} else if (nr == PT_NR_SELECT || nr == PT_NR_PSELECT6) {
		__s32 first = own ? pt_select_first(arg) : -1;

		if (first < 0)
			return;
		fd = first;
	} else if (!pt_fd_first(nr)) {
		pt_sysv_object(nr, arg, o);
		return;
	}
	pt_fd_object(t, fd, o);
	/* a POSIX queue's descriptor is a file of its own file system */
	if (nr == PT_NR_MQ_SEND || nr == PT_NR_MQ_RECEIVE)
		o->kind = PT_OBJ_MSGQ;
}

#endif
