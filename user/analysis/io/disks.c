/* SPDX-License-Identifier: BSD-2-Clause */
/* Behind the reads: the disks that the target's requests went to, and where
 * each file lies. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "analysis/io/disks.h"
#include "base/fsname.h"

#define MAX_DISKS 32

struct ops { /* reads, or writes, of the target at one disk */
	uint64_t count, bytes, lat_ns, max_ns, failed, depth_sum;
	uint32_t depth_max;
	uint64_t hist[PT_BLOCK_SLOTS];
};

struct disk {
	uint32_t dev;
	struct ops op[2];
};

/* Lower bound of a slot, ns: see pt_rec_block. */
static double slot_low(size_t s)
{
	double b;

	if (!s)
		return 0;
	b = (double)((uint64_t)1 << (PT_BLOCK_UNIT_SHIFT + (s - 1) / 2));
	return (s - 1) % 2 ? 1.5 * b : b;
}

/* The value below which `share` of the requests lie, evenly spread inside of
 * its slot: off by less than half of it. */
static double quantile(const uint64_t *hist, double share, double max_ns)
{
	uint64_t n = 0;
	double want, before = 0, lo, hi, in;
	size_t i;

	for (i = 0; i < PT_BLOCK_SLOTS; i++)
		n += hist[i];
	if (!n)
		return NAN;
	want = share * (double)n;
	for (i = 0; i < PT_BLOCK_SLOTS; i++) {
		in = (double)hist[i];
		if (in > 0 && before + in >= want) {
			lo = slot_low(i);
			hi = i + 1 < PT_BLOCK_SLOTS ? slot_low(i + 1) : max_ns;
			return fmin(max_ns, lo + (hi - lo) *
						    (want - before) / in);
		}
		before += in;
	}
	return max_ns;
}

static void latency(const struct ops *a, const struct ops *b, struct pt_dist *d)
{
	uint64_t hist[PT_BLOCK_SLOTS], n = 0;
	double max = (double)pt_max64(a->max_ns, b->max_ns);
	size_t i;

	for (i = 0; i < PT_BLOCK_SLOTS; i++) {
		hist[i] = a->hist[i] + b->hist[i];
		n += hist[i]; /* fewer than requests where ends were not seen */
	}
	if (!n)
		return;
	d->n = n;
	d->mean = (double)(a->lat_ns + b->lat_ns) / (double)n / NS_PER_MS;
	d->std = d->min = NAN; /* the sums do not hold them */
	d->p50 = quantile(hist, 0.5, max) / NS_PER_MS;
	d->p95 = quantile(hist, 0.95, max) / NS_PER_MS;
	d->p99 = quantile(hist, 0.99, max) / NS_PER_MS;
	d->max = max / NS_PER_MS;
}

static void add_requests(struct ops *o, const struct pt_rec_block *r)
{
	size_t i;

	o->count += r->count;
	o->bytes += r->bytes;
	o->lat_ns += r->lat_ns;
	o->failed += r->failed;
	o->depth_sum += r->depth_sum;
	o->max_ns = pt_max64(o->max_ns, r->max_ns);
	if (r->depth_max > o->depth_max)
		o->depth_max = r->depth_max;
	for (i = 0; i < PT_BLOCK_SLOTS; i++)
		o->hist[i] += r->hist[i];
}

static uint64_t since(uint64_t b, uint64_t a)
{
	return a == PT_DISK_UNKNOWN || b == PT_DISK_UNKNOWN || b < a ?
		       PT_DISK_UNKNOWN : b - a;
}

static int64_t known(uint64_t v)
{
	return v == PT_DISK_UNKNOWN ? PT_NULL : (int64_t)v;
}

/* The disk's own counters over the window: those of every process. */
static void whole(const struct pt_an *an, uint32_t dev, struct pt_r_disk *o)
{
	const struct pt_rec_disk *a = NULL, *b = NULL;
	uint64_t reads, writes, rb, wb, ms, queue, busy;
	double s;

	pt_each(const struct pt_rec_disk, d, &an->m->disks) {
		if (d->dev != dev || d->disk != dev)
			continue;
		if (!a || d->hdr.ts <= an->t0)
			a = d;
		if (!b || b->hdr.ts < an->t1)
			b = d;
	}
	if (!a || a->hdr.ts >= b->hdr.ts)
		return;
	s = pt_sec(b->hdr.ts - a->hdr.ts);
	reads = since(b->reads, a->reads);
	writes = since(b->writes, a->writes);
	rb = since(b->read_bytes, a->read_bytes);
	wb = since(b->write_bytes, a->write_bytes);
	busy = since(b->busy_ms, a->busy_ms);
	queue = since(b->queue_ms, a->queue_ms);
	if (reads == PT_DISK_UNKNOWN || writes == PT_DISK_UNKNOWN ||
	    rb == PT_DISK_UNKNOWN || wb == PT_DISK_UNKNOWN)
		return;
	o->all_reads = known(reads);
	o->all_read_bytes = known(rb);
	o->all_writes = known(writes);
	o->all_write_bytes = known(wb);
	ms = since(b->read_ms, a->read_ms);
	if (ms != PT_DISK_UNKNOWN && since(b->write_ms, a->write_ms) !=
					     PT_DISK_UNKNOWN &&
	    reads + writes)
		o->all_latency_ms = (double)(ms + b->write_ms - a->write_ms) /
				    (double)(reads + writes);
	if (busy != PT_DISK_UNKNOWN)
		o->busy_share = fmin(1, (double)busy / 1000 / s);
	if (queue != PT_DISK_UNKNOWN)
		o->all_depth = (double)queue / 1000 / s;
	/* the two are not read at the same moment */
	if (rb + wb && rb < INT64_MAX && wb < INT64_MAX)
		o->target_share = fmin(1, (double)(o->read_bytes +
						   o->write_bytes) /
						  (double)(rb + wb));
}

static void fill_one(struct pt_an *an, const struct disk *d,
		     struct pt_r_disk *o)
{
	const struct ops *r = &d->op[PT_BLOCK_READ], *w = &d->op[PT_BLOCK_WRITE];
	const struct pt_rec_disk *about = pt_model_disk(an->m, d->dev);
	static const struct ops none;

	o->dev = d->dev;
	if (about && about->name[0])
		o->name = pt_arena_strdup(an->a, about->name);
	if (about && about->model[0])
		o->model = pt_arena_strdup(an->a, about->model);
	if (about && about->flags & (PT_DISK_F_ROTATES | PT_DISK_F_SOLID))
		o->kind = about->flags & PT_DISK_F_ROTATES ? "rotational" :
							     "solid_state";
	o->reads = (int64_t)r->count;
	o->read_bytes = (int64_t)r->bytes;
	o->writes = (int64_t)w->count;
	o->write_bytes = (int64_t)w->bytes;
	o->failed = (int64_t)(r->failed + w->failed);
	latency(r, w, &o->latency_ms);
	latency(r, &none, &o->read_latency_ms);
	latency(w, &none, &o->write_latency_ms);
	o->depth_mean = (double)(r->depth_sum + w->depth_sum) /
			(double)(r->count + w->count);
	o->depth_max = r->depth_max > w->depth_max ? r->depth_max : w->depth_max;
	o->all_reads = o->all_read_bytes = PT_NULL;
	o->all_writes = o->all_write_bytes = PT_NULL;
	o->all_latency_ms = o->all_depth = o->busy_share = NAN;
	o->target_share = NAN;
	whole(an, d->dev, o);
}

PT_ORDER(by_bytes, struct pt_r_disk,
	 pt_cmp(y->read_bytes + y->write_bytes, x->read_bytes + x->write_bytes) ?:
	 pt_cmp(x->dev, y->dev))

int pt_fill_disks(struct pt_an *an)
{
	struct disk *all = calloc(MAX_DISKS, sizeof(*all));
	struct pt_r_disk *out = pt_arena_calloc(an->a, MAX_DISKS, sizeof(*out));
	size_t i, k, n = 0;
	int err = 0;

	if (!all || !out) {
		err = -ENOMEM;
		goto out;
	}
	pt_each(const struct pt_rec_block, r, &an->m->blocks) {
		uint64_t middle = r->begin_ts + (r->hdr.ts - r->begin_ts) / 2;

		if (middle < an->t0 || middle > an->t1)
			continue;
		for (k = 0; k < n && all[k].dev != r->dev; k++)
			;
		if (k == MAX_DISKS)
			continue;
		if (k == n)
			all[n++].dev = r->dev;
		add_requests(&all[k].op[r->op == PT_BLOCK_WRITE], r);
	}
	for (i = 0; i < n; i++)
		fill_one(an, &all[i], &out[i]);
	if (n)
		qsort(out, n, sizeof(*out), by_bytes);
	an->r->disks = out;
	an->r->n_disks = n;
out:
	free(all);
	return err;
}

const char *pt_fs_class_of(const struct pt_an *an, uint32_t dev, uint64_t inode)
{
	const struct pt_rec_disk *d = pt_model_disk(an->m, dev);
	const struct pt_file *f;

	if (d && d->cls)
		return pt_fs_class_name(d->cls);
	f = pt_model_file(an->m, dev, inode);
	return f ? pt_fs_class_name(pt_fs_class(pt_fs_name(f->fs_magic))) : NULL;
}

void pt_file_place(struct pt_an *an, const struct pt_file *f,
		   struct pt_r_file *o)
{
	const struct pt_rec_disk *d = pt_model_disk(an->m, o->dev);
	const char *type = d && d->fstype[0] ? d->fstype : NULL;
	const struct pt_rec_disk *disk;

	if (!type && f)
		type = pt_fs_name(f->fs_magic);
	o->fs = type ? pt_arena_strdup(an->a, type) : NULL;
	o->fs_class = pt_fs_class_name(d && d->cls ? d->cls : pt_fs_class(type));
	/* an overlay's file is known by the one below, on that one's disk */
	if (!o->fs_class && d && d->disk)
		o->fs_class = pt_fs_class_name(PT_FS_LOCAL);
	if (!d || !d->disk)
		return;
	disk = pt_model_disk(an->m, d->disk);
	if (!disk || !disk->name[0])
		disk = d;
	o->device = disk->name[0] ? pt_arena_strdup(an->a, disk->name) : NULL;
}

/* Network and user file systems fetch without the accounting. */
void pt_file_cached(struct pt_r_file *o, int64_t fetched)
{
	bool counts = o->fs_class && (!strcmp(o->fs_class, "local") ||
				      !strcmp(o->fs_class, "memory"));

	o->fetched_bytes = PT_NULL;
	o->cached_share = NAN;
	if (!counts || fetched == PT_NULL || o->bytes == PT_NULL ||
	    o->bytes <= 0)
		return;
	o->fetched_bytes = fetched;
	/* more than was read: pages that nobody asked for came along */
	o->cached_share = 1 - fmin(1, (double)fetched / (double)o->bytes);
}

const struct pt_r_disk *pt_main_disk(const struct pt_an *an)
{
	return an->r->n_disks && an->r->disks[0].reads ? &an->r->disks[0] : NULL;
}
