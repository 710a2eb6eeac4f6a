// SPDX-License-Identifier: BSD-2-Clause
/* One thread of the target under ptrace: seized, stopped, let go. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "capture/procfs.h"
#include "inject/inject_int.h"

#define LOOK_NS 2000000

void pt_inj_sleep_us(unsigned us)
{
	struct timespec t = { us / 1000000, (long)(us % 1000000) * 1000 };

	nanosleep(&t, NULL);
}

/* Who traces the thread already: 0 nobody; -1: it has ended. */
static pid_t tracer_of(pid_t pid, pid_t tid)
{
	char name[48], text[8192], *state;
	uint64_t v = 0;

	snprintf(name, sizeof(name), "task/%d/status", (int)tid);
	if (pt_proc_read(pid, name, text, sizeof(text)) < 0)
		return -1;
	state = strstr(text, "\nState:\t");
	if (state && (state[8] == 'Z' || state[8] == 'X'))
		return -1;
	return pt_proc_field(text, "TracerPid", &v) ? 0 : (pid_t)v;
}

int pt_hold_seize(struct pt_thread_hold *h, struct pt_err *err)
{
	/* Never EXITKILL: the target must outlive us. */
	long opts = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC;
	char path[32];
	pid_t other;
	int ret;

	if (ptrace(PTRACE_SEIZE, h->tid, NULL, opts)) {
		ret = -errno;
		other = tracer_of(h->pid, h->tid);
		if (other < 0)
			return pt_err_set(err, -ESRCH, "thread %d has ended",
					  (int)h->tid);
		if (ret == -EPERM && other && other != getpid())
			return pt_err_set(err, -EBUSY,
					  "process %d is traced by process %d "
					  "already, and there can be only one "
					  "tracer", (int)h->pid, (int)other);
		if (ret == -EPERM)
			return pt_err_set(err, ret,
					  "this system does not let pipetrace "
					  "trace process %d (ptrace is denied)",
					  (int)h->pid);
		return pt_err_set(err, ret, "cannot trace thread %d: %s",
				  (int)h->tid, strerror(-ret));
	}
	h->seized = true;
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)h->pid);
	h->mem = open(path, O_RDWR | O_CLOEXEC);
	if (h->mem >= 0)
		return 0;
	ret = -errno;
	return pt_err_set(err, ret, "cannot reach the memory of process %d: %s",
			  (int)h->pid, strerror(-ret));
}

int pt_hold_read(struct pt_thread_hold *h, uint64_t at, void *buf, size_t len)
{
	ssize_t n = pread(h->mem, buf, len, (off_t)at);

	return n < 0 ? -errno : (size_t)n == len ? 0 : -EFAULT;
}

int pt_hold_write(struct pt_thread_hold *h, uint64_t at, const void *buf,
		  size_t len)
{
	ssize_t n = pwrite(h->mem, buf, len, (off_t)at);

	return n < 0 ? -errno : (size_t)n == len ? 0 : -EFAULT;
}

static int take_regs(struct pt_thread_hold *h)
{
	struct iovec io = { &h->regs, sizeof(h->regs) };

	h->stopped_ns = pt_now_ns();
	return ptrace(PTRACE_GETREGSET, h->tid, NT_PRSTATUS, &io) ? -errno : 0;
}

int pt_hold_set(struct pt_thread_hold *h, const struct user_regs_struct *regs)
{
	struct iovec io = { (void *)(uintptr_t)regs, sizeof(*regs) };

	return ptrace(PTRACE_SETREGSET, h->tid, NT_PRSTATUS, &io) ? -errno : 0;
}

int pt_hold_cont(struct pt_thread_hold *h, bool trace_calls)
{
	long sig = h->pass;

	if (!h->stopped)
		return 0;
	h->pass = 0;
	h->stopped = false;
	if (h->in_group_stop) { /* it stays stopped, as its owner wants */
		h->in_group_stop = false;
		return ptrace(PTRACE_LISTEN, h->tid, NULL, NULL) ? -errno : 0;
	}
	return ptrace(trace_calls ? PTRACE_SYSCALL : PTRACE_CONT, h->tid, NULL,
		      sig) ? -errno : 0;
}

/* The thread stopped or ended: what for? 1: a stop that the caller wants, 0: go
 * on, or -errno. */
static int on_stop(struct pt_thread_hold *h, int status, bool want_interrupt)
{
	int sig = WSTOPSIG(status), event = status >> 16;

	if (!WIFSTOPPED(status)) {
		h->gone = true;
		h->seized = false;
		return -ESRCH;
	}
	h->stopped = true;
	h->in_syscall = false;
	h->in_group_stop = false;
	h->pass = 0;
	if (event == PTRACE_EVENT_EXEC) {
		h->gone = true; /* another program now */
		return -ESRCH;
	}
	if (event == PTRACE_EVENT_STOP) {
		h->in_group_stop = sig == SIGSTOP || sig == SIGTSTP ||
				   sig == SIGTTIN || sig == SIGTTOU;
		return want_interrupt && !h->in_group_stop ? 1 : 0;
	}
	if (event)
		return 0;
	if (sig == (SIGTRAP | 0x80)) { /* at a system call */
		h->in_syscall = true;
		return want_interrupt ? 0 : 1;
	}
	if (sig == h->sig) /* our own: it ends here */
		return 1;
	h->pass = sig;
	return 0;
}

static int wait_for(struct pt_thread_hold *h, uint64_t deadline,
		    bool trace_calls, bool interrupt)
{
	struct timespec look = { 0, LOOK_NS };
	int status, ret;
	sigset_t set;
	pid_t got;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (;;) {
		got = waitpid(h->tid, &status, __WALL | WNOHANG);
		if (got < 0 && errno != EINTR) {
			h->gone = true;
			h->seized = false;
			return -ESRCH;
		}
		if (got == h->tid) {
			ret = on_stop(h, status, interrupt);
			if (ret < 0)
				return ret;
			if (ret)
				return take_regs(h);
			ret = pt_hold_cont(h, trace_calls);
			if (ret)
				return ret;
			continue;
		}
		if (pt_now_ns() >= deadline)
			return -ETIMEDOUT;
		/* a stop, which may be over at once, is told by SIGCHLD; one
		 * that was told before is found by the next look */
		sigtimedwait(&set, NULL, &look);
	}
}

int pt_hold_wait(struct pt_thread_hold *h, uint64_t deadline, bool trace_calls)
{
	return wait_for(h, deadline, trace_calls, false);
}

int pt_hold_interrupt(struct pt_thread_hold *h, uint64_t deadline)
{
	if (ptrace(PTRACE_INTERRUPT, h->tid, NULL, NULL))
		return -errno;
	return wait_for(h, deadline, false, true);
}

void pt_hold_release(struct pt_thread_hold *h)
{
	/*
	 * Detaching takes a stop, and stopping a thread somewhere may cut a system
	 * call of it short. One that runs is left to the kernel, which lets it go
	 * without a stop when this process ends.
	 */
	if (h->seized && h->stopped) {
		long sig = h->pass;

		ptrace(PTRACE_DETACH, h->tid, NULL, sig);
		h->seized = h->stopped = false;
	}
	if (h->mem >= 0)
		close(h->mem);
	h->mem = -1;
}
