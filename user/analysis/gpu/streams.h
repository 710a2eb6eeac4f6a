/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the streams of a process hold, call after call, and what that says for
 * certain of its devices. Calls come in the order of their begin. `n` is a node
 * of q->devices; times are ns; those that return int: 0 or -ENOMEM.
 */
#ifndef PT_ANALYSIS_GPU_STREAMS_H
#define PT_ANALYSIS_GPU_STREAMS_H

#include "analysis/gpu/passes.h"

/* Index of a handle's stream. PT_GOP_ALL: there are too many, and nothing is
 * certain any more; PT_GOP_ALL - 1: out of memory. */
uint32_t pt_gq_stream(struct pt_gqueue *q, uint64_t handle, uint16_t dev);
/* Device `n` has work from `ts` on, perhaps: the idle time before it is kept. */
int pt_gq_idle_until(struct pt_gqueue *q, uint16_t n, uint64_t ts);
/* Work for stream `at`. */
int pt_gq_submit(struct pt_gqueue *q, const struct pt_gpu_call *c, uint16_t n,
		 uint32_t at);
/* What was submitted before `before` to a stream of the device (PT_GOP_ALL: to
 * any of them) has completed by `at`; of another thread's longer sync, that may
 * lie behind the present call. */
void pt_gq_complete(struct pt_gqueue *q, uint16_t n, uint32_t stream,
		    uint64_t before, uint64_t at);
/* Devices that have nothing left are idle from `at` on. */
void pt_gq_find_drained(struct pt_gqueue *q, uint64_t at);
/* Since when the device must have been at work, if a wait of `stream` that
 * began at `begin` found it so; UINT64_MAX: it need not have been. */
uint64_t pt_gq_busy_since(const struct pt_gqueue *q, uint16_t n,
			  uint32_t stream, uint64_t begin, uint64_t end);
/* ... and so it was certainly busy from then until shortly before `end`. */
int pt_gq_note_busy(struct pt_gqueue *q, uint16_t n, uint64_t from,
		    uint64_t end);
/* The last submission to any stream, `before` at the latest. */
uint64_t pt_gq_last_submit(const struct pt_gqueue *q, uint64_t before);
/* Keep a sync, to tell devices apart that nobody was seen to choose. */
void pt_gq_remember(struct pt_gqueue *q, uint16_t n, const struct pt_gpast *p);

#endif
