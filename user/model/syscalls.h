/* SPDX-License-Identifier: BSD-2-Clause */
/* x86-64 system call numbers that the model classifies by (the kernel's
 * arch/x86/entry/syscalls/syscall_64.tbl). Records have these whatever the
 * processor was (bpf/arch.bpf.h). */
#ifndef PT_SYSCALLS_H
#define PT_SYSCALLS_H

enum {
	PT_NR_read = 0, PT_NR_write = 1, PT_NR_open = 2, PT_NR_close = 3,
	PT_NR_stat = 4, PT_NR_fstat = 5, PT_NR_lstat = 6, PT_NR_poll = 7,
	PT_NR_lseek = 8, PT_NR_mmap = 9, PT_NR_mprotect = 10,
	PT_NR_munmap = 11, PT_NR_brk = 12, PT_NR_ioctl = 16,
	PT_NR_pread64 = 17, PT_NR_pwrite64 = 18, PT_NR_readv = 19,
	PT_NR_writev = 20, PT_NR_access = 21, PT_NR_select = 23,
	PT_NR_sched_yield = 24, PT_NR_mremap = 25, PT_NR_msync = 26,
	PT_NR_madvise = 28,
	PT_NR_dup2 = 33, PT_NR_pause = 34, PT_NR_nanosleep = 35,
	PT_NR_sendfile = 40, PT_NR_connect = 42, PT_NR_accept = 43,
	PT_NR_sendto = 44, PT_NR_recvfrom = 45, PT_NR_sendmsg = 46,
	PT_NR_recvmsg = 47, PT_NR_shutdown = 48, PT_NR_clone = 56,
	PT_NR_fork = 57, PT_NR_vfork = 58, PT_NR_execve = 59, PT_NR_exit = 60,
	PT_NR_wait4 = 61, PT_NR_kill = 62, PT_NR_semop = 65, PT_NR_semctl = 66,
	PT_NR_msgsnd = 69, PT_NR_msgrcv = 70, PT_NR_msgctl = 71,
	PT_NR_fcntl = 72, PT_NR_flock = 73, PT_NR_fsync = 74,
	PT_NR_fdatasync = 75, PT_NR_truncate = 76, PT_NR_ftruncate = 77,
	PT_NR_getdents = 78, PT_NR_rename = 82, PT_NR_mkdir = 83,
	PT_NR_rmdir = 84, PT_NR_creat = 85, PT_NR_link = 86, PT_NR_unlink = 87,
	PT_NR_symlink = 88, PT_NR_readlink = 89, PT_NR_rt_sigtimedwait = 128,
	PT_NR_rt_sigqueueinfo = 129, PT_NR_rt_sigsuspend = 130,
	PT_NR_sync = 162, PT_NR_tkill = 200, PT_NR_futex = 202, PT_NR_getdents64 = 217,
	PT_NR_semtimedop = 220, PT_NR_clock_nanosleep = 230,
	PT_NR_exit_group = 231, PT_NR_epoll_wait = 232, PT_NR_tgkill = 234,
	PT_NR_mq_timedsend = 242, PT_NR_mq_timedreceive = 243,
	PT_NR_waitid = 247, PT_NR_openat = 257, PT_NR_mkdirat = 258,
	PT_NR_newfstatat = 262, PT_NR_unlinkat = 263, PT_NR_renameat = 264,
	PT_NR_linkat = 265, PT_NR_symlinkat = 266, PT_NR_pselect6 = 270,
	PT_NR_ppoll = 271, PT_NR_splice = 275, PT_NR_tee = 276,
	PT_NR_sync_file_range = 277, PT_NR_vmsplice = 278,
	PT_NR_epoll_pwait = 281, PT_NR_fallocate = 285, PT_NR_accept4 = 288,
	PT_NR_dup3 = 292, PT_NR_preadv = 295, PT_NR_pwritev = 296,
	PT_NR_rt_tgsigqueueinfo = 297, PT_NR_recvmmsg = 299,
	PT_NR_syncfs = 306, PT_NR_sendmmsg = 307, PT_NR_renameat2 = 316,
	PT_NR_execveat = 322,
	PT_NR_copy_file_range = 326, PT_NR_preadv2 = 327, PT_NR_pwritev2 = 328,
	PT_NR_statx = 332, PT_NR_pidfd_send_signal = 424,
	PT_NR_io_uring_setup = 425, PT_NR_io_uring_enter = 426,
	PT_NR_clone3 = 435, PT_NR_close_range = 436, PT_NR_openat2 = 437,
	PT_NR_epoll_pwait2 = 441, PT_NR_futex_waitv = 449,
	PT_NR_futex_wake = 454, PT_NR_futex_wait = 455,
	PT_NR_futex_requeue = 456,
};

#endif
