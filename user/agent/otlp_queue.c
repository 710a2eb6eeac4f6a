/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/otlp_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t size_of(size_t len)
{
	return len + sizeof(struct pt_otlp_item);
}

void pt_otlp_queue_init(struct pt_otlp_queue *q, size_t most)
{
	int s;

	memset(q, 0, sizeof(*q));
	q->most = most;
	for (s = 0; s < PT_OTLP_SIGNALS; s++)
		q->end[s] = &q->first[s];
}

/* Takes the item at *link out and frees it. */
static void drop(struct pt_otlp_queue *q, enum pt_otlp_signal s,
		 struct pt_otlp_item **link)
{
	struct pt_otlp_item *it = *link;

	*link = it->next;
	if (q->end[s] == &it->next)
		q->end[s] = link;
	q->bytes -= size_of(it->len);
	free(it->data);
	free(it);
}

static void lose(struct pt_otlp_queue *q, enum pt_otlp_signal s, size_t count)
{
	q->dropped++;
	q->lost[s] += count;
}

void pt_otlp_queue_free(struct pt_otlp_queue *q)
{
	int s;

	for (s = 0; s < PT_OTLP_SIGNALS; s++)
		while (q->first[s])
			drop(q, (enum pt_otlp_signal)s, &q->first[s]);
}

/* The oldest that may go. Those being sent are the first of their signal. */
static bool displace(struct pt_otlp_queue *q, enum pt_otlp_signal s)
{
	struct pt_otlp_item **link = &q->first[s];

	while (*link && (*link)->sending)
		link = &(*link)->next;
	if (!*link)
		return false;
	lose(q, s, (*link)->count);
	drop(q, s, link);
	return true;
}

int pt_otlp_queue_put(struct pt_otlp_queue *q, enum pt_otlp_signal s, uint8_t *data,
		      size_t len, size_t count)
{
	struct pt_otlp_item *it;
	bool room = size_of(len) <= q->most;

	/* Metrics that are new displace old ones, but no record of a change. */
	while (room && q->bytes + size_of(len) > q->most)
		room = displace(q, PT_OTLP_METRICS) ||
		       (s == PT_OTLP_LOGS && displace(q, PT_OTLP_LOGS));
	it = room ? calloc(1, sizeof(*it)) : NULL;
	if (!it) {
		lose(q, s, count);
		free(data);
		return room ? -ENOMEM : 0;
	}
	it->len = len;
	it->count = count;
	it->data = data;
	*q->end[s] = it;
	q->end[s] = &it->next;
	q->bytes += size_of(len);
	return 0;
}

size_t pt_otlp_queue_take(struct pt_otlp_queue *q, enum pt_otlp_signal s, size_t most,
			  size_t *bytes)
{
	struct pt_otlp_item *it;
	size_t n = 0;

	*bytes = 0;
	for (it = q->first[s]; it; it = it->next) {
		if (n && (s == PT_OTLP_METRICS || *bytes + it->len > most))
			break;
		it->sending = true;
		*bytes += it->len;
		n++;
	}
	return n;
}

size_t pt_otlp_queue_done(struct pt_otlp_queue *q, enum pt_otlp_signal s,
			  enum pt_otlp_fate fate)
{
	struct pt_otlp_item *it;
	size_t n = 0;

	if (fate == PT_OTLP_AGAIN) {
		for (it = q->first[s]; it && it->sending; it = it->next) {
			it->sending = false;
			n += it->count;
		}
		return n;
	}
	while (q->first[s] && q->first[s]->sending) {
		n += q->first[s]->count;
		if (fate == PT_OTLP_REFUSED)
			lose(q, s, q->first[s]->count);
		drop(q, s, &q->first[s]);
	}
	return n;
}
