/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A file's name, read while a thread of the target holds the file: neither a
 * close nor a removal right after loses it. Written once for each file, and
 * again when the file is met under another name: a file that was renamed, or a
 * new one that got the number of one that was deleted.
 */
#ifndef PT_NAME_BPF_H
#define PT_NAME_BPF_H

#include "object.bpf.h"

/* On the way from a file up to the root of the thread. */
struct pt_way {
	__u64 d, mnt;	      /* where it is; d 0: nowhere */
	__u64 root_d, root_mnt; /* where it ends */
	__u32 off, parts;     /* of the path so far */
};

/* The name has room to overrun: the verifier cannot relate offset and size,
 * so that every component may be as long as the whole path. */
struct pt_file_slot {
	struct pt_rec_file rec;
	char more[PT_LONG_PATH_LEN - PT_PATH_LEN];
	char spill[PT_LONG_PATH_LEN];
	struct pt_way way;
};
_Static_assert(sizeof(struct pt_rec_file) + PT_LONG_PATH_LEN - PT_PATH_LEN ==
	       PT_REC_MAX, "a long path's record");
#define PT_MAX_STEPS 28 /* components and mounts */

#define PT_STEP_ON 0
#define PT_STEP_ROOT 1 /* arrived */
#define PT_STEP_CUT 2  /* no room, or nowhere to go */

/*
 * One step: from a mount's root to where it is mounted in the job's mount
 * namespace, else a component. Not static, so that the verifier looks at it
 * once for itself and not in every state of every caller; weak, for every
 * object has one.
 */
__weak __noinline int pt_path_step(struct pt_file_slot *s);
__weak __noinline int pt_path_step(struct pt_file_slot *s)
{
	struct mount *m, *outer;
	struct vfsmount *mnt;
	struct dentry *d, *up, *top;
	__u32 off;
	long n;

	if (!s)
		return PT_STEP_CUT;
	d = (struct dentry *)s->way.d;
	mnt = (struct vfsmount *)s->way.mnt;
	off = s->way.off;
	if (!d)
		return PT_STEP_CUT;
	if (s->way.d == s->way.root_d && s->way.mnt == s->way.root_mnt)
		return PT_STEP_ROOT;
	up = BPF_CORE_READ(d, d_parent);
	top = BPF_CORE_READ(mnt, mnt_root);
	if (d == top) {
		m = (void *)mnt - bpf_core_field_offset(struct mount, mnt);
		outer = BPF_CORE_READ(m, mnt_parent);
		if (outer && outer != m) {
			s->way.d = (__u64)BPF_CORE_READ(m, mnt_mountpoint);
			s->way.mnt = (__u64)outer +
				     bpf_core_field_offset(struct mount, mnt);
			return PT_STEP_ON;
		}
	}
	/* a root; of something that is mounted nowhere its own name */
	if (up == d && s->way.parts)
		return PT_STEP_ROOT;
	if (off >= PT_LONG_PATH_LEN)
		return PT_STEP_CUT;
	n = bpf_probe_read_kernel_str(s->rec.path + off, PT_LONG_PATH_LEN,
				      BPF_CORE_READ(d, d_name.name));
	if (n <= 1)
		return PT_STEP_CUT;
	/* a name that fills the field exactly was cut by the helper */
	if (off + n > PT_LONG_PATH_LEN || n == PT_LONG_PATH_LEN)
		return PT_STEP_CUT;
	s->way.off = off + n;
	s->way.parts++;
	s->way.d = (__u64)up;
	return up == d ? PT_STEP_ROOT : PT_STEP_ON;
}

static __always_inline void pt_file_path(struct pt_file_slot *s, __u64 file,
					 struct task_struct *task)
{
	struct vfsmount *mnt;
	int i, r = PT_STEP_ON;

	s->way.d = (__u64)pt_file_dentry(file, &mnt);
	s->way.mnt = (__u64)mnt;
	s->way.root_d = (__u64)BPF_CORE_READ(task, fs, root.dentry);
	s->way.root_mnt = (__u64)BPF_CORE_READ(task, fs, root.mnt);
	s->way.off = s->way.parts = 0;
	for (i = 0; i < PT_MAX_STEPS && r == PT_STEP_ON; i++)
		r = pt_path_step(s);
	s->rec.parts = s->way.parts;
	s->rec.truncated = r != PT_STEP_ROOT;
	if (!s->rec.parts)
		s->rec.hdr.flags |= PT_F_READ_FAILED;
	/* an older reader finds the innermost components whole in it */
	if (s->way.off > PT_PATH_LEN)
		s->rec.hdr.size = PT_REC_MAX;
	else
		s->rec.path[PT_PATH_LEN - 1] = 0;
	s->more[sizeof(s->more) - 1] = 0;
}

/* Tells the names of one file from each other: by the directory in memory and
 * a hash of the last component. */
static __always_inline __u64 pt_name_id(__u64 file)
{
	struct vfsmount *mnt;

	return BPF_CORE_READ(pt_file_dentry(file, &mnt), d_name.hash_len);
}

/* Write the name of a regular file. */
static __noinline int pt_file_write(struct pt_thread *th, struct task_struct *t,
				    __u64 file, struct pt_file_key *key,
				    __u64 ts)
{
	struct pt_named named = { .id = pt_name_id(file) };
	struct pt_file_slot *s;
	struct inode *inode;

	inode = BPF_CORE_READ((struct file *)file, f_inode);
	s = bpf_ringbuf_reserve(&pt_ring, sizeof(*s), 0);
	if (!s) {
		__sync_fetch_and_add(&th->seq, 1);
		pt_lost(PT_LOSS_FILES_FULL);
		return 0;
	}
	__builtin_memset(s, 0, PT_REC_MAX);
	pt_hdr_fill(&s->rec.hdr, sizeof(s->rec), PT_REC_FILE, th, t, ts);
	s->rec.inode = key->inode;
	s->rec.dev = key->dev;
	s->rec.size = BPF_CORE_READ(inode, i_size);
	s->rec.mode = BPF_CORE_READ(inode, i_mode);
	s->rec.fs_magic = (__u32)BPF_CORE_READ(inode, i_sb, s_magic);
	pt_file_path(s, file, t);
	bpf_map_update_elem(&pt_files, key, &named, BPF_ANY);
	pt_rec_submit(s);
	return 0;
}

/* Is the file still what the key says? At a system call's exit another thread
 * may have closed it. */
static __always_inline bool pt_file_is(__u64 file, const struct pt_file_key *key)
{
	struct pt_object o = {};

	pt_file_object(file, &o);
	return o.id == key->inode && o.dev == key->dev;
}

/* A thread met a regular file: is its name to be written? */
static __always_inline bool pt_file_new(__u64 file, struct pt_file_key *key)
{
	struct pt_named *named;

	if (!pt_cfg.file_names)
		return false;
	named = bpf_map_lookup_elem(&pt_files, key);
	return (!named || named->id != pt_name_id(file)) && pt_file_is(file, key);
}

/* Was it written under this name? */
static __always_inline bool pt_file_is_named(const struct pt_file_key *key, __u64 id)
{
	struct pt_named *named = bpf_map_lookup_elem(&pt_files, key);

	return named && named->id == id;
}

static __always_inline void pt_file_note(struct pt_thread *th,
					 struct task_struct *t, __u64 file,
					 struct pt_file_key *key, __u64 ts)
{
	if (pt_file_new(file, key))
		pt_file_write(th, t, file, key, ts);
}

#endif
