/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What waits to be sent: log records and exports of metrics, bounded in bytes. What
 * does not fit displaces the oldest metrics, then the oldest records; what is being
 * sent is never displaced. Not thread-safe. Pure.
 */
#ifndef PT_AGENT_OTLP_QUEUE_H
#define PT_AGENT_OTLP_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pt_otlp_signal { PT_OTLP_LOGS, PT_OTLP_METRICS, PT_OTLP_SIGNALS };

struct pt_otlp_item {
	struct pt_otlp_item *next;
	bool sending;
	size_t len, count; /* count: of records or data points */
	uint8_t *data;
};

struct pt_otlp_queue {
	struct pt_otlp_item *first[PT_OTLP_SIGNALS], **end[PT_OTLP_SIGNALS];
	size_t bytes, most;
	uint64_t dropped;		    /* items */
	uint64_t lost[PT_OTLP_SIGNALS]; /* records, points: displaced or refused */
};

void pt_otlp_queue_init(struct pt_otlp_queue *q, size_t most);
/* What is left is not counted as lost. */
void pt_otlp_queue_free(struct pt_otlp_queue *q);

/* `data` (malloc) is taken whatever is returned. 0 or -ENOMEM. What is larger than
 * the queue is lost at once. */
int pt_otlp_queue_put(struct pt_otlp_queue *q, enum pt_otlp_signal s, uint8_t *data,
		      size_t len, size_t count);

/* Marks the oldest of a signal as being sent: of metrics one, of records as many as
 * fit into `most` bytes, but one at least. How many; *bytes: of them all. */
size_t pt_otlp_queue_take(struct pt_otlp_queue *q, enum pt_otlp_signal s, size_t most,
			  size_t *bytes);

enum pt_otlp_fate { PT_OTLP_SENT, PT_OTLP_AGAIN, PT_OTLP_REFUSED };
/* What became of those. How many records or points they were. */
size_t pt_otlp_queue_done(struct pt_otlp_queue *q, enum pt_otlp_signal s,
			  enum pt_otlp_fate fate);

#endif
