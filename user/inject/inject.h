/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bring the agent library into a running process, and take it out again.
 *
 * One thread of the process is borrowed at a safe point and made to call
 * memfd_create(), dlopen() and the agent's entry point. The calls return into a
 * signal frame on the thread's own stack, which the C library's own
 * rt_sigreturn() turns back into what the thread did before: it comes back by
 * itself, whatever becomes of the tracer meanwhile. Nothing of the process's
 * code is patched but by the kernel's uprobes, and nothing that this leaves behind can
 * stop or kill it: they belong to descriptors of the tracer and go with them.
 *
 * The work is done in a process of its own, which ends with it: a thread of the
 * target that runs is let go by that end, without being stopped once more.
 */
#ifndef PT_INJECT_H
#define PT_INJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "inject/ring.h"

#define PT_INJECT_POINT_MS 2000 /* to find a safe point */
#define PT_INJECT_CALL_MS 5000	/* for one borrowed call */

/* Moments of an injection, for tests that end the tracer there. */
enum pt_inject_stage {
	PT_STAGE_WATCHED = 1, /* probes are armed, nobody is stopped */
	PT_STAGE_SEIZED,
	PT_STAGE_STOPPED,	/* at a safe point, as it was */
	PT_STAGE_FRAMED,	/* the way back lies on the stack */
	PT_STAGE_SENT,		/* registers of the first call are set */
	PT_STAGE_MEMFD,		/* the first descriptor is there */
	PT_STAGE_IN_DLOPEN,	/* dlopen() has begun */
	PT_STAGE_OPENED,	/* and has returned */
	PT_STAGE_STARTED,	/* the agent's entry point has returned */
	PT_STAGE_LET_GO,
};

struct pt_inject_opts {
	pid_t pid;
	const void *so; /* the agent library's bytes; the caller's */
	size_t so_len;
	const struct pt_ring_opts *ring; /* NULL: defaults */
	unsigned point_ms, call_ms; /* 0: the defaults above */
	/* which safe points are tried, or'd; 0: all */
	unsigned points;
	/* may be NULL; called in the process that does the work */
	void (*stage)(void *ctx, enum pt_inject_stage s);
	void *ctx;
};

#define PT_POINT_GPU 1	   /* entry of a GPU function */
#define PT_POINT_LIBC 2	   /* entry of a waiting function of the C library */
#define PT_POINT_BLOCKED 4 /* inside a wait without end, begun anew */

/* What an injection left in the process. Plain data. */
struct pt_injected {
	pid_t pid;
	uint64_t start_ticks; /* of the process */
	int fd;		      /* the ring's, in the process; -1 none */
	uint64_t base;	      /* of the library's mapping; 0: none */
	uint64_t handle;      /* dlopen()'s; 0: not ours to close */
	char point[64];	      /* where the thread was borrowed, for people */
	pid_t tid;	      /* which thread */
	uint32_t stopped_us;  /* how long */
};

/*
 * Begin to inject, or (with `left`, what an injection left) to take it out
 * again; the agent must have stopped then (its `state`). Does not block; `o` and
 * what it points to are needed no longer than this call, the library's bytes
 * excepted. NULL: no process could be made.
 *
 * The result is 0, or for a retraction 1 (the library has to stay mapped, all else
 * is gone), or -errno with one sentence in `err`:
 *   -EOPNOTSUPP  this process cannot take it (static, musl, 32 bits, seccomp ...)
 *   -EPERM       tracing it is denied
 *   -EAGAIN      no safe point in time; nothing was touched
 *   -EBUSY       another tracer is on it, or another agent is at work
 *   -ETIMEDOUT   a call did not return in time: the thread was let go, finishes
 *                it by itself and goes on
 *   -ESRCH       it ended, or became another program
 *   -ELIBACC     it could not load the library
 */
struct pt_inject_job;
struct pt_inject_job *pt_inject_begin(const struct pt_inject_opts *o,
				      const struct pt_injected *left);
/* Is it done? -EINPROGRESS, or the result; `out` says, even after an error, what
 * is left in the process. */
int pt_inject_result(struct pt_inject_job *j, struct pt_injected *out,
		     struct pt_err *err);
/* No more of it where it has not touched the target yet: -ECANCELED then. */
void pt_inject_cancel(struct pt_inject_job *j);
/* End it now, as a tracer may be ended at any moment; the target goes on. */
void pt_inject_kill(struct pt_inject_job *j);
/* Free. One that is still at work is not ended: it goes on, bounded, and its
 * result is not seen. */
void pt_inject_free(struct pt_inject_job *j);

/*
 * Could it be done? Touches nothing and stops nobody, so that it cannot promise
 * it. 0 or -errno with a sentence.
 */
int pt_inject_check(pid_t pid, struct pt_err *err);

#define PT_INJECT_LIB "pipetrace-agent-lib" /* the library's memfd */

#endif
