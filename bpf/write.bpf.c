// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Write and fsync calls behind the doors of the read calls. System calls share
 * the programs of read.bpf.c.
 */
#include "write.bpf.h"

SEC("fentry/vfs_write")
int BPF_PROG(pt_vfs_write_fentry, struct file *file)
{
	return pt_write_begin((__u64)file, PT_FN_WRITE);
}

SEC("fexit/vfs_write")
int BPF_PROG(pt_vfs_write_fexit, struct file *file, const char *buf,
	     size_t count, loff_t *pos, ssize_t ret)
{
	return pt_write_end(ret, PT_FN_WRITE, PT_DOOR_FEXIT);
}

SEC("fentry/vfs_writev")
int BPF_PROG(pt_writev_fentry, struct file *file)
{
	return pt_write_begin((__u64)file, PT_FN_WRITEV);
}

SEC("fexit/vfs_writev")
int BPF_PROG(pt_writev_fexit, struct file *file, const void *vec, size_t n,
	     loff_t *pos, int flags, ssize_t ret)
{
	return pt_write_end(ret, PT_FN_WRITEV, PT_DOOR_FEXIT);
}

SEC("fentry/vfs_fsync_range")
int BPF_PROG(pt_fsync_fentry, struct file *file)
{
	return pt_write_begin((__u64)file, PT_FN_FSYNC);
}

SEC("fexit/vfs_fsync_range")
int BPF_PROG(pt_fsync_fexit, struct file *file, loff_t start, loff_t end,
	     int datasync, int ret)
{
	return pt_write_end(ret, PT_FN_FSYNC, PT_DOOR_FEXIT);
}

SEC("kprobe/vfs_write")
int BPF_KPROBE(pt_vfs_write_kprobe, struct file *file)
{
	return pt_write_begin((__u64)file, PT_FN_WRITE);
}

SEC("kretprobe/vfs_write")
int BPF_KRETPROBE(pt_vfs_write_kretprobe, ssize_t ret)
{
	return pt_write_end(ret, PT_FN_WRITE, PT_DOOR_KPROBE);
}

SEC("kprobe/vfs_writev")
int BPF_KPROBE(pt_writev_kprobe, struct file *file)
{
	return pt_write_begin((__u64)file, PT_FN_WRITEV);
}

SEC("kretprobe/vfs_writev")
int BPF_KRETPROBE(pt_writev_kretprobe, ssize_t ret)
{
	return pt_write_end(ret, PT_FN_WRITEV, PT_DOOR_KPROBE);
}

SEC("kprobe/vfs_fsync_range")
int BPF_KPROBE(pt_fsync_kprobe, struct file *file)
{
	return pt_write_begin((__u64)file, PT_FN_FSYNC);
}

SEC("kretprobe/vfs_fsync_range")
int BPF_KRETPROBE(pt_fsync_kretprobe, int ret)
{
	return pt_write_end(ret, PT_FN_FSYNC, PT_DOOR_KPROBE);
}
