/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which processes have been looked at, so that a search for jobs costs little where
 * processes come and go: maps of a process with PyTorch have thousands of lines.
 */
#ifndef PT_AGENT_SEEN_H
#define PT_AGENT_SEEN_H

#include "capture/discover.h"

struct pt_seen_one {
	pid_t pid;
	uint64_t start_ticks;
	bool settled; /* need not be looked at again */
};

struct pt_seen {
	struct pt_seen_one *v; /* ascending by pid */
	size_t n;
};

/* s after which a process has mapped the libraries that it will: what comes later
 * is found by the search of everything. */
#define PT_SEEN_YOUNG_S 600.0

/*
 * Is there a process that may be of a job that is not known? `known` says of a
 * process that it belongs to one, `interesting` looks into it. Processes that were
 * told are not told again, old ones are looked at once. `boot_s`: CLOCK_BOOTTIME.
 * 1, 0 or -ENOMEM.
 */
int pt_seen_news(struct pt_seen *s, const struct pt_tree *t, double boot_s,
		 bool (*known)(void *ctx, const struct pt_process *p),
		 bool (*interesting)(void *ctx, const struct pt_process *p),
		 void *ctx);
void pt_seen_free(struct pt_seen *s);

#endif
