// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Reads of an io_uring, which pass none of the other doors whole: counted when
 * they complete. Only processes that use rings pay.
 */
#include "agg.bpf.h"

/* include/uapi/linux/io_uring.h */
#define PT_URING_READV 1
#define PT_URING_READ_FIXED 4
#define PT_URING_READ 22
#define PT_MAX_RING_READS 16384

/* When a request was submitted, by its address. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PT_MAX_RING_READS);
	__type(key, __u64);
	__type(value, __u64);
} pt_ring_reads SEC(".maps");

static __always_inline bool ring_reads(struct io_kiocb *req)
{
	__u8 op = BPF_CORE_READ(req, opcode);

	return op == PT_URING_READV || op == PT_URING_READ_FIXED ||
	       op == PT_URING_READ;
}

/* A worker or poller of the ring is a thread of the target that no event told
 * of: it is followed from its first read. */
static __always_inline struct pt_thread *ring_thread(struct task_struct **task)
{
	struct task_struct *t;
	struct pt_thread *th;
	__u32 tgid;

	if (!pt_is_armed())
		return NULL;
	t = bpf_get_current_task_btf();
	*task = t;
	th = pt_hot_thread_of(t);
	if (th)
		return th;
	tgid = t->tgid;
	if (!bpf_map_lookup_elem(&pt_targets, &tgid) || t->exit_state)
		return NULL;
	th = bpf_task_storage_get(&pt_threads, t, 0,
				  BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!th) {
		pt_lost(PT_LOSS_NO_STORAGE);
		return NULL;
	}
	if (!th->live)
		pt_thread_init(th, t, bpf_ktime_get_ns());
	return th;
}

static __always_inline int submitted(struct io_kiocb *req)
{
	__u64 key = (__u64)req, now;
	struct task_struct *task;

	if (!pt_reader(&task) || !ring_reads(req))
		return 0;
	now = bpf_ktime_get_ns();
	bpf_map_update_elem(&pt_ring_reads, &key, &now, BPF_ANY);
	return 0;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(pt_ring_submit, struct io_kiocb *req)
{
	return submitted(req);
}

/* Its name up to 6.3. */
SEC("tp_btf/io_uring_submit_sqe")
int BPF_PROG(pt_ring_submit_sqe, struct io_kiocb *req)
{
	return submitted(req);
}

/* `req` is NULL for a completion that belongs to no request. The result is
 * taken from it, for the argument became a structure in 6.14. */
SEC("tp_btf/io_uring_complete")
int BPF_PROG(pt_ring_complete, void *ring, void *request)
{
	struct io_kiocb *req = request;
	struct pt_read_end e = {};
	struct task_struct *task;
	struct pt_object o = {};
	struct pt_thread *th;
	struct pt_file_key fk = {};
	__u64 key = (__u64)request, *begin, file;

	if (!key)
		return 0;
	th = ring_thread(&task);
	if (!th || !ring_reads(req))
		return 0;
	file = (__u64)BPF_CORE_READ(req, file);
	if (file)
		pt_file_object(file, &o);
	e.end = bpf_ktime_get_ns();
	begin = bpf_map_lookup_elem(&pt_ring_reads, &key);
	e.begin = begin && *begin <= e.end ? *begin : e.end;
	bpf_map_delete_elem(&pt_ring_reads, &key);
	e.inode = o.id;
	e.dev = o.dev;
	e.kind = o.kind;
	e.ret = BPF_CORE_READ(req, cqe.res);
	e.offset = ~0ULL;
	e.door = PT_DOOR_IO_URING;
	e.fetched = ~0ULL; /* the ring's accounting, not the call's */
	if (file && e.kind == PT_OBJ_FILE) {
		fk.inode = e.inode;
		fk.dev = e.dev;
		pt_read_name(th, task, file, &fk, e.end);
	}
	pt_read_note(th, task, &e);
	return 0;
}
