// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * GPU entry points: one program for every entry and one for every return, told
 * apart by the attach cookie. Each exists twice, because a kernel that knows
 * multi-uprobe links wants programs for them loaded as such.
 */
#include "run.bpf.h"

static __always_inline __u64 slot_value(struct pt_regs *ctx, __u32 slot,
					__u16 *flags)
{
	switch (slot) {
	case 0:
		return PT_ARG0(ctx);
	case 1:
		return PT_ARG1(ctx);
	case 2:
		return PT_ARG2(ctx);
	case 3:
		return PT_ARG3(ctx);
	case 4:
		return PT_ARG4(ctx);
	case 5:
		return PT_ARG5(ctx);
#ifdef PT_ARG6
	case 6:
		return PT_ARG6(ctx);
	case 7:
		return PT_ARG7(ctx);
#endif
	case PT_SLOT_ABSENT:
		return 0;
	}
	return pt_user_word(PT_ARG_ON_STACK(ctx, slot), flags);
}

/* Width, height and depth at `at`, multiplied. */
static __always_inline __u64 extent(__u64 at, __u32 dims, __u16 *flags)
{
	__u64 n = pt_user_word(at, flags) * pt_user_word(at + 8, flags);

	return dims == 3 ? n * pt_user_word(at + 16, flags) : n;
}

#define PT_CONFIG_STREAM 32 /* in cudaLaunchConfig_t and CUlaunchConfig */

/* What lies behind a pointer; offsets are those of the structs in
 * driver_types.h and cuda.h. */
static __always_inline void fill_via(struct pt_rec_gpu *r, __u32 via,
				     __u16 *flags)
{
	__u64 at = r->v[0];

	switch (via) {
#ifdef __TARGET_ARCH_arm64
	case PT_VIA_EXTENT: /* width, height, depth as v1, v0, v2 */
		r->v[1] = pt_user_word(at, flags);
		r->v[0] = pt_user_word(at + 8, flags);
		r->v[2] = pt_user_word(at + 16, flags);
		return;
#endif
	case PT_VIA_CONFIG: /* cudaLaunchConfig_t, CUlaunchConfig */
		r->stream = pt_user_word(r->stream + PT_CONFIG_STREAM, flags);
		return;
	case PT_VIA_3D: /* cudaMemcpy3DParms: extent, kind */
		r->v[1] = extent(at + 128, 3, flags);
		r->v[2] = (__u32)pt_user_word(at + 152, flags);
		break;
	case PT_VIA_3D_PEER: /* cudaMemcpy3DPeerParms: extent */
		r->v[1] = extent(at + 144, 3, flags);
		break;
	case PT_VIA_DRV_2D: /* srcMemoryType, dstMemoryType, WidthInBytes */
		r->v[1] = extent(at + 112, 2, flags);
		r->v[2] = pt_user_word(at + 16, flags) << 32 |
			  (__u32)pt_user_word(at + 72, flags);
		break;
	case PT_VIA_DRV_3D:
		r->v[1] = extent(at + 176, 3, flags);
		r->v[2] = pt_user_word(at + 32, flags) << 32 |
			  (__u32)pt_user_word(at + 120, flags);
		break;
	default:
		return;
	}
	r->v[0] = 0;
}

/* An outer library's call: the inner one's calls that it makes are to be
 * known by the frame it runs in. */
static __always_inline void outer_enter(struct pt_regs *ctx,
					struct pt_thread *th, __u64 cookie)
{
	__u16 flags = 0;

	if (!*(volatile __u32 *)&pt_inner)
		return; /* nothing is attached below */
	th->outer_ra = 0;
	if (!PT_COOKIE_RET(cookie))
		th->outer_ra = pt_caller(ctx, &flags);
	th->outer_sp = flags ? 0 : ctx->sp;
	th->outer_lib = PT_COOKIE_LIB(cookie);
}

static __always_inline struct pt_text *text_of(struct task_struct *task, __u32 lib)
{
	struct pt_text_key key = { .tgid = task->tgid, .lib = lib };

	return bpf_map_lookup_elem(&pt_texts, &key);
}

/* Was this called by the outer library, deeper in the stack than its call that the thread
 * entered last? */
static __always_inline bool by_outer(struct pt_regs *ctx, struct pt_thread *th,
				     struct pt_text *text)
{
	__u16 flags = 0;
	__u64 ra;

	if (ctx->sp >= th->outer_sp)
		return false;
	ra = pt_caller(ctx, &flags);
	return !flags && (!text || (ra >= text->begin && ra < text->end));
}

/*
 * Does this call of an inner library come out of the outer one's call that the
 * thread entered last, and that has not ended? Where no return probe says when the
 * outer call ended, its frame must still be there. (A return probe puts the kernel's
 * own address into it.)
 */
static __always_inline bool inside_outer(struct pt_regs *ctx,
					 struct pt_thread *th,
					 struct task_struct *task)
{
	__u16 flags = 0;

	if (!th->outer_sp || !by_outer(ctx, th, text_of(task, th->outer_lib)))
		return false;
	return !th->outer_ra ||
	       pt_still_runs(ctx, th->outer_sp, th->outer_ra, &flags);
}

/* ---- launches of two layers ---- */

/* A launch by the outer library that reached no inner one: it counts where it came in. */
static __noinline int write_held(struct pt_thread *th, struct task_struct *task)
{
	struct pt_rec_gpu *r;
	__u64 ts;

	if (!th || !task)
		return 0;
	ts = th->held_ts;
	th->held_ts = 0;
	if (pt_run_add(th, task, ts, th->held_id, th->held_stream, th->held_v,
		       (__u16)th->held_flags))
		return 0;
	r = pt_rec_new(struct pt_rec_gpu, PT_REC_GPU_ENTER, th, task, ts);
	if (!r)
		return pt_miss(task->tgid, PT_COOKIE_API(th->held_id), 1, 0);
	r->api = PT_COOKIE_API(th->held_id);
	r->lib = PT_COOKIE_LIB(th->held_id);
	r->stream = th->held_stream;
	r->v[0] = th->held_v;
	r->hdr.flags = (__u16)th->held_flags;
	pt_rec_submit(r);
	return 0;
}

static __always_inline void end_held(struct pt_thread *th, struct task_struct *task)
{
	if (*(volatile __u64 *)&th->held_ts)
		write_held(th, task);
}

/* Its stream and its function, as pt_rec_gpu has them. */
static __always_inline __u64 launch_stream(struct pt_regs *ctx, __u64 cookie, __u16 *flags)
{
	__u64 stream = slot_value(ctx, PT_COOKIE_STREAM(cookie), flags);

	if (PT_COOKIE_VIA(cookie) == PT_VIA_CONFIG)
		stream = pt_user_word(stream + PT_CONFIG_STREAM, flags);
	return stream;
}

/* A launch by an outer library, above an inner one that is hooked, too: it is told when it
 * gets there. False: there is none, it counts here. */
static __always_inline bool hold_launch(struct pt_regs *ctx, struct pt_thread *th,
					struct task_struct *task, __u64 cookie)
{
	struct pt_text *text;
	__u16 flags = 0;

	if (!*(volatile __u32 *)&pt_inner)
		return false;
	text = text_of(task, PT_COOKIE_LIB(cookie));
	if (!text || !text->inner)
		return false;
	if (text->bare)
		return true;
	end_held(th, task);
	outer_enter(ctx, th, cookie);
	__sync_fetch_and_add(&text->launches, 1);
	th->held_stream = launch_stream(ctx, cookie, &flags);
	th->held_v = slot_value(ctx, PT_COOKIE_V(cookie, 0), &flags);
	th->held_id = (__u32)cookie;
	th->held_flags = flags;
	th->held_ts = bpf_ktime_get_ns();
	return true;
}

/* The outer library knows the kernel by another name. */
static __always_inline void note_handle(struct task_struct *task, __u64 handle, __u64 function)
{
	struct pt_handle_key key = { .handle = handle, .tgid = task->tgid };
	__u64 *known = bpf_map_lookup_elem(&pt_handles, &key);

	if (known && *known == function)
		return;
	bpf_map_update_elem(&pt_handles, &key, &function, BPF_ANY);
	__sync_fetch_and_add(&pt_handles_new, 1);
}

/* A launch by an inner library: does it count here? */
static __always_inline bool launch_counts(struct pt_regs *ctx, struct pt_thread *th,
					  struct task_struct *task, __u64 cookie)
{
	struct pt_text *text;
	__u16 flags = 0;

	if (!th->outer_sp)
		return true;
	text = text_of(task, th->outer_lib);
	if (!text || !text->inner)
		return !inside_outer(ctx, th, task);
	if (th->held_ts && by_outer(ctx, th, text)) {
		th->held_ts = 0;
		__sync_fetch_and_add(&text->reached, 1);
		note_handle(task, slot_value(ctx, PT_COOKIE_V(cookie, 0), &flags), th->held_v);
	}
	return true;
}

/* Is this the return of an entry that was not recorded? */
static __always_inline bool skipped(struct pt_regs *ctx, struct pt_thread *th)
{
	if (!th->skip_sp || ctx->sp != th->skip_sp + PT_RETURN_POPS)
		return false;
	th->skip_sp = 0;
	return true;
}

/* A kernel's handle was made under a name. It is still where the caller had
 * put it: the call has only just returned. */
static __always_inline void name_made(struct pt_thread *th,
				      struct task_struct *task, __u64 handle)
{
	__u64 at = th->gpu_name;
	struct pt_rec_name *r;
	long n;

	th->gpu_name = 0;
	if (!at || !handle)
		return;
	r = pt_rec_apart(struct pt_rec_name, PT_REC_NAME, bpf_ktime_get_ns(),
			 task->pid, task->tgid);
	if (!r)
		return;
	r->key = handle;
	r->space = PT_NAME_FUNCTION;
	n = bpf_probe_read_user_str(r->name, sizeof(r->name), (void *)at);
	if (n <= 1) {
		bpf_ringbuf_discard(r, 0);
		return;
	}
	r->truncated = n == sizeof(r->name);
	pt_rec_submit(r);
}

/* Only its beginning is watched, and of its values one. */
static __always_inline bool add_to_run(struct pt_regs *ctx, struct pt_thread *th,
				       struct task_struct *task, __u64 cookie)
{
	__u64 stream, v;
	__u16 flags = 0;

	stream = launch_stream(ctx, cookie, &flags);
	v = slot_value(ctx, PT_COOKIE_V(cookie, 0), &flags);
	return pt_run_add(th, task, bpf_ktime_get_ns(), (__u32)cookie, stream, v, flags);
}

static __always_inline void gpu_record(struct pt_regs *ctx, struct pt_thread *th,
				       struct task_struct *task, __u64 cookie,
				       __u16 kind)
{
	__u32 layer = PT_COOKIE_LAYER(cookie), via = PT_COOKIE_VIA(cookie);
	struct pt_rec_gpu *r;
	__u64 made = 0;
	__u16 flags = 0;

	if (kind == PT_REC_GPU_RETURN) {
		if (layer == PT_LAYER_INNER && skipped(ctx, th))
			return;
		if (layer == PT_LAYER_OUTER)
			th->outer_sp = 0;
	} else if (layer == PT_LAYER_OUTER) {
		if (cookie & PT_COOKIE_LAUNCH && hold_launch(ctx, th, task, cookie))
			return;
		outer_enter(ctx, th, cookie);
	} else if (layer == PT_LAYER_INNER && cookie & PT_COOKIE_LAUNCH) {
		if (!launch_counts(ctx, th, task, cookie))
			return;
	} else if (layer == PT_LAYER_INNER) {
		th->skip_sp = inside_outer(ctx, th, task) ? ctx->sp : 0;
		if (th->skip_sp)
			return;
	}
	end_held(th, task);
	if (kind == PT_REC_GPU_ENTER && cookie & PT_COOKIE_RUN &&
	    add_to_run(ctx, th, task, cookie))
		return;
	pt_run_end(th, task);
	r = pt_rec_new(struct pt_rec_gpu, kind, th, task, bpf_ktime_get_ns());
	if (!r) {
		if (kind == PT_REC_GPU_ENTER)
			pt_miss(task->tgid, PT_COOKIE_API(cookie), 1, 0);
		return;
	}
	r->api = PT_COOKIE_API(cookie);
	r->lib = PT_COOKIE_LIB(cookie);
	if (kind == PT_REC_GPU_RETURN) {
		r->v[0] = (__u64)(__s64)(__s32)PT_RESULT(ctx);
		if ((via == PT_VIA_OUT || via == PT_VIA_NAME) && th->gpu_out) {
			r->v[1] = pt_user_word(th->gpu_out, &flags);
			th->gpu_out = 0;
			if (via == PT_VIA_NAME && !r->v[0] && !flags)
				made = r->v[1];
		}
	} else {
		r->stream = slot_value(ctx, PT_COOKIE_STREAM(cookie), &flags);
		r->v[0] = slot_value(ctx, PT_COOKIE_V(cookie, 0), &flags);
		if (!PT_COOKIE_ONE(cookie)) { /* launches have one value */
			r->v[1] = slot_value(ctx, PT_COOKIE_V(cookie, 1), &flags);
			r->v[2] = slot_value(ctx, PT_COOKIE_V(cookie, 2), &flags);
		}
		if (via == PT_VIA_OUT || via == PT_VIA_NAME) {
			th->gpu_out = r->v[0];
			th->gpu_name = r->v[1];
		} else if (via) {
			fill_via(r, via, &flags);
		}
	}
	r->hdr.flags = flags;
	pt_rec_submit(r);
	if (made)
		name_made(th, task, made);
}

static __always_inline int gpu_call(struct pt_regs *ctx, __u16 kind)
{
	__u32 hit = kind == PT_REC_GPU_RETURN ? PT_HIT_RETURN : PT_HIT_ENTER;
	struct task_struct *task;
	struct pt_thread *th;
	__u64 cookie;

	if (!pt_is_armed())
		return 0;
	task = bpf_get_current_task_btf();
	th = pt_thread_of(task);
	if (!th)
		return 0;
	pt_hit(th, hit);
	cookie = bpf_get_attach_cookie(ctx);
	if (kind == PT_REC_GPU_ENTER && cookie & PT_COOKIE_STEPPED)
		th->hits[PT_HIT_STEPPED]++;
	gpu_record(ctx, th, task, cookie, kind);
	pt_hit_over(th, hit);
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
