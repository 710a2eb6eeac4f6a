/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside CUPTI's stand-in: cupti.c (the API), cupti_buffers.c (its thread). */
#ifndef CUPTI_SIM_H
#define CUPTI_SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "../../user/inject/agent/cupti_abi.h"
#include "ptsim.h"

#pragma GCC visibility push(hidden)

struct cupti {
	pthread_mutex_t lock; /* inside the device's */
	pthread_cond_t work, flushed;
	pthread_t worker;
	bool worker_up, stop;
	int major;
	/* its clock */
	bool own_clock;
	int64_t offset;
	double ppm;
	uint64_t t0;
	cupti_timestamp_fn timestamp;
	uint64_t normal; /* ... ahead of CLOCK_MONOTONIC */
	/* the client */
	bool subscribed;
	cupti_request_fn request;
	cupti_complete_fn complete;
	uint64_t enabled; /* bit: kind */
	uint32_t period_ms;
	size_t dropped;
	/* told by the device, not yet in a buffer */
	struct ptsim_act *queue;
	size_t n, cap;
	uint64_t flush_asked, flush_done;
};
extern struct cupti cu;

bool cu_fails(const char *what);
uint64_t cu_clock(clockid_t id);
void cu_normalize(void);	    /* under the lock, now and then */
uint64_t cu_stamp(uint64_t mono);   /* under the lock */
size_t cu_length(uint32_t kind);    /* of a record; 0: none of ours */
int cu_worker_start(void);	    /* 0 or -errno */
void cu_worker_stop(void);
void cu_poll(void); /* the device up to the present; not under the lock */
CUptiResult cu_flush(bool forced);

#pragma GCC visibility pop

#endif
