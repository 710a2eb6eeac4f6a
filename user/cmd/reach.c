// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/reach.h"

#include <errno.h>
#include <string.h>

#include "base/minmax.h"
#include "base/records.h"
#include "model/timeline.h"

/* Roles, hand-offs and queues are known from what lies around a part: as much as
 * its own length, but not less than the one nor more than the other. */
#define LEAST_NS UINT64_C(2000000000)
#define MOST_NS UINT64_C(10000000000)

void pt_reach_set(struct pt_reach *h, const struct pt_analysis_opts *o)
{
	uint64_t length;

	*h = (struct pt_reach){ .on = true, .absolute = o->steps_known };
	h->from = o->steps_known ? o->steps_from : o->from_ns;
	h->until = o->steps_known ? o->steps_until : o->until_ns;
	length = h->until > h->from ? h->until - h->from : MOST_NS;
	h->margin = pt_min64(pt_max64(length, LEAST_NS), MOST_NS);
}

/* Of the capture, dropped or not. */
static uint64_t begin_of(const struct pt_model *m)
{
	uint64_t begin = m->begin ? m->begin : m->first_ts;

	return begin - pt_min64(m->trimmed_ns, begin);
}

static uint64_t sum(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* The last moment that is held. */
static uint64_t last_of(const struct pt_reach *h, const struct pt_model *m)
{
	if (!h->until)
		return UINT64_MAX;
	return sum(sum(h->absolute ? 0 : begin_of(m), h->until), h->margin);
}

/* Names and counters are small, and what they tell may be of the part. */
static bool is_timeline(uint16_t kind)
{
	const struct pt_rec_kind *k = pt_rec_kind(kind);

	return k && (k->life == PT_LIFE_EVENT || k->life == PT_LIFE_TREE);
}

bool pt_reach_wants(struct pt_reach *h, const struct pt_model *m, void *rec,
		    size_t len)
{
	struct pt_rec_mark mark;
	struct pt_hdr hdr;
	uint64_t last;

	if (!h->on || !m->begin)
		return true;
	memcpy(&hdr, rec, sizeof(hdr));
	last = last_of(h, m);
	if (hdr.ts <= last)
		return true;
	if (is_timeline(hdr.kind)) {
		h->ended = true;
		return false;
	}
	if (hdr.kind == PT_REC_MARK && h->ended && len >= sizeof(mark)) {
		memcpy(&mark, rec, sizeof(mark));
		if (mark.mark == PT_MARK_END) {
			mark.hdr.ts = last;
			memcpy(rec, &mark, sizeof(mark));
		}
	}
	return true;
}

int pt_reach_drop(const struct pt_reach *h, struct pt_model *m, uint64_t stride,
		  uint64_t most)
{
	uint64_t from = h->from;
	int err;

	if (pt_model_bytes(m) <= stride)
		return 0;
	if (!h->absolute)
		from = sum(begin_of(m), from);
	from -= pt_min64(h->margin, from);
	err = pt_model_cut(m, pt_min64(from, m->last_ts));
	return err ? err : pt_model_bytes(m) > most ? -E2BIG : 0;
}

uint64_t pt_reach_fits(const struct pt_reach *h, const struct pt_model *m)
{
	uint64_t held = m->last_ts - pt_min64(m->begin, m->last_ts);

	return held - pt_min64(held, 2 * h->margin);
}
