/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Write and fsync calls on regular files, summed per thread and file like short
 * reads (agg.bpf.h): written when the thread turns to another file, blocks,
 * exits, or the sum grows old.
 */
#ifndef PT_WRITE_BPF_H
#define PT_WRITE_BPF_H

#include "name.bpf.h"

#define PT_WAGG_MAX_NS 100000000

#define PT_FN_WRITE 1
#define PT_FN_WRITEV 2
#define PT_FN_FSYNC 3

static __noinline int pt_wagg_flush(struct pt_thread *th, struct task_struct *task)
{
	struct pt_rec_writes *r;

	if (!th || !task || !(th->wagg.writes | th->wagg.fsyncs))
		return 0;
	r = pt_rec_new(struct pt_rec_writes, PT_REC_WRITES, th, task,
		       th->wagg.end);
	if (r) {
		r->begin_ts = th->wagg.begin;
		r->inode = th->wagg.inode;
		r->bytes = th->wagg.bytes;
		r->write_ns = th->wagg.write_ns;
		r->fsync_ns = th->wagg.fsync_ns;
		r->max_ns = th->wagg.max;
		r->dev = th->wagg.dev;
		r->writes = th->wagg.writes;
		r->fsyncs = th->wagg.fsyncs;
		r->failed = th->wagg.failed;
		r->obj_kind = PT_OBJ_FILE;
		r->door = th->wagg.door;
		pt_rec_submit(r);
	}
	th->wagg.writes = th->wagg.fsyncs = 0;
	return 0;
}

/* At a switch-out and at the end: whatever is over is written. */
static __always_inline void pt_wagg_block(struct pt_thread *th,
					  struct task_struct *task)
{
	if ((th->wagg.writes | th->wagg.fsyncs) &&
	    !*(volatile __u32 *)&th->wagg.in_use)
		pt_wagg_flush(th, task);
}

static __always_inline void pt_write_begins(struct pt_thread *th, __u64 file, __u32 fn)
{
	struct pt_object o = {};

	/* Inside another one: an O_SYNC write, overlayfs. A call that missed
	 * its return is over when another of its kind begins. */
	if (th->write_ts && th->write_fn != fn)
		return;
	th->write_ts = 0;
	pt_file_object(file, &o);
	if (o.kind != PT_OBJ_FILE)
		return;
	th->write_file = file;
	th->write_inode = o.id;
	th->write_dev = o.dev;
	th->write_fn = fn;
	th->write_ts = bpf_ktime_get_ns();
}

static __always_inline int pt_write_begin(__u64 file, __u32 fn)
{
	struct task_struct *task;
	struct pt_thread *th;

	if (!pt_is_armed() || !file)
		return 0;
	task = bpf_get_current_task_btf();
	th = pt_hot_thread_of(task);
	if (!th)
		return 0;
	pt_hit(th, PT_HIT_WRITE);
	pt_write_begins(th, file, fn);
	pt_hit_over(th, PT_HIT_WRITE);
	return 0;
}

static __always_inline void pt_write_ends(struct pt_thread *th, struct task_struct *task,
					  __s64 ret, __u32 fn, __u16 door)
{
	struct pt_write_agg *a = &th->wagg;
	struct pt_file_key key = {};
	__u64 now, ns;

	now = bpf_ktime_get_ns();
	ns = now - th->write_ts;
	*(volatile __u32 *)&a->in_use = 1;
	if ((a->writes | a->fsyncs) &&
	    (a->inode != th->write_inode || a->dev != th->write_dev ||
	     now - a->begin > PT_WAGG_MAX_NS))
		pt_wagg_flush(th, task);
	if (!(a->writes | a->fsyncs)) {
		a->inode = th->write_inode;
		a->dev = th->write_dev;
		a->begin = th->write_ts;
		a->bytes = a->write_ns = a->fsync_ns = a->max = 0;
		a->failed = 0;
		a->door = door;
	}
	th->write_ts = 0;
	a->end = now;
	if (ns > a->max)
		a->max = ns;
	if (ret < 0)
		a->failed++;
	if (fn == PT_FN_FSYNC) {
		a->fsyncs++;
		a->fsync_ns += ns;
	} else {
		a->writes++;
		a->write_ns += ns;
		if (ret > 0)
			a->bytes += ret;
	}
	*(volatile __u32 *)&a->in_use = 0;
	key.inode = a->inode;
	key.dev = a->dev;
	pt_file_note(th, task, th->write_file, &key, now);
}

static __always_inline int pt_write_end(__s64 ret, __u32 fn, __u16 door)
{
	struct task_struct *task;
	struct pt_thread *th;

	if (!pt_is_armed())
		return 0;
	task = bpf_get_current_task_btf();
	th = pt_hot_thread_of(task);
	if (!th)
		return 0;
	pt_hit(th, PT_HIT_WRITE);
	if (th->write_ts && th->write_fn == fn)
		pt_write_ends(th, task, ret, fn, door);
	pt_hit_over(th, PT_HIT_WRITE);
	return 0;
}

#endif
