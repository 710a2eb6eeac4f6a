/* SPDX-License-Identifier: BSD-2-Clause */
/* Read calls: single ones, and sums of short ones; write calls. */
/* Read calls: single ones, and sums of short ones; and sums of page faults. */
#include <errno.h>

#include "model/budget.h"
#include "model/internal.h"

/* The kernel counts whole sectors. Of older versions the record is shorter. */
static uint32_t sectors(const struct pt_hdr *h, size_t at, uint64_t bytes)
{
	return h->size >= at + sizeof(bytes) && bytes >> 9 < UINT32_MAX ?
		       (uint32_t)((bytes + 511) >> 9) : UINT32_MAX;
}

/* `more`: where they were, or NULL: in one run, or unknown. */
static int push(struct pt_model *m, const struct pt_hdr *h, struct pt_read rd,
		const struct pt_scatter *more)
{
	struct pt_thread *t;

	if (rd.begin > rd.end)
		return -EINVAL;
	t = pt_thread_make(m, h->tid, h->tgid, h->start, rd.begin);
	if (!t)
		return -ENOMEM;
	if (!pt_take_seq(m, t, h->seq))
		return 0;
	if (more && t->scatters.n < UINT32_MAX - 1) {
		if (pt_held_push(&m->held.time, &t->scatters, *more))
			return -ENOMEM;
		rd.more = (uint32_t)t->scatters.n;
	} else if (more) {
		rd.placed = false;
	}
	return pt_held_push(&m->held.time, &t->reads, rd);
}

int pt_feed_read(struct pt_model *m, const struct pt_rec_read *r)
{
	return push(m, &r->hdr, (struct pt_read){
		.begin = r->begin_ts, .end = r->hdr.ts, .inode = r->inode,
		.offset = r->offset, .ret = r->ret, .dev = r->dev,
		.obj_kind = (uint8_t)r->obj_kind, .door = (uint8_t)r->door,
		.fetched = sectors(&r->hdr, offsetof(struct pt_rec_read, fetched),
				   r->fetched),
		.busy = r->hdr.ts - r->begin_ts, .count = 1, .timed = true,
		.empty = r->ret <= 0,
		.placed = r->ret > 0 && r->offset <= INT64_MAX &&
			  (uint64_t)r->ret <= INT64_MAX - r->offset,
	}, NULL);
}

/* Are the counts impossible? */
static bool counts_wrong(const struct pt_rec_reads *r)
{
	uint64_t moves = (uint64_t)r->contiguous + r->forward + r->backward +
			 r->again;

	return !r->count || r->failed > r->count || r->bytes > INT64_MAX ||
	       r->placed > r->count ||
	       (r->placed ? moves != r->placed - 1u : moves || r->strided) ||
	       r->strided > (uint64_t)r->forward + r->backward;
}

/* Where the reads of a record were. False: not known, or no file has it. */
static bool place(const struct pt_rec_reads *r, struct pt_scatter *out)
{
	uint64_t end = r->offset + r->bytes;

	if (!r->placed || r->offset > INT64_MAX || end > INT64_MAX)
		return false;
	*out = (struct pt_scatter){
		.low = r->offset - r->before, .high = end + (uint64_t)r->beyond,
		.last = end + (uint64_t)r->moved, .stride = r->stride,
		.placed = r->placed, .contiguous = r->contiguous,
		.forward = r->forward, .backward = r->backward,
		.again = r->again, .strided = r->strided,
	};
	return r->before <= r->offset && out->high <= INT64_MAX &&
	       out->last <= out->high && out->low < out->last &&
	       r->offset < out->high;
}

int pt_feed_reads(struct pt_model *m, const struct pt_rec_reads *r)
{
	bool timed = r->busy_ns != UINT64_MAX, placed, run;
	struct pt_scatter s;

	/* Reads of a ring overlap: they may take longer together than from the
	 * first to the last. */
	if (counts_wrong(r))
		return -EINVAL;
	placed = place(r, &s);
	run = placed && r->contiguous == r->placed - 1;
	return push(m, &r->hdr, (struct pt_read){
		.begin = r->begin_ts, .end = r->hdr.ts, .inode = r->inode,
		.offset = r->offset, .dev = r->dev, .count = r->count,
		.obj_kind = (uint8_t)r->obj_kind, .door = (uint8_t)r->door,
		.fetched = sectors(&r->hdr, offsetof(struct pt_rec_reads, fetched),
				   r->fetched),
		.busy = timed ? r->busy_ns : 0, .timed = timed,
		.bound = r->hdr.flags & PT_F_BOUND,
		.ret = (int64_t)r->bytes, .placed = placed,
		.empty = (uint8_t)(r->count - r->placed < UINT8_MAX ?
					   r->count - r->placed : UINT8_MAX),
	}, placed && !run ? &s : NULL);
}

#define NS_MAX (1ull << 60) /* sums fit */

int pt_feed_writes(struct pt_model *m, const struct pt_rec_writes *r)
{
	struct pt_write w = {
		.begin = r->begin_ts, .end = r->hdr.ts, .inode = r->inode,
		.bytes = r->bytes, .write_ns = r->write_ns,
		.fsync_ns = r->fsync_ns, .max_ns = r->max_ns, .dev = r->dev,
		.writes = r->writes, .fsyncs = r->fsyncs,
		.door = (uint8_t)r->door,
	};
	struct pt_thread *t;

	if (!(r->writes | r->fsyncs) || r->begin_ts > r->hdr.ts ||
	    r->bytes >> 50 || r->write_ns > NS_MAX || r->fsync_ns > NS_MAX ||
	    r->failed > (uint64_t)r->writes + r->fsyncs)
		return -EINVAL;
	t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid, r->hdr.start,
			   r->begin_ts);
	if (!t)
		return -ENOMEM;
	if (!pt_take_seq(m, t, r->hdr.seq))
		return 0;
	return pt_held_push(&m->held.time, &t->writes, w);
}

int pt_feed_faults(struct pt_model *m, const struct pt_rec_faults *r)
{
	struct pt_fault_sum s = {
		.begin = r->begin_ts, .end = r->hdr.ts, .inode = r->inode,
		.offset = r->offset, .bytes = r->bytes, .dev = r->dev,
		.count = r->count, .major = r->major,
		.text = r->hdr.flags & PT_F_TEXT,
	};
	struct pt_thread *t;

	if (r->begin_ts > r->hdr.ts || !r->count || r->major > r->count ||
	    r->bytes > INT64_MAX)
		return -EINVAL;
	t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid, r->hdr.start, s.begin);
	if (!t)
		return -ENOMEM;
	if (!pt_take_seq(m, t, r->hdr.seq))
		return 0;
	return pt_held_push(&m->held.time, &t->faults, s);
}
