/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tracer's side of the memory that it shares with the in-target agent
 * (user/inject/agent/agent.h). The target can write all of it at any moment:
 * every size and position is read once, checked, and then used; records are
 * copied out before they are looked at; the file is sealed, so that it cannot
 * shrink under the mapping.
 *
 * One process, one ring. No function here waits. Not for several threads.
 */
#ifndef PT_INJECT_RING_H
#define PT_INJECT_RING_H

#include <stddef.h>
#include <stdint.h>

#include "inject/agent/agent.h"

struct pt_ring;

struct pt_ring_opts {
	const char *cupti_path; /* NULL: by name. Longer than fits: -ENAMETOOLONG */
	uint32_t flush_ms;	/* 0: 200 */
};

/*
 * Make the memfd behind `fd` (empty, made with MFD_ALLOW_SEALING; one of
 * pt_memfd_take() will do) what pt_agent_start() expects:
 * sized, sealed against shrinking and growing, its head filled in with
 * want = PT_AGENT_RUN and the present as beat. 0 or -errno.
 */
int pt_ring_setup(int fd, const struct pt_ring_opts *opts);

/*
 * Map one that stands, and claim it for this tracer. `fd`: read-write, of an
 * open file description of our own (pt_memfd_take());
 * it is duplicated, the caller closes its own. `pid`: the process that records
 * are of, as the tracer knows it; they are stamped with it whatever they say.
 * 0; -EPROTO: not such a memory, or of another version; -EBUSY: another tracer
 * has it (the claim ends with the tracer's life); -errno.
 * A claim does not change `want`: an agent that lies dormant begins with
 * pt_ring_want(PT_AGENT_RUN).
 */
int pt_ring_open(int fd, uint32_t pid, struct pt_ring **out);
/* Gives the claim back and unmaps; what the agent does is not changed. NULL:
 * nothing. */
void pt_ring_close(struct pt_ring *r);

/* A sign of life, CLOCK_MONOTONIC: at least once a second, else the agent
 * retires (PT_AGENT_ORPHAN_NS). */
void pt_ring_beat(struct pt_ring *r);
/* Also a sign of life. RUN: also clears what an earlier use left to read. */
void pt_ring_want(struct pt_ring *r, enum pt_agent_want want);

/* Returns 0 to go on; anything else ends the drain and is returned by it, and
 * the record counts as taken. `rec`: `len` bytes, aligned, valid in the call. */
typedef int (*pt_ring_sink)(void *ctx, const void *rec, size_t len);

/*
 * Hand on what has come, oldest first: PT_REC_ACT and PT_REC_NAME only, of the
 * size that is known here, times in order and not in the future, strings
 * ended. What is not so is counted in pt_ring_status.bad. Positions that make
 * no sense: all that is there is skipped, and counted once.
 * 0, or what the sink returned.
 */
int pt_ring_drain(struct pt_ring *r, pt_ring_sink sink, void *ctx);

struct pt_ring_status {
	enum pt_agent_state state;
	enum pt_agent_why why;
	int32_t cupti_error;	/* CUptiResult */
	uint32_t cupti_version;
	int32_t thread;		/* as the target's namespace numbers it */
	int timestamp_callback;
	uint64_t dropped, no_room, unknown, made; /* as the agent says */
	uint64_t taken; /* records handed on */
	uint64_t bad;	/* records refused here */
	char said[160]; /* ends with NUL; printable ASCII */
};
void pt_ring_status(const struct pt_ring *r, struct pt_ring_status *out);

/* Records that were made in the device or the agent and never came: for
 * PT_LOSS_ACTIVITY. */
uint64_t pt_ring_lost(const struct pt_ring *r);

/* A sentence part for people, e.g. "CUPTI is not there". Never NULL. */
const char *pt_agent_why_text(enum pt_agent_why why);

#endif
