/* SPDX-License-Identifier: BSD-2-Clause */
/* The jobs of this node: a trainer's tree, or a launcher's with all its ranks. */
#ifndef PT_AGENT_JOBS_H
#define PT_AGENT_JOBS_H

#include "agent/config.h"
#include "agent/owner.h"
#include "agent/ranks.h"
#include "agent/seen.h"
#include "agent/tally.h"
#include "capture/discover.h"

#define PT_AJOB_ID 20

/* One per verdict that held in the last sample, for what changes. */
struct pt_ajob {
	/* Of boot, pid and start time: the same again after the agent's restart,
	 * never that of another process. */
	char id[PT_AJOB_ID];
	uint64_t hash;
	pid_t root, trainer;
	int pidfd; /* of the root; -1: it has ended */
	uint64_t start_ticks;
	char comm[PT_COMM_LEN], user[64];
	struct pt_owner owner;
	struct pt_ranks ranks;
	size_t n_trainers;
	uint64_t whose; /* who takes up a place by it: user, and pod or batch job */
	bool device;	/* a trainer has a GPU's device node open */

	struct pt_tally tally;
	double seen;  /* monotonic s: since when samples stand for it */
	double found_unix;
	double ended; /* monotonic: when it ended; 0: it lives */
	double due;   /* s of the realtime clock: its next sample */
	double watch_due; /* monotonic: not watched before then */
	double sample_s; /* shorter than configured, where memory is short */
	unsigned left_out; /* samples that were left out since, for memory */
	bool failing; /* its last sample failed, which was told */
	bool waits;   /* due, and no place was free yet */
	struct pt_ajob *next;
};

struct pt_ajobs {
	struct pt_ajob *first; /* in the order in which they were found */
	size_t n, n_live;
	size_t dropped; /* found by the last search, above max_jobs */
	size_t told;	/* ... and how many were said to be */
	char boot[40], host[256];
	/* Told of each job that has ended, gives way to another one or is no longer
	 * wanted. NULL: nobody is. */
	void (*on_end)(void *ctx, struct pt_ajob *a);
	void *ctx;
	struct pt_seen seen;
	double scanned; /* when all was looked at; 0: not yet, or to be done */
};

/* 0 or -errno. */
int pt_ajobs_init(struct pt_ajobs *j);
void pt_ajobs_free(struct pt_ajobs *j);

/*
 * Looks for new jobs. What costs is reading every process's mappings, so that is
 * done where a young process that is of no known job has a GPU library, or is named
 * by a rule, and every ten minutes. `on_new` is called for each. 0 or -errno.
 *
 * Where there are more than max_jobs, no owner keeps others out: one that has more
 * places than another gives one up, first of what holds no device.
 */
int pt_ajobs_search(struct pt_ajobs *j, const struct pt_config *c, double now,
		    void (*on_new)(void *ctx, struct pt_ajob *a), void *ctx);

/* The job's root has ended. */
void pt_ajob_end(struct pt_ajobs *j, struct pt_ajob *a, double now);
/* Forgets jobs that ended before `before` and are not `busy`. */
bool pt_ajobs_expire(struct pt_ajobs *j, double before,
		     bool (*busy)(void *ctx, const struct pt_ajob *a), void *ctx);
/* Forgets those that the (new) configuration does not want. True: some. */
void pt_ajobs_recheck(struct pt_ajobs *j, const struct pt_config *c, double now);

#endif
