// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * NVTX: ranges that a program names itself. One program for every entry and one
 * for the returns that give a handle, told apart by the attach cookie.
 */
#include "emit.bpf.h"

/* nvtxEventAttributes_t of nvToolsExt.h, versions 1 and 2. */
#define ATTR_SIZE 2	     /* uint16_t */
#define ATTR_MESSAGE_TYPE 32 /* int32_t */
#define ATTR_MESSAGE 40	     /* pointer */
#define ATTR_BYTES 48
#define MESSAGE_ASCII 1
#define MESSAGE_REGISTERED 3

/* Volatile: else the compiler chooses between the registers' places first, and
 * the verifier takes no computed offset into the context. */
static __always_inline __u64 argument(struct pt_regs *ctx, __u32 slot)
{
	__u64 a = *(volatile __u64 *)&PT_ARG0(ctx), b = *(volatile __u64 *)&PT_ARG1(ctx);

	return slot == 0 ? a : slot == 1 ? b : 0;
}

static __always_inline void fill_text(struct pt_rec_nvtx *r, __u64 at)
{
	long n = bpf_probe_read_user_str(r->text, sizeof(r->text), (void *)at);

	if (n < 0)
		r->hdr.flags |= PT_F_READ_FAILED;
	else if (n == sizeof(r->text)) /* with the NUL: it may have had more */
		r->truncated = 1;
}

static __always_inline void fill_attributes(struct pt_rec_nvtx *r, __u64 at)
{
	__u64 message = 0;
	__u16 size = 0;
	__u32 type = 0;

	if (bpf_probe_read_user(&size, sizeof(size), (void *)(at + ATTR_SIZE)) ||
	    bpf_probe_read_user(&type, sizeof(type),
				(void *)(at + ATTR_MESSAGE_TYPE)) ||
	    bpf_probe_read_user(&message, sizeof(message),
				(void *)(at + ATTR_MESSAGE))) {
		r->hdr.flags |= PT_F_READ_FAILED;
		return;
	}
	if (size < ATTR_BYTES)
		return;
	if (type == MESSAGE_ASCII)
		fill_text(r, message);
	else if (type == MESSAGE_REGISTERED)
		r->text_id = message;
}

static __always_inline void nvtx_record(struct pt_regs *ctx, struct pt_thread *th,
					struct task_struct *task, bool ret)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	struct pt_rec_nvtx *r;
	__u32 msg;

	r = pt_rec_new(struct pt_rec_nvtx, PT_REC_NVTX, th, task,
		       bpf_ktime_get_ns());
	if (!r)
		return;
	if (ret) {
		r->op = PT_NVTX_ID;
		r->id = PT_RESULT(ctx);
		pt_rec_submit(r);
		return;
	}
	r->op = PT_NVTX_COOKIE_OP(cookie);
	r->domain = argument(ctx, PT_NVTX_COOKIE_DOMAIN(cookie));
	r->id = argument(ctx, PT_NVTX_COOKIE_ID(cookie));
	msg = PT_NVTX_COOKIE_MSG(cookie);
	if (msg == PT_NVTX_MSG_TEXT)
		fill_text(r, argument(ctx, PT_NVTX_COOKIE_SLOT(cookie)));
	else if (msg == PT_NVTX_MSG_ATTR)
		fill_attributes(r, argument(ctx, PT_NVTX_COOKIE_SLOT(cookie)));
	pt_rec_submit(r);
}

static __always_inline int nvtx(struct pt_regs *ctx, bool ret)
{
	__u32 hit = ret ? PT_HIT_RETURN : PT_HIT_NVTX;
	struct task_struct *task;
	struct pt_thread *th;

	if (!pt_is_armed())
		return 0;
	task = bpf_get_current_task_btf();
	th = pt_thread_of(task);
	if (!th)
		return 0;
	pt_hit(th, hit);
	nvtx_record(ctx, th, task, ret);
	pt_hit_over(th, hit);
	return 0;
}

SEC("uprobe")
int pt_nvtx_enter(struct pt_regs *ctx)
{
	return nvtx(ctx, false);
}

SEC("uretprobe")
int pt_nvtx_return(struct pt_regs *ctx)
{
	return nvtx(ctx, true);
}

SEC("uprobe")
int pt_nvtx_enter_multi(struct pt_regs *ctx)
{
	return nvtx(ctx, false);
}

SEC("uretprobe")
int pt_nvtx_return_multi(struct pt_regs *ctx)
{
	return nvtx(ctx, true);
}
