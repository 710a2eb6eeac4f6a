/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls whose records found no room in the ring: the kernel's counts as records. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "base/hash.h"
#include "capture/session.h"

struct pt_told_missed {
	struct pt_missed_key key;
	struct pt_missed last;
	UT_hash_handle hh;
};

static void tell(struct pt_capture *c, const struct pt_missed_key *key,
		 const struct pt_missed *now, uint64_t ts)
{
	struct pt_told_missed *t = pt_hash_make(c->missed.told, key, key);
	struct pt_rec_missed r;

	if (!t) {
		c->loss[PT_LOSS_MEMORY]++;
		return;
	}
	if (now->count == t->last.count)
		return;
	pt_rec_begin(&r, sizeof(r), PT_REC_MISSED, ts, key->tgid);
	r.what = key->what;
	r.count = now->count - t->last.count;
	r.bytes = now->bytes - t->last.bytes;
	pt_queue_record(c, &r, sizeof(r));
	t->last = *now;
}

void pt_missed_tick(struct pt_capture *c, uint64_t ts)
{
	int fd = bpf_map__fd(c->skel->maps.pt_missed), i;
	uint64_t full = c->skel->bss->pt_loss[PT_LOSS_RING_FULL];
	struct pt_missed_key key, *last = NULL;
	struct pt_missed now;

	/* a loss is counted before it is said of what: the last look takes what is left */
	if (!full || (full == c->missed.full && !c->stopped))
		return;
	c->missed.full = full;
	for (i = 0; i < PT_MAX_MISSED && !bpf_map_get_next_key(fd, last, &key); i++) {
		if (!bpf_map_lookup_elem(fd, &key, &now))
			tell(c, &key, &now, ts);
		last = &key;
	}
}

void pt_missed_free(struct pt_capture *c)
{
	pt_hash_free(c->missed.told);
}
