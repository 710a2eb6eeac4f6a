/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Short reads are summed per thread and file, and written when the thread
 * turns to another file, blocks, exits, or the sum grows old. Only the thread
 * itself touches its sum, but for the final pass, when the hooks are silent.
 */
#ifndef PT_AGG_BPF_H
#define PT_AGG_BPF_H

#include "miss.bpf.h"
#include "name.bpf.h"

#define PT_AGG_MAX_NS 100000000 /* age at which a sum is written */
/* A read elsewhere in the file ends a sum so often in that time, so that each
 * record is one run; further ones are only counted. */
#define PT_AGG_JUMPS 256
#define PT_EFAULT 14
#define PT_PAGE_SIZE (1 << PT_PAGE_SHIFT)
#define PT_NO_OFFSET (~0ULL)
#define PT_BUSY_UNKNOWN (~0ULL)

struct pt_read_end { /* one read call that is over */
	__u64 inode, begin, end, offset;
	__u64 fetched; /* from storage, bytes; ~0 unknown */
	__s64 ret;
	__u32 dev;
	__u16 kind, door, flags;
	__u16 pad[3];
};

static __always_inline void pt_agg_places(struct pt_rec_reads *r,
					  const struct pt_agg *a)
{
	__u64 end = a->offset + a->bytes;

	r->moved = a->last - end;
	r->before = a->offset - a->low;
	r->beyond = a->high - end;
	r->stride = a->stride;
	r->placed = a->placed;
	r->contiguous = a->contiguous;
	r->forward = a->forward;
	r->backward = a->backward;
	r->again = a->again;
	r->strided = a->strided;
}

static __noinline int pt_agg_flush(struct pt_thread *th, struct task_struct *task)
{
	struct pt_rec_reads *r;

	if (!th || !task || !th->agg.count)
		return 0;
	r = pt_rec_new(struct pt_rec_reads, PT_REC_READS, th, task, th->agg.end);
	if (r) {
		r->begin_ts = th->agg.begin;
		r->inode = th->agg.inode;
		r->bytes = th->agg.bytes;
		r->busy_ns = th->agg.door == PT_DOOR_PAGES ? PT_BUSY_UNKNOWN :
							     th->agg.busy;
		r->max_ns = th->agg.max;
		r->offset = th->agg.offset;
		r->dev = th->agg.dev;
		r->count = th->agg.count;
		r->failed = th->agg.failed;
		r->obj_kind = th->agg.kind;
		r->door = th->agg.door;
		r->fetched = th->agg.fetched;
		r->hdr.flags |= th->agg.flags;
		if (th->agg.placed)
			pt_agg_places(r, &th->agg);
		pt_rec_submit(r);
	} else {
		pt_miss(task->tgid, PT_MISSED_READS, th->agg.count, th->agg.bytes);
	}
	th->agg.count = 0;
	return 0;
}

/* Does a read that returned data begin where the one before it ended? A door
 * that sees pages knows either only to the page. */
static __always_inline bool pt_agg_joins(const struct pt_agg *a,
					 const struct pt_read_end *e)
{
	__u64 off = e->offset - a->last;

	if (e->door == PT_DOOR_PAGES)
		return off + PT_PAGE_SIZE - 1 < 2 * PT_PAGE_SIZE - 1;
	return !off;
}

/* Shall this read begin a sum of its own, so that its place is known? */
static __always_inline bool pt_agg_jumps(struct pt_agg *a,
					 const struct pt_read_end *e)
{
	if (e->ret <= 0 || e->offset == PT_NO_OFFSET || !a->placed ||
	    pt_agg_joins(a, e))
		return false;
	if (e->end - a->slot > PT_AGG_MAX_NS) {
		a->slot = e->end;
		a->jumps = 0;
	}
	if (a->jumps >= PT_AGG_JUMPS)
		return false;
	a->jumps++;
	return true;
}

static __always_inline void pt_agg_place(struct pt_agg *a,
					 const struct pt_read_end *e)
{
	__u64 end = e->offset + e->ret;

	if (!a->placed) {
		a->offset = a->low = a->run = e->offset;
		a->high = end;
		a->stride = 0;
		a->contiguous = a->forward = a->backward = a->again =
			a->strided = 0;
	} else if (pt_agg_joins(a, e)) {
		a->contiguous++;
	} else {
		__s64 stride = e->offset - a->run;

		if (!e->offset)
			a->again++;
		else if (stride && stride == a->stride)
			a->strided++;
		if (e->offset > a->last)
			a->forward++;
		else if (e->offset)
			a->backward++;
		a->stride = stride;
		a->run = e->offset;
	}
	a->placed++;
	a->last = end;
	if (e->offset < a->low)
		a->low = e->offset;
	if (end > a->high)
		a->high = end;
}

static __always_inline void pt_agg_add(struct pt_thread *th,
				       struct task_struct *task,
				       const struct pt_read_end *e)
{
	struct pt_agg *a = &th->agg;
	__u64 ns = e->end - e->begin;

	*(volatile __u32 *)&a->in_use = 1;
	if (a->count &&
	    (a->inode != e->inode || a->dev != e->dev || a->door != e->door ||
	     a->flags != e->flags || e->end - a->begin > PT_AGG_MAX_NS ||
	     pt_agg_jumps(a, e)))
		pt_agg_flush(th, task);
	if (!a->count) {
		a->inode = e->inode;
		a->dev = e->dev;
		a->kind = e->kind;
		a->door = e->door;
		a->flags = e->flags;
		a->begin = e->begin;
		a->offset = e->offset;
		a->bytes = a->busy = a->max = a->fetched = 0;
		a->failed = a->placed = 0;
	}
	a->end = e->end;
	a->busy += ns;
	if (e->fetched == ~0ULL)
		a->fetched = ~0ULL;
	else if (a->fetched != ~0ULL)
		a->fetched += e->fetched;
	if (ns > a->max)
		a->max = ns;
	if (e->ret < 0)
		a->failed++;
	else
		a->bytes += e->ret;
	if (e->ret > 0 && e->offset != PT_NO_OFFSET)
		pt_agg_place(a, e);
	a->count++;
	*(volatile __u32 *)&a->in_use = 0;
}

/*
 * The page-range door sees where a buffered read begins, not what it returned.
 * That shows in the thread's I/O accounting once the call is over: it counts
 * calls and bytes. When one call more is counted its bytes are known; when
 * there were others behind it (a read at the end of the file, of a pipe), the
 * pages and the file's size bound them. A splice is not counted there at all:
 * the one call more is another.
 */
static __always_inline void pt_pages_end(struct pt_thread *th,
					 struct task_struct *task)
{
	struct pt_pages *g = &th->pages;
	struct pt_read_end e = {};
	__u64 most, begin, calls, bytes, fetched;

	if (!g->active || !bpf_core_field_exists(task->ioac.syscr))
		return;
	calls = task->ioac.syscr - g->calls;
	bytes = task->ioac.rchar - g->rchar;
	begin = g->first << PT_PAGE_SHIFT;
	most = (g->last - g->first + 1) << PT_PAGE_SHIFT;
	if (begin + most > g->size)
		most = g->size > begin ? g->size - begin : 0;
	e.inode = g->inode;
	e.dev = g->dev;
	e.kind = PT_OBJ_FILE;
	e.door = PT_DOOR_PAGES;
	e.begin = e.end = g->ts;
	e.offset = begin;
	/* The event comes behind the fetching: from the read before it on, with
	 * what faults and direct reads fetched in between. */
	e.fetched = pt_task_fetched(task);
	if (e.fetched != ~0ULL) {
		fetched = e.fetched;
		e.fetched -= th->fetch_seen;
		th->fetch_seen = fetched;
	}
	if (calls == 1 && g->counted) {
		/* The pages were there: none of their bytes, and it failed. */
		e.ret = bytes ? (__s64)bytes : -PT_EFAULT;
	} else {
		e.ret = calls && g->counted && bytes < most ? bytes : most;
		e.flags = PT_F_BOUND;
	}
	g->active = 0;
	pt_agg_add(th, task, &e);
}

/* The thread leaves the CPU, to block: whatever is over is written. */
static __always_inline void pt_agg_block(struct pt_thread *th,
					 struct task_struct *task)
{
	if (*(volatile __u32 *)&th->agg.in_use)
		return;
	if (pt_cfg.read_door == PT_DOOR_PAGES && th->pages.active &&
	    bpf_core_field_exists(task->ioac.syscr) &&
	    task->ioac.syscr != th->pages.calls)
		pt_pages_end(th, task);
	if (th->agg.count)
		pt_agg_flush(th, task);
}

/* The last word: the thread ends, or the capture does. */
static __always_inline void pt_agg_last(struct pt_thread *th,
					struct task_struct *task)
{
	if (*(volatile __u32 *)&th->agg.in_use)
		return;
	if (pt_cfg.read_door == PT_DOOR_PAGES && th->pages.active)
		pt_pages_end(th, task);
	if (th->agg.count)
		pt_agg_flush(th, task);
}

/* The file of a read that is not in the sum yet. What was summed before it got
 * another name goes under the old one. */
static __always_inline void pt_read_name(struct pt_thread *th,
					 struct task_struct *task, __u64 file,
					 struct pt_file_key *key, __u64 ts)
{
	if (!pt_file_new(file, key))
		return;
	if (th->agg.count && th->agg.inode == key->inode &&
	    th->agg.dev == key->dev && !*(volatile __u32 *)&th->agg.in_use) {
		*(volatile __u32 *)&th->agg.in_use = 1;
		pt_agg_flush(th, task);
		*(volatile __u32 *)&th->agg.in_use = 0;
	}
	pt_file_write(th, task, file, key, ts);
}

/* A read call is over: into the sum, or a record by itself. */
static __always_inline void pt_read_note(struct pt_thread *th,
					 struct task_struct *task,
					 const struct pt_read_end *e)
{
	struct pt_rec_read *r;

	/* Switched in since it began: it blocked, or lost its CPU. */
	if (e->kind == PT_OBJ_FILE && e->end - e->begin <= pt_cfg.slow_ns &&
	    th->since <= e->begin) {
		pt_agg_add(th, task, e);
		return;
	}
	/* What was summed came before it. */
	if (th->agg.count && th->agg.inode == e->inode && th->agg.dev == e->dev) {
		*(volatile __u32 *)&th->agg.in_use = 1;
		pt_agg_flush(th, task);
		*(volatile __u32 *)&th->agg.in_use = 0;
	}
	r = pt_rec_new(struct pt_rec_read, PT_REC_READ, th, task, e->end);
	if (!r) {
		if (e->kind == PT_OBJ_FILE)
			pt_miss(task->tgid, PT_MISSED_READS, 1, e->ret > 0 ? e->ret : 0);
		return;
	}
	r->begin_ts = e->begin;
	r->inode = e->inode;
	r->dev = e->dev;
	r->ret = e->ret;
	r->offset = e->offset;
	r->obj_kind = e->kind;
	r->door = e->door;
	r->fetched = e->fetched;
	if (!e->kind)
		r->hdr.flags |= PT_F_READ_FAILED;
	pt_rec_submit(r);
}

static __always_inline struct pt_thread *pt_reader(struct task_struct **task)
{
	if (!pt_is_armed())
		return NULL;
	*task = bpf_get_current_task_btf();
	return pt_hot_thread_of(*task);
}

#endif
