/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exact GPU times for a trace: an agent in every trainer, their records drained,
 * and all of it taken out again. Whatever fails, the trace goes on without, and
 * one sentence says so.
 */
#ifndef PT_CUPTI_H
#define PT_CUPTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PT_CUPTI_MAX 16 /* processes with an agent */

struct pt_cupti;

struct pt_cupti_opts {
	/* every record, as pt_capture_drain() hands them */
	void (*record)(void *ctx, const void *rec, size_t len);
	void (*say)(void *ctx, const char *sentence); /* for people */
	void *ctx;
	bool no_gpu_probes; /* no thread is stopped at a GPU function */
};

/* NULL: out of memory. */
struct pt_cupti *pt_cupti_new(const struct pt_cupti_opts *o);

/* Also this trainer; one that is known, or one too many, changes nothing. */
void pt_cupti_add(struct pt_cupti *c, pid_t pid);
/* Call at least ten times a second: results, signs of life, records. Never
 * waits. */
void pt_cupti_poll(struct pt_cupti *c);
/*
 * Quieten every agent and take what they still have: at most 2 s, in which
 * `meanwhile` (may be NULL) is called every few milliseconds. Then begin to take
 * them out, beside what the caller does next.
 */
void pt_cupti_quiet(struct pt_cupti *c, void (*meanwhile)(void *ctx), void *ctx);
/* Wait until they are out, at most `ms`. */
void pt_cupti_settle(struct pt_cupti *c, unsigned ms);
/* How it went: the door ("cupti" or "none", static) and a note of at most `size`
 * bytes, "" where there is nothing to say. */
const char *pt_cupti_state(const struct pt_cupti *c, char *note, size_t size);
/* Records that never came, so far. */
uint64_t pt_cupti_lost(const struct pt_cupti *c);
/* Quieten, take out (at most 3 s more) and free; says what has to stay. */
void pt_cupti_free(struct pt_cupti *c);

/* Would it work on this process? A sentence either way into `text`. 0 yes. */
int pt_cupti_check(pid_t pid, char *text, size_t size);

#endif
