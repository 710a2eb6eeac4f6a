// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Read calls: one pair of bodies behind three doors. One door is open. */
#include "object.bpf.h"

#define PT_OFFSET_UNKNOWN (~0ULL)

static __always_inline void read_begin(struct pt_thread *th, __u64 file,
				       __u64 offset)
{
	struct pt_object o = {};

	if (file)
		pt_file_object(file, &o);
	th->read_file = file;
	th->read_inode = o.id;
	th->read_dev = o.dev;
	th->read_kind = o.kind;
	th->read_offset = offset;
	th->read_ts = bpf_ktime_get_ns();
}

static __always_inline void read_end(struct pt_thread *th,
				     struct task_struct *task, __s64 ret,
				     __u16 door)
{
	__u64 begin = th->read_ts, file = th->read_file, now;
	struct pt_rec_read *r;

	if (!begin) /* began before the hooks */
		return;
	th->read_ts = 0;
	now = bpf_ktime_get_ns();
	r = pt_rec_new(struct pt_rec_read, PT_REC_READ, th, task, now);
	if (!r)
		return;
	r->begin_ts = begin;
	r->inode = th->read_inode;
	r->dev = th->read_dev;
	r->ret = ret;
	r->offset = th->read_offset;
	r->obj_kind = th->read_kind;
	r->door = door;
	if (!r->obj_kind)
		r->hdr.flags |= PT_F_READ_FAILED;
	pt_rec_submit(r);
	if (file && th->read_kind == PT_OBJ_FILE) {
		struct pt_file_key key = { .inode = th->read_inode,
					   .dev = th->read_dev };

		pt_file_note(th, task, file, &key, now);
	}
}

static __always_inline struct pt_thread *reader(struct task_struct **task)
{
	if (!pt_is_armed())
		return NULL;
	*task = bpf_get_current_task_btf();
	return pt_thread_of(*task);
}

static __always_inline int vfs_begin(struct file *file, loff_t *pos)
{
	__u64 offset = PT_OFFSET_UNKNOWN;
	struct task_struct *task;
	struct pt_thread *th;
	loff_t at;

	th = reader(&task);
	if (!th)
		return 0;
	if (pos && !bpf_probe_read_kernel(&at, sizeof(at), pos))
		offset = at;
	read_begin(th, (__u64)file, offset);
	return 0;
}

static __always_inline int vfs_end(__s64 ret, __u16 door)
{
	struct task_struct *task;
	struct pt_thread *th;

	th = reader(&task);
	if (th)
		read_end(th, task, ret, door);
	return 0;
}

SEC("fentry/vfs_read")
int BPF_PROG(pt_vfs_read_fentry, struct file *file, char *buf, size_t count,
	     loff_t *pos)
{
	return vfs_begin(file, pos);
}

SEC("fexit/vfs_read")
int BPF_PROG(pt_vfs_read_fexit, struct file *file, char *buf, size_t count,
	     loff_t *pos, ssize_t ret)
{
	return vfs_end(ret, PT_DOOR_FEXIT);
}

SEC("kprobe/vfs_read")
int BPF_KPROBE(pt_vfs_read_kprobe, struct file *file, char *buf, size_t count,
	       loff_t *pos)
{
	return vfs_begin(file, pos);
}

SEC("kretprobe/vfs_read")
int BPF_KRETPROBE(pt_vfs_read_kretprobe, ssize_t ret)
{
	return vfs_end(ret, PT_DOOR_KPROBE);
}

/* ---- the system-call door: full mode only, every process pays for it ------ */

static __always_inline bool is_read(long nr)
{
	return nr == PT_NR_READ || nr == PT_NR_PREAD64 || nr == PT_NR_READV ||
	       nr == PT_NR_PREADV || nr == PT_NR_PREADV2;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(pt_sys_enter, struct pt_regs *regs, long nr)
{
	__u64 offset = PT_OFFSET_UNKNOWN, file;
	struct task_struct *task;
	struct pt_thread *th;

	if (!is_read(nr))
		return 0;
	th = reader(&task);
	if (!th)
		return 0;
	file = pt_fd_file(task, regs->di);
	if (nr != PT_NR_READ && nr != PT_NR_READV)
		offset = regs->r10;
	else if (file)
		offset = BPF_CORE_READ((struct file *)file, f_pos);
	read_begin(th, file, offset);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(pt_sys_exit, struct pt_regs *regs, long ret)
{
	struct task_struct *task;
	struct pt_thread *th;

	if (!is_read(regs->orig_ax))
		return 0;
	th = reader(&task);
	if (th)
		read_end(th, task, ret, PT_DOOR_SYSCALL);
	return 0;
}
