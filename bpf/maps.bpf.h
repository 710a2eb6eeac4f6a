/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * State shared by all programs. Defined weak in every object, so that the
 * linker keeps one: libbpf's linker (1.1) gives extern maps a wrong offset
 * when the object with the definition does not come first.
 */
#ifndef PT_MAPS_BPF_H
#define PT_MAPS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "abi.h"
#include "config.h"

/* Short reads of one file, not written yet. */
struct pt_agg {
	__u64 inode, begin, end, bytes, busy, max, offset, fetched;
	__u32 dev, count, failed;
	__u32 in_use; /* its thread is just changing it */
	__u16 kind, door, flags, pad;
	/* where they read; see struct pt_rec_reads */
	__u64 last, low, high; /* ends of the last and of all */
	__u64 run;	       /* where the present run began */
	__s64 stride;
	__u32 placed, contiguous, forward, backward, again, strided;
	__u64 slot;  /* PT_AGG_MAX_NS long, since */
	__u32 jumps; /* in it, each of which ended a sum */
	__u32 pad2;
};

/* Writes of one file, not written yet. */
struct pt_write_agg {
	__u64 inode, begin, end, bytes, write_ns, fsync_ns, max;
	__u32 dev, writes, fsyncs, failed;
	__u32 in_use;
	__u16 door, pad;
};

/* A buffered read that the page-range door saw begin. */
struct pt_pages {
	__u64 inode, size, ts;
	__u64 at;	    /* of the inode in the kernel's memory */
	__u64 name;	    /* pt_name_id() of the file that was read last */
	__u64 first, last;  /* pages, inclusive */
	__u64 rchar, calls; /* of the thread before it */
	__u32 dev;
	__u16 active, counted; /* counted: the call will be, see pt_pages_end */
};

/* Page faults on one mapped file, not written yet; the last of them. */
struct pt_faults {
	__u64 inode, begin, end, bytes, offset;
	__u64 index;   /* page of the last */
	__u64 counted; /* the task's faults that were over when it began */
	__u32 dev, count, major;
	__s32 nr;      /* system call that it is in, or PT_SYSCALL_NONE */
	__u32 in_use;  /* its thread is just changing it */
	__u16 on;      /* there was a last */
	__u16 hit;     /* ... and it has been counted as a major one */
	__u16 flags;
	__u16 pad[3];
};

/* GPU calls that are not written yet; see run.bpf.h. */
struct pt_run {
	struct pt_ring_calls rec;
	__u32 n;
	__u32 in_use; /* somebody changes it */
};

/*
 * One thread of the target. Written by the CPU that switches the thread, and
 * its wake half by the CPU that wakes it; read by the iterator, which checks
 * off_ts again after reading. Only seq needs to be atomic.
 */
struct pt_thread {
	__u64 since;  /* last switch in or out */
	__u64 off_ts; /* switched out at; 0 while on a CPU */
	__u64 exec_ns; /* ... the scheduler's count of its CPU time then */
	__u64 wake_ts;
	__u64 object;
	__u64 arg[3];
	__u64 waker_object;
	__u64 waker_arg0;
	struct pt_totals tot;  /* the byte counts are taken when needed */
	struct pt_totals base; /* ... and count from here */
	__u64 read_ts; /* a read call runs since; 0 none */
	__u64 read_file; /* its struct file, alive until the call returns */
	__u64 read_inode;
	__u64 read_offset;
	__u64 read_bytes; /* fetched by the thread before it */
	__u64 fetch_seen; /* ... before the read after the last one (pages) */
	__u32 read_dev;
	__u32 read_kind;
	__u32 read_fn; /* which function it is in; see read.bpf.c */
	__s32 read_nr; /* ... of which system call (kprobe) */
	__u64 aio_req; /* the request that it submits to libaio */
	__u64 aio_ts;  /* ... since; 0 none */
	__s64 aio_res; /* ... what it got, if aio_done */
	struct pt_agg agg;
	struct pt_pages pages;
	struct pt_write_agg wagg;
	__u64 write_ts; /* a write or fsync call runs since; 0 none */
	__u64 write_file, write_inode;
	__u32 write_dev, write_fn;
	struct pt_faults faults;
	__u32 seq;
	__u32 start;
	__u32 dev;
	__u32 waker_dev;
	__u32 waker_tid;
	__u32 waker_tgid;
	__s32 syscall;
	__s32 waker_syscall;
	__u16 state;
	__u16 obj_kind;
	__u16 waker_obj_kind;
	__u16 flags;
	__u16 waker_in; /* PT_WAKER_* */
	__u16 pad;
	__u32 ports;	   /* of the internet socket that it waits on, and of its */
	__u32 waker_ports; /* waker's: as the kernel has them; 0 none */
	__u32 live; /* 1: initialised and not exited */
	__u32 outer_lib;
	__u32 aio_done;
	__u32 aio_pad;
	/* The outer GPU library's call entered last: its frame (0: none) and
	 * the return address in it; an inner one's whose return is skipped;
	 * where a call puts the handle that it makes; and its name. */
	__u64 outer_sp;
	__u64 outer_ra;
	__u64 skip_sp;
	/* A launch by the outer one that has not reached the inner one; held_ts 0: none. */
	__u64 held_ts, held_stream, held_v;
	__u32 held_id;
	__u32 held_flags;
	__u64 gpu_out;
	__u64 gpu_name;
	__u64 py_state; /* its PyThreadState, as it was found last (pystack.bpf.c) */
	__u32 py_away;	/* so many samples that it is not looked for yet */
	__u32 py_pad;
	__u64 epoll; /* it waits there: a struct eventpoll; 0 none */
	/* by PT_HIT_*: how often a hook met it, and when one that is timed began */
	__u64 hits[PT_HIT_NR], hit_ts[PT_HIT_NR];
	struct pt_run run;
};

struct pt_file_key {
	__u64 inode;
	__u32 dev;
	__u32 pad;
};

/* Processes of the target, by tgid. Not looked up in scheduler programs. */
struct pt_targets_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PT_MAX_TARGETS);
	__type(key, __u32);
	__type(value, struct pt_target);
};

/* Made by the iterator and at fork; everyone else only looks it up. */
struct pt_threads_map {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pt_thread);
};

/* The name under which a file was written last. */
struct pt_named {
	__u64 id;   /* tells a name from another; see pt_name_id() */
	__u32 text; /* PT_TEXT_*: is it mapped to be executed? */
	__u32 pad;
};
#define PT_TEXT_UNKNOWN 0
#define PT_TEXT_NO 1
#define PT_TEXT_YES 2

/* Files whose name was written; an evicted one is merely named again. */
struct pt_files_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PT_MAX_FILES);
	__type(key, struct pt_file_key);
	__type(value, struct pt_named);
};

struct pt_texts_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PT_MAX_TEXTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pt_text_key);
	__type(value, struct pt_text);
};

/* Kernels that launches by an outer library were seen to be. */
struct pt_handles_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PT_MAX_HANDLES);
	__type(key, struct pt_handle_key);
	__type(value, __u64);
};

/* Made when the ring is full. */
struct pt_missed_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PT_MAX_MISSED);
	__type(key, struct pt_missed_key);
	__type(value, struct pt_missed);
};

struct pt_ring_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024); /* user space sets its own */
};

struct pt_targets_map pt_targets __weak SEC(".maps");
struct pt_threads_map pt_threads __weak SEC(".maps");
struct pt_files_map pt_files __weak SEC(".maps");
struct pt_texts_map pt_texts __weak SEC(".maps");
struct pt_handles_map pt_handles __weak SEC(".maps");
struct pt_missed_map pt_missed __weak SEC(".maps");
struct pt_ring_map pt_ring __weak SEC(".maps");

const volatile struct pt_config pt_cfg __weak = {};
__u32 pt_armed __weak = 0;   /* 0: every hook is silent; else PT_ARMED, _QUIET */
__u32 pt_pass __weak = 0;    /* PT_PASS_* of the next iterator run */
__u32 pt_inner __weak = 0;   /* 1: an inner GPU library is attached somewhere */
__u64 pt_handles_new __weak = 0; /* how often pt_handles has changed */
__u64 pt_pass_ts __weak = 0; /* moment that the pass describes; 0: now */
__u32 pt_tracer __weak = 0;  /* the tracer: it supplies nothing; 0: no pass has run yet */
__u32 pt_outsiders __weak = 0; /* processes outside of the tree in pt_targets */
__u64 pt_loss[PT_LOSS_NR] __weak = {};
struct pt_hits pt_hits __weak = {};
struct pt_py_counts pt_py_counts __weak = {};
__u32 pt_py_tick __weak = 0; /* ns of an interrupt by which a sample comes */
__u32 pt_saved __weak = 0; /* PT_SAVE_*: what a budget does without */

#endif
