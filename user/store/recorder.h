/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Recording while tracing: takes records one by one and never waits for the
 * disk. Blocks of them are written by a thread; where that falls behind by
 * more than a bound, whole blocks are dropped and counted.
 */
#ifndef PT_STORE_RECORDER_H
#define PT_STORE_RECORDER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct pt_recorder;

/* Records to `f` (stays the caller's, untouched until pt_recorder_close()).
 * With `max` bytes the oldest chunks go; `again`, called on the recorder's thread,
 * then gives another file for the rest, and `f` is closed by whoever gave it.
 * 0, -ENOMEM, or the negative errno of a thread that cannot be made. */
struct pt_again; /* store/shrink.h */
int pt_recorder_open(struct pt_recorder **out, FILE *f, uint64_t unix_ns,
		     uint64_t max, const struct pt_again *again);

/* One record. Never blocks, never fails: what cannot be kept is counted. */
void pt_recorder_put(struct pt_recorder *r, const void *rec, size_t len);

/* Hand over what has gathered, so that it is on its way to the disk: call it
 * about once a second. */
void pt_recorder_flush(struct pt_recorder *r);

/* What is known beside the records, so far: a later one replaces it. 0 or
 * -ENOMEM. */
int pt_recorder_about(struct pt_recorder *r, const void *data, size_t len);

struct pt_recorder_state {
	uint64_t records, bytes; /* on their way out or written */
	uint64_t dropped;	 /* records */
	uint64_t gone; /* records that went because the size is limited */
	int error;		 /* the first, a negative errno; 0: none */
};
void pt_recorder_state(struct pt_recorder *r, struct pt_recorder_state *out);

/*
 * Write what is left, index and end mark; free. *last (may be NULL) is how it
 * stood at the end.
 * Waits for the disk, `timeout_ms` at most. 0; the first error (a negative
 * errno); -ETIMEDOUT: the disk does not answer, the thread is left to it and
 * `f` must not be touched any more.
 */
int pt_recorder_close(struct pt_recorder *r, unsigned timeout_ms,
		      struct pt_recorder_state *last);

#endif
