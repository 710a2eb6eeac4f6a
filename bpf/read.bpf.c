// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Read calls: one pair of bodies behind the doors. One door is open.
 *
 * The kernel's functions below are where every system call that reads a file
 * passes once: read, pread64 (vfs_read); readv, preadv, preadv2 (vfs_readv);
 * sendfile (do_splice_direct, or splice_file_to_pipe); splice from a file
 * (splice_file_to_pipe); copy_file_range (vfs_copy_file_range). They call each
 * other, and overlayfs calls them again for the file below: the outermost is
 * the read.
 */
#include "agg.bpf.h"
#include "write.bpf.h"

#define PT_OFFSET_UNKNOWN (~0ULL)

#define PT_FN_READ 1
#define PT_FN_READV 2
#define PT_FN_SPLICE_DIRECT 3
#define PT_FN_SPLICE_PIPE 4
#define PT_FN_COPY_RANGE 5
#define PT_FN_SYSCALL 6

static __always_inline bool is_outermost(__s32 nr, __u32 fn)
{
	switch (nr) {
	case PT_NR_READ:
	case PT_NR_PREAD64:
		return fn == PT_FN_READ;
	case PT_NR_READV:
	case PT_NR_PREADV:
	case PT_NR_PREADV2:
		return fn == PT_FN_READV;
	case PT_NR_SENDFILE:
		return fn == PT_FN_SPLICE_DIRECT || fn == PT_FN_SPLICE_PIPE;
	case PT_NR_SPLICE:
		return fn == PT_FN_SPLICE_PIPE;
	case PT_NR_COPY_RANGE:
		return fn == PT_FN_COPY_RANGE;
	}
	return false;
}

static __always_inline void read_begin(struct pt_thread *th,
				       struct task_struct *task,
				       struct file *file, __u64 offset,
				       __u32 fn, bool kprobe)
{
	struct pt_object o = {};
	__s32 nr = 0;

	/*
	 * Inside another one. A kretprobe can miss a return (the kernel keeps
	 * a limited number of them); its entry must not hide those after it: a
	 * call's outermost function is not inside anything. (Frames tell
	 * nothing: the kernel moves its stack at random from call to call.)
	 */
	if (kprobe) {
		__u64 arg[3] = {};

		nr = pt_task_syscall(task, arg);
		if (th->read_ts && th->read_nr == nr && !is_outermost(nr, fn))
			return;
		/* overlayfs copies by the same function once more */
		if (th->read_ts && (fn != PT_FN_COPY_RANGE || th->read_fn != fn))
			pt_lost(PT_LOSS_RETURN);
	} else if (th->read_ts && th->read_fn != fn) {
		return;
	}
	if (file && (kprobe || fn == PT_FN_SYSCALL))
		pt_file_object((__u64)file, &o);
	else if (file)
		pt_typed_object(file, &o);
	th->read_fn = fn;
	th->read_nr = nr;
	th->read_file = (__u64)file;
	th->read_inode = o.id;
	th->read_dev = o.dev;
	th->read_kind = o.kind;
	th->read_offset = offset;
	th->read_bytes = pt_task_fetched(task);
	th->read_ts = bpf_ktime_get_ns();
}

static __always_inline void read_end(struct pt_thread *th,
				     struct task_struct *task, __s64 ret,
				     __u32 fn, __u16 door)
{
	__u64 file = th->read_file;
	struct pt_read_end e = {};

	/* Began before the hooks, or is inside another one. */
	if (!th->read_ts || th->read_fn != fn)
		return;
	e.begin = th->read_ts;
	e.end = bpf_ktime_get_ns();
	e.inode = th->read_inode;
	e.dev = th->read_dev;
	e.kind = th->read_kind;
	e.offset = th->read_offset;
	e.ret = ret;
	e.door = door;
	e.fetched = pt_task_fetched(task);
	if (e.fetched != ~0ULL)
		e.fetched -= th->read_bytes;
	th->read_ts = 0;
	if (file && e.kind == PT_OBJ_FILE) {
		struct pt_file_key key = { .inode = e.inode, .dev = e.dev };

		pt_read_name(th, task, file, &key, e.end);
	}
	pt_read_note(th, task, &e);
}

static __always_inline int fn_begin(struct file *file, const loff_t *pos,
				    __u64 offset, __u32 fn, bool kprobe)
{
	struct task_struct *task;
	struct pt_thread *th;
	loff_t at;

	th = pt_reader(&task);
	if (!th)
		return 0;
	pt_hit(th, PT_HIT_READ);
	if (!pt_saves(PT_SAVE_READS)) {
		if (pos && !bpf_probe_read_kernel(&at, sizeof(at), pos))
			offset = at;
		read_begin(th, task, file, offset, fn, kprobe);
	}
	pt_hit_over(th, PT_HIT_READ);
	return 0;
}

static __always_inline int fn_end(__s64 ret, __u32 fn, __u16 door)
{
	struct task_struct *task;
	struct pt_thread *th;

	th = pt_reader(&task);
	if (!th)
		return 0;
	pt_hit(th, PT_HIT_READ);
	read_end(th, task, ret, fn, door);
	pt_hit_over(th, PT_HIT_READ);
	return 0;
}

/* ---- fexit ------------------------------------------------------------------ */

SEC("fentry/vfs_read")
int BPF_PROG(pt_vfs_read_fentry, struct file *file, char *buf, size_t count,
	     loff_t *pos)
{
	return fn_begin(file, pos, PT_OFFSET_UNKNOWN, PT_FN_READ, false);
}

SEC("fexit/vfs_read")
int BPF_PROG(pt_vfs_read_fexit, struct file *file, char *buf, size_t count,
	     loff_t *pos, ssize_t ret)
{
	return fn_end(ret, PT_FN_READ, PT_DOOR_FEXIT);
}

SEC("fentry/vfs_readv")
int BPF_PROG(pt_readv_fentry, struct file *file, const void *vec, size_t n,
	     loff_t *pos)
{
	return fn_begin(file, pos, PT_OFFSET_UNKNOWN, PT_FN_READV, false);
}

SEC("fexit/vfs_readv")
int BPF_PROG(pt_readv_fexit, struct file *file, const void *vec, size_t n,
	     loff_t *pos, int flags, ssize_t ret)
{
	return fn_end(ret, PT_FN_READV, PT_DOOR_FEXIT);
}

SEC("fentry/do_splice_direct")
int BPF_PROG(pt_direct_fentry, struct file *in, loff_t *pos)
{
	return fn_begin(in, pos, PT_OFFSET_UNKNOWN, PT_FN_SPLICE_DIRECT, false);
}

SEC("fexit/do_splice_direct")
int BPF_PROG(pt_direct_fexit, struct file *in, loff_t *pos, struct file *out,
	     loff_t *opos, size_t len, unsigned int flags, long ret)
{
	return fn_end(ret, PT_FN_SPLICE_DIRECT, PT_DOOR_FEXIT);
}

SEC("fentry/splice_file_to_pipe")
int BPF_PROG(pt_pipe_fentry, struct file *in, void *pipe, loff_t *pos)
{
	return fn_begin(in, pos, PT_OFFSET_UNKNOWN, PT_FN_SPLICE_PIPE, false);
}

SEC("fexit/splice_file_to_pipe")
int BPF_PROG(pt_pipe_fexit, struct file *in, void *pipe, loff_t *pos,
	     size_t len, unsigned int flags, long ret)
{
	return fn_end(ret, PT_FN_SPLICE_PIPE, PT_DOOR_FEXIT);
}

SEC("fentry/vfs_copy_file_range")
int BPF_PROG(pt_copy_fentry, struct file *in, loff_t pos)
{
	return fn_begin(in, NULL, pos, PT_FN_COPY_RANGE, false);
}

SEC("fexit/vfs_copy_file_range")
int BPF_PROG(pt_copy_fexit, struct file *in, loff_t pos, struct file *out,
	     loff_t opos, size_t len, unsigned int flags, ssize_t ret)
{
	return fn_end(ret, PT_FN_COPY_RANGE, PT_DOOR_FEXIT);
}

/* ---- kprobe and kretprobe ---------------------------------------------------- */

SEC("kprobe/vfs_read")
int BPF_KPROBE(pt_vfs_read_kprobe, struct file *file, char *buf, size_t count,
	       loff_t *pos)
{
	return fn_begin(file, pos, PT_OFFSET_UNKNOWN, PT_FN_READ, true);
}

SEC("kretprobe/vfs_read")
int BPF_KRETPROBE(pt_vfs_read_kretprobe, ssize_t ret)
{
	return fn_end(ret, PT_FN_READ, PT_DOOR_KPROBE);
}

SEC("kprobe/vfs_readv")
int BPF_KPROBE(pt_readv_kprobe, struct file *file, void *vec, size_t n,
	       loff_t *pos)
{
	return fn_begin(file, pos, PT_OFFSET_UNKNOWN, PT_FN_READV, true);
}

SEC("kretprobe/vfs_readv")
int BPF_KRETPROBE(pt_readv_kretprobe, ssize_t ret)
{
	return fn_end(ret, PT_FN_READV, PT_DOOR_KPROBE);
}

SEC("kprobe/do_splice_direct")
int BPF_KPROBE(pt_direct_kprobe, struct file *in, loff_t *pos)
{
	return fn_begin(in, pos, PT_OFFSET_UNKNOWN, PT_FN_SPLICE_DIRECT, true);
}

SEC("kretprobe/do_splice_direct")
int BPF_KRETPROBE(pt_direct_kretprobe, long ret)
{
	return fn_end(ret, PT_FN_SPLICE_DIRECT, PT_DOOR_KPROBE);
}

SEC("kprobe/splice_file_to_pipe")
int BPF_KPROBE(pt_pipe_kprobe, struct file *in, void *pipe, loff_t *pos)
{
	return fn_begin(in, pos, PT_OFFSET_UNKNOWN, PT_FN_SPLICE_PIPE, true);
}

SEC("kretprobe/splice_file_to_pipe")
int BPF_KRETPROBE(pt_pipe_kretprobe, long ret)
{
	return fn_end(ret, PT_FN_SPLICE_PIPE, PT_DOOR_KPROBE);
}

SEC("kprobe/vfs_copy_file_range")
int BPF_KPROBE(pt_copy_kprobe, struct file *in, loff_t pos)
{
	return fn_begin(in, NULL, pos, PT_FN_COPY_RANGE, true);
}

SEC("kretprobe/vfs_copy_file_range")
int BPF_KRETPROBE(pt_copy_kretprobe, ssize_t ret)
{
	return fn_end(ret, PT_FN_COPY_RANGE, PT_DOOR_KPROBE);
}

/* ---- system calls: full mode only, every process pays for it ----------------- */

/* From an argument, or from where it points to, else the file's own. */
static __always_inline __u64 call_offset(struct pt_regs *regs, long nr,
					 __u64 file)
{
	__u64 at = 0, offset;

	switch (nr) {
	case PT_NR_PREAD64:
	case PT_NR_PREADV:
		return PT_CALL_ARG3(regs);
	case PT_NR_PREADV2:
		if (PT_CALL_ARG3(regs) != PT_OFFSET_UNKNOWN)
			return PT_CALL_ARG3(regs);
		break;
	case PT_NR_SENDFILE:
		at = PT_CALL_ARG2(regs);
		break;
	case PT_NR_SPLICE:
	case PT_NR_COPY_RANGE:
		at = PT_CALL_ARG1(regs);
		break;
	}
	if (!at)
		return BPF_CORE_READ((struct file *)file, f_pos);
	if (bpf_probe_read_user(&offset, sizeof(offset), (void *)at))
		return PT_OFFSET_UNKNOWN;
	return offset;
}

static __always_inline bool nr_writes(long nr)
{
	return nr == PT_NR_WRITE || nr == PT_NR_PWRITE64 ||
	       nr == PT_NR_WRITEV || nr == PT_NR_FSYNC ||
	       nr == PT_NR_FDATASYNC || nr == PT_NR_PWRITEV ||
	       nr == PT_NR_PWRITEV2;
}

static __always_inline __u32 nr_fn(long nr)
{
	return nr == PT_NR_FSYNC || nr == PT_NR_FDATASYNC ? PT_FN_FSYNC :
							    PT_FN_WRITE;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(pt_sys_enter, struct pt_regs *regs, long nr)
{
	__u64 offset = PT_OFFSET_UNKNOWN, file;
	struct task_struct *task;
	struct pt_thread *th;

	nr = pt_nr(nr);
	if (nr_writes(nr)) {
		if (!pt_is_armed())
			return 0;
		task = bpf_get_current_task_btf();
		th = pt_hot_thread_of(task);
		if (!th)
			return 0;
		th->write_ts = 0; /* calls do not nest */
		return pt_write_begin(pt_fd_file(task, PT_CALL_ARG0(regs)), nr_fn(nr));
	}
	if (!pt_nr_reads(nr))
		return 0;
	th = pt_reader(&task);
	if (!th)
		return 0;
	file = pt_fd_file(task, nr == PT_NR_SENDFILE ? PT_CALL_ARG1(regs) :
						       PT_CALL_ARG0(regs));
	if (file)
		offset = call_offset(regs, nr, file);
	th->read_ts = 0; /* calls do not nest: a return was missed */
	read_begin(th, task, (struct file *)file, offset, PT_FN_SYSCALL, false);
	/* Out of a pipe: whatever is in it was read before. */
	if (nr == PT_NR_SPLICE && th->read_kind == PT_OBJ_PIPE)
		th->read_ts = 0;
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(pt_sys_exit, struct pt_regs *regs, long ret)
{
	struct task_struct *task;
	struct pt_thread *th;

	if (nr_writes(PT_CALL_NR(regs)))
		return pt_write_end(ret, nr_fn(PT_CALL_NR(regs)), PT_DOOR_SYSCALL);
	if (!pt_nr_reads(PT_CALL_NR(regs)))
		return 0;
	th = pt_reader(&task);
	if (th)
		read_end(th, task, ret, PT_FN_SYSCALL, PT_DOOR_SYSCALL);
	return 0;
}

/* ---- page ranges: buffered reads of files that have a page cache of their own */

/* By the same name as the thread's read before it is the same file, whose name is known. */
static __always_inline void pages_name(struct pt_thread *th,
				       struct task_struct *task, __u64 file)
{
	struct pt_file_key key = { .inode = th->pages.inode,
				   .dev = th->pages.dev };
	__u64 id = file ? pt_name_id(file) : 0;

	if (!file || th->pages.name == id)
		return;
	pt_read_name(th, task, file, &key, th->pages.ts);
	/* where the ring had no room for it, the next read tries again */
	th->pages.name = pt_file_is_named(&key, id) ? id : 0;
}

/*
 * The call began here at the latest. Its first event is not always that of its
 * first page: pages that are there already go without one when those behind them
 * are still on their way (filemap_get_pages gives them back and comes again).
 */
static __always_inline __u64 pages_from(struct task_struct *task, __s32 nr,
					__u64 file, __u64 first)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 at = PT_OFFSET_UNKNOWN;

	if (nr == PT_NR_PREAD64 || nr == PT_NR_PREADV || nr == PT_NR_PREADV2)
		at = PT_CALL_ARG3(regs);
	if ((nr == PT_NR_READ || nr == PT_NR_READV || at == PT_OFFSET_UNKNOWN) &&
	    file && nr != PT_NR_SENDFILE && nr != PT_NR_COPY_RANGE)
		at = BPF_CORE_READ((struct file *)file, f_pos);
	at >>= PT_PAGE_SHIFT;
	return at < first ? at : first;
}

static __always_inline void pages_seen(struct pt_thread *th, struct task_struct *task,
				       struct address_space *mapping,
				       unsigned long first, unsigned long last)
{
	__u64 arg[3] = {}, ino, calls, file;
	struct inode *inode;
	struct pt_pages *g;
	__s32 nr;

	/* Plain loads, before anything branches: when the program is loaded, each pointer by its
	 * type costs 3 ms. */
	inode = mapping->host;
	ino = inode->i_ino;
	if (pt_mode_kind(inode->i_mode) != PT_OBJ_FILE)
		return;
	/* Others are the kernel's own (exec) or a ring's, counted there. */
	nr = pt_task_syscall(task, arg);
	if (!pt_nr_reads(nr))
		return;
	calls = task->ioac.syscr;
	g = &th->pages;
	/* Again in the same call: more pages, or the same after they came. One
	 * splice cannot be told from the next, so each event is one. */
	if (g->active && g->calls == calls && g->at == (__u64)inode && nr != PT_NR_SPLICE) {
		if (first < g->first)
			g->first = first;
		if (last > g->last)
			g->last = last;
		return;
	}
	pt_pages_end(th, task);
	/* its file system is the same, too, but for an inode that has gone and come again with the
	 * same number at the same place */
	if (g->at != (__u64)inode || g->inode != ino) {
		g->at = (__u64)inode;
		g->inode = ino;
		g->name = 0;
		g->dev = inode->i_sb->s_dev;
	}
	g->size = inode->i_size;
	file = pt_fd_file(task, nr == PT_NR_SENDFILE ? arg[1] : arg[0]);
	g->first = nr == PT_NR_SPLICE ? first :
					pages_from(task, nr, file, first);
	g->last = last;
	g->rchar = task->ioac.rchar;
	g->calls = calls;
	g->ts = bpf_ktime_get_ns();
	g->active = 1;
	g->counted = nr != PT_NR_SPLICE;
	pages_name(th, task, file);
}

SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(pt_get_pages, struct address_space *mapping, unsigned long first,
	     unsigned long last)
{
	struct task_struct *task;
	struct pt_thread *th = pt_reader(&task);

	if (!th || !bpf_core_field_exists(task->ioac.syscr))
		return 0;
	pt_hit(th, PT_HIT_READ);
	if (!pt_saves(PT_SAVE_READS))
		pages_seen(th, task, mapping, first, last);
	pt_hit_over(th, PT_HIT_READ);
	return 0;
}
