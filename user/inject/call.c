// SPDX-License-Identifier: BSD-2-Clause
/*
 * Calls made on a stopped thread. Every one returns into the frame that
 * pt_frame_make() laid: with a tracer it is stopped there and asked for what the
 * call returned; without one it goes on and is back where it was.
 */
#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include "inject/inject_int.h"

#define KERNEL_SIGSET 8 /* bytes */

int pt_calls_begin(struct pt_calls *c, struct pt_err *err)
{
	static unsigned char xstate[PT_XSTATE_MAX];
	struct iovec io = { xstate, sizeof(xstate) };
	struct pt_thread_hold *h = &c->p->hold;
	uint64_t mask = 0;
	int ret;

	c->stopped_ns = h->stopped_ns;
	if (ptrace(PTRACE_GETREGSET, h->tid, pt_arch.state, &io) ||
	    ptrace(PTRACE_GETSIGMASK, h->tid, KERNEL_SIGSET, &mask)) {
		ret = -errno;
		return pt_err_set(err, ret, "the thread's state cannot be "
				  "saved: %s", strerror(-ret));
	}
	ret = pt_frame_make(c->frame, &h->regs, xstate, io.iov_len, mask, &c->p->libc);
	ret = ret ?: pt_hold_write(h, c->frame->at, c->frame->bytes, c->frame->len);
	if (!ret && c->p->back >= 0)
		pt_stops_arm(&c->p->stops, 1u << c->p->back, c->p->kernel_tid, true);
	if (ret)
		return pt_err_set(err, ret, "the thread's state cannot be "
				  "kept: %s", strerror(-ret));
	pt_stage(c->o, PT_STAGE_FRAMED);
	return 0;
}

int pt_calls_name(struct pt_calls *c, const char *text, uint64_t *addr)
{
	size_t len = strlen(text) + 1;

	if (c->names + len > PT_SCRATCH)
		return -E2BIG;
	*addr = c->frame->scratch + c->names;
	c->names += len;
	return pt_hold_write(&c->p->hold, *addr, text, len);
}

static int set_regs(struct pt_calls *c, uint64_t fn, const uint64_t *arg,
		    size_t n)
{
	struct pt_thread_hold *h = &c->p->hold;
	struct user_regs_struct r = h->regs;
	uint64_t mask = ~(1ull << (h->sig - 1));
	int ret;

	pt_arch_call(&r, fn, arg, n, c->frame, &c->p->libc);
	ret = pt_hold_set(h, &r);
	/* the way back that the last call has begun */
	if (!ret && h->in_syscall)
		ret = pt_arch_no_call(h);
	if (ret)
		return ret;
	/* From here on the way back is the frame's, which also restores the
	 * mask: signals wait until then. */
	if (!c->sent && ptrace(PTRACE_SETSIGMASK, h->tid, KERNEL_SIGSET, &mask))
		return -errno;
	if (!c->sent) {
		c->sent = true;
		pt_stage(c->o, PT_STAGE_SENT);
	}
	return 0;
}

int pt_call(struct pt_calls *c, uint64_t fn, const uint64_t *arg, size_t n,
	    int64_t *out)
{
	unsigned ms = c->o->call_ms ? c->o->call_ms : PT_INJECT_CALL_MS;
	uint64_t deadline = pt_now_ns() + ms * 1000000ull;
	struct pt_thread_hold *h = &c->p->hold;
	int ret = set_regs(c, fn, arg, n);

	while (!ret) {
		/* a stop at each system call is the price of the result where only
		 * rt_sigreturn() shows it; else it only tells a test of the first */
		bool trace = c->p->back < 0 || (c->inside && c->o->stage);

		ret = pt_hold_cont(h, trace);
		ret = ret ?: pt_hold_wait(h, deadline, trace);
		if (ret)
			break;
		if (c->inside) {
			pt_stage(c->o, c->inside);
			c->inside = 0;
		}
		if (pt_arch_returned(h, c->frame, &c->p->libc, out))
			return 0;
	}
	return ret;
}

void pt_calls_end(struct pt_calls *c)
{
	struct pt_thread_hold *h = &c->p->hold;

	/* what a failing call of ours left there is none of the thread's */
	if (h->stopped && c->errno_addr)
		pt_hold_write(h, c->errno_addr, &c->saved_errno,
			      sizeof(c->saved_errno));
	pt_stops_arm(&c->p->stops, 0, 0, false);
	pt_hold_release(h);
	pt_stage(c->o, PT_STAGE_LET_GO);
}
