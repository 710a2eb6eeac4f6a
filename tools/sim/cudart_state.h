/* SPDX-License-Identifier: BSD-2-Clause */
/* The device's state: for cudart_sched.c, cudart_queue.c, cudart_device.c. */
#ifndef PTSIM_STATE_H
#define PTSIM_STATE_H

#include <sys/types.h>

#include "cudart_device.h"

#pragma GCC visibility push(hidden)

#define RUN_MAX (SIM_DEVICES * (SIM_CONCURRENT + SIM_ENG_NR))
#define FLUSH_NS (SIM_NS_PER_S / 2)
#define NEVER UINT64_MAX
#define MEET_LOOK_NS 200000 /* how often a kernel looks for its peers */

enum wait_scope { WAIT_STREAM, WAIT_BLOCKING, WAIT_DEVICE, WAIT_ROOM };

struct waiter {
	struct waiter *prev, *next;
	enum wait_scope scope;
	struct sim_stream *stream;
	unsigned device;
	uint64_t seq;
	struct sim_op *op; /* WAIT_ROOM: handed over */
	_Atomic int done;
	pthread_cond_t cv;
};

struct sim_device {
	pthread_mutex_t lock;
	pthread_cond_t cv; /* the device thread sleeps here */
	pthread_t thread;
	bool thread_up;
	bool stop;
	pid_t owner;
	uint64_t vt;   /* everything up to here has been replayed */
	uint64_t wake; /* when the device thread will look by itself */
	uint64_t seq;
	struct sim_stream *streams, legacy[SIM_DEVICES]; /* first in the list */
	struct sim_op *pool, *free_ops;
	struct sim_op *run[RUN_MAX];
	unsigned n_run, busy_slots[SIM_DEVICES][SIM_ENG_NR];
	uint64_t busy_ns; /* of any device, up to vt */
	uint64_t device_busy[SIM_DEVICES];
	struct waiter *first, *last;
};
extern struct sim_device dev;

extern pthread_key_t sim_thread_key; /* a thread's own default streams */

/* cudart_sched.c, under the lock */
void sched_advance(uint64_t now); /* replay up to `now` */
uint64_t sched_next_end(void);	  /* of what runs; NEVER */
void sched_kick(void);		  /* start what may start at dev.vt */
void sched_check_waiters(void);
void sched_log_op(const struct sim_op *op, uint64_t end);
bool waiter_satisfied(const struct waiter *w);
void waiter_link(struct waiter *w);
uint64_t waiter_bound(const struct waiter *w);

/* cudart_device.c: have the device thread look at `when` at the latest */
void device_wake_by(uint64_t when);

#pragma GCC visibility pop

#endif
