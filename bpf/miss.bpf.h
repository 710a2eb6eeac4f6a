/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What is left of a record that found no room: its calls and bytes are counted. */
#ifndef PT_MISS_BPF_H
#define PT_MISS_BPF_H

#include "emit.bpf.h"

static __always_inline struct pt_missed *pt_missed_of(const struct pt_missed_key *key)
{
	struct pt_missed none = {}, *m = bpf_map_lookup_elem(&pt_missed, key);

	if (m)
		return m;
	bpf_map_update_elem(&pt_missed, key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&pt_missed, key);
}

/* Not static: the verifier goes through it once, not anew on each way that leads here. */
__weak __noinline int pt_miss(__u32 tgid, __u32 what, __u64 count, __u64 bytes)
{
	struct pt_missed_key key = { .tgid = tgid, .what = what };
	struct pt_missed *m = pt_missed_of(&key);

	if (!m) {
		key.tgid = 0;
		m = pt_missed_of(&key);
	}
	if (!m) {
		pt_lost(PT_LOSS_NO_STORAGE);
		return 0;
	}
	__sync_fetch_and_add(&m->count, count);
	__sync_fetch_and_add(&m->bytes, bytes);
	return 0;
}

#endif
