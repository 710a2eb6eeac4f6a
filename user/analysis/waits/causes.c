/* SPDX-License-Identifier: BSD-2-Clause */
/* What a sleep is for, by itself. */
#include "analysis/waits/look.h"

#define TIMED_NS (10 * NS_PER_MS)

enum pt_cause pt_sleep_cause(const struct pt_an *an, const struct pt_iv *iv)
{
	bool inside = iv->wait == PT_WAIT_SOCK || iv->wait == PT_WAIT_POLL ?
			      pt_wait_inside(an, iv) : false;

	switch (iv->wait) {
	case PT_WAIT_DISK:
	case PT_WAIT_DISK_WRITE:
		return PT_CAUSE_DISK;
	case PT_WAIT_FAULT:
		return PT_CAUSE_PAGE_FAULT;
	case PT_WAIT_PIPE_IN:
	case PT_WAIT_PIPE_OUT:
		return PT_CAUSE_IPC;
	case PT_WAIT_SOCK:
		return inside ? PT_CAUSE_IPC : PT_CAUSE_NETWORK;
	case PT_WAIT_POLL:
		return inside ? PT_CAUSE_IPC :
		       iv->obj_kind == PT_OBJ_SOCK ? PT_CAUSE_NETWORK :
		       pt_timed_out(iv) ? PT_CAUSE_SLEEP :
					  PT_CAUSE_UNKNOWN;
	case PT_WAIT_FUTEX:
		/* a timed wait that nobody ended (threading.Timer); shorter ones ask for locks */
		return !iv->valid_wake && iv->wake == PT_WAKE_TIMER &&
				       iv->ready - iv->begin > TIMED_NS ?
			       PT_CAUSE_SLEEP : PT_CAUSE_LOCK;
	case PT_WAIT_SEM:
	case PT_WAIT_FLOCK:
	case PT_WAIT_INODE_LOCK:
		return PT_CAUSE_LOCK;
	case PT_WAIT_EVENT:
	case PT_WAIT_MSGQ:
		return PT_CAUSE_IPC;
	case PT_WAIT_RECLAIM:
		return PT_CAUSE_PAGE_FAULT;
	case PT_WAIT_SLEEP:
		return PT_CAUSE_SLEEP;
	default:
		return PT_CAUSE_UNKNOWN;
	}
}

bool pt_is_idle(const struct pt_an *an, const struct pt_worker *w, const struct pt_iv *iv)
{
	return pt_rests(w, iv) || pt_sleep_cause(an, iv) == PT_CAUSE_LOCK;
}

/* From a device's interrupt to the thread's running: so much is the wake-up's own time (an
 * idle core wakes, another one is interrupted), no lack of cores. */
#define WAKE_NS 100000ull

bool pt_is_wakeup(const struct pt_iv *iv)
{
	return (iv->wait == PT_WAIT_DISK || iv->wait == PT_WAIT_FAULT) && !iv->valid_wake &&
	       iv->ready > iv->begin && iv->end - iv->ready < WAKE_NS;
}

bool pt_gives_up(const struct pt_thread *th, const struct pt_iv *iv, uint64_t until)
{
	const struct pt_iv *next = iv + 1, *end = th->iv.v + th->iv.n;

	if (iv->wake != PT_WAKE_TIMER || iv->valid_wake || iv->ready - iv->begin < TIMED_NS)
		return false;
	while (next < end && next->wait == PT_WAIT_RUNQ)
		next++;
	if (next < end && next->begin >= until)
		return true;
	return next < end && !(next->syscall == iv->syscall && next->object == iv->object &&
			       next->wchar == iv->wchar);
}
