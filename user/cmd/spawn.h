/* SPDX-License-Identifier: BSD-2-Clause */
/* Start a command that waits, before its exec, until it is traced. */
#ifndef PT_SPAWN_H
#define PT_SPAWN_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct pt_spawn {
	pid_t pid; /* 0: none, or reaped */
	int go;	   /* write end: closed without a byte, the child gives up */
	int failed; /* read end: errno of a failed exec */
	bool ended;
};

struct pt_spawn_opts {
	bool own_group; /* Ctrl-C does not reach it, and it dies with us */
	bool as_root;	/* do not become the user behind sudo */
	bool no_stdin;
};

/* Fork; the child waits. 0, or -errno with `err` filled. */
int pt_spawn(struct pt_spawn *s, char *const argv[],
	     const struct pt_spawn_opts *o, struct pt_err *err);

/* Let it exec. 0, or -errno with `err` filled when exec failed. */
int pt_spawn_go(struct pt_spawn *s, const char *name, struct pt_err *err);

/* Has it ended? It is not reaped before it is released or killed. */
bool pt_spawn_done(struct pt_spawn *s);

/* Release; a child that waits still ends, one that runs goes on. Harmless
 * when there is none or it was released before. */
void pt_spawn_release(struct pt_spawn *s);

/* End it and its group (own_group only) and reap it. */
void pt_spawn_kill(struct pt_spawn *s);

#endif
