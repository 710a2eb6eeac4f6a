/* SPDX-License-Identifier: BSD-2-Clause */
/* Block requests of the target, and what device numbers stand for. */
#include <errno.h>

#include "model/budget.h"
#include "model/internal.h"

#define MAX_DISK_RECORDS (1u << 16) /* 25 MB, 18 hours of one disk */
#define LATENCY_MAX (1ull << 50) /* sums of it over all records fit */

int pt_feed_block(struct pt_model *m, const struct pt_rec_block *r)
{
	uint64_t n = 0;
	size_t i;

	for (i = 0; i < PT_BLOCK_SLOTS; i++)
		n += r->hist[i];
	/* Fetched while they are counted: a request may be in some of the sums
	 * and not yet in others. */
	if (!r->count || r->begin_ts > r->hdr.ts || r->op > PT_BLOCK_WRITE ||
	    r->bytes >> 50 || r->lat_ns > LATENCY_MAX ||
	    r->depth_sum >> 50 || n > 2ull * r->count + 1024)
		return -EINVAL;
	return pt_held_push(&m->held.time, &m->blocks, *r);
}

static uint64_t sane(uint64_t v)
{
	return v >> 60 ? PT_DISK_UNKNOWN : v;
}

static bool is_counters(const struct pt_rec_disk *d)
{
	return d->disk == d->dev;
}

/* Every second sample of the counters goes; what is told once stays. */
static void thin_out(struct pt_model *m)
{
	size_t i, n = 0, seen = 0;

	for (i = 0; i < m->disks.n; i++) {
		const struct pt_rec_disk *d = &m->disks.v[i];

		/* the first ones are the trace's begin */
		if (i >= MAX_DISK_RECORDS / 64 && is_counters(d) && ++seen % 2)
			continue;
		m->disks.v[n++] = *d;
	}
	m->disks.n = n;
}

void pt_trim_disks(struct pt_model *m, uint64_t before)
{
	size_t i, k, n = 0;

	for (i = 0; i < m->disks.n; i++) {
		const struct pt_rec_disk d = m->disks.v[i];
		bool old = is_counters(&d) && d.hdr.ts < before;

		/* the last one of each disk before is where the rest begins */
		for (k = i + 1; old && k < m->disks.n; k++)
			if (m->disks.v[k].dev == d.dev)
				break;
		if (old && k < m->disks.n && m->disks.v[k].hdr.ts < before)
			continue;
		m->disks.v[n++] = d;
	}
	m->disks.n = n;
}

int pt_feed_disk(struct pt_model *m, const struct pt_rec_disk *r)
{
	struct pt_rec_disk d = *r;

	if (m->disks.n >= MAX_DISK_RECORDS)
		thin_out(m);
	d.name[sizeof(d.name) - 1] = d.model[sizeof(d.model) - 1] = 0;
	d.fstype[sizeof(d.fstype) - 1] = d.mount[sizeof(d.mount) - 1] = 0;
	d.reads = sane(d.reads);
	d.read_bytes = sane(d.read_bytes);
	d.read_ms = sane(d.read_ms);
	d.writes = sane(d.writes);
	d.write_bytes = sane(d.write_bytes);
	d.write_ms = sane(d.write_ms);
	d.busy_ms = sane(d.busy_ms);
	d.queue_ms = sane(d.queue_ms);
	return pt_held_push(&m->held.time, &m->disks, d);
}

const struct pt_rec_disk *pt_model_disk(const struct pt_model *m, uint32_t dev)
{
	size_t i;

	for (i = m->disks.n; i-- > 0;)
		if (m->disks.v[i].dev == dev)
			return &m->disks.v[i];
	return NULL;
}
