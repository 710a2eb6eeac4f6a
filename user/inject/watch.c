// SPDX-License-Identifier: BSD-2-Clause
/*
 * Break points in the debug registers, held by descriptors.
 *
 * ptrace's own (PTRACE_POKEUSER) stay in the thread when the tracer is killed:
 * the next hit then ends the process with SIGTRAP. Those of perf events end with
 * the tracer. A program of four instructions at each sends the thread a signal
 * that is ignored by default: a tracer sees it before it would be ignored, and
 * without a tracer nothing happens.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/vec.h"
#include "inject/inject_int.h"

#define HELPER_SEND_SIGNAL_THREAD 117 /* BPF_FUNC_send_signal_thread */

static int load_program(int sig)
{
	const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 1, .imm = sig },
		{ .code = BPF_JMP | BPF_CALL, .imm = HELPER_SEND_SIGNAL_THREAD },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr a;
	long fd;

	memset(&a, 0, sizeof(a));
	a.prog_type = BPF_PROG_TYPE_PERF_EVENT;
	a.insns = (uint64_t)(uintptr_t)insns;
	a.insn_cnt = sizeof(insns) / sizeof(insns[0]);
	a.license = (uint64_t)(uintptr_t) "GPL";
	fd = syscall(SYS_bpf, BPF_PROG_LOAD, &a, sizeof(a));
	return fd < 0 ? -errno : (int)fd;
}

int pt_watch_open(struct pt_watch *w, int sig, struct pt_err *err)
{
	memset(w, 0, sizeof(*w));
	w->sig = sig;
	w->prog = load_program(sig);
	if (w->prog >= 0)
		return 0;
	return pt_err_set(err, w->prog,
			  "the program that stops a thread cannot be loaded: "
			  "%s", strerror(-w->prog));
}

static int open_one(pid_t tid, uint64_t addr)
{
	struct perf_event_attr a = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(a),
		.bp_type = HW_BREAKPOINT_X,
		.bp_addr = addr,
		.bp_len = pt_arch.break_len,
		.sample_period = 1,
		.disabled = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};
	long fd = syscall(SYS_perf_event_open, &a, tid, -1, -1,
			  PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

bool pt_inject_may_break(void)
{
	int fd = open_one(0, (uint64_t)(uintptr_t)pt_inject_may_break);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

int pt_watch_add(struct pt_watch *w, pid_t tid, const uint64_t *addr, int n)
{
	struct watched x = { .tid = tid };
	int i, ret;

	for (i = 0; i < n; i++) {
		x.fd = open_one(tid, addr[i]);
		if (x.fd < 0)
			return x.fd;
		x.which = i;
		if (ioctl(x.fd, PERF_EVENT_IOC_SET_BPF, w->prog) ||
		    ioctl(x.fd, PERF_EVENT_IOC_ENABLE, 0)) {
			ret = -errno;
			close(x.fd);
			return ret;
		}
		if (pt_vec_push(w, x)) {
			close(x.fd);
			return -ENOMEM;
		}
	}
	return 0;
}

pid_t pt_watch_hit(struct pt_watch *w, int *which)
{
	uint64_t count;
	size_t i;

	for (i = 0; i < w->n; i++) {
		if (read(w->v[i].fd, &count, sizeof(count)) != sizeof(count) ||
		    !count)
			continue;
		*which = w->v[i].which;
		return w->v[i].tid;
	}
	return 0;
}

void pt_watch_clear(struct pt_watch *w)
{
	size_t i;

	for (i = 0; i < w->n; i++)
		close(w->v[i].fd);
	pt_vec_free(w);
}

void pt_watch_close(struct pt_watch *w)
{
	pt_watch_clear(w);
	if (w->prog >= 0)
		close(w->prog);
	w->prog = -1;
}
