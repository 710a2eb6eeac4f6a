// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * GPU entry points: one program for every entry and one for every return, told
 * apart by the attach cookie. Each exists twice, because a kernel that knows
 * multi-uprobe links wants programs for them loaded as such.
 */
#include "emit.bpf.h"

static __always_inline __u64 slot_value(struct pt_regs *ctx, __u32 slot,
					__u16 *flags)
{
	__u64 v = 0;

	switch (slot) {
	case 0:
		return ctx->di;
	case 1:
		return ctx->si;
	case 2:
		return ctx->dx;
	case 3:
		return ctx->cx;
	case 4:
		return ctx->r8;
	case 5:
		return ctx->r9;
	case PT_SLOT_ABSENT:
		return 0;
	}
	/* Slot 6 is the word above the return address. */
	if (bpf_probe_read_user(&v, sizeof(v),
				(void *)(ctx->sp + 8 * (__u64)(slot - 5))))
		*flags |= PT_F_READ_FAILED;
	return v;
}

static __always_inline int gpu_call(struct pt_regs *ctx, __u16 kind)
{
	struct task_struct *task;
	struct pt_thread *th;
	struct pt_rec_gpu *r;
	__u64 cookie;

	if (!pt_is_armed())
		return 0;
	task = bpf_get_current_task_btf();
	th = pt_thread_of(task);
	if (!th)
		return 0;
	r = pt_rec_new(struct pt_rec_gpu, kind, th, task, bpf_ktime_get_ns());
	if (!r)
		return 0;
	cookie = bpf_get_attach_cookie(ctx);
	r->api = PT_COOKIE_API(cookie);
	r->lib = PT_COOKIE_LIB(cookie);
	if (kind == PT_REC_GPU_RETURN) {
		r->v[0] = (__u64)(__s64)(__s32)ctx->ax;
	} else {
		__u16 flags = 0;

		r->stream = slot_value(ctx, PT_COOKIE_STREAM(cookie), &flags);
		r->v[0] = slot_value(ctx, PT_COOKIE_V(cookie, 0), &flags);
		r->v[1] = slot_value(ctx, PT_COOKIE_V(cookie, 1), &flags);
		r->v[2] = slot_value(ctx, PT_COOKIE_V(cookie, 2), &flags);
		r->hdr.flags = flags;
	}
	pt_rec_submit(r);
	return 0;
}

SEC("uprobe")
int pt_gpu_enter(struct pt_regs *ctx)
{
	return gpu_call(ctx, PT_REC_GPU_ENTER);
}

SEC("uretprobe")
int pt_gpu_return(struct pt_regs *ctx)
{
	return gpu_call(ctx, PT_REC_GPU_RETURN);
}

SEC("uprobe")
int pt_gpu_enter_multi(struct pt_regs *ctx)
{
	return gpu_call(ctx, PT_REC_GPU_ENTER);
}

SEC("uretprobe")
int pt_gpu_return_multi(struct pt_regs *ctx)
{
	return gpu_call(ctx, PT_REC_GPU_RETURN);
}
