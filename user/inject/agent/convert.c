/* SPDX-License-Identifier: BSD-2-Clause */
/* CUPTI's records to ours, and its clock to CLOCK_MONOTONIC. */
#include "agent_int.h"

#include <string.h>

struct ag_clock ag_clock;
uint32_t ag_cupti_version;
uint64_t ag_last_end;
bool ag_finishing;

/* ---- clock ------------------------------------------------------------------ */

/* The narrowest of a few brackets: the stamp lies at its middle. */
void ag_clock_measure(CUptiResult (*get)(uint64_t *))
{
	struct ag_clock *c = &ag_clock;
	uint64_t best = UINT64_MAX, stamp = 0, mono = 0;

	for (int i = 0; i < 8; i++) {
		uint64_t a = ag_now(), s = 0, b;

		if (get(&s))
			return;
		b = ag_now();
		if (b - a < best) {
			best = b - a;
			stamp = s;
			mono = a + (b - a) / 2;
		}
	}
	if (!c->mono[1]) {
		c->stamp[0] = c->stamp[1] = stamp;
		c->mono[0] = c->mono[1] = mono;
	} else if (stamp > c->stamp[1] && mono > c->mono[1]) {
		/* a base of less than some milliseconds tells no slope */
		if (mono - c->mono[1] > 20 * NS_PER_MS) {
			c->stamp[0] = c->stamp[1];
			c->mono[0] = c->mono[1];
		}
		c->stamp[1] = stamp;
		c->mono[1] = mono;
	} else { /* it was set back: only the latest holds */
		c->stamp[0] = c->stamp[1] = stamp;
		c->mono[0] = c->mono[1] = mono;
	}
}

static uint64_t to_mono(uint64_t stamp)
{
	const struct ag_clock *c = &ag_clock;
	uint64_t ds = c->stamp[1] - c->stamp[0], dm = c->mono[1] - c->mono[0];
	int64_t behind = (int64_t)(stamp - c->stamp[1]);
	int64_t skew; /* of the two clocks over the base */

	if (c->same)
		return stamp;
	if (!ds)
		return c->mono[1] + (uint64_t)behind;
	skew = (int64_t)(dm - ds);
	return c->mono[1] + (uint64_t)behind +
	       (uint64_t)(int64_t)((double)behind * (double)skew / (double)ds);
}

/* ---- records ---------------------------------------------------------------- */

static bool times(struct pt_rec_act *a, uint64_t start, uint64_t end)
{
	if (!start || end < start) /* CUPTI: no timing could be collected */
		return false;
	a->begin = to_mono(start);
	a->end = to_mono(end);
	if (a->end < a->begin)
		a->end = a->begin;
	a->hdr.ts = a->end;
	return true;
}

static bool from_kernel(struct pt_rec_act *a, const struct cupti_kernel *k)
{
	a->what = PT_ACT_KERNEL;
	a->device = k->device;
	a->context = k->context;
	a->stream = k->stream;
	a->correlation = k->correlation;
	if (ag_cupti_version >= CUPTI_VERSION_GRAPH_ID)
		a->graph = k->graph;
	if (a->graph || k->graph_node)
		a->flags |= PT_ACT_F_GRAPH;
	if (!times(a, k->start, k->end))
		return false;
	a->name = ag_name(k->name);
	return true;
}

/* CUpti_ActivityMemcpyKind as cudaMemcpyKind; arrays are device memory. */
static uint8_t copy_kind(uint8_t k)
{
	switch (k) {
	case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
	case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
		return 1;
	case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
	case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
		return 2;
	case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
		return 0;
	default:
		return 3;
	}
}

static bool from_copy(struct pt_rec_act *a, const struct cupti_memcpy *m)
{
	a->what = PT_ACT_COPY;
	a->detail = copy_kind(m->copy_kind);
	if (m->src_kind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE ||
	    m->dst_kind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE)
		a->flags |= PT_ACT_F_PAGEABLE;
	a->bytes = m->bytes;
	a->device = m->device;
	a->context = m->context;
	a->stream = m->stream;
	a->correlation = m->correlation;
	if (ag_cupti_version >= CUPTI_VERSION_GRAPH_ID)
		a->graph = m->graph;
	if (a->graph || m->graph_node)
		a->flags |= PT_ACT_F_GRAPH;
	return times(a, m->start, m->end);
}

static bool from_peer_copy(struct pt_rec_act *a, const struct cupti_memcpy2 *m)
{
	a->what = PT_ACT_COPY;
	a->detail = 3;
	a->bytes = m->bytes;
	a->device = m->device;
	a->context = m->context;
	a->stream = m->stream;
	a->correlation = m->correlation;
	if (m->graph_node)
		a->flags |= PT_ACT_F_GRAPH;
	return times(a, m->start, m->end);
}

static bool from_memset(struct pt_rec_act *a, const struct cupti_memset *m)
{
	a->what = PT_ACT_MEMSET;
	a->bytes = m->bytes;
	a->device = m->device;
	a->context = m->context;
	a->stream = m->stream;
	a->correlation = m->correlation;
	if (ag_cupti_version >= CUPTI_VERSION_GRAPH_ID)
		a->graph = m->graph;
	if (a->graph || m->graph_node)
		a->flags |= PT_ACT_F_GRAPH;
	return times(a, m->start, m->end);
}

static bool from_sync(struct pt_rec_act *a, const struct cupti_sync *s)
{
	a->what = PT_ACT_SYNC;
	a->detail = (uint8_t)s->type;
	a->context = s->context;
	a->stream = s->stream;
	a->correlation = s->correlation;
	a->device = UINT32_MAX; /* CUPTI does not say */
	return times(a, s->start, s->end);
}

static bool from_overhead(struct pt_rec_act *a, const struct cupti_overhead *o)
{
	uint32_t kind = o->overhead_kind;

	a->what = PT_ACT_OVERHEAD;
	a->detail = (uint8_t)(kind >> 16 ? 16 + (kind >> 16) : kind);
	a->device = UINT32_MAX;
	return times(a, o->start, o->end);
}

void ag_convert(const uint8_t *rec, size_t len)
{
	struct pt_rec_act a;
	uint32_t kind;
	bool ok = false;

	memset(&a, 0, sizeof(a));
	a.hdr.size = sizeof(a);
	a.hdr.kind = PT_REC_ACT;
	a.hdr.tid = a.hdr.tgid = (uint32_t)ag.pid;
	a.flags = ag_clock.same ? 0 : PT_ACT_F_HOST_CLOCK;
	if (len < sizeof(kind))
		return;
	memcpy(&kind, rec, sizeof(kind));
/* without the graph's number, which older records end before */
#define FROM(fn, type)                                                         \
	(len >= offsetof(struct type, graph) && fn(&a, (const void *)rec))
#define FROM_WHOLE(fn, type)                                                   \
	(len >= sizeof(struct type) && fn(&a, (const void *)rec))
	switch (kind) {
	case CUPTI_ACTIVITY_KIND_KERNEL:
	case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
		ok = FROM(from_kernel, cupti_kernel);
		break;
	case CUPTI_ACTIVITY_KIND_MEMCPY:
		ok = FROM(from_copy, cupti_memcpy);
		break;
	case CUPTI_ACTIVITY_KIND_MEMCPY2:
		ok = FROM(from_peer_copy, cupti_memcpy2);
		break;
	case CUPTI_ACTIVITY_KIND_MEMSET:
		ok = FROM(from_memset, cupti_memset);
		break;
	case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
		ok = FROM_WHOLE(from_sync, cupti_sync);
		break;
	case CUPTI_ACTIVITY_KIND_OVERHEAD:
		if (!FROM_WHOLE(from_overhead, cupti_overhead))
			return; /* no loss: it tells nothing of the device */
		ok = true;
		break;
	}
#undef FROM
#undef FROM_WHOLE
	if (!ok) {
		/* at the end what is under way has no times: no loss */
		if (!ag_finishing)
			AG_COUNT(unknown, 1);
		return;
	}
	if (a.what <= PT_ACT_MEMSET && a.end > ag_last_end)
		ag_last_end = a.end;
	ag_put(&a);
}
