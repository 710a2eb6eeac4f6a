/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulated device: streams, engines and a virtual clock. Internal to the
 * library. Every time is CLOCK_MONOTONIC in nanoseconds.
 *
 * State is advanced by dev_advance(), which replays completions in the order
 * of their nominal ends, so an operation starts at the nominal end of what it
 * waited for however late a thread noticed: the schedule does not drift, and
 * the device thread has to wake only when somebody waits, or to write the log.
 */
#ifndef PTSIM_DEVICE_H
#define PTSIM_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cudart_abi.h"
#include "ptsim.h"

/* Only the CUDA names and ptsim_* leave the library. */
#pragma GCC visibility push(hidden)

#define SIM_NS_PER_S 1000000000ull
#define SIM_OP_NS_MAX (60 * SIM_NS_PER_S)
#define SIM_CONCURRENT 16 /* kernels at once with PT_SIM_CONCURRENT=1 */
#define SIM_DEVICES 8	  /* at most */

enum sim_op_kind {
	SIM_OP_KERNEL,
	SIM_OP_H2D,
	SIM_OP_D2H,
	SIM_OP_D2D,
	SIM_OP_H2H,
	SIM_OP_MEMSET,
	/* from here on: no device time, not in the log */
	SIM_OP_RECORD,
	SIM_OP_WAIT,
	SIM_OP_FREE,
};

enum sim_engine { SIM_ENG_COMPUTE, SIM_ENG_H2D, SIM_ENG_D2H, SIM_ENG_NR };

enum sim_sync { SIM_SYNC_BLOCK, SIM_SYNC_SPIN, SIM_SYNC_YIELD };

struct sim_graph;

/* A stream. Freed when its handle and everything that refers to it are gone. */
struct sim_stream {
	struct sim_stream *prev, *next; /* list of live streams */
	struct sim_op *head, *tail;	/* head may be running */
	struct sim_graph *capture;	/* non-NULL while capturing */
	uint64_t handle;		/* as the caller passes it */
	unsigned refs;
	unsigned device;
	bool closed;   /* handle gone */
	bool legacy;   /* the NULL stream */
	bool blocking; /* synchronises with the NULL stream */
};

struct sim_event {
	struct sim_stream *stream; /* of the last record; holds a reference */
	uint64_t seq;		   /* that record's operation; 0 none */
	uint64_t time;		   /* when it completed; 0 not yet */
	unsigned flags;
	unsigned refs;
};

/* What a caller wants done; copied into the queue. */
struct sim_work {
	enum sim_op_kind kind;
	uint64_t ns;	/* device time */
	uint64_t bytes;
	const char *api; /* static string */
	/* for an activity sink */
	const void *func;     /* KERNEL: what was launched */
	uint32_t correlation; /* of the call; 0: nobody listened */
	uint32_t graph;	      /* the executable graph's number; 0 none */
	bool pageable;	      /* host memory that is not pinned */
	unsigned meet; /* KERNEL: 1 + the group that it meets; 0 none */
};

struct sim_op {
	struct sim_op *next;
	struct sim_stream *stream;
	struct sim_work work;
	uint64_t seq, submit, start, end;
	struct sim_event *event;   /* RECORD */
	struct sim_stream *wait_on; /* WAIT: this stream, up to wait_seq */
	uint64_t wait_seq;
	void *ptr; /* FREE */
	int32_t tid;
	bool running;
	bool meeting; /* `end` is when to look again whether all are there */
	uint64_t meet_number;
};

struct sim_log_rec {
	const char *op, *api;
	uint64_t stream, submit, start, end, bytes;
	int32_t tid;
	uint32_t device;
};

struct sim_cfg {
	uint64_t kernel_ns;
	double h2d_bytes_per_ns, d2h_bytes_per_ns;
	uint64_t mem_bytes;
	unsigned queue;
	unsigned devices;
	bool concurrent;
	_Atomic int sync; /* enum sim_sync; cudaSetDeviceFlags changes it */
};
extern struct sim_cfg sim_cfg;
void sim_config_read(void); /* cudart_config.c, once */

/* ---- cudart_device.c: all under sim_lock() unless said otherwise -------- */

/*
 * Start the device on the first call (any thread; takes no lock of ours).
 * cudaSuccess, or the error that the API call must return: in a process forked
 * from one that had started it, and after the library has shut down.
 */
cudaError_t sim_enter(void);
void sim_lock(void);
void sim_unlock(void);
uint64_t sim_now(void);
int32_t sim_tid(void);

/* The calling thread's current device, 0 at first. */
unsigned sim_current(void);
void sim_set_current(unsigned device);

/* Resolve a caller's handle; NULL if it is none of ours. `ptsz`: stream 0
 * means the thread's own stream. No reference is taken. */
struct sim_stream *sim_stream_find(cudaStream_t handle, bool ptsz);
struct sim_stream *sim_stream_new(bool blocking); /* NULL: no memory */
void sim_stream_close(struct sim_stream *s);	  /* drops the handle */
void sim_stream_put(struct sim_stream *s);

/*
 * Queue work on a stream. Sleeps while the queue is full, and then sets
 * *blocked (may be NULL). Returns the operation's sequence number, which grows
 * in the order of submission over all streams.
 */
uint64_t sim_submit(struct sim_stream *s, const struct sim_work *w,
		    bool *blocked);
uint64_t sim_submit_record(struct sim_stream *s, struct sim_event *e,
			   const char *api);
void sim_submit_wait(struct sim_stream *s, struct sim_event *e,
		     const char *api);
void sim_submit_free(struct sim_stream *s, void *ptr, const char *api);
void sim_event_put(struct sim_event *e);

/* Sleep or spin until everything queued on `s` up to `seq` is done; `s` NULL:
 * the whole current device. On the NULL stream, blocking streams count too. */
void sim_wait(struct sim_stream *s, uint64_t seq, enum sim_sync how);
/* The same for one operation of one stream (an event's record). */
void sim_wait_record(struct sim_stream *s, uint64_t seq, enum sim_sync how);
bool sim_done(struct sim_stream *s, uint64_t seq);
uint64_t sim_last_seq(void);
void sim_advance_now(void); /* bring the state up to the present */
uint64_t sim_busy(void);

/* A blocking call as a line of the log. */
void sim_log_host(cudaStream_t stream, uint64_t enter, const char *api);

/* ---- cudart_shared.c ---------------------------------------------------- */
/*
 * Map a file of exactly `size` bytes, made if missing, for several processes.
 * `init` runs under the file's lock, on zeroed memory the first time; 0, or
 * the file is not what it should be. NULL with errno. Stays mapped.
 */
void *sim_map_file(const char *path, size_t size, int (*init)(void *));
void sim_shared_open(void); /* PT_SIM_SHARED; says what fails */
bool sim_shared(void);
/* When a device that is free from `from` on begins `ns` of work of ours. */
uint64_t sim_shared_reserve(unsigned device, uint64_t from, uint64_t ns);
void sim_shared_close(uint64_t now); /* what is reserved and cannot run */

/* ---- cudart_meet.c: under the lock -------------------------------------- */
/* The group that the calling thread's next kernel meets, as in sim_work.meet;
 * asking takes it. */
unsigned sim_meet_taken(void);
bool sim_meets(void); /* some kernels of this process meet others */
/* The kernel has begun, at op->start. */
void sim_meet_begin(struct sim_op *op);
/* Have all begun? Then *end is when it ends. */
bool sim_meet_over(const struct sim_op *op, uint64_t now, uint64_t *end);
void sim_meet_leave(void);

/* ---- cudart_nvml.c: under the lock -------------------------------------- */
void sim_nvml_open(void); /* PT_SIM_NVML; says what fails */
uint64_t sim_nvml_due(void); /* the next time to publish */
void sim_nvml_publish(uint64_t now); /* when it is due */
void sim_nvml_close(void);

/* ---- cudart_log.c ------------------------------------------------------- */
/* Opens PT_SIM_LOG and writes the header; silent without the variable. */
void sim_log_open(void);
bool sim_log_enabled(void);
/* Under the lock. Never fails: what cannot be kept is counted and said. */
void sim_log_add(const struct sim_log_rec *r);
bool sim_log_pending(void);
/* Under the lock, which is dropped while writing. */
void sim_log_flush(void);
void sim_log_close(void);

/* ---- cudart_activity.c: under the lock ----------------------------------- */
/* A number for an API call, when somebody listens; else 0. */
uint32_t sim_act_call(void);
void sim_act_op(const struct sim_op *op, uint64_t end);
/* The calling thread waited since `enter`. `type`: PTSIM_SYNC_*; `s`: NULL for
 * the whole device. */
void sim_act_sync(uint32_t type, const struct sim_stream *s, uint64_t enter);

/* ---- cudart_inject.c ------------------------------------------------------ */
/* As the driver does when it is initialized: load CUDA_INJECTION64_PATH, and
 * call its InitializeInjection(). Once in a process, not under the lock. */
void sim_inject(void);

/* ---- cudart_memory.c: under the lock ------------------------------------ */
int sim_mem_init(void); /* 0 or -errno */
void *sim_mem_alloc(size_t size);  /* device address, or NULL: exhausted */
int sim_mem_free(void *ptr);	   /* -EINVAL: not allocated */
bool sim_mem_is_device(const void *ptr);    /* a device address at all */
bool sim_mem_is_allocated(const void *ptr); /* ... and a block's first */
void sim_mem_info(size_t *free, size_t *total);
void sim_mem_reset(void);
int sim_pin_add(void *ptr, size_t size, bool ours); /* -EEXIST, -ENOMEM */
/* 0 and the size; -ENOENT when not there with the same `ours`. */
int sim_pin_del(void *ptr, bool ours, size_t *size);
bool sim_pin_covers(const void *ptr, size_t size);

/* ---- cudart_graph.c ----------------------------------------------------- */
/* Append to the graph that a stream captures; false: no memory. */
bool sim_graph_add(struct sim_graph *g, const struct sim_work *w);
void sim_graph_free(struct sim_graph *g);

/* ---- cudart.c ----------------------------------------------------------- */
cudaError_t sim_ret(cudaError_t err); /* remembers it as the last error */
cudaError_t sim_last_error(bool clear); /* of the calling thread */
/* What entry points of several libraries share. `api`: the name for the log, a
 * static string; `ptsz`: stream 0 means the thread's own. */
struct sim_copy {
	const char *api;
	void *dst;
	const void *src;
	size_t bytes;
	int kind;
	cudaStream_t stream;
	bool sync; /* the API call itself waits for the copy */
	bool ptsz;
};
cudaError_t sim_do_launch(const char *api, const void *func, dim3 grid,
			  dim3 block, cudaStream_t stream, bool ptsz);
cudaError_t sim_do_copy(const struct sim_copy *c);
cudaError_t sim_do_set(const char *api, void *ptr, size_t count,
		       cudaStream_t stream, bool ptsz);
cudaError_t sim_do_device_sync(const char *api);
cudaError_t sim_do_stream_sync(const char *api, cudaStream_t stream, bool ptsz);
cudaError_t sim_do_graph_launch(const char *api, cudaGraphExec_t exec,
				cudaStream_t stream, bool ptsz);
extern _Atomic uint64_t sim_n_launch, sim_n_copy, sim_n_sync;

#pragma GCC visibility pop

#define SIM_API __attribute__((visibility("default"), noinline))

#endif
