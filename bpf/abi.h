/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The only contract between the kernel programs and user space: records,
 * configuration and loss counters.
 *
 * Rules, so that a recorded stream stays readable for ever:
 *  - fixed-width integers only: no pointer, enum, bool or long;
 *  - kind numbers are explicit and append-only, never reused;
 *  - a record may grow at its end; readers take `size` from the header, skip
 *    unknown kinds and ignore bytes beyond the length that they know;
 *  - a record is zeroed whole before it is filled, and has no hidden padding
 *    (checked by _Static_assert and -Wpadded).
 *
 * Every time is CLOCK_MONOTONIC in nanoseconds (bpf_ktime_get_ns).
 */
#ifndef PT_ABI_H
#define PT_ABI_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define PT_ABI_VERSION 1
#define PT_COMM_LEN 16
#define PT_PATH_LEN 192
#define PT_LONG_PATH_LEN 448 /* of a FILE record that is PT_REC_MAX long */
#define PT_REC_MAX 512 /* no record is longer; readers reject more */

/* ---- record kinds: append only ---------------------------------------- */
#define PT_REC_FORK 1	    /* a task of the target made a thread or process */
#define PT_REC_EXEC 2
#define PT_REC_EXIT 3
#define PT_REC_COMM 4
#define PT_REC_OFF 5	    /* one off-CPU interval */
#define PT_REC_GPU_ENTER 6  /* a GPU API call begins */
#define PT_REC_GPU_RETURN 7 /* ... returns (only where api.def asks) */
#define PT_REC_READ 8	    /* one read call of a tracked thread */
#define PT_REC_FILE 9	    /* a file's name, once per inode */
#define PT_REC_TASK 10	    /* a thread that existed when tracing began */
#define PT_REC_NVTX 11	    /* a range that the program named: begin or end */
#define PT_REC_READS 12	    /* short read calls of a thread on one file, summed */
#define PT_REC_FAULTS 13    /* page faults of a thread on one mapped file, summed */
#define PT_REC_BLOCK 14	    /* block requests of a thread at one disk, summed */
#define PT_REC_WRITES 15    /* write and fsync calls of a thread on one file */
#define PT_REC_SOCK 16	    /* a socket: its two ends, and what came in so far */
#define PT_REC_OUTSIDE 17    /* a process that is not of the target's tree is
			     * followed as well: it ends waits of the target */
/* 64 and up are made in user space and travel in the same stream */
#define PT_REC_SAMPLE 64 /* per process, once a second: memory, CPU, bytes */
#define PT_REC_LOSS 65	 /* loss counters, cumulative */
#define PT_REC_LIB 66	 /* a GPU library that is probed in a process */
#define PT_REC_MARK 67	 /* capture begin and end */
#define PT_REC_HOST 68	 /* host facts needed by the analysis */
#define PT_REC_PROC 69	 /* what a process was started with, once */
#define PT_REC_ACT 70	 /* work of a device, measured there (CUPTI) */
#define PT_REC_NAME 71	 /* a kernel's name, once */
#define PT_REC_DEVICE 72 /* a device as its driver describes it (NVML) */
#define PT_REC_NEIGHBOURS 73 /* who else on this machine uses a GPU */
#define PT_REC_DISK 74	/* what a device number stands for, and its counters */
#define PT_REC_MEMORY 75 /* memory that there is, once a second */
#define PT_REC_WINDOW 76 /* an active part of a schedule begins or ends */

struct pt_hdr {
	__u16 size;  /* whole record, bytes */
	__u16 kind;  /* PT_REC_* */
	__u16 cpu;
	__u16 flags; /* PT_F_* */
	__u64 ts;    /* when the record was made; OFF: switch-in time */
	__u32 tid;   /* the thread that the record is about */
	__u32 tgid;
	__u32 seq;   /* per thread, counts every record made for it, lost or not */
	__u32 start; /* low 32 bits of the thread's start time in microseconds:
		      * tells a reused tid from its predecessor; 0 unknown */
};
_Static_assert(sizeof(struct pt_hdr) == 32, "pt_hdr");

#define PT_F_OPEN 0x0001	  /* OFF: interval still open at hdr.ts */
#define PT_F_SINCE_UNKNOWN 0x0002 /* OFF: began before off_ts (attach) */
#define PT_F_IOWAIT 0x0004	  /* OFF: the kernel counted it as I/O wait */
#define PT_F_PREEMPTED 0x0008	  /* OFF: left the CPU while runnable */
#define PT_F_GROUP_DEAD 0x0010	  /* EXIT: the last thread of the process */
#define PT_F_THREAD 0x0020	  /* FORK: a thread, not a process */
#define PT_F_READ_FAILED 0x0040	  /* a kernel or user read did not work:
				   * object fields are unknown, not 0 */
#define PT_F_BOUND 0x0080	  /* READS: no more bytes than this */
#define PT_F_AWAITED 0x0100	  /* OFF: on a socket that was written to and had
				   * not answered when the wait began */
#define PT_F_AGAIN 0x0200	  /* OFF: ... as in the wait before on it */
#define PT_F_READY_FIRST 0x0400	  /* OFF: the object is the first one that was
				   * ready when an epoll wait ended */
#define PT_F_INSIDE 0x0800	  /* OFF: on a Unix socket whose other end is
				   * of the target */
#define PT_F_FAULT 0x1000	  /* OFF: inside a page fault of a mapped file,
				   * which is the object, in a call or not */
#define PT_F_TEXT 0x2000	  /* FAULTS: of a file that is mapped to be
				   * executed: a program or a library */
#define PT_F_RECLAIM 0x4000	  /* OFF: while it had to free memory, or was
				   * held back for the lack of it */

struct pt_rec_fork {
	struct pt_hdr hdr; /* the parent */
	__u32 child_tid;
	__u32 child_tgid;
	__u32 child_start; /* like hdr.start */
	__u32 pad;
	char comm[PT_COMM_LEN];
};
_Static_assert(sizeof(struct pt_rec_fork) == 64, "pt_rec_fork");

struct pt_rec_task { /* also used for EXEC and COMM */
	struct pt_hdr hdr;
	__u32 ppid;    /* tgid of the parent; 0 unknown */
	__u32 old_tid; /* EXEC: the tid that called exec */
	char comm[PT_COMM_LEN];
};
_Static_assert(sizeof(struct pt_rec_task) == 56, "pt_rec_task");

/* Cumulative per thread since tracking of it began. A lost record loses
 * detail, never a total. Off-CPU time that is still running is not in it. */
struct pt_totals {
	__u64 run_ns;	 /* on a CPU */
	__u64 runq_ns;	 /* runnable, waiting for a CPU */
	__u64 iowait_ns; /* blocked, in_iowait */
	__u64 block_ns;	 /* blocked otherwise */
	__u64 rchar;	 /* bytes that read calls returned (task I/O accounting) */
	__u64 read_bytes; /* bytes fetched from storage */
	__u64 wchar;
	__u64 write_bytes;
};
_Static_assert(sizeof(struct pt_totals) == 64, "pt_totals");

struct pt_rec_exit {
	struct pt_hdr hdr;
	__u32 exit_code;
	__u32 pad;
	struct pt_totals tot;
};
_Static_assert(sizeof(struct pt_rec_exit) == 104, "pt_rec_exit");

/* What a blocked thread waits on, from its system call's arguments. */
#define PT_OBJ_NONE 0
#define PT_OBJ_FILE 1  /* regular file: dev, inode */
#define PT_OBJ_PIPE 2  /* both ends share the inode */
#define PT_OBJ_SOCK 3
#define PT_OBJ_FUTEX 4 /* object = user address */
#define PT_OBJ_CHR 5
#define PT_OBJ_DIR 6
#define PT_OBJ_OTHER 7 /* none of these */
#define PT_OBJ_ANON 8  /* eventfd, epoll, timerfd, ...: a number made of the open
			* file, the same in this session for all who share it.
			* Older versions: OTHER, with the inode of them all */
#define PT_OBJ_MSGQ 9  /* message queue: System V's id, or POSIX' dev, inode */
#define PT_OBJ_SEM 10  /* System V semaphores: their id */

#define PT_SYSCALL_NONE (-1) /* not in a system call: a fault, or unknown */

/* In what the wake-up was made; 0: not known (older versions, or a kernel that
 * does not tell). Neither SOFTIRQ nor HARDIRQ: the waker itself made it, in its
 * call. In an interrupt the waker may be a victim that has nothing to do with it. */
#define PT_WAKER_KNOWN 0x01
#define PT_WAKER_SOFTIRQ 0x02
#define PT_WAKER_HARDIRQ 0x04
#define PT_WAKER_EXITING 0x08  /* it was about to end, whatever its call */
#define PT_WAKER_KTHREAD 0x10  /* it was a thread of the kernel */
#define PT_WAKER_PEER 0x20     /* its internet socket is the other end of the
				* one that was waited on, by both ports */
#define PT_WAKER_STRANGER 0x40 /* ... is another connection's */

struct pt_rec_off {
	struct pt_hdr hdr;    /* ts: switched in again, or now if PT_F_OPEN */
	__u64 off_ts;	      /* switched out */
	__u64 wake_ts;	      /* made runnable; 0: preempted, or not seen */
	__u64 object;	      /* inode number, or futex address */
	__u64 waker_object;   /* like object; a Unix socket's other end, so
			       * that it equals the object of who waits there */
	__u64 arg[3];	      /* raw system call arguments 0..2 at switch-out */
	struct pt_totals tot; /* including this interval */
	__u32 dev;	      /* of the inode: kernel's (major << 20) | minor */
	__u32 waker_dev;
	__u32 waker_tid;      /* whoever ran on the CPU where the wake-up
			       * happened; an interrupt's victim, perhaps */
	__u32 waker_tgid;
	__s32 syscall;	      /* x86-64 number, or PT_SYSCALL_NONE */
	__s32 waker_syscall;
	__u16 state;	      /* task state masked to its low byte; 0 runnable */
	__u16 obj_kind;	      /* PT_OBJ_* */
	__u16 waker_obj_kind;
	__u16 waker_in;	      /* PT_WAKER_* */
	__u64 waker_arg0;     /* waker's first argument (futex address, fd) */
};
_Static_assert(sizeof(struct pt_rec_off) == 192, "pt_rec_off");

struct pt_rec_gpu {
	struct pt_hdr hdr;
	__u32 api;    /* index in api.def, from the attach cookie */
	__u32 lib;    /* which attached library, as in pt_rec_lib; from the cookie */
	__u64 stream; /* handle as passed; 0: default stream, or none */
	__u64 v[3];   /* values picked by api.def; RETURN: v[0] = return code */
};
_Static_assert(sizeof(struct pt_rec_gpu) == 72, "pt_rec_gpu");

/* Attach cookie of a GPU entry point. Slots: 0-5 integer registers,
 * 6.. stack words above the return address, 15 = absent. */
#define PT_COOKIE(api, lib, stream, v0, v1, v2)                                \
	((__u64)(api) | ((__u64)(lib) << 16) | ((__u64)(stream) << 32) |       \
	 ((__u64)(v0) << 36) | ((__u64)(v1) << 40) | ((__u64)(v2) << 44))
#define PT_COOKIE_WITH(via, layer, ret)                                        \
	(((__u64)(via) << 48) | ((__u64)(layer) << 52) | ((__u64)(ret) << 54))
#define PT_COOKIE_API(c) ((__u32)((c) & 0xffff))
#define PT_COOKIE_LIB(c) ((__u32)(((c) >> 16) & 0xffff))
#define PT_COOKIE_STREAM(c) ((__u32)(((c) >> 32) & 15))
#define PT_COOKIE_V(c, i) ((__u32)(((c) >> (36 + 4 * (i))) & 15))
#define PT_COOKIE_VIA(c) ((__u32)(((c) >> 48) & 15))
#define PT_COOKIE_LAYER(c) ((__u32)(((c) >> 52) & 3))
#define PT_COOKIE_RET(c) ((__u32)(((c) >> 54) & 1)) /* its return is watched */
#define PT_SLOT_ABSENT 15
/* Not in api.def: the function that the user named, whose calls begin steps.
 * Entries only. Older readers take it for a later version's entry point. */
#define PT_API_STEP_MARKER 0xffff

/* Values that are not in a slot but behind the pointer in one; layouts of
 * cuda.h and driver_types.h, HIP's are the same. */
#define PT_VIA_NONE 0
#define PT_VIA_CONFIG 1	  /* stream slot: a launch configuration */
#define PT_VIA_3D 2	  /* v0's slot: cudaMemcpy3DParms */
#define PT_VIA_3D_PEER 3  /* ... cudaMemcpy3DPeerParms */
#define PT_VIA_DRV_2D 4	  /* ... CUDA_MEMCPY2D: v2 = both memory types */
#define PT_VIA_DRV_3D 5	  /* ... CUDA_MEMCPY3D, and _PEER: likewise */
#define PT_VIA_OUT 6	  /* v0's slot: RETURN has what it points to in v[1] */
#define PT_VIA_NAME 7	  /* ... and a PT_REC_NAME follows: v1's slot, a string */

/* A call that passes two libraries counts once, where it came in. */
#define PT_LAYER_ONLY 0	 /* nothing above or below it is probed */
#define PT_LAYER_OUTER 1 /* may call an inner one */
#define PT_LAYER_INNER 2 /* not recorded when an outer one called it */

struct pt_rec_read {
	struct pt_hdr hdr; /* ts: the call returned */
	__u64 begin_ts;
	__u64 inode;
	__s64 ret;	/* bytes, or -errno */
	__u64 offset;	/* file position before the read; ~0 unknown. PAGES: of
			 * the page that it is in */
	__u32 dev;
	__u16 obj_kind;
	__u16 door;	/* PT_DOOR_* */
	__u64 fetched;	/* bytes that the call had fetched from storage, by the
			 * thread's I/O accounting; ~0 unknown. Has grown */
};
_Static_assert(sizeof(struct pt_rec_read) == 80, "pt_rec_read");
#define PT_REC_READ_MIN 72

#define PT_DOOR_NONE 0
#define PT_DOOR_FEXIT 1
#define PT_DOOR_KPROBE 2
#define PT_DOOR_PAGES 3	  /* page-range tracepoint */
#define PT_DOOR_SYSCALL 4
#define PT_DOOR_IO_URING 5 /* completions of a ring, beside any other door */
#define PT_DOOR_AIO 6	   /* libaio's, beside fexit */

/* Reads that neither blocked nor took long, one after the other on one file
 * through one door. hdr.ts: the last of them returned. */
struct pt_rec_reads {
	struct pt_hdr hdr;
	__u64 begin_ts; /* of the first */
	__u64 inode;
	__u64 bytes;	/* of all; PT_F_BOUND: at most */
	__u64 busy_ns;	/* inside the calls; ~0: the door does not see it */
	__u64 max_ns;	/* the longest; 0 unknown */
	__u64 offset;	/* of the first that is placed; ~0 unknown */
	__u32 dev;
	__u32 count;	/* calls, the failed ones too */
	__u32 failed;
	__u16 obj_kind;
	__u16 door;	/* PT_DOOR_* */
	/* Where they read. Records of older versions end before. All zero but
	 * `placed` and `contiguous` where they are one run through the file. */
	__s64 moved;	/* the last one ended at offset + bytes + moved */
	__u64 before;	/* the lowest began so much before offset */
	__s64 beyond;	/* the highest ended at offset + bytes + beyond */
	__s64 stride;	/* from the begin of a run to that of the next, latest */
	__u32 placed;	/* returned data, from a position that the door sees */
	__u32 contiguous; /* of those: began where the one before had ended */
	__u32 forward;	/* ... behind that */
	__u32 backward; /* ... before that, but not at 0 */
	__u32 again;	/* ... at 0 */
	__u32 strided;	/* forward or backward by the same stride as before */
	__u64 fetched;	/* as in pt_rec_read; PT_F_BOUND: at most */
};
_Static_assert(sizeof(struct pt_rec_reads) == 160, "pt_rec_reads");
#define PT_READS_SIZE_MIN 96 /* of older versions */

/* Faults on pages of a mapped file that the page tables did not have, one
 * after the other. hdr.ts: the last of them began. */
struct pt_rec_faults {
	struct pt_hdr hdr;
	__u64 begin_ts; /* of the first */
	__u64 inode;
	__u64 bytes;	/* that they brought into the page cache, whole pages */
	__u64 offset;	/* of the first one's page, bytes */
	__u32 dev;
	__u32 count;	/* all of them: some found their page in the page cache */
	__u32 major;	/* those that brought pages in, or waited */
	__u16 door;	/* PT_FAULT_DOOR_* */
	__u16 pad;
};
_Static_assert(sizeof(struct pt_rec_faults) == 80, "pt_rec_faults");

#define PT_FAULT_DOOR_NONE 0
#define PT_FAULT_DOOR_TRACEPOINT 1 /* mm_filemap_fault, Linux 6.12 */
#define PT_FAULT_DOOR_FENTRY 2	   /* filemap_fault() */
#define PT_FAULT_DOOR_KPROBE 3	   /* the same */
#define PT_FAULT_DOOR_ADDS 4 /* only pages that a thread outside of a call adds */

/* Path components as the thread that met the file names them, innermost first,
 * each NUL-terminated; `parts` of them. PT_F_READ_FAILED or parts == 0: no
 * name. Written again when the file is met under another name: the one before
 * it in time counts. Long paths make a longer record: `path` goes on behind. */
struct pt_rec_file {
	struct pt_hdr hdr;
	__u64 inode;
	__u64 size;
	__u32 dev;
	__u16 mode;
	__u16 parts;
	__u32 fs_magic;
	__u32 truncated; /* components were left out, or one was cut */
	char path[PT_PATH_LEN];
};
_Static_assert(sizeof(struct pt_rec_file) == 256, "pt_rec_file");

/*
 * Block requests that a thread caused at one disk and that completed in
 * [begin_ts, hdr.ts]. Latency: from the request's making to its completion, as
 * the kernel's own disk statistics have it; what a throttle holds back before
 * is not in it. hdr.seq 0: these are not numbered. hdr.tid 0: of several threads.
 */
#define PT_BLOCK_READ 0
#define PT_BLOCK_WRITE 1
#define PT_BLOCK_SLOTS 48
#define PT_BLOCK_UNIT_SHIFT 12 /* slot 0: below 4096 ns */
struct pt_rec_block {
	struct pt_hdr hdr;
	__u64 begin_ts;
	__u64 bytes;
	__u64 lat_ns;	 /* sum, of those in `hist`: others' ends were not seen */
	__u64 max_ns;	 /* the longest since tracing began */
	__u64 depth_sum; /* requests of the target in flight at that disk when
			  * one came, itself included; summed */
	__u32 dev;	 /* the whole disk: (major << 20) | minor */
	__u32 count;
	__u32 depth_max; /* since tracing began */
	__u32 failed;
	__u16 op;	 /* PT_BLOCK_READ, _WRITE */
	__u16 pad[3];
	/* requests by latency, two slots an octave: slot s from 1 holds
	 * [b, b + b/2) or [b + b/2, 2b) with b = 4096 ns << (s - 1) / 2 */
	__u32 hist[PT_BLOCK_SLOTS];
};
_Static_assert(sizeof(struct pt_rec_block) == 288, "pt_rec_block");

/* Write and fsync calls of a thread on one file, one after the other.
 * hdr.ts: the last of them returned. */
struct pt_rec_writes {
	struct pt_hdr hdr;
	__u64 begin_ts; /* of the first */
	__u64 inode;
	__u64 bytes;	/* that write calls returned */
	__u64 write_ns; /* inside write calls */
	__u64 fsync_ns; /* inside fsync, fdatasync and msync */
	__u64 max_ns;	/* the longest call */
	__u32 dev;
	__u32 writes;	/* calls, the failed ones too */
	__u32 fsyncs;
	__u32 failed;
	__u16 obj_kind;
	__u16 door;	/* PT_DOOR_* */
	__u32 pad;
};
_Static_assert(sizeof(struct pt_rec_writes) == 104, "pt_rec_writes");

/* User space: what a device number of FILE and BLOCK records stands for. A
 * disk's comes again with every sample; hdr.tid, tgid 0. */
#define PT_DISK_UNKNOWN (~0ULL)
#define PT_FS_UNKNOWN 0
#define PT_FS_LOCAL 1	/* on a disk of this machine */
#define PT_FS_NETWORK 2 /* served by another machine */
#define PT_FS_MEMORY 3
#define PT_FS_USER 4	/* served by a process (FUSE) */
#define PT_DISK_F_ROTATES 0x0001
#define PT_DISK_F_SOLID 0x0002 /* neither: not known */
struct pt_rec_disk {
	struct pt_hdr hdr;
	__u32 dev;
	__u32 disk; /* the whole disk that it lies on; 0: none, or several */
	/* The whole disk's counters since boot, of all processes; UNKNOWN */
	__u64 reads, read_bytes, read_ms;
	__u64 writes, write_bytes, write_ms;
	__u64 busy_ms, queue_ms;
	__u16 cls;   /* PT_FS_* of the file system */
	__u16 flags; /* PT_DISK_F_* */
	__u32 pad;
	char name[32];	 /* the disk's */
	char model[48];
	char fstype[32]; /* "" where dev is a disk */
	char mount[160]; /* where the target sees the file system */
};
_Static_assert(sizeof(struct pt_rec_disk) == 384, "pt_rec_disk");

/*
 * A socket of the target: when it is first seen, connected, closed, once a
 * second while it is waited on, and at the end. Counters are cumulative since
 * the connection began; the last record of a connection counts.
 * PT_F_SINCE_UNKNOWN: it was open before it was seen. hdr.tid: who was seen
 * with it first; hdr.seq is 0: these records are not numbered, for an
 * interrupt makes some of them. Addresses are in network byte order, IPv4 in
 * the first four bytes.
 */
#define PT_SOCK_UNKNOWN (~0ULL)
#define PT_SOCK_PATH 64
struct pt_rec_sock {
	struct pt_hdr hdr;
	__u64 inode;
	__u64 received;	  /* payload bytes; PT_SOCK_UNKNOWN: not TCP */
	__u64 sent;
	__u64 opened;	  /* connect() began; 0 not seen */
	__u64 connect_ns; /* ... and took so long; 0 not seen */
	__u32 family;	  /* AF_* */
	__u16 protocol;	  /* IPPROTO_* */
	__u16 state;	  /* TCP_*, 1: connected */
	__u16 local_port, remote_port; /* host byte order */
	__u32 srtt_us;	  /* smoothed round trip; 0 unknown */
	__u32 retransmits; /* segments that this side sent again */
	__u32 out_of_order; /* packets that came before earlier ones */
	__u8 local[16], remote[16];
	char path[PT_SOCK_PATH]; /* AF_UNIX: the name of the other end, or of
				  * this one; may begin with NUL, may be cut */
};
_Static_assert(sizeof(struct pt_rec_sock) == 192, "pt_rec_sock");

/*
 * A process outside of the target's tree that is followed from now on, with the
 * same records as the target: its wake-ups ended waits of the target, or of one
 * that is followed already. hdr.tid: a thread of it, mostly its first; hdr.seq is
 * 0: these are not numbered. What it forks later is outside, too.
 */
struct pt_rec_outside {
	struct pt_hdr hdr;
	__u64 slept_ns; /* of the waits that it was seen to end before */
	__u32 wakes;	/* so many; 0: forked by one that is followed, or of its pool */
	__u32 waiter;	/* the process whose waits they were; or which forked it */
	__u32 ppid;
	__u32 pad;
	char comm[PT_COMM_LEN];
};
_Static_assert(sizeof(struct pt_rec_outside) == 72, "pt_rec_outside");

struct pt_rec_sample { /* user space; hdr.tid == hdr.tgid */
	struct pt_hdr hdr;
	__u64 rss_anon;	 /* bytes */
	__u64 rss_file;
	__u64 rss_shmem;
	__u64 utime_ns;	 /* cumulative */
	__u64 stime_ns;
	__u64 rchar;	 /* cumulative */
	__u64 read_bytes;
	__u64 write_bytes;
	__u32 fds;	 /* ~0 unknown */
	__u32 threads;
	__u64 throttled_ns; /* cgroup CPU throttling, cumulative; ~0 unknown */
};
_Static_assert(sizeof(struct pt_rec_sample) == 112, "pt_rec_sample");

/* Why a record was not delivered; one cumulative counter each. */
#define PT_LOSS_RING_FULL 0	  /* no room in the ring buffer */
#define PT_LOSS_NO_STORAGE 1	  /* task storage could not be made */
#define PT_LOSS_TARGETS_FULL 2	  /* target set full: a process not followed */
#define PT_LOSS_CLOCK 3		  /* interval dropped: clock went back */
#define PT_LOSS_FILES_FULL 4	  /* a file name not recorded */
#define PT_LOSS_MALFORMED 5	  /* user space rejected a record */
#define PT_LOSS_MEMORY 6	  /* user space had no memory left for it */
#define PT_LOSS_ACTIVITY 7	  /* activity records: dropped by CUPTI, or no room */
#define PT_LOSS_RETURN 8  /* a read whose return the kernel did not hand on */
#define PT_LOSS_NR 9
#define PT_LOSS_NR_MIN 8  /* records of older versions have that many */

struct pt_rec_loss {
	struct pt_hdr hdr;
	__u64 count[PT_LOSS_NR];
};
_Static_assert(sizeof(struct pt_rec_loss) == 104, "pt_rec_loss");

struct pt_rec_lib {
	struct pt_hdr hdr; /* tgid: the process, 0: every process */
	__u32 lib;	   /* number used in cookies */
	__u32 symbols;	   /* entry points attached */
	char path[PT_PATH_LEN];
};
_Static_assert(sizeof(struct pt_rec_lib) == 232, "pt_rec_lib");

#define PT_MARK_BEGIN 1 /* every hook is attached, every thread is seeded */
#define PT_MARK_END 2	/* last moment that was observed */
#define PT_MARK_TARGET_EXIT 3
#define PT_MARK_CUT 4 /* a file of limited size: what came between the begin and
		       * here is not in it, but for names and the process tree */
struct pt_rec_mark {
	struct pt_hdr hdr;
	__u32 mark;
	__u32 pad;
	__u64 unix_ns; /* CLOCK_REALTIME at hdr.ts */
};
_Static_assert(sizeof(struct pt_rec_mark) == 48, "pt_rec_mark");

struct pt_rec_host {
	struct pt_hdr hdr;
	__u32 cores;	    /* online */
	__u32 target_pid;   /* the pid asked for (after resolving to its trainer) */
	__u64 quota_mcores; /* cgroup CPU quota, 1/1000 core; 0 none */
	__u32 read_door;    /* PT_DOOR_* that opened */
	__u32 read_more;    /* bit 1 << PT_DOOR_*: opened beside it */
	char boot_id[40];
	__u32 fault_door;   /* PT_FAULT_DOOR_*; records of older versions end
			     * before it */
	__u32 pad;
};
_Static_assert(sizeof(struct pt_rec_host) == 104, "pt_rec_host");
#define PT_HOST_SIZE_MIN 96 /* of older versions */

#define PT_PROC_UNKNOWN (-1)
struct pt_rec_proc { /* user space; hdr.tid == hdr.tgid */
	struct pt_hdr hdr;
	__s32 rank;	    /* in the job, by its environment */
	__s32 world;	    /* ranks of the job */
	__s32 omp_threads;  /* OMP_NUM_THREADS */
	__s32 cpus_allowed; /* CPUs that its main thread may run on */
	__s32 mem_nodes;    /* NUMA nodes that it may take memory from */
	__s32 pad;
};
_Static_assert(sizeof(struct pt_rec_proc) == 56, "pt_rec_proc");

/* Made in the target by the agent (user/inject/agent). hdr.ts = end; hdr.tid: the
 * thread that called, where known, else the tgid; hdr.seq 0. */
#define PT_ACT_KERNEL 1
#define PT_ACT_COPY 2	/* detail: cudaMemcpyKind */
#define PT_ACT_MEMSET 3
#define PT_ACT_SYNC 4	/* the host's; detail: CUpti_ActivitySynchronizationType */
#define PT_ACT_OVERHEAD 5 /* of the measuring; detail: CUpti_ActivityOverheadKind */
#define PT_ACT_COVER 6 /* not work: whatever was begun in the process behind
			* `begin` and over by `end` has been recorded, but for
			* what is counted as lost. Grows: the last one counts;
			* another `begin`, another stretch. bytes: records lost
			* so far, dropped by CUPTI or for want of room. detail:
			* 1 with the last one; before it some records may still
			* be on their way */
#define PT_ACT_LAST PT_ACT_COVER
#define PT_ACT_F_PAGEABLE 0x0001 /* COPY: host memory that is not pinned */
#define PT_ACT_F_GRAPH 0x0002	 /* KERNEL, COPY, MEMSET: node of a graph */
#define PT_ACT_F_HOST_CLOCK 0x0004 /* times from an offset, not a callback */
struct pt_rec_act {
	struct pt_hdr hdr;
	__u64 begin, end; /* CLOCK_MONOTONIC */
	__u64 bytes;
	__u64 name;	  /* KERNEL: key of a PT_REC_NAME; 0 none */
	__u32 device;	  /* ordinal in the process */
	__u32 context, stream; /* CUPTI's numbers */
	__u32 correlation;
	__u32 graph;	  /* CUPTI's number; 0 none */
	__u16 what;	  /* PT_ACT_* */
	__u8 detail, flags; /* flags: PT_ACT_F_* */
};
_Static_assert(sizeof(struct pt_rec_act) == 88, "pt_rec_act");

#define PT_NAME_LEN 448
#define PT_NAME_FUNCTION 1 /* key: v[0] of a launch; hdr.tgid: the process;
			    * hdr.seq 0: names are not numbered */
#define PT_NAME_ACT 2	   /* key: pt_rec_act.name; hdr.tgid: the process */
struct pt_rec_name {
	struct pt_hdr hdr;
	__u64 key;
	__u32 space;	 /* PT_NAME_* */
	__u32 truncated;
	char name[PT_NAME_LEN]; /* as in the symbol table, NUL-terminated */
};
_Static_assert(sizeof(struct pt_rec_name) == 496, "pt_rec_name");

#define PT_DEVICE_UNKNOWN 0xffffffffu
struct pt_rec_device { /* one per device and sample; what is unknown: as above */
	struct pt_hdr hdr; /* ts: when it was asked; tid, tgid 0 */
	__u64 mem_used, mem_total; /* bytes; ~0 unknown */
	__u64 throttle;	 /* nvmlClocksThrottleReasons bits; ~0 unknown */
	__u32 index;	 /* the driver's */
	__u32 util, mem_util; /* percent, of the last sample period */
	__u32 sm_mhz, sm_max_mhz;
	__u32 procs;	 /* with a context on it */
	__u32 traced;	 /* ... of those, traced ones */
	__u32 period_ms; /* that `util` covers, as documented */
	char uuid[64];
	char name[64];
	__u32 pid;	 /* the first traced process on it; 0 none, or unknown */
	__u32 ordinal;	 /* its number in that process; PT_DEVICE_UNKNOWN */
};
_Static_assert(sizeof(struct pt_rec_device) == 224, "pt_rec_device");

struct pt_rec_neighbours { /* hdr.tid, tgid: the process asked for */
	struct pt_hdr hdr;
	__u32 procs; /* not traced, with a GPU library, that may be on a device
		      * of the target: by their environment nothing rules it out */
	__u32 pad;
};
_Static_assert(sizeof(struct pt_rec_neighbours) == 40, "pt_rec_neighbours");

#define PT_MEMORY_UNKNOWN (~0ULL)
#define PT_MEMORY_HOST 1
#define PT_MEMORY_CGROUP 2
struct pt_rec_memory { /* hdr.tid, tgid: the process asked for; bytes */
	struct pt_hdr hdr;
	__u64 total, available; /* of the machine, as /proc/meminfo has them */
	__u64 cache;	  /* pages of files, without shared memory */
	__u64 limit;	  /* the tightest memory limit of a cgroup; ~0: none */
	__u64 used;	  /* in that cgroup, cache and shared memory included */
	__u64 used_cache; /* pages of files and of shared memory in it */
	__u64 used_shm;	  /* ... of those, of shared memory */
	__u64 refaulted;  /* fetched again soon after they had been evicted,
			   * pages of files; cumulative */
	__u32 refaulted_in; /* PT_MEMORY_HOST, or CGROUP: in the process's own */
	__u32 pad;
};
_Static_assert(sizeof(struct pt_rec_memory) == 104, "pt_rec_memory");

/* --schedule: what lies between two such parts was not watched. */
struct pt_rec_window { /* hdr.tid, tgid: the process asked for */
	struct pt_hdr hdr;
	__u32 index; /* counted from 0 */
	__u32 ended; /* 0: it begins at hdr.ts; 1: it ended then */
};
_Static_assert(sizeof(struct pt_rec_window) == 40, "pt_rec_window");

#define PT_NVTX_PUSH 1
#define PT_NVTX_POP 2
#define PT_NVTX_START 3 /* id: of the range, for its END */
#define PT_NVTX_END 4
#define PT_NVTX_MARK 5	 /* a moment, no range */
#define PT_NVTX_STRING 6 /* registers a text that other calls name by `text_id` */
#define PT_NVTX_ID 7	 /* id: what the thread's last START or STRING gave */
#define PT_NVTX_TEXT 96
struct pt_rec_nvtx { /* hdr.tid: who */
	struct pt_hdr hdr;
	__u64 id;      /* END, ID */
	__u64 domain;  /* handle; 0 the default one */
	__u64 text_id; /* a registered text's handle, instead of a text; or 0 */
	__u32 op;      /* PT_NVTX_* */
	__u32 truncated;
	char text[PT_NVTX_TEXT]; /* PUSH, START, MARK, STRING; as passed */
};
_Static_assert(sizeof(struct pt_rec_nvtx) == 160, "pt_rec_nvtx");

/* Attach cookie of an NVTX function: the operation, where its message is, and
 * the argument slots (0 or 1) of domain and range id; PT_SLOT_ABSENT: none. */
#define PT_NVTX_COOKIE(op, msg, slot, domain, id)                              \
	((__u64)(op) | ((__u64)(msg) << 4) | ((__u64)(slot) << 8) |            \
	 ((__u64)(domain) << 12) | ((__u64)(id) << 16))
#define PT_NVTX_COOKIE_OP(c) ((__u32)((c) & 15))
#define PT_NVTX_COOKIE_MSG(c) ((__u32)(((c) >> 4) & 15))
#define PT_NVTX_COOKIE_SLOT(c) ((__u32)(((c) >> 8) & 15))
#define PT_NVTX_COOKIE_DOMAIN(c) ((__u32)(((c) >> 12) & 15))
#define PT_NVTX_COOKIE_ID(c) ((__u32)(((c) >> 16) & 15))
#define PT_NVTX_MSG_NONE 0 /* also: in wide characters */
#define PT_NVTX_MSG_TEXT 1 /* a char pointer */
#define PT_NVTX_MSG_ATTR 2 /* behind an nvtxEventAttributes_t pointer */

#endif /* PT_ABI_H */
