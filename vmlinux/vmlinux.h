/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel types that the BPF programs read, and of those only the fields
 * that they read. Kept by hand: libbpf relocates every access against the
 * running kernel's BTF by name (CO-RE), so offsets and the rest of each
 * structure do not matter here. Names and signedness do.
 *
 * Flavours (name___suffix) stand for other kernel versions; see
 * bpf/compat.bpf.h, the only file that uses them.
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u64 u64;
typedef __u32 u32;
typedef _Bool bool;
typedef int pid_t;
typedef long ssize_t;
typedef unsigned long size_t;
typedef long long loff_t;

enum {
	false = 0,
	true = 1,
};

/* The number is the kernel's: relocated. */
enum pageflags {
	PG_head = 6,
};

/* Helpers that came after 5.15: is there one? */
enum bpf_func_id {
	BPF_FUNC_loop = 181, /* optional */
};

/* Numbers of the bpf() interface (stable). */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#ifdef __TARGET_ARCH_arm64
#include "arm64.h"
#else
#include "x86.h"
#endif

typedef struct {
	int counter;
} atomic_t;

struct qstr {
	__u64 hash_len;
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct super_block *d_sb;
	union {
		unsigned char string[40];
	} d_shortname; /* optional: 6.14 */
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	struct address_space *i_mapping;
	unsigned long i_ino;
	loff_t i_size;
};

struct vfsmount {
	struct dentry *mnt_root;
	struct super_block *mnt_sb;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct fs_struct {
	struct path root;
};

struct file {
	unsigned int f_mode;
	struct inode *f_inode;
	struct path f_path;
	loff_t f_pos;
	void *private_data;
};

struct backing_file { /* optional: 6.5 */
	struct path user_path; /* optional: 6.8 */
};

struct ovl_file { /* optional: 6.13, where overlayfs is there */
	struct file *realfile;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__u32 skc_portpair;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned long skc_flags;
	struct in6_addr skc_v6_daddr; /* optional */
	struct in6_addr skc_v6_rcv_saddr; /* optional */
};

struct socket;

struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct sock_filter {
	__u16 code;
	__u8 jt;
	__u8 jf;
	__u32 k;
};

struct sock_fprog_kern {
	__u16 len;
	struct sock_filter *filter;
};

struct bpf_prog {
	struct sock_fprog_kern *orig_prog;
};

struct seccomp_filter {
	struct seccomp_filter *prev;
	struct bpf_prog *prog;
};

struct seccomp {
	struct seccomp_filter *filter;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	struct pid *sk_peer_pid;
	struct socket *sk_socket;
};

struct socket {
	struct file *file;
	struct sock *sk;
};

struct tcp_sock {
	__u32 write_seq;
	__u32 srtt_us;
	__u64 bytes_received;
	__u64 bytes_sent;
	__u32 total_retrans;
	__u32 rcv_ooopack;
};

struct sockaddr_un {
	char sun_path[108];
};

struct unix_address {
	int len;
	struct sockaddr_un name[0];
};

struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
};

struct list_head {
	struct list_head *next, *prev;
};

struct epoll_filefd {
	struct file *file;
};

struct epitem {
	struct list_head rdllink;
	struct epoll_filefd ffd;
};

struct eventpoll {
	struct list_head rdllist;
};

struct signal_struct {
	atomic_t live;
};

struct task_io_accounting {
	__u64 rchar;
	__u64 wchar;
	__u64 syscr;
	__u64 read_bytes;
	__u64 write_bytes;
};

struct rq;

struct cfs_rq {
	struct rq *rq; /* optional: CONFIG_FAIR_GROUP_SCHED */
};

struct sched_entity {
	__u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq; /* optional: CONFIG_FAIR_GROUP_SCHED */
};

struct task_struct {
#ifdef __TARGET_ARCH_arm64
	struct thread_info thread_info;
#endif
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	struct sched_entity se;
	int exit_state;
	int exit_code;
	unsigned in_iowait : 1;
	unsigned in_memstall : 1; /* optional: where the kernel has CONFIG_PSI */
	pid_t pid;
	pid_t tgid;
	struct task_struct *real_parent;
	__u64 start_time;
	unsigned long min_flt;
	unsigned long maj_flt;
	char comm[16];
	struct fs_struct *fs;
	struct files_struct *files;
	struct mm_struct *mm;
	struct signal_struct *signal;
	struct pid *thread_pid;
	struct seccomp seccomp;
	struct task_io_accounting ioac;
	struct bpf_local_storage *bpf_storage;
#ifndef __TARGET_ARCH_arm64
	struct thread_struct thread;
#endif
};

struct rb_node {
	struct rb_node *rb_right;
	struct rb_node *rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct rb_root_cached {
	struct rb_root rb_root;
};

struct address_space {
	struct inode *host;
	struct rb_root_cached i_mmap;
};

struct mm_struct;

struct vm_area_struct {
	struct mm_struct *vm_mm;
	unsigned long vm_flags;
	struct file *vm_file;
	struct {
		struct rb_node rb;
	} shared;
};

struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
};

struct folio {
	struct address_space *mapping;
	unsigned long index;
	unsigned char _folio_order; /* optional: up to 6.5 */
	unsigned long _flags_1; /* optional: 5.18 */
};

struct kiocb {
	struct file *ki_filp;
};

struct iocb {
	__u16 aio_lio_opcode;
	__u64 aio_nbytes;
	__s64 aio_offset;
};

struct page {
	struct address_space *mapping;
};

struct bio_vec {
	struct page *bv_page;
};

struct bio {
	struct bio_vec *bi_io_vec;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	struct bio *bio;
};

struct io_cqe {
	__s32 res;
};

struct io_kiocb {
	struct file *file;
	__u8 opcode;
	struct io_cqe cqe;
};

struct task_struct___pre514 {
	volatile long state;
};

struct seq_file;
struct linux_binprm;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

#pragma clang attribute pop

/* In the kernel since 4.x, the layout is the user ABI. */
struct pollfd {
	int fd;
	short events;
	short revents;
};

#endif /* __VMLINUX_H__ */
