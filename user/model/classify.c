/* SPDX-License-Identifier: BSD-2-Clause */
/* What a thread waits for, by the call that it is in and what that works on. */
#include "model/classify.h"

#include "model/callclass.h"
#include "model/syscalls.h"

/* Low byte of the task state (include/linux/sched.h, stable since 4.14). */
#define STATE_D 0x02
#define STATE_STOPPED 0x04
#define STATE_TRACED 0x08

/* Commands of fcntl(), and a flag of clone(); stable. */
#define SETLKW 7
#define OFD_SETLKW 38
#define CLONE_VFORK 0x4000

static enum pt_wait by_object(const struct pt_rec_off *r, uint32_t call)
{
	bool out = call & PT_C_PUT && !(call & PT_C_SOCK);

	switch (r->obj_kind) {
	case PT_OBJ_FILE:
	case PT_OBJ_DIR:
		return out ? PT_WAIT_DISK_WRITE : PT_WAIT_DISK;
	case PT_OBJ_PIPE:
		return out ? PT_WAIT_PIPE_OUT : PT_WAIT_PIPE_IN;
	case PT_OBJ_SOCK:
		return PT_WAIT_SOCK;
	case PT_OBJ_FUTEX:
		return PT_WAIT_FUTEX;
	default:
		return PT_WAIT_OTHER;
	}
}

/* Made by a thread in a call of its own, not by an interrupt. */
static bool by_a_thread(const struct pt_rec_off *r)
{
	return r->wake_ts && (r->waker_in & (PT_WAKER_KNOWN | PT_WAKER_SOFTIRQ |
					     PT_WAKER_HARDIRQ |
					     PT_WAKER_KTHREAD)) ==
				     PT_WAKER_KNOWN;
}

/* ... or by one that sent something: softirqs of its own carry that on. */
static bool by_a_sender(const struct pt_rec_off *r)
{
	return by_a_thread(r) ||
	       (r->wake_ts && r->waker_in & PT_WAKER_SOFTIRQ &&
		(r->waker_obj_kind == PT_OBJ_SOCK ||
		 pt_call_class(r->waker_syscall) & PT_C_SOCK));
}

/*
 * Neither a disk nor the kernel ended this sleep in a file call, but another
 * thread's call, on the same file or by a path: an inode's lock was handed on.
 */
static bool on_inode_lock(const struct pt_rec_off *r)
{
	const uint32_t calls = PT_C_PUT | PT_C_TAKE | PT_C_MOVE | PT_C_FILE;
	uint16_t kind = r->waker_obj_kind;

	if (!(r->state & STATE_D) || r->hdr.flags & PT_F_IOWAIT ||
	    !by_a_thread(r) || !(pt_call_class(r->waker_syscall) & calls))
		return false;
	if (kind == PT_OBJ_NONE)
		return true;
	if (kind != PT_OBJ_FILE && kind != PT_OBJ_DIR)
		return false; /* /dev/fuse: the file system's server answered */
	return r->obj_kind == PT_OBJ_NONE ||
	       (r->object == r->waker_object && r->dev == r->waker_dev);
}

/*
 * open() or truncate() waits for whoever has a lease on the file, until that one gives it back, or
 * the kernel's timer has it look again. Storage is waited for without being interruptible, or as
 * I/O, and a file system's server answers by a write.
 */
static bool on_lease(const struct pt_rec_off *r)
{
	const uint16_t by = r->waker_in & (PT_WAKER_KNOWN | PT_WAKER_SOFTIRQ | PT_WAKER_HARDIRQ);

	if (!(pt_call_class(r->syscall) & PT_C_FILE) || r->state & STATE_D ||
	    r->hdr.flags & PT_F_IOWAIT || !r->wake_ts)
		return false;
	return by == (PT_WAKER_KNOWN | PT_WAKER_SOFTIRQ) ||
	       (by_a_thread(r) &&
		pt_call_class(r->waker_syscall) & (PT_C_LOCK | PT_C_CLOSE | PT_C_EXIT));
}

static enum pt_wait in_file(const struct pt_rec_off *r, enum pt_wait w)
{
	return on_lease(r) ? PT_WAIT_FLOCK : on_inode_lock(r) ? PT_WAIT_INODE_LOCK : w;
}

/* The parent of a vfork() sleeps until the child has a memory of its own.
 * clone3() has its flags in memory: there its waker tells. */
static bool awaits_vfork(const struct pt_rec_off *r)
{
	if (!(r->state & STATE_D) || r->hdr.flags & PT_F_IOWAIT)
		return false;
	if (r->syscall == PT_NR_clone3)
		return by_a_thread(r) && pt_call_class(r->waker_syscall) &
						 (PT_C_EXIT | PT_C_EXEC);
	return r->syscall == PT_NR_vfork ||
	       (r->syscall == PT_NR_clone && r->arg[0] & CLONE_VFORK);
}

/* Calls that tell by themselves; else PT_WAIT_OTHER. */
static enum pt_wait by_call(const struct pt_rec_off *r, uint32_t call)
{
	if (call & PT_C_SLEEP)
		return PT_WAIT_SLEEP;
	if (call & PT_C_FUTEX)
		return PT_WAIT_FUTEX;
	if (call & PT_C_CHILD || (call & PT_C_FORK && awaits_vfork(r)))
		return PT_WAIT_CHILD;
	if (call & PT_C_SEM)
		return PT_WAIT_SEM;
	if (call & (PT_C_MSG_PUT | PT_C_MSG_TAKE))
		return PT_WAIT_MSGQ;
	if (call & PT_C_SIGNAL)
		return PT_WAIT_SIGNAL;
	if (r->syscall == PT_NR_flock)
		return PT_WAIT_FLOCK;
	if (r->syscall == PT_NR_fcntl &&
	    (r->arg[1] == SETLKW || r->arg[1] == OFD_SETLKW))
		return PT_WAIT_FLOCK;
	return PT_WAIT_OTHER;
}

enum pt_wait pt_classify(const struct pt_rec_off *r)
{
	uint32_t call;
	enum pt_wait w;

	if (r->hdr.flags & PT_F_PREEMPTED || r->state == 0)
		return PT_WAIT_RUNQ;
	if (r->state & (STATE_STOPPED | STATE_TRACED))
		return PT_WAIT_STOPPED;
	if (r->hdr.flags & PT_F_RECLAIM)
		return PT_WAIT_RECLAIM;
	if (r->hdr.flags & PT_F_FAULT)
		return PT_WAIT_FAULT;
	if (r->syscall == PT_SYSCALL_NONE)
		return r->state & STATE_D || r->hdr.flags & PT_F_IOWAIT ?
			       PT_WAIT_FAULT : PT_WAIT_OTHER;
	call = pt_call_class(r->syscall);
	if (call & PT_C_SYNC)
		return in_file(r, PT_WAIT_DISK_WRITE);
	w = by_call(r, call);
	if (w != PT_WAIT_OTHER)
		return w;
	/* what is known is where it goes to: a socket, a pipe; neither is waited for so */
	if (call & PT_C_MOVE && r->hdr.flags & PT_F_IOWAIT)
		return in_file(r, PT_WAIT_DISK);
	w = by_object(r, call);
	if (w == PT_WAIT_DISK || w == PT_WAIT_DISK_WRITE)
		return in_file(r, w);
	if (w != PT_WAIT_OTHER)
		return w;
	if (call & (PT_C_FILE | PT_C_MOVE))
		return in_file(r, PT_WAIT_DISK);
	/* e.g. a fault inside the call; a ring's reads */
	if (r->hdr.flags & PT_F_IOWAIT && !(call & PT_C_URING && by_a_sender(r)))
		return call & PT_C_PUT && !(call & PT_C_SOCK) ?
			       PT_WAIT_DISK_WRITE : PT_WAIT_DISK;
	if (call & PT_C_POLL)
		return PT_WAIT_POLL;
	if (call & PT_C_SOCK)
		return PT_WAIT_SOCK;
	if (call & PT_C_URING)
		return PT_WAIT_URING;
	if (call & (PT_C_PUT | PT_C_TAKE) &&
	    (r->obj_kind == PT_OBJ_ANON || r->obj_kind == PT_OBJ_OTHER))
		return PT_WAIT_EVENT;
	return PT_WAIT_OTHER;
}
