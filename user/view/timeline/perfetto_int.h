/* SPDX-License-Identifier: BSD-2-Clause */
/* The Perfetto writer's state, and its packets; private to its two files. */
#ifndef PT_PERFETTO_INT_H
#define PT_PERFETTO_INT_H

#include <stdio.h>

#include "base/hash.h"
#include "perfetto.pb-c.h"
#include "view/timeline/trace.h"

#define SEQUENCE 1	 /* all packets are of one sequence */
#define CLOCK_ID_REALTIME 1
#define CLOCK_ID_MONOTONIC 3
#define STATE_CLEARED 1
#define NEEDS_STATE 2
#define NEST_MAX 160 /* Python calls deep */
#define CACHE 1024 /* strings found by their address; a power of two */

typedef Perfetto__Protos__TracePacket packet;
typedef Perfetto__Protos__TrackEvent track_event;

enum pt_pf_space { PT_PF_NAMES, PT_PF_CATS, PT_PF_KEYS, PT_PF_TEXTS, PT_PF_SPACES };

struct text {
	uint64_t iid;
	UT_hash_handle hh;
	char raw[];
};

struct seen { /* texts live as long as the walk, so an address is a text */
	const char *at;
	uint64_t iid;
};

struct perfetto {
	struct pt_trace_writer w;
	FILE *out;
	uint8_t *buf;
	size_t cap;
	struct text *texts[PT_PF_SPACES];
	uint64_t last_iid[PT_PF_SPACES];
	struct seen cache[PT_PF_SPACES][CACHE];
	/* what the next packet is the first to name */
	Perfetto__Protos__EventName names[1], *names_at[1];
	Perfetto__Protos__EventCategory cats[1], *cats_at[1];
	Perfetto__Protos__DebugAnnotationName keys[PT_TRACE_ARGS],
		*keys_at[PT_TRACE_ARGS];
	Perfetto__Protos__InternedString strs[PT_TRACE_ARGS],
		*strs_at[PT_TRACE_ARGS];
	char *made[2 * PT_TRACE_ARGS + 2]; /* escaped copies of them */
	size_t n_made;
	Perfetto__Protos__InternedData fresh;
	/* slices of this track that have not ended */
	uint64_t track;
	struct {
		uint64_t end, got; /* got: flow of the batch waited for; or 0 */
	} nest[NEST_MAX];
	size_t depth;
};

/* Write a packet; 0, -ENOMEM or the errno of the write. */
int pt_pf_packet(struct perfetto *p, packet *pk);
/* The number of a text, which the next event tells if it is the first to name
 * it. `raw` lives as long as the writer. 0 or -ENOMEM. */
int pt_pf_number(struct perfetto *p, enum pt_pf_space in, const char *raw,
		 uint64_t *iid);
/* Forget the texts that no event has told yet. */
void pt_pf_forget(struct perfetto *p);
/* Write an event at `ts`, with the texts that it is the first to name. */
int pt_pf_event(struct perfetto *p, uint64_t ts, track_event *e);

#endif
