/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * simjob: a small training job in C on the simulated GPU. Loader workers are
 * forked and fed over pipes like a DataLoader's: an index pipe per worker, one
 * result pipe, batches in shared memory, delivery in order, a prefetch limit.
 */
#ifndef SIMJOB_H
#define SIMJOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "job_gpu.h"

#define JOB_WORKERS_MAX 64
#define JOB_PREFETCH_MAX 64

struct job_opts {
	unsigned workers, prefetch;
	bool threads;	   /* the workers are threads of the trainer */
	uint64_t steps;	   /* 0: no limit */
	double seconds;	   /* 0: no limit */
	unsigned items;	   /* per batch */
	size_t item_bytes;
	unsigned item_cpu_us, item_sleep_us;
	const char *read_dir; /* NULL: no files */
	unsigned files;
	bool cold;	   /* drop each file from the page cache after use */
	unsigned kernel_us, launches, sync_every;
	bool pinned;
	unsigned slow_worker;
	double slow_factor; /* 1: nobody is slow */
	unsigned jitter_pct;
	uint64_t seed;
	const char *truth; /* NULL: none */
	enum job_api api;
	uint64_t late;	   /* the (second) library from this step on; 0: at once */
	bool hold;	   /* wait for a line before the first step */
	unsigned hold_ms;  /* pause behind opening a library late */
	unsigned devices;  /* that the launches take turns on */
	bool graph;	   /* the kernels of a step as one graph */
	unsigned collectives; /* all-reduces per step */
	bool clip;	   /* wait for the device before the first of them */
	unsigned host_us, host_sleep_us; /* the trainer's own work per step */
};

/* What making a batch took: wall time, and CPU time of the thread, in ns. */
struct job_cost {
	uint64_t begin_ns, cpu_ns;	 /* CLOCK_MONOTONIC; all of it */
	uint64_t read_ns, read_cpu_ns;	 /* in reads */
	uint64_t sleep_ns;
};

struct job_result { /* through the result pipe: below PIPE_BUF, so atomic */
	uint64_t batch;
	uint64_t done_ns; /* CLOCK_MONOTONIC, when the batch was complete */
	uint32_t worker;  /* index */
	uint32_t slot;
	int32_t err;	  /* 0 or -errno */
	int32_t pid;	  /* of the worker; a thread's id */
	struct job_cost cost;
};

struct job_pool;

struct job_worker {
	pid_t pid; /* 0 while a thread has not told its id */
	int index_fd; /* the trainer's end of the index pipe */
	unsigned next_slot;
};

struct job_loader {
	const struct job_opts *o;
	struct job_worker w[JOB_WORKERS_MAX];
	unsigned n;	/* started */
	struct job_pool *pool; /* threads; NULL: processes */
	int result_fd;	/* the trainer's end of the result pipe */
	int result_out;
	unsigned char *slots; /* shared; one slot per batch in flight */
	size_t slots_len, batch_bytes;
	unsigned slots_per_worker;
	uint64_t sent;	/* next batch to hand out */
	/* batches that came before their turn, by batch modulo its size */
	struct job_result stash[JOB_WORKERS_MAX * JOB_PREFETCH_MAX];
	bool have[JOB_WORKERS_MAX * JOB_PREFETCH_MAX];
};

uint64_t job_now(void); /* CLOCK_MONOTONIC, ns */

uint64_t job_cpu_now(void); /* CPU time of the calling thread, ns */

/* Make the files of --read-dir that are not there. 0 or -errno, said. */
int job_files_make(const struct job_opts *o);

/* Make one batch in `out` (batch_bytes): read, sleep, compute; what it took
 * in *cost. 0 or -errno. */
int job_batch_make(const struct job_opts *o, unsigned worker, uint64_t batch,
		   unsigned char *out, struct job_cost *cost);

/*
 * Start the workers and send each its first indices; with no workers,
 * job_loader_next() makes the batches itself. 0 or -errno, said.
 */
int job_loader_start(struct job_loader *l, const struct job_opts *o);

/*
 * The next batch in order: its data stays valid until the next call. `stop`
 * is looked at when a signal interrupts the wait. 0, -EINTR (stop), or
 * another -errno, said.
 */
int job_loader_next(struct job_loader *l, uint64_t batch,
		    struct job_result *res, const unsigned char **data,
		    const volatile int *stop);

/*
 * The same with threads: a queue of indices that all of them take from, in
 * order of need, and delivery in order. Called by the functions above and
 * below. `l->slots` is there, one slot per batch in flight and one in use.
 */
int job_pool_start(struct job_loader *l);
int job_pool_next(struct job_loader *l, uint64_t batch, struct job_result *res,
		  const unsigned char **data, const volatile int *stop);
void job_pool_stop(struct job_loader *l);

/* Close the pipes, and wait for the workers to leave. */
void job_loader_stop(struct job_loader *l);

#endif
