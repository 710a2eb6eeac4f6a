/* SPDX-License-Identifier: BSD-2-Clause */
/* gpujob: one device's share of the job, and a step on it. */
#ifndef GPUJOB_LANE_H
#define GPUJOB_LANE_H

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>

#include "gpujob.h"

#define BUFFER (8u << 20) /* of a lane, on the host and on the device */

/* One device's share of the job. */
struct lane {
	unsigned device;
	uint64_t rng, step, since_sync;
	cudaStream_t streams[GJ_STREAMS];
	cudaEvent_t done, fork, joined[GJ_STREAMS];
	cudaGraphExec_t graph[2];
	void *host, *dev;
	uint64_t *item; /* where a result is read back to */
	int ask, answer; /* pipes of the feeder */
	pthread_t thread, helper;
	sem_t go, ready;
	const struct gj_phase *phase;
	int err, helper_err;
	bool has_helper;
};

extern volatile sig_atomic_t stop;
extern struct gj_plan plan;
extern struct gj_gpu gpu;

uint64_t clock_ns(clockid_t id);

/* Start the process that makes a lane's batches; before the GPU library is
 * opened, because a child could not use it. 0 or -errno. */
int start_feeder(struct lane *l);
/* What the host does before a step's work is there. */
void gap(struct lane *l);
/* The others return 0, an error of the GPU library or -errno. */
int make_graphs(struct lane *l);
int start_helper(struct lane *l); /* the thread that launches the second half */
void stop_helper(struct lane *l);
int submit(struct lane *l);	 /* a step's copies and kernels */
int synchronise(struct lane *l); /* where the plan has one */

#endif
