/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Python's stacks of threads that are on a core: what pystack.bpf.c is told and tells. */
#ifndef PT_PYSTACK_H
#define PT_PYSTACK_H

#include "abi.h"

#define PT_PY_FRAMES 128      /* of a stack, the innermost; what is above is cut */
#define PT_PY_CHAIN 192	      /* ... and those between C and Python, which are skipped */
#define PT_PY_STATES 1024     /* threads of an interpreter that are looked through */
/* ... and on kernels before 5.17, which look longer at the program than it ever runs */
#define PT_PY_STATES_FEW 64
#define PT_PY_CHAIN_FEW 80
#define PT_PY_RAW 128	      /* bytes of a frame in which all lies that is read of it */
#define PT_PY_NOWHERE 0xffffu /* for an offset: it has no such thing */
#define PT_PY_AWAY 16	      /* a thread without Python is not looked for so many times */
#define PT_PY_SAMPLED 1024    /* processes; as many are looked at from outside */
#define PT_PY_RING_BYTES (512 * 1024)

/* Value of the map of processes that are sampled, by process id: where its interpreter is
 * and what layout.def has of its version, bytes. Of a frame code, previous and instr are
 * multiples of 8; they and owner lie within `size`, and that is at most PT_PY_RAW. */
struct pt_py_where {
	__u64 runtime;
	__u32 interpreters, threads;
	__u32 next, id, frame; /* of a thread */
	__u32 cframe;	       /* `frame` points to what has the frame there; or NOWHERE */
	__u32 code, previous, instr, owner; /* owner may be NOWHERE */
	__u32 size;
	__u32 native; /* 1: `id` is the kernel's number of the thread, 0: its thread pointer */
	__u32 apart;  /* 1: ... its number in the process' own PID name space */
	__u32 pad;
};
_Static_assert(sizeof(struct pt_py_where) == 64, "pt_py_where");

/* What is in the ring: as long as it has frames. All but the numbers of the thread is out
 * of the process' memory, and as true as that. */
struct pt_py_frame_at {
	__u64 code, instr; /* as the frame has them: f_lasti is the low half, up to 3.10 */
};
struct pt_py_sample {
	__u64 ts;
	__u32 tgid, tid;
	__u32 n;
	__u32 pad;
	__u64 ip; /* where the process was, outside of the kernel; 0: not known */
	struct pt_py_frame_at at[PT_PY_FRAMES];
};
_Static_assert(sizeof(struct pt_py_sample) == 32 + 16 * PT_PY_FRAMES, "pt_py_sample");

/* Since the session began. */
struct pt_py_counts {
	__u64 samples;	/* that were written */
	__u64 ns;	/* what all that was tried took, interrupts and failures included */
	__u64 tried;
	__u64 unread;	/* dropped: a page of the stack was not in memory, or is none */
	__u64 no_stack; /* the thread has no Python, or runs none now */
	__u64 full;	/* dropped: there was no room in the ring */
};

#endif
