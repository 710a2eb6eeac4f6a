/* SPDX-License-Identifier: BSD-2-Clause */
#include "model/blocks.h"

#include <errno.h>
#include <string.h>

#define MAX_DISK_RECORDS (1u << 20)
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
	return pt_vec_push(&m->blocks, *r);
}

static uint64_t sane(uint64_t v)
{
	return v >> 60 ? PT_DISK_UNKNOWN : v;
}

int pt_feed_disk(struct pt_model *m, const struct pt_rec_disk *r)
{
	struct pt_rec_disk d = *r;

	if (m->disks.n >= MAX_DISK_RECORDS)
		return 0;
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
	return pt_vec_push(&m->disks, d);
}

const struct pt_rec_disk *pt_model_disk(const struct pt_model *m, uint32_t dev)
{
	size_t i;

	for (i = m->disks.n; i-- > 0;)
		if (m->disks.v[i].dev == dev)
			return &m->disks.v[i];
	return NULL;
}
