// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Reads that libaio submits, which reach a file past every other door (fs/aio.c).
 *
 * A read of the page cache is over before io_submit returns: aio_complete_rw says
 * inside aio_read what it got. One with O_DIRECT is queued, and its end comes in
 * whatever thread the interrupt meets: it is counted when it is submitted, with
 * the bytes that were asked for and that the file has, as an upper bound.
 */
#include "agg.bpf.h"

#define PT_IOCB_PREAD 0 /* include/uapi/linux/aio_abi.h */

SEC("fentry/aio_read")
int BPF_PROG(pt_aio_fentry, struct kiocb *req)
{
	struct task_struct *task;
	struct pt_thread *th = pt_reader(&task);

	if (!th)
		return 0;
	th->hits[PT_HIT_READ] += 3; /* for all three programs */
	th->aio_req = (__u64)req;
	th->aio_done = 0;
	th->aio_ts = bpf_ktime_get_ns();
	return 0;
}

/* Anywhere; only inside the thread's own aio_read it is of use. */
SEC("fentry/aio_complete_rw")
int BPF_PROG(pt_aio_complete, struct kiocb *req, long res)
{
	struct task_struct *task;
	struct pt_thread *th = pt_reader(&task);

	if (!th || !th->aio_ts || th->aio_req != (__u64)req)
		return 0;
	th->aio_res = res;
	th->aio_done = 1;
	return 0;
}

/* What a queued read can bring at most. Of several buffers the length is not
 * known here, so that the rest of the file bounds it. */
static __always_inline __u64 aio_most(__u64 file, const struct iocb *iocb)
{
	__s64 at = iocb->aio_offset;
	__u64 size = BPF_CORE_READ((struct file *)file, f_inode, i_size), most;

	if (at < 0 || size <= (__u64)at)
		return 0;
	most = size - at;
	if (iocb->aio_lio_opcode == PT_IOCB_PREAD && iocb->aio_nbytes < most)
		most = iocb->aio_nbytes;
	return most;
}

SEC("fexit/aio_read")
int BPF_PROG(pt_aio_fexit, struct kiocb *req, const struct iocb *iocb,
	     bool vectored, bool compat, int ret)
{
	struct pt_read_end e = {};
	struct task_struct *task;
	struct pt_object o = {};
	struct pt_file_key key = {};
	struct pt_thread *th;
	__u64 file;

	th = pt_reader(&task);
	if (!th || !th->aio_ts || th->aio_req != (__u64)req)
		return 0;
	e.begin = th->aio_ts;
	th->aio_ts = 0;
	/* The submission holds the request, and that its file. */
	file = (__u64)req->ki_filp;
	pt_file_object(file, &o);
	if (o.kind != PT_OBJ_FILE)
		return 0;
	e.end = bpf_ktime_get_ns();
	e.inode = o.id;
	e.dev = o.dev;
	e.kind = o.kind;
	e.offset = iocb->aio_offset;
	e.door = PT_DOOR_AIO;
	e.fetched = ~0ULL; /* not watched from its submission on */
	key.inode = e.inode;
	key.dev = e.dev;
	pt_read_name(th, task, file, &key, e.end);
	if (ret) {
		e.ret = ret;
		pt_read_note(th, task, &e);
	} else if (th->aio_done) {
		e.ret = th->aio_res;
		pt_read_note(th, task, &e);
	} else {
		e.ret = aio_most(file, iocb);
		e.flags = PT_F_BOUND;
		pt_agg_add(th, task, &e);
	}
	return 0;
}
