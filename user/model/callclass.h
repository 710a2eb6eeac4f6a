/* SPDX-License-Identifier: BSD-2-Clause */
/* System calls by what they can do to somebody who waits, or wait for. */
#ifndef PT_CALLCLASS_H
#define PT_CALLCLASS_H

#include <stdint.h>

enum {
	PT_C_PUT = 1 << 0,	/* write, send: puts something where others wait */
	PT_C_TAKE = 1 << 1,	/* read, receive: makes room */
	PT_C_MOVE = 1 << 2,	/* splice, sendfile: takes here and puts there */
	PT_C_CONNECT = 1 << 3,
	PT_C_ACCEPT = 1 << 4,
	PT_C_CLOSE = 1 << 5,	/* close, shutdown, dup2 */
	PT_C_EXIT = 1 << 6,
	PT_C_EXEC = 1 << 7,
	PT_C_FUTEX = 1 << 8,
	PT_C_SEM = 1 << 9,
	PT_C_MSG_PUT = 1 << 10,
	PT_C_MSG_TAKE = 1 << 11,
	PT_C_MSG_CTL = 1 << 12,
	PT_C_LOCK = 1 << 13,	/* flock, fcntl */
	PT_C_FILE = 1 << 14,	/* of files and folders, by name or descriptor */
	PT_C_MEMORY = 1 << 15,	/* mmap and its kin */
	PT_C_KILL = 1 << 16,
	PT_C_URING = 1 << 17,
	PT_C_FORK = 1 << 18,
	PT_C_POLL = 1 << 19,
	PT_C_CHILD = 1 << 20,	/* waits for one */
	PT_C_SIGNAL = 1 << 21,	/* waits for one */
	PT_C_SLEEP = 1 << 22,
	PT_C_OTHER = 1 << 23,
	PT_C_NONE = 1 << 24,	/* not in a call */
	PT_C_ANY = (1 << 25) - 1,
	/* flags beside the classes above */
	PT_C_SOCK = 1 << 25,	/* a socket's call, whatever the descriptor */
	PT_C_SYNC = 1 << 26,	/* fsync and such: a PUT that writes no bytes */
};

/* Of the call with this number (PT_SYSCALL_NONE: of none). */
uint32_t pt_call_class(int nr);

#endif
