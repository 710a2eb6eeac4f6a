/* SPDX-License-Identifier: BSD-2-Clause */
/* Block requests: which hooks, and the kernel's sums as records. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdlib.h>

#include "base/hash.h"
#include "capture/disks.h"
#include "capture/session.h"

#define MAX_SUMS 8192 /* looked at in one pass: more than the map holds */

struct sum { /* what was told of a thread and disk already */
	struct pt_block_key key;
	struct pt_block_sum last;
	UT_hash_handle hh;
};

struct pt_blocks {
	struct sum *sums;
	uint64_t since; /* end of the last records' time */
	bool open;
};

void pt_blocks_choose(struct pt_capture *c, const struct pt_capture_opts *o)
{
	struct pipetrace_bpf *s = c->skel;
	bool on = c->feat.block && o->mode != PT_MODE_LIGHT;
	bool start = on && c->feat.block_start;

	s->rodata->pt_cfg.block = on;
	bpf_program__set_autoload(s->progs.pt_block_start, start);
	bpf_program__set_autoload(s->progs.pt_block_insert, on && !start);
	bpf_program__set_autoload(s->progs.pt_block_issue, on && !start);
	bpf_program__set_autoload(s->progs.pt_block_merge, on);
	bpf_program__set_autoload(s->progs.pt_block_complete, on);
	if (!on) {
		bpf_map__set_max_entries(s->maps.pt_block_rqs, 1);
		bpf_map__set_max_entries(s->maps.pt_block_sums, 1);
	}
}

/* The ends first: a request that is remembered has to be forgotten. */
void pt_blocks_attach(struct pt_capture *c, const struct pt_capture_opts *o)
{
	struct pipetrace_bpf *s = c->skel;
	bool ok;

	c->blocks = calloc(1, sizeof(*c->blocks));
	ok = c->blocks && PT_ATTACH(s, pt_block_complete);
	if (ok) {
		PT_ATTACH(s, pt_block_merge);
		ok = PT_ATTACH(s, pt_block_start);
		if (!ok) {
			ok = PT_ATTACH(s, pt_block_insert);
			ok &= PT_ATTACH(s, pt_block_issue);
		}
	}
	if (!ok) {
		pt_hook_set(c, "block", "none", "block requests are not counted%s",
			    o->mode == PT_MODE_LIGHT ? " in light mode" : "");
		return;
	}
	c->blocks->open = true;
	c->blocks->since = pt_now_ns();
	pt_hook_set(c, "block", "tp_btf", "%s", "");
}

static void tell(struct pt_capture *c, const struct sum *s,
		 const struct pt_block_sum *v, uint64_t since, uint64_t now)
{
	struct pt_rec_block r;
	size_t i;

	pt_rec_begin(&r, sizeof(r), PT_REC_BLOCK, now, 0);
	r.hdr.tid = s->key.tid;
	r.hdr.tgid = s->key.tgid;
	r.hdr.start = s->key.start;
	r.begin_ts = since;
	r.dev = s->key.dev;
	r.op = (__u16)s->key.op;
	r.count = (__u32)(v->count - s->last.count);
	r.bytes = v->bytes - s->last.bytes;
	r.lat_ns = v->lat_ns - s->last.lat_ns;
	r.depth_sum = v->depth_sum - s->last.depth_sum;
	r.failed = (__u32)(v->failed - s->last.failed);
	r.max_ns = v->max_ns;
	r.depth_max = v->depth_max;
	for (i = 0; i < PT_BLOCK_SLOTS; i++)
		r.hist[i] = v->hist[i] - s->last.hist[i];
	pt_queue_record(c, &r, sizeof(r));
	pt_disks_note(c->disks, s->key.dev);
}

static void add_to_sum(struct pt_capture *c, const struct pt_block_key *key,
		       const struct pt_block_sum *v, uint64_t since, uint64_t now)
{
	struct sum *s = pt_hash_make(c->blocks->sums, key, key);

	if (!s) {
		c->loss[PT_LOSS_MEMORY]++;
		return;
	}
	if (v->count > s->last.count)
		tell(c, s, v, since, now);
	s->last = *v;
}

void pt_blocks_tick(struct pt_capture *c)
{
	struct pt_block_key key, next;
	struct pt_block_sum v;
	/* at the end: nothing is counted since the moment of the final pass */
	uint64_t now = c->stopped ? c->skel->bss->pt_pass_ts : pt_now_ns();
	void *at = NULL;
	int fd, i;

	if (!c->blocks || !c->blocks->open)
		return;
	fd = bpf_map__fd(c->skel->maps.pt_block_sums);
	for (i = 0; i < MAX_SUMS && !bpf_map_get_next_key(fd, at, &next); i++) {
		key = next;
		at = &key;
		if (!bpf_map_lookup_elem(fd, &key, &v))
			add_to_sum(c, &key, &v, c->blocks->since, now);
	}
	c->blocks->since = now;
	if (c->skel->bss->pt_block_missed)
		pt_hook_set(c, "block", "tp_btf",
			    "%llu requests found no room and were not counted",
			    (unsigned long long)c->skel->bss->pt_block_missed);
}

void pt_blocks_free(struct pt_blocks *b)
{
	if (!b)
		return;
	pt_hash_free(b->sums);
	free(b);
}
