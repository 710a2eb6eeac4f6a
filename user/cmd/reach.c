// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/reach.h"

#include <errno.h>

#include "base/minmax.h"
#include "base/records.h"
#include "model/timeline.h"

/* Roles, hand-offs and queues are known from what lies around a part: as much as
 * its own length, but not less than the one nor more than the other. */
#define LEAST_NS UINT64_C(2000000000)
#define MOST_NS UINT64_C(10000000000)

static uint64_t sum(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void pt_reach_set(struct pt_reach *h, const struct pt_analysis_opts *o)
{
	uint64_t from = o->steps_known ? o->steps_from : o->from_ns;
	uint64_t until = o->steps_known ? o->steps_until : o->until_ns;
	uint64_t length = until > from ? until - from : MOST_NS;

	*h = (struct pt_reach){ .on = true, .placed = o->steps_known };
	h->margin = pt_min64(pt_max64(length, LEAST_NS), MOST_NS);
	h->from = from - pt_min64(h->margin, from);
	h->until = until ? sum(until, h->margin) : UINT64_MAX;
}

/* Names and counters are small, and what they tell may be of the part. */
static bool is_timeline(uint16_t kind)
{
	const struct pt_rec_kind *k = pt_rec_kind(kind);

	return k && (k->life == PT_LIFE_EVENT || k->life == PT_LIFE_TREE);
}

bool pt_reach_wants(struct pt_reach *h, const struct pt_model *m,
		    const struct pt_hdr *rec)
{
	if (!h->on || !m->begin)
		return true;
	if (!h->placed) {
		h->from = sum(h->from, m->begin);
		h->until = sum(h->until, m->begin);
		h->placed = true;
	}
	return rec->ts <= h->until || !is_timeline(rec->kind);
}

int pt_reach_drop(const struct pt_reach *h, struct pt_model *m, uint64_t stride,
		  uint64_t most)
{
	int err = 0;

	if (pt_model_timelines(m) <= stride)
		return 0;
	if (h->placed)
		err = pt_model_cut(m, pt_min64(h->from, m->last_ts));
	if (!err)
		pt_model_fold(m);
	return err ? err : pt_model_timelines(m) > most ? -E2BIG : 0;
}

uint64_t pt_reach_fits(const struct pt_reach *h, const struct pt_model *m)
{
	uint64_t held = m->last_ts - pt_min64(m->begin, m->last_ts);

	return held - pt_min64(held, 2 * h->margin);
}
