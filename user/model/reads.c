/* SPDX-License-Identifier: BSD-2-Clause */
/* Read calls: single ones, and sums of short ones. */
#include <errno.h>

#include "model/internal.h"

static int push(struct pt_model *m, const struct pt_hdr *h, struct pt_read rd)
{
	struct pt_thread *t;

	if (rd.begin > rd.end)
		return -EINVAL;
	t = pt_thread_make(m, h->tid, h->tgid, h->start, rd.begin);
	if (!t)
		return -ENOMEM;
	if (!pt_take_seq(m, t, h->seq))
		return 0;
	return pt_vec_push(&t->reads, rd);
}

int pt_feed_read(struct pt_model *m, const struct pt_rec_read *r)
{
	return push(m, &r->hdr, (struct pt_read){
		.begin = r->begin_ts, .end = r->hdr.ts, .inode = r->inode,
		.offset = r->offset, .ret = r->ret, .dev = r->dev,
		.obj_kind = (uint8_t)r->obj_kind, .door = (uint8_t)r->door,
		.busy = r->hdr.ts - r->begin_ts, .count = 1, .timed = true,
	});
}

int pt_feed_reads(struct pt_model *m, const struct pt_rec_reads *r)
{
	bool timed = r->busy_ns != UINT64_MAX;

	/* Reads of a ring overlap: they may take longer together than from the
	 * first to the last. */
	if (!r->count || r->failed > r->count || r->bytes > INT64_MAX)
		return -EINVAL;
	return push(m, &r->hdr, (struct pt_read){
		.begin = r->begin_ts, .end = r->hdr.ts, .inode = r->inode,
		.offset = r->offset, .dev = r->dev, .count = r->count,
		.obj_kind = (uint8_t)r->obj_kind, .door = (uint8_t)r->door,
		.busy = timed ? r->busy_ns : 0, .timed = timed,
		.bound = r->hdr.flags & PT_F_BOUND,
		.ret = (int64_t)r->bytes,
	});
}
