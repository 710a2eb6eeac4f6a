/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the in-target agent and the tracer share: one piece of memory, a memfd
 * that the target holds open. The agent writes records of abi.h (PT_REC_ACT,
 * PT_REC_NAME) into the ring and its state beside it; the tracer reads them,
 * and says by `beat_ns` that it is alive and by `want` what it wants.
 *
 * Each side trusts nothing that the other wrote: sizes and positions are
 * checked at every use, and the tracer never waits for the agent unbounded.
 * Both sides are of one processor; fields are read and written with __atomic builtins.
 */
#ifndef PT_AGENT_H
#define PT_AGENT_H

#include <stdint.h>

#define PT_AGENT_MAGIC 0x50544147u /* "PTAG" */
#define PT_AGENT_VERSION 1
#define PT_AGENT_RING (8u << 20) /* bytes, a power of two */
/* Without a sign of life from the tracer for so long, the agent goes quiet on
 * its own: activities off, callbacks unsubscribed, thread gone. */
#define PT_AGENT_ORPHAN_NS 3000000000ull
#define PT_AGENT_MEMFD "pipetrace-agent" /* the memfd's name */

enum pt_agent_want {
	PT_AGENT_RUN = 1,
	PT_AGENT_QUIET = 2, /* flush, switch all off, end the agent's thread */
};

enum pt_agent_state {
	PT_AGENT_NEW = 0,
	PT_AGENT_STARTING,
	PT_AGENT_RUNNING,  /* activities are on */
	PT_AGENT_STOPPED,  /* quiet: no thread, no subscriber, nothing on */
	PT_AGENT_REFUSED,  /* could not begin, see `why`; as quiet as STOPPED */
};

enum pt_agent_why {
	PT_AGENT_OK = 0,
	PT_AGENT_NO_CUPTI,	/* the library is not there, or lacks a symbol */
	PT_AGENT_IN_USE,	/* another profiler is subscribed */
	PT_AGENT_CUPTI_ERROR,	/* `cupti_error` says which */
	PT_AGENT_NO_THREAD,
	PT_AGENT_ORPHANED,	/* STOPPED because the tracer was gone */
	PT_AGENT_FORKED,	/* this is a child's copy: it does nothing */
};

struct pt_agent_shm {
	uint32_t magic, version; /* the tracer's, before pt_agent_start() */
	uint32_t size;		 /* of the whole mapping, bytes */
	uint32_t ring;		 /* bytes, a power of two */
	/* tracer -> agent */
	uint64_t beat_ns; /* CLOCK_MONOTONIC */
	uint32_t want;	  /* enum pt_agent_want */
	uint32_t flush_ms; /* how often activity buffers are collected */
	char cupti_path[256]; /* to load where the process has none; "" : by name */
	/* agent -> tracer */
	uint32_t state, why;
	int32_t cupti_error;	/* CUptiResult */
	uint32_t cupti_version; /* cuptiGetVersion() */
	int32_t thread;		/* tid of the agent's thread; 0 none */
	uint32_t timestamp_callback; /* 1: records are in CLOCK_MONOTONIC at source */
	uint64_t dropped;	/* by CUPTI itself, as it says */
	uint64_t no_room;	/* records that the ring had no room for */
	uint64_t unknown;	/* records of kinds or sizes not known here */
	uint64_t made;		/* records written */
	int64_t clock_offset_ns[2]; /* first and latest, without the callback */
	char said[160];		/* for people: who is subscribed, dlerror() ... */
	uint32_t pid;  /* of the process, as it sees itself: a child made by
			* fork has the descriptor too, but no agent */
	uint32_t pad[5];
	/* the ring: bytes ever written and ever read; records lie on 8-byte
	 * boundaries, one that does not fit before the end is preceded by a
	 * record of kind 0 that fills the rest (size: its length, or 0 where
	 * less than a header is left). */
	uint64_t head; /* agent */
	uint64_t tail; /* tracer */
};

/*
 * Started by CUDA the agent makes the memory itself and lies dormant: state NEW,
 * or after a use STOPPED or REFUSED, with `thread` set; it sleeps on `want` as a
 * shared futex. A tracer finds the descriptor by the memfd's name, checks `pid`,
 * and wants RUN. When that tracer goes the agent lies dormant again.
 */

/* Where the ring begins in the mapping. */
#define PT_AGENT_RING_AT 4096u

/*
 * The agent library's entry points, called by the injector on a thread of the
 * target that it holds at a safe point, or by CUDA (InitializeInjection, with
 * CUDA_INJECTION64_PATH set when the program was started).
 *
 * pt_agent_start: map the memfd `fd` (it stays open until pt_agent_stop), begin
 * in a thread of the agent's own, return at once: 0 or -errno. Progress is in
 * `state`. pt_agent_stop: to be called when `state` is STOPPED or REFUSED: joins
 * the thread, unmaps, closes the descriptor; 0 when nothing of ours is left and
 * the library may be closed, 1 when it has to stay mapped (CUPTI holds a pointer
 * into it), or -errno (-EBUSY: not stopped yet). Neither allocates with the
 * target's malloc on the calling thread beyond what pthread_create does.
 */
#define PT_AGENT_START "pt_agent_start"
#define PT_AGENT_STOP "pt_agent_stop"
int pt_agent_start(int fd);
int pt_agent_stop(void);
int InitializeInjection(void);

_Static_assert(sizeof(struct pt_agent_shm) <= PT_AGENT_RING_AT, "room for the head");
_Static_assert((PT_AGENT_RING & (PT_AGENT_RING - 1)) == 0, "a power of two");

#endif
