/* SPDX-License-Identifier: BSD-2-Clause */
#include "model/classify.h"

#include "model/syscalls.h"

/* Low byte of the task state (include/linux/sched.h, stable since 4.14). */
#define STATE_D 0x02
#define STATE_STOPPED 0x04
#define STATE_TRACED 0x08

static bool is_write(int nr)
{
	switch (nr) {
	case PT_NR_write: case PT_NR_pwrite64: case PT_NR_writev:
	case PT_NR_pwritev: case PT_NR_pwritev2: case PT_NR_fsync:
	case PT_NR_fdatasync: case PT_NR_sync_file_range:
	case PT_NR_ftruncate: case PT_NR_truncate: case PT_NR_fallocate:
		return true;
	default:
		return false;
	}
}

static bool is_file_call(int nr)
{
	switch (nr) {
	case PT_NR_open: case PT_NR_openat: case PT_NR_openat2:
	case PT_NR_stat: case PT_NR_fstat: case PT_NR_lstat:
	case PT_NR_newfstatat: case PT_NR_statx: case PT_NR_access:
	case PT_NR_getdents: case PT_NR_getdents64: case PT_NR_readlink:
	case PT_NR_lseek: case PT_NR_unlink: case PT_NR_unlinkat:
	case PT_NR_rename: case PT_NR_mkdir: case PT_NR_sendfile:
	case PT_NR_splice: case PT_NR_copy_file_range:
		return true;
	default:
		return false;
	}
}

static bool is_poll(int nr)
{
	switch (nr) {
	case PT_NR_poll: case PT_NR_ppoll: case PT_NR_select:
	case PT_NR_pselect6: case PT_NR_epoll_wait: case PT_NR_epoll_pwait:
	case PT_NR_epoll_pwait2:
		return true;
	default:
		return false;
	}
}

static bool is_sock_call(int nr)
{
	switch (nr) {
	case PT_NR_connect: case PT_NR_accept: case PT_NR_accept4:
	case PT_NR_sendto: case PT_NR_recvfrom: case PT_NR_sendmsg:
	case PT_NR_recvmsg: case PT_NR_recvmmsg: case PT_NR_sendmmsg:
	case PT_NR_shutdown:
		return true;
	default:
		return false;
	}
}

static enum pt_wait by_object(const struct pt_rec_off *r)
{
	switch (r->obj_kind) {
	case PT_OBJ_FILE:
	case PT_OBJ_DIR:
		return is_write(r->syscall) ? PT_WAIT_DISK_WRITE : PT_WAIT_DISK;
	case PT_OBJ_PIPE:
		return is_write(r->syscall) ? PT_WAIT_PIPE_OUT : PT_WAIT_PIPE_IN;
	case PT_OBJ_SOCK:
		return PT_WAIT_SOCK;
	case PT_OBJ_FUTEX:
		return PT_WAIT_FUTEX;
	default:
		return PT_WAIT_OTHER;
	}
}

enum pt_wait pt_classify(const struct pt_rec_off *r)
{
	enum pt_wait w;

	if (r->hdr.flags & PT_F_PREEMPTED || r->state == 0)
		return PT_WAIT_RUNQ;
	if (r->state & (STATE_STOPPED | STATE_TRACED))
		return PT_WAIT_STOPPED;
	if (r->hdr.flags & PT_F_FAULT)
		return PT_WAIT_FAULT;
	if (r->syscall == PT_SYSCALL_NONE)
		return r->state & STATE_D || r->hdr.flags & PT_F_IOWAIT ?
			       PT_WAIT_FAULT : PT_WAIT_OTHER;
	if (r->syscall == PT_NR_nanosleep || r->syscall == PT_NR_clock_nanosleep)
		return PT_WAIT_SLEEP;
	if (r->syscall == PT_NR_futex || r->syscall == PT_NR_futex_wait)
		return PT_WAIT_FUTEX;
	w = by_object(r);
	if (w != PT_WAIT_OTHER)
		return w;
	if (is_file_call(r->syscall))
		return PT_WAIT_DISK;
	if (is_write(r->syscall) && r->hdr.flags & PT_F_IOWAIT)
		return PT_WAIT_DISK_WRITE;
	if (r->hdr.flags & PT_F_IOWAIT) /* e.g. a fault inside the call */
		return PT_WAIT_DISK;
	if (is_poll(r->syscall))
		return PT_WAIT_POLL;
	if (is_sock_call(r->syscall))
		return PT_WAIT_SOCK;
	return PT_WAIT_OTHER;
}

/* Calls that put data or an end of file where a reader waits. */
static bool can_feed(int nr)
{
	return is_write(nr) || is_sock_call(nr) || nr == PT_NR_close ||
	       nr == PT_NR_splice || nr == PT_NR_sendfile ||
	       nr == PT_NR_exit || nr == PT_NR_exit_group;
}

/* Calls that take data from where a writer waits for room. */
static bool can_drain(int nr)
{
	switch (nr) {
	case PT_NR_read: case PT_NR_readv: case PT_NR_recvfrom:
	case PT_NR_recvmsg: case PT_NR_splice: case PT_NR_close:
		return true;
	default:
		return false;
	}
}

bool pt_waker_valid(const struct pt_rec_off *r)
{
	int nr = r->waker_syscall;

	if (!r->wake_ts || !r->waker_tid || nr == PT_SYSCALL_NONE)
		return false;
	if (r->syscall == PT_NR_futex || r->syscall == PT_NR_futex_wait) {
		if (nr != PT_NR_futex && nr != PT_NR_futex_wake)
			return nr == PT_NR_exit; /* clear_child_tid */
		/* A process-shared futex has other addresses elsewhere. */
		return r->waker_tgid != r->hdr.tgid || !r->waker_arg0 ||
		       r->waker_arg0 == r->arg[0];
	}
	switch (r->obj_kind) {
	case PT_OBJ_PIPE:
		if (r->waker_obj_kind != PT_OBJ_PIPE ||
		    r->waker_object != r->object)
			return nr == PT_NR_exit_group;
		return is_write(r->syscall) ? can_drain(nr) : can_feed(nr);
	case PT_OBJ_SOCK: /* the two ends have inodes of their own */
		return is_sock_call(nr) ||
		       (r->waker_obj_kind == PT_OBJ_SOCK &&
			(can_feed(nr) || can_drain(nr)));
	case PT_OBJ_FILE:
	case PT_OBJ_DIR:
		return false; /* completions come from interrupts */
	default:
		return can_feed(nr) && r->waker_obj_kind != PT_OBJ_FILE;
	}
}
