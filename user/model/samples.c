/* SPDX-License-Identifier: BSD-2-Clause */
/* What is measured about once a second: processes, memory, devices. */
#include <errno.h>
#include <string.h>

#include "model/budget.h"
#include "model/internal.h"

/* In order of time: their differences count. */
int pt_feed_sample(struct pt_model *m, const struct pt_rec_sample *r)
{
	struct pt_proc *p = pt_proc_make(m, r->hdr.tgid);
	size_t i;

	if (!p)
		return -ENOMEM;
	for (i = p->samples.n; i && p->samples.v[i - 1].hdr.ts >= r->hdr.ts; i--)
		if (p->samples.v[i - 1].hdr.ts == r->hdr.ts)
			return 0;
	if (pt_held_push(&m->held.time, &p->samples, *r))
		return -ENOMEM;
	memmove(&p->samples.v[i + 1], &p->samples.v[i],
		(p->samples.n - 1 - i) * sizeof(*r));
	p->samples.v[i] = *r;
	return 0;
}

/* In order of time, one a moment; the capture makes no more than one a second. */
int pt_feed_memory(struct pt_model *m, const struct pt_rec_memory *r)
{
	if (m->memory.n && m->memory.v[m->memory.n - 1].hdr.ts >= r->hdr.ts)
		return 0;
	return pt_held_push(&m->held.time, &m->memory, *r);
}

/* In order of time; counters that go back are damage. */
int pt_feed_cost(struct pt_model *m, const struct pt_rec_cost *r)
{
	const struct pt_rec_cost *last = m->costs.n ? &m->costs.v[m->costs.n - 1] : NULL;

	if (last && last->hdr.ts >= r->hdr.ts)
		return 0;
	if (r->low_ns > r->cost_ns || (r->cost_ns > r->high_ns && ~r->cost_ns))
		return -EINVAL;
	if (last && (r->run_ns < last->run_ns || r->cost_ns < last->cost_ns ||
		     r->low_ns < last->low_ns || r->high_ns < last->high_ns ||
		     r->tracer_ns < last->tracer_ns))
		return -EINVAL;
	return pt_held_push(&m->held.time, &m->costs, *r);
}

int pt_feed_missed(struct pt_model *m, const struct pt_rec_missed *r)
{
	m->counts_missed = true;
	return pt_held_push(&m->held.time, &m->missed, *r);
}

#define MAX_DEVICES 64

int pt_feed_device(struct pt_model *m, const struct pt_rec_device *r)
{
	struct pt_rec_device d = *r;
	size_t i;

	if (d.index >= MAX_DEVICES)
		return -EINVAL;
	d.uuid[sizeof(d.uuid) - 1] = d.name[sizeof(d.name) - 1] = '\0';
	if (d.util > 100)
		d.util = PT_DEVICE_UNKNOWN;
	if (d.mem_util > 100)
		d.mem_util = PT_DEVICE_UNKNOWN;
	if (d.mem_total >> 50) /* a pebibyte: damage, or unknown */
		d.mem_total = ~(uint64_t)0;
	if (d.mem_used > d.mem_total)
		d.mem_used = ~(uint64_t)0;
	/* in order of time; the same one twice counts once */
	for (i = m->devices.n; i && m->devices.v[i - 1].hdr.ts >= d.hdr.ts; i--)
		if (m->devices.v[i - 1].hdr.ts == d.hdr.ts &&
		    m->devices.v[i - 1].index == d.index)
			return 0;
	if (pt_held_push(&m->held.time, &m->devices, d))
		return -ENOMEM;
	memmove(&m->devices.v[i + 1], &m->devices.v[i],
		(m->devices.n - 1 - i) * sizeof(d));
	m->devices.v[i] = d;
	return 0;
}

bool pt_device_is(const struct pt_rec_device *d, uint32_t ordinal)
{
	return d->traced && d->ordinal == ordinal &&
	       ordinal != PT_DEVICE_UNKNOWN;
}
