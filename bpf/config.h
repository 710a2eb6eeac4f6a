/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Settings of one session: constants to the verifier, set before loading. */
#ifndef PT_CONFIG_H
#define PT_CONFIG_H

#include "abi.h"
#include "pystack.h"

struct pt_config {
	__u64 wake_bytes; /* backlog in the ring from which the reader is woken */
	__u64 min_off_ns; /* shorter off-CPU intervals go into totals only */
	__u32 read_door;  /* PT_DOOR_*: who writes READ records */
	__u32 file_names; /* 1: FILE records */
	__u64 slow_ns;	  /* a read that took longer is recorded by itself */
	__u32 block;	  /* 1: block requests are counted */
	__u32 sockets;	  /* 1: SOCK records */
	__u32 epoll;	  /* 1: what ended an epoll wait is looked for */
	__u32 fault_door; /* PT_FAULT_DOOR_* */
	__u64 secret[2];  /* of this session: what kernel addresses are hidden with */
	__s64 count_off;  /* from a CPU's run queue to its preemption count; 0:
			   * not known */
	__u32 page_shift;
	__u32 unused;
};
_Static_assert(sizeof(struct pt_config) == 80, "pt_config");

/* Where a budget saves short waits (light mode does so from the start): shorter is short. */
#define PT_SHORT_OFF_NS 20000

/* Passes of the task iterator; the value is set before each run. */
/* pt_armed */
#define PT_ARMED 1
#define PT_QUIET 2 /* only the process tree is followed */

#define PT_PASS_SEED 1	/* make storage for the threads of the target set */
#define PT_PASS_OPEN 2	/* write intervals that are open now */
#define PT_PASS_AGAIN 4 /* behind a quiet time: where are the threads now? */
#define PT_PASS_FINAL 3 /* the same, and totals of running threads */
#define PT_PASS_COUNT 5 /* only what hooks were met; OPEN and FINAL do that, too */

/* One of a thread's seccomp filters (seccomp.bpf.c). */
#define PT_SECCOMP_MAX 64	/* of a thread that are looked at */
#define PT_SECCOMP_NONE (-1)	/* it has no such filter */
#define PT_SECCOMP_HIDDEN (-2)	/* it has, but what it is cannot be read */
#define PT_SECCOMP_NOBODY (-3)	/* there is no such thread */
struct pt_seccomp_cell {
	__u32 tid, which;  /* asked for */
	__s32 len;	   /* instructions, or one of the above */
	__u32 pad;
	__u64 code[4096]; /* struct sock_filter; BPF_MAXINSNS of them */
};

#define PT_MAX_TARGETS 16384
#define PT_MAX_OUTSIDE 64 /* ... of them outside of the tree */
#define PT_MAX_FILES 16384
#define PT_MAX_TEXTS 4096
#define PT_MAX_SOCKS 16384

/* What hooks did: of some, how long their programs ran; of all, of threads that have
 * ended, and of those that there are (by the last pass). */
struct pt_hits {
	__u64 timed[PT_HIT_NR], timed_ns[PT_HIT_NR];
	__u64 gone[PT_HIT_NR], live[PT_HIT_NR];
	__u64 gone_run_ns, live_run_ns;
};

/* Where a process has the code of an outer GPU library; and of its launches, how many
 * there were and how many of them reached an inner one. */
struct pt_text_key {
	__u32 tgid;
	__u32 lib;
};
struct pt_text {
	__u64 begin, end;
	__u64 launches, reached;
	__u32 inner; /* one is hooked in this process, where launches are told then */
	__u32 bare;  /* ... and by it alone: the outer one's are no longer looked at */
};

/* A kernel's handle in the inner library: the function by which the outer one knows it. */
#define PT_MAX_HANDLES 8192
struct pt_handle_key {
	__u64 handle;
	__u32 tgid, pad;
};

/* Calls whose records found no room in the ring, since the session's begin. Where there are
 * more of these than room, the rest goes to process 0. */
#define PT_MAX_MISSED 4096
struct pt_missed_key {
	__u32 tgid;
	__u32 what; /* as in struct pt_rec_missed */
};
struct pt_missed {
	__u64 count, bytes;
};

/* Block requests, summed: key and value of a map that user space reads. All
 * of it counts from the session's begin. */
struct pt_block_key {
	__u32 tid, tgid, start, dev;
	__u32 op; /* PT_BLOCK_* */
};
struct pt_block_sum {
	__u64 count, bytes, lat_ns, max_ns, depth_sum, failed;
	__u32 depth_max;
	__u32 hist[PT_BLOCK_SLOTS];
	__u32 pad;
};
_Static_assert(sizeof(struct pt_block_key) == 20, "pt_block_key");
_Static_assert(sizeof(struct pt_block_sum) == 248, "pt_block_sum");

/* Value of the target set, by process id. */
struct pt_target {
	__u64 since; /* CLOCK_MONOTONIC */
	/* not of the tree; the rest as in pt_rec_outside */
	__u32 outside;
	__u32 waiter;
	__u64 slept_ns;
	__u32 wakes;
	__u32 named; /* its record is made */
};
_Static_assert(sizeof(struct pt_target) == 32, "pt_target");

#endif
