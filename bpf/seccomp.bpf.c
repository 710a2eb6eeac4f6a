// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What a thread's seccomp filters are: ptrace() tells nobody who has a filter, as pipetrace
 * has. Whoever reads the iterator says in pt_seccomp which thread, and which filter, counted
 * from the last one on.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "config.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pt_seccomp_cell);
} pt_seccomp SEC(".maps");

/* The number of a task in the PID name space of whoever reads. */
static __always_inline __u32 number_here(struct task_struct *task)
{
	struct task_struct *reader = (struct task_struct *)bpf_get_current_task();
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 level = BPF_CORE_READ(reader, thread_pid, level);
	__u32 size = bpf_core_type_size(struct upid), at, nr = 0;

	if (!pid || level > BPF_CORE_READ(pid, level))
		return 0;
	at = bpf_core_field_offset(struct pid, numbers) +
	     bpf_core_field_offset(struct upid, nr) + level * size;
	bpf_probe_read_kernel(&nr, sizeof(nr), (char *)pid + at);
	return nr;
}

SEC("iter/task")
int pt_iter_seccomp(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct seccomp_filter *f;
	struct sock_fprog_kern *p;
	struct pt_seccomp_cell *o;
	__u32 key = 0, i, bytes;

	o = bpf_map_lookup_elem(&pt_seccomp, &key);
	if (!task || !o || number_here(task) != o->tid)
		return 0;
	f = BPF_CORE_READ(task, seccomp.filter);
	for (i = 0; f && i < o->which && i < PT_SECCOMP_MAX; i++)
		f = BPF_CORE_READ(f, prev);
	o->len = PT_SECCOMP_NONE;
	if (!f)
		return 0;
	/* kept where the kernel has CONFIG_CHECKPOINT_RESTORE */
	o->len = PT_SECCOMP_HIDDEN;
	p = BPF_CORE_READ(f, prog, orig_prog);
	if (!p)
		return 0;
	i = BPF_CORE_READ(p, len);
	bytes = i * sizeof(o->code[0]);
	/* or the check is made on i, which tells the verifier nothing of bytes */
	barrier_var(bytes);
	if (bytes && bytes <= sizeof(o->code) &&
	    !bpf_probe_read_kernel(o->code, bytes, BPF_CORE_READ(p, filter)))
		o->len = (__s32)i;
	return 0;
}
