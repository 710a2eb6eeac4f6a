/* SPDX-License-Identifier: BSD-2-Clause */
/* The files that are mapped in a process, from /proc/PID/maps. */
#ifndef PT_CAPTURE_MAPS_H
#define PT_CAPTURE_MAPS_H

#include <stdbool.h>
#include <stdio.h>

#include "capture/discover.h"

struct pt_filemaps {
	pid_t pid;
	FILE *f;
	char *line;
	size_t cap, seen;
	uint64_t at; /* the next one begins here or behind it */
	bool asks;   /* the kernel for one at a time (Linux 6.11), rather than reads all of them */
	int err;     /* why there was no next one, or 0 */
};

/* `ask`: where the kernel can do it; without it all is read as text, as on older ones. Close it
 * in any case. 0; -ESRCH gone, or another -errno. */
int pt_filemaps_open(struct pt_filemaps *m, pid_t pid, bool ask);
/* The next mapping of a file that may be executed, in order of addresses: all of `out`, by name
 * alone what is of kind. False: no more. */
bool pt_filemaps_next(struct pt_filemaps *m, struct pt_gpulib *out);
void pt_filemaps_close(struct pt_filemaps *m);

#endif
