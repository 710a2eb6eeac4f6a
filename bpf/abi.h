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

/* Kinds of record (records.def) from here on are made in user space. */
#define PT_REC_USER 64

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
#define PT_F_ACCEPTED 0x8000	  /* SOCK: a Unix socket with a name of its own,
				   * whose other end has none: it was accepted,
				   * or takes datagrams of anybody */

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

/* ---- the records: records.def --------------------------------------------- */

#define PT_RECORD(name, oldest, size, longest)                                 \
	_Static_assert((oldest) <= (size) && (size) <= (longest) &&            \
		       (longest) <= PT_REC_MAX, #name);                        \
	enum { PT_SIZE_OF_##name = (size) };                                   \
	struct pt_rec_##name {                                                 \
		struct pt_hdr hdr;
#define PT_FIELD(type, member) type member;
#define PT_ARRAY(type, member, n) type member[n];
#define PT_TEXT(member, bytes) char member[bytes];
#define PT_TOTALS(member) struct pt_totals member;
#define PT_END };
#define PT_KIND(kind, number, name, life, feed)                                \
	_Static_assert(sizeof(struct pt_rec_##name) == PT_SIZE_OF_##name, #name);
#include "records.def"

enum {
#define PT_KIND(kind, number, name, life, feed) PT_REC_##kind = (number),
#include "records.def"
};

/*
 * In the ring alone, never in a recording: GPU calls of a thread of which only the
 * beginning is watched, one behind the other. The capture hands on a GPU_ENTER record for
 * each. As many as hdr.size has room for; hdr.seq is the first one's, hdr.ts the last's.
 */
#define PT_REC_CALLS 18
#define PT_CALLS_MAX 19
#define PT_CALL_UNREAD 0x80000000u /* in `after`: as PT_F_READ_FAILED */
struct pt_ring_call {
	__u64 stream, v; /* as in pt_rec_gpu; v[0] */
	__u32 after;	 /* ns behind begin_ts */
	__u32 id;	 /* the lower half of its cookie: api and lib */
};
struct pt_ring_calls {
	struct pt_hdr hdr;
	__u64 begin_ts;
	struct pt_ring_call call[PT_CALLS_MAX];
};
_Static_assert(sizeof(struct pt_ring_call) == 24, "pt_ring_call");
_Static_assert(sizeof(struct pt_ring_calls) == 496, "pt_ring_calls");

/* Attach cookie of a GPU entry point. Slots: words of arguments, in order, first those
 * in registers (six on x86-64, eight on arm64), then those on the stack; 15 = absent. */
#define PT_COOKIE(api, lib, stream, v0, v1, v2)                                \
	((__u64)(api) | ((__u64)(lib) << 16) | ((__u64)(stream) << 32) |       \
	 ((__u64)(v0) << 36) | ((__u64)(v1) << 40) | ((__u64)(v2) << 44))
#define PT_COOKIE_WITH(via, layer, ret)                                        \
	(((__u64)(via) << 48) | ((__u64)(layer) << 52) | ((__u64)(ret) << 54))
#define PT_COOKIE_API(c) ((__u32)((c) & 0xffff))
#define PT_COOKIE_LIB(c) ((__u32)(((c) >> 16) & 0xffff))
#define PT_COOKIE_STREAM(c) ((__u32)(((c) >> 32) & 15))
#define PT_COOKIE_V(c, i) ((__u32)(((c) >> (36 + 4 * (i))) & 15))
#define PT_COOKIE_ONE(c) (((c) >> 40 & 0xff) == 0xff) /* v1 and v2 are absent */
#define PT_COOKIE_VIA(c) ((__u32)(((c) >> 48) & 15))
#define PT_COOKIE_LAYER(c) ((__u32)(((c) >> 52) & 3))
#define PT_COOKIE_RET(c) ((__u32)(((c) >> 54) & 1)) /* its return is watched */
#define PT_COOKIE_STEPPED ((__u64)1 << 55) /* where the kernel steps an instruction */
#define PT_COOKIE_RUN ((__u64)1 << 56) /* its calls travel together (PT_REC_CALLS) */
#define PT_COOKIE_LAUNCH ((__u64)1 << 57) /* of a layer: counts where it reaches the driver */
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
#define PT_VIA_EXTENT 8	  /* ... cudaExtent, by its address (arm64) */

/* A call that passes two libraries counts once, where it came in; a launch where it comes to. */
#define PT_LAYER_ONLY 0	 /* nothing above or below it is probed */
#define PT_LAYER_OUTER 1 /* may call an inner one */
#define PT_LAYER_INNER 2 /* not recorded when an outer one called it */

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
