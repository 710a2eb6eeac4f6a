/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which part of a distributed job is a process? By the variables that launchers
 * set: torchrun, Slurm, Open MPI and other PMI. An environment is its process's
 * own: numbers are bounded, names hold printable ASCII only.
 */
#ifndef PT_AGENT_RANKS_H
#define PT_AGENT_RANKS_H

#include <stddef.h>
#include <sys/types.h>

#define PT_RANKS_ENVIRON (128 * 1024) /* bytes of it that are read */

struct pt_ranks {
	long rank, world, local; /* -1: not told */
	char slurm_job[24], slurm_step[24];
	/* The same text for all ranks of one job on all nodes; "": not known. */
	char group[128];
};

/*
 * `env`: NAME=VALUE, each ended by a NUL but perhaps the last. `host`: this
 * machine's name, for rendezvous at an address that is every node's own
 * (localhost). Pure.
 */
void pt_ranks_environ(const char *env, size_t len, const char *host,
		      struct pt_ranks *out);

/* The same for a process. 0 or -errno; `out` is filled all the same. */
int pt_ranks_of(pid_t pid, const char *host, struct pt_ranks *out);

#endif
