// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Page faults on mapped files. Hooked is where a fault needs a page that the
 * mapping's neighbourhood did not have ready (a tracepoint in filemap_fault()
 * since 6.12, the function itself before), not every fault; and where a page is
 * added to the page cache, which says what the fault brought in. Both are met
 * by the thread that faults, before it waits: so its wait has a file.
 */
#include "agg.bpf.h"
#include "fault.bpf.h"

#define PT_VM_EXEC 0x4 /* include/linux/mm.h, unchanged since 2.6 */
#define PT_PATHS 8     /* ways down a tree of mappings ... */
#define PT_LEVELS 4    /* ... and how far: its 15 uppermost */

struct mapped {
	__u64 mm;   /* whose mapping is looked for first */
	__u64 file; /* a struct file that maps it; 0 none found */
	__u32 own;  /* ... in that mm */
	__u32 text; /* PT_TEXT_* */
};

/* Look at the mapping of a node of the tree. As for pt_path_step(). */
__weak __noinline int pt_look_at(__u64 node, struct mapped *o);
__weak __noinline int pt_look_at(__u64 node, struct mapped *o)
{
	struct vm_area_struct *v;
	__u64 file;

	if (!o)
		return 0;
	v = (struct vm_area_struct *)(node - bpf_core_field_offset(
						     struct vm_area_struct,
						     shared.rb));
	if (BPF_CORE_READ(v, vm_flags) & PT_VM_EXEC)
		o->text = PT_TEXT_YES;
	file = (__u64)BPF_CORE_READ(v, vm_file);
	if (!file || o->own)
		return 0;
	o->own = (__u64)BPF_CORE_READ(v, vm_mm) == o->mm;
	if (o->own || !o->file)
		o->file = file;
	return 0;
}

/*
 * Who maps the file, from its tree of mappings: the task's own, else anybody's,
 * and whether one of them may be executed. A library has a handful of mappings
 * in every process, ordered by their place in the file, and the executable ones
 * are a good part of them: the upper levels of the tree hold one. The tree may
 * change meanwhile; what is read then is refused or wrong, never harmful.
 */
static __always_inline void find_mapped(struct address_space *mapping,
					struct mapped *o)
{
	__u64 node, root;
	int path, level;

	root = (__u64)BPF_CORE_READ(mapping, i_mmap.rb_root.rb_node);
	for (path = 0; path < PT_PATHS; path++) {
		node = root;
		for (level = 0; level < PT_LEVELS && node; level++) {
			pt_look_at(node, o);
			node = (__u64)(path >> level & 1 ?
				BPF_CORE_READ((struct rb_node *)node, rb_right) :
				BPF_CORE_READ((struct rb_node *)node, rb_left));
		}
		if (o->own && o->text == PT_TEXT_YES)
			break;
	}
}

/* The file's name, where it has not been written, and PT_F_TEXT or 0. */
static __noinline int name_mapped(struct pt_thread *th, struct task_struct *task,
				  struct address_space *mapping,
				  struct pt_file_key *key, __u64 ts)
{
	struct vm_area_struct *v;
	struct pt_named *named;
	struct mapped m = { .mm = (__u64)BPF_CORE_READ(task, mm), .text = PT_TEXT_NO };
	__u64 root, file;

	if (!th || !key)
		return 0;
	/* mostly the uppermost mapping has the name that is known */
	root = (__u64)BPF_CORE_READ(mapping, i_mmap.rb_root.rb_node);
	named = bpf_map_lookup_elem(&pt_files, key);
	if (root && named && named->text) {
		v = (void *)root - bpf_core_field_offset(struct vm_area_struct,
							 shared.rb);
		file = (__u64)BPF_CORE_READ(v, vm_file);
		if (file && pt_name_id(file) == named->id)
			return named->text == PT_TEXT_YES ? PT_F_TEXT : 0;
	}
	find_mapped(mapping, &m);
	if (m.file && pt_file_new(m.file, key))
		pt_file_write(th, task, m.file, key, ts);
	named = bpf_map_lookup_elem(&pt_files, key);
	if (named)
		named->text = m.text;
	return m.text == PT_TEXT_YES ? PT_F_TEXT : 0;
}

/* A fault of the thread needs page `index`. */
static __always_inline void fault_begin(struct pt_thread *th,
					struct task_struct *task,
					struct address_space *mapping,
					__u64 index)
{
	struct pt_faults *f = &th->faults;
	struct pt_file_key key = {};
	__u64 arg[3], now, over;
	struct inode *inode;
	__s32 nr;

	inode = BPF_CORE_READ(mapping, host);
	key.inode = BPF_CORE_READ(inode, i_ino);
	key.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	if (pt_mode_kind(BPF_CORE_READ(inode, i_mode)) != PT_OBJ_FILE)
		return;
	nr = pt_task_syscall(task, arg);
	over = pt_faults_over(task);
	/* the same one again: it had to wait */
	if (f->on && f->counted == over && f->nr == nr && f->index == index &&
	    f->inode == key.inode && f->dev == key.dev)
		return;
	now = bpf_ktime_get_ns();
	*(volatile __u32 *)&f->in_use = 1;
	if (f->count && (f->inode != key.inode || f->dev != key.dev ||
			 now - f->begin > PT_FAULTS_MAX_NS))
		pt_faults_flush(th, task);
	if (!f->count) {
		f->begin = now;
		f->inode = key.inode;
		f->dev = key.dev;
		f->offset = index << PT_PAGE_SHIFT;
		f->bytes = 0;
		f->major = 0;
		f->flags = name_mapped(th, task, mapping, &key, now);
	}
	f->count++;
	f->end = now;
	f->index = index;
	f->counted = over;
	f->nr = nr;
	f->hit = 0;
	f->on = 1;
	*(volatile __u32 *)&f->in_use = 0;
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(pt_fault, struct address_space *mapping, unsigned long index)
{
	struct task_struct *task;
	struct pt_thread *th = pt_reader(&task);

	if (!th)
		return 0;
	pt_hit(th, PT_HIT_FAULT);
	fault_begin(th, task, mapping, index);
	pt_hit_over(th, PT_HIT_FAULT);
	return 0;
}

static __always_inline int fault_fn(struct vm_fault *vmf)
{
	struct task_struct *task;
	struct pt_thread *th = pt_reader(&task);

	if (!th)
		return 0;
	pt_hit(th, PT_HIT_FAULT);
	fault_begin(th, task,
		    BPF_CORE_READ(vmf, vma, vm_file, f_inode, i_mapping),
		    BPF_CORE_READ(vmf, pgoff));
	pt_hit_over(th, PT_HIT_FAULT);
	return 0;
}

SEC("fentry/filemap_fault")
int BPF_PROG(pt_fault_fentry, struct vm_fault *vmf)
{
	return fault_fn(vmf);
}

SEC("kprobe/filemap_fault")
int BPF_KPROBE(pt_fault_kprobe, struct vm_fault *vmf)
{
	return fault_fn(vmf);
}

static __always_inline void page_added(struct pt_thread *th, struct task_struct *task,
				       struct folio *folio)
{
	struct address_space *mapping;
	struct inode *inode;
	__u64 arg[3];
	__s32 nr;

	nr = pt_task_syscall(task, arg);
	if (!pt_in_fault(th, task, nr)) {
		/* A call adds pages for reasons of its own. */
		if (pt_cfg.fault_door != PT_FAULT_DOOR_ADDS ||
		    nr != PT_SYSCALL_NONE)
			return;
		fault_begin(th, task, BPF_CORE_READ(folio, mapping),
			    BPF_CORE_READ(folio, index));
		if (!pt_in_fault(th, task, nr))
			return;
	}
	mapping = BPF_CORE_READ(folio, mapping);
	inode = BPF_CORE_READ(mapping, host);
	if (BPF_CORE_READ(inode, i_ino) != th->faults.inode ||
	    BPF_CORE_READ(inode, i_sb, s_dev) != th->faults.dev)
		return;
	th->faults.bytes += pt_folio_pages(folio) << PT_PAGE_SHIFT;
	pt_fault_hit(th);
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(pt_page_added, struct folio *folio)
{
	struct task_struct *task;
	struct pt_thread *th = pt_reader(&task);

	if (!th)
		return 0;
	pt_hit(th, PT_HIT_FAULT);
	page_added(th, task, folio);
	pt_hit_over(th, PT_HIT_FAULT);
	return 0;
}
