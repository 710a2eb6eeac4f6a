/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The last seconds of a running capture, as a capture of their own: the records
 * of that time, after what was said earlier and still holds (who the threads
 * are, names of files and kernels). Fed to a new model they are one part, like
 * any other capture; a running model would keep all that ever lived for days.
 * Memory is bounded: where records come faster than it can keep them, the window
 * gets shorter.
 */
#ifndef PT_TOP_WINDOW_H
#define PT_TOP_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"

struct pt_window;

/* `span_ns`: how far it reaches back; `max_bytes`: of the records in it.
 * NULL: out of memory. */
struct pt_window *pt_window_new(uint64_t span_ns, size_t max_bytes);
void pt_window_free(struct pt_window *w);

/* From now on it reaches back so far: twice as far as at first, at most. */
void pt_window_reach(struct pt_window *w, uint64_t span_ns);

/* What came before is not held for want of room; 0: all is. */
uint64_t pt_window_kept_from(const struct pt_window *w);

/* Take a record, in about the order of time. 0; -EINVAL: malformed, left out;
 * -ENOMEM: left out. */
int pt_window_put(struct pt_window *w, const void *rec, size_t len);

/*
 * Hand the window that ends at `now_ns` (CLOCK_MONOTONIC) to `fn`, record by
 * record: a begin mark, what holds, the records, an end mark. What began before
 * the window is cut at its begin, as the capture cuts what began before itself;
 * losses are those of the window. Returns the window's length, nanoseconds.
 */
uint64_t pt_window_feed(struct pt_window *w, uint64_t now_ns,
			void (*fn)(void *ctx, const void *rec, size_t len),
			void *ctx);

/* Memory of records and facts, bytes. */
size_t pt_window_bytes(const struct pt_window *w);

#endif
