/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file that another process has mapped, as a descriptor. What it was mapped by
 * is a name of the other's choice, which may lead elsewhere at each look; so it is
 * opened once, compared with the mapping, and whatever is done with the file (its
 * symbols read, probes attached) is done through the descriptor.
 */
#ifndef PT_MAPPED_H
#define PT_MAPPED_H

#include <stdint.h>
#include <sys/types.h>

struct pt_mapped {
	pid_t pid;
	uint64_t start, end; /* of the mapping */
	uint32_t dev;	     /* (major << 20) | minor, as /proc/PID/maps has it */
	uint64_t inode;
	const char *name; /* as /proc/PID/maps has it; in the process's root */
};

/*
 * To be read; the caller closes it. A regular file, and the one that was mapped.
 * Opening has no effect on what else the name may lead to (a device, a FIFO).
 * -ESTALE: neither the mapping nor the name leads to that file any more, or
 * another -errno.
 */
int pt_mapped_open(const struct pt_mapped *m);

/* The path by which the kernel takes the file behind a descriptor of ours for a
 * probe, while it is open. */
#define PT_FD_PATH 32
const char *pt_fd_path(int fd, char buf[PT_FD_PATH]);

#endif
