/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who ends a wait: one table of what a thread waits for, the call that the waker
 * is in, and what the two calls work on. docs/how-it-works.md has it in words.
 */
#include <stddef.h>

#include "model/callclass.h"
#include "model/classify.h"
#include "model/syscalls.h"

/* What is waited for, and in which direction. */
enum {
	S_PIPE_IN = 1 << 0,
	S_PIPE_OUT = 1 << 1,
	S_SOCK_IN = 1 << 2, /* and polls: mostly for something to come */
	S_SOCK_OUT = 1 << 3,
	S_CONNECT = 1 << 4,
	S_POLL = 1 << 5, /* poll of several things, or of something else */
	S_EVENT_IN = 1 << 6,
	S_EVENT_OUT = 1 << 7,
	S_MSG_IN = 1 << 8,
	S_MSG_OUT = 1 << 9,
	S_FUTEX = 1 << 10,
	S_PI = 1 << 11, /* a futex that inherits priority is a lock */
	S_SEM = 1 << 12,
	S_CHILD = 1 << 13,
	S_FLOCK = 1 << 14,
	S_FILE = 1 << 15, /* file calls, faults, freeing of memory */
	S_MEMORY = 1 << 16,
	S_SIGNAL = 1 << 17,
	S_SLEEP = 1 << 18,
	S_URING = 1 << 19,
	S_OTHER = 1 << 20,
	S_ANY = (1 << 21) - 1,
};

/* How the waker's call relates to the sleeper's. Asked only where it is not
 * known that the waker itself made the wake-up. */
enum relation {
	R_NEVER,    /* such a call proves nothing by itself */
	R_ANY,
	R_SAME,	    /* both work on the same object */
	R_NO_FILE,  /* ... or on one that is not known, but not on a file */
	R_UNNAMED,  /* ... and what is waited for is not known either */
	R_SOCK,	    /* both on sockets, not of two connections */
	R_WORD,	    /* the same futex, maybe mapped elsewhere */
	R_JOIN,	    /* a thread's exit */
};

#define SOCKS (S_SOCK_IN | S_SOCK_OUT | S_CONNECT | S_POLL | S_URING)
#define PUTS (PT_C_PUT | PT_C_MOVE | PT_C_CONNECT)
#define TAKES (PT_C_TAKE | PT_C_ACCEPT)
#define ENDS (PT_C_CLOSE | PT_C_EXIT)

/* The first row that fits counts. */
static const struct row {
	uint32_t sleep, call;
	uint8_t relation, wake;
} rows[] = {
	{ S_SIGNAL,	PT_C_KILL,		R_NEVER,   PT_WAKE_OTHER }, /* it waits for one */
	{ S_ANY,	PT_C_KILL,		R_NEVER,   PT_WAKE_SIGNAL },
	{ S_SIGNAL | S_SLEEP, PT_C_EXIT,	R_NEVER,   PT_WAKE_SIGNAL },

	{ S_PIPE_IN,	PUTS | PT_C_CLOSE,	R_SAME,	   PT_WAKE_DATA },
	{ S_PIPE_IN,	PT_C_EXIT,		R_ANY,	   PT_WAKE_DATA },
	{ S_PIPE_IN,	PT_C_URING | PT_C_NONE,	R_NEVER,   PT_WAKE_DATA },
	{ S_PIPE_OUT,	TAKES | PT_C_MOVE | PT_C_CLOSE, R_SAME, PT_WAKE_ROOM },
	{ S_PIPE_OUT,	PT_C_EXIT,		R_ANY,	   PT_WAKE_ROOM },
	{ S_PIPE_OUT,	PT_C_URING | PT_C_NONE,	R_NEVER,   PT_WAKE_ROOM },

	{ S_SOCK_IN,	PUTS | PT_C_CLOSE,	R_SOCK,	   PT_WAKE_DATA },
	{ S_SOCK_IN,	TAKES,			R_SOCK,	   PT_WAKE_ROOM },
	{ S_SOCK_IN,	PT_C_EXIT | PT_C_URING | PT_C_NONE, R_NEVER, PT_WAKE_DATA },
	{ S_SOCK_OUT | S_CONNECT, PUTS | TAKES | PT_C_CLOSE, R_SOCK, PT_WAKE_ROOM },
	{ S_SOCK_OUT | S_CONNECT, PT_C_EXIT | PT_C_URING | PT_C_NONE, R_NEVER,
	  PT_WAKE_ROOM },

	{ S_POLL,	PUTS | ENDS,		R_NO_FILE, PT_WAKE_DATA },
	{ S_POLL,	TAKES,			R_SOCK,	   PT_WAKE_ROOM },
	{ S_POLL,	PT_C_URING | PT_C_MSG_PUT, R_NEVER, PT_WAKE_DATA },
	{ S_POLL,	PT_C_MSG_TAKE,		R_NEVER,   PT_WAKE_ROOM },
	{ S_URING,	PUTS | ENDS | PT_C_URING | PT_C_NONE, R_NO_FILE, PT_WAKE_DATA },
	{ S_URING,	TAKES,			R_SOCK,	   PT_WAKE_ROOM },

	{ S_EVENT_IN,	PUTS | ENDS,		R_NO_FILE, PT_WAKE_DATA },
	{ S_EVENT_OUT,	TAKES,			R_SAME,	   PT_WAKE_ROOM },
	{ S_MSG_IN,	PT_C_MSG_PUT | PT_C_MSG_CTL, R_SAME, PT_WAKE_DATA },
	{ S_MSG_OUT,	PT_C_MSG_TAKE | PT_C_MSG_CTL, R_SAME, PT_WAKE_ROOM },

	{ S_FUTEX,	PT_C_FUTEX,		R_WORD,	   PT_WAKE_FUTEX },
	{ S_PI,		PT_C_FUTEX,		R_WORD,	   PT_WAKE_LOCK },
	{ S_FUTEX | S_PI, PT_C_EXIT,		R_JOIN,	   PT_WAKE_CHILD },
	{ S_SEM,	PT_C_SEM,		R_SAME,	   PT_WAKE_FUTEX },
	{ S_SEM,	PT_C_EXIT,		R_NEVER,   PT_WAKE_FUTEX },
	{ S_CHILD,	PT_C_EXIT,		R_ANY,	   PT_WAKE_CHILD },
	{ S_CHILD,	PT_C_EXEC,		R_NEVER,   PT_WAKE_CHILD },

	{ S_FLOCK,	PT_C_LOCK,		R_SAME,	   PT_WAKE_LOCK },
	{ S_FLOCK,	ENDS,			R_NEVER,   PT_WAKE_LOCK },
	{ S_FILE,	PUTS | ENDS,		R_UNNAMED, PT_WAKE_LOCK },
	{ S_FILE,	PT_C_TAKE | PT_C_FILE | PT_C_MEMORY | PT_C_NONE, R_NEVER,
	  PT_WAKE_LOCK },
	{ S_MEMORY,	PT_C_ANY,		R_NEVER,   PT_WAKE_LOCK },
	{ S_OTHER,	PUTS | ENDS,		R_NO_FILE, PT_WAKE_OTHER },
};

static uint32_t sleep_of(const struct pt_rec_off *r, enum pt_wait w,
			 uint32_t call)
{
	bool out = call & PT_C_PUT;

	switch (w) {
	case PT_WAIT_PIPE_IN: return S_PIPE_IN;
	case PT_WAIT_PIPE_OUT: return S_PIPE_OUT;
	case PT_WAIT_SOCK:
		return call & PT_C_CONNECT ? S_CONNECT :
		       out		   ? S_SOCK_OUT : S_SOCK_IN;
	case PT_WAIT_POLL: return S_POLL;
	case PT_WAIT_EVENT: return out ? S_EVENT_OUT : S_EVENT_IN;
	case PT_WAIT_MSGQ: return call & PT_C_MSG_PUT ? S_MSG_OUT : S_MSG_IN;
	case PT_WAIT_FUTEX:
		return r->syscall == PT_NR_futex &&
		       ((r->arg[1] & 0x7f) == 6 /* FUTEX_LOCK_PI */ ||
			(r->arg[1] & 0x7f) == 13 /* FUTEX_LOCK_PI2 */) ?
			       S_PI : S_FUTEX;
	case PT_WAIT_SEM: return S_SEM;
	case PT_WAIT_CHILD: return S_CHILD;
	case PT_WAIT_FLOCK: return S_FLOCK;
	case PT_WAIT_SIGNAL: return S_SIGNAL;
	case PT_WAIT_SLEEP: return S_SLEEP;
	case PT_WAIT_URING: return S_URING;
	case PT_WAIT_DISK:
	case PT_WAIT_DISK_WRITE:
	case PT_WAIT_FAULT:
	case PT_WAIT_INODE_LOCK:
	case PT_WAIT_RECLAIM:
		return S_FILE;
	default:
		return call & (PT_C_MEMORY | PT_C_FORK | PT_C_EXIT) ? S_MEMORY :
								      S_OTHER;
	}
}

/* A futex that processes share lies in a page of each; a private one is nobody
 * else's. FUTEX_PRIVATE_FLAG is 128. */
static bool same_word(const struct pt_rec_off *r)
{
	if (r->waker_tgid == r->hdr.tgid)
		return !r->waker_arg0 || r->waker_arg0 == r->arg[0];
	if (r->syscall == PT_NR_futex && r->arg[1] & 128)
		return false;
	return !r->waker_arg0 || !((r->waker_arg0 ^ r->arg[0]) & 4095);
}

static bool same_object(const struct pt_rec_off *r)
{
	return r->waker_obj_kind == r->obj_kind &&
	       r->waker_object == r->object;
}

static bool both_sockets(const struct pt_rec_off *r, uint32_t by)
{
	return !(r->waker_in & PT_WAKER_STRANGER) &&
	       (by & PT_C_SOCK || r->waker_obj_kind == PT_OBJ_SOCK);
}

static bool related(const struct pt_rec_off *r, const struct row *t, uint32_t by)
{
	switch (t->relation) {
	case R_ANY:
		return true;
	case R_SAME:
		return same_object(r);
	case R_NO_FILE:
		if (r->obj_kind == PT_OBJ_ANON && r->waker_obj_kind == PT_OBJ_ANON)
			return same_object(r);
		return r->waker_obj_kind != PT_OBJ_FILE;
	case R_UNNAMED:
		return r->obj_kind == PT_OBJ_NONE &&
		       r->waker_obj_kind != PT_OBJ_FILE;
	case R_SOCK:
		return both_sockets(r, by);
	case R_WORD:
		return same_word(r);
	case R_JOIN:
		return r->waker_syscall == PT_NR_exit;
	default:
		return false;
	}
}

static const struct row *row_of(uint32_t sleep, uint32_t by)
{
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].sleep & sleep && rows[i].call & by)
			return &rows[i];
	return NULL;
}

/* poll()'s time-out is over, as far as its third argument tells. */
static bool poll_over(const struct pt_rec_off *r)
{
	return r->syscall == PT_NR_poll && (int32_t)r->arg[2] > 0 &&
	       r->wake_ts >= r->off_ts &&
	       r->wake_ts - r->off_ts >= (uint64_t)r->arg[2] * 1000000u;
}

/* Nobody's call did it: an interrupt, or the kernel's own thread. */
static enum pt_wake by_interrupt(const struct pt_rec_off *r, uint32_t sleep,
				 uint32_t call)
{
	bool known = r->waker_in & PT_WAKER_KNOWN;
	bool hard = r->waker_in & PT_WAKER_HARDIRQ;
	bool soft = r->waker_in & PT_WAKER_SOFTIRQ;

	if (sleep & S_SLEEP || poll_over(r))
		return PT_WAKE_TIMER;
	if (sleep & S_FILE)
		return PT_WAKE_DEVICE;
	if (known && !hard && !soft) /* a thread of the kernel, by itself */
		return sleep & SOCKS ? PT_WAKE_DEVICE : PT_WAKE_NONE;
	if (sleep & (S_SOCK_IN | S_SOCK_OUT | S_CONNECT))
		/* packets are taken in by a softirq; a time-out is not */
		return hard && call & PT_C_POLL ? PT_WAKE_TIMER : PT_WAKE_DEVICE;
	if (!known)
		return PT_WAKE_NONE;
	if (r->obj_kind == PT_OBJ_CHR)
		return PT_WAKE_DEVICE;
	if (hard)
		return PT_WAKE_TIMER;
	return sleep & (S_POLL | S_URING) ? PT_WAKE_DEVICE : PT_WAKE_TIMER;
}

/* What the waker's call says, and its end, which any call can be. */
static uint32_t waker_class(const struct pt_rec_off *r)
{
	if (r->waker_in & PT_WAKER_EXITING)
		return PT_C_EXIT;
	return pt_call_class(r->waker_syscall);
}

/* The file system's server, or whoever serves somebody's page faults. */
static bool by_server(const struct pt_rec_off *r, uint32_t sleep, uint32_t by)
{
	return sleep & S_FILE && by & (PT_C_PUT | PT_C_MOVE | PT_C_OTHER) &&
	       (r->waker_obj_kind == PT_OBJ_CHR ||
		r->waker_obj_kind == PT_OBJ_ANON);
}

enum pt_wake pt_wake_of(const struct pt_rec_off *r, bool *valid)
{
	const uint16_t made = r->waker_in;
	uint32_t call, sleep, by;
	const struct row *t;
	enum pt_wait w;

	*valid = false;
	w = pt_classify(r);
	if (!r->wake_ts || w == PT_WAIT_RUNQ || w == PT_WAIT_STOPPED)
		return PT_WAKE_NONE;
	call = pt_call_class(r->syscall);
	sleep = sleep_of(r, w, call);
	by = waker_class(r);
	if (!r->waker_tid || made & (PT_WAKER_HARDIRQ | PT_WAKER_KTHREAD))
		return by_interrupt(r, sleep, call);
	t = row_of(sleep, by & PT_C_ANY);
	if (made & PT_WAKER_KNOWN && !(made & PT_WAKER_SOFTIRQ)) {
		*valid = true;
		if (by_server(r, sleep, by))
			return PT_WAKE_DATA;
		return t ? (enum pt_wake)t->wake : PT_WAKE_OTHER;
	}
	/* Softirqs end nobody's wait in the name of a call but those that carry
	 * its bytes on, on this CPU, before it returns. */
	if (made & PT_WAKER_SOFTIRQ && (!(sleep & SOCKS) || !both_sockets(r, by)))
		t = NULL;
	if (!t || !related(r, t, by))
		return by_interrupt(r, sleep, call);
	*valid = true;
	return by_server(r, sleep, by) ? PT_WAKE_DATA : (enum pt_wake)t->wake;
}
