/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the block programs share with the scheduler's: who blocks on a file. */
#ifndef PT_BLOCK_BPF_H
#define PT_BLOCK_BPF_H

#include "emit.bpf.h"

struct pt_block_reader {
	__u32 tid, tgid, start;
};

#define PT_MAX_BLOCK_READERS 4096

/* The thread that blocked on a file last, for I/O of it. */
struct pt_block_readers_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PT_MAX_BLOCK_READERS);
	__type(key, struct pt_file_key);
	__type(value, struct pt_block_reader);
};

struct pt_block_readers_map pt_block_readers __weak SEC(".maps");

/* In the scheduler's program, at switch-out: it waits for I/O on this file. */
static __always_inline void pt_block_note(struct pt_thread *th,
					  struct task_struct *t)
{
	struct pt_file_key key = { .inode = th->object, .dev = th->dev };
	struct pt_block_reader r = { .tid = t->pid, .tgid = t->tgid,
				     .start = th->start };

	if (pt_cfg.block && th->obj_kind == PT_OBJ_FILE &&
	    th->flags & PT_F_IOWAIT)
		bpf_map_update_elem(&pt_block_readers, &key, &r, BPF_ANY);
}

#endif
