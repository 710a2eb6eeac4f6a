/* SPDX-License-Identifier: BSD-2-Clause */
/* The inside of a capture session; for the files of user/capture only. */
#ifndef PT_CAPTURE_SESSION_H
#define PT_CAPTURE_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <bpf/libbpf.h>

#include "base/clock.h"
#include "base/records.h"
#include "capture/capture.h"
#include "capture/cost.h"
#include "capture/haste.h"
#include "capture/links.h"
#include "capture/ringbuf.h"
#include "config.h"
#include "pipetrace.skel.h"

#define PT_MAX_ROOTS 64
#define PT_MAX_HOOKS 24

struct pt_uprobes;
struct pt_mapwatch;
struct pt_marker;
struct pt_nvtx;
struct pt_devwatch;
struct pt_kernels;
struct pt_gpulib;
struct pt_ktypes;
struct pt_blocks;
struct pt_disks;
struct pt_pyclock;

struct pt_capture {
	struct pipetrace_bpf *skel;
	struct pt_ringbuf *ring;
	struct pt_uprobes *uprobes;
	struct pt_marker *marker; /* NULL: none was asked for */
	struct pt_nvtx *nvtx;	  /* NULL: no uprobes, or out of memory */
	struct pt_devwatch *devices; /* NULL: none, or not any more */
	struct pt_mapwatch *maps; /* NULL: look at /proc once a second */
	struct pt_kernels *kernels; /* NULL: their names are not looked for */
	struct pt_blocks *blocks; /* NULL: out of memory */
	struct {
		struct pt_told_missed *told; /* uthash, by process and kind of call */
		uint64_t full; /* records lost for a full ring at the last look */
	} missed;
	struct pt_disks *disks;	  /* NULL: out of memory */
	struct pt_pyclock *pyclock; /* NULL: Python is not sampled */
	struct pt_features feat;

	pid_t roots[PT_MAX_ROOTS];
	int root_fd[PT_MAX_ROOTS]; /* pidfd, or -1 */
	size_t n_roots;
	pid_t trainer;
	enum pt_mode mode;
	uint16_t read_door; /* PT_DOOR_* */
	uint32_t read_more; /* as in pt_rec_host */
	uint16_t fault_door; /* PT_FAULT_DOOR_* */
	bool stopped, quiet;
	void (*warn)(void *ctx, const char *msg);
	void *warn_ctx;

	int spare; /* a descriptor, for when there are no more; see load.c */
	bool has_spare;

	/* Processes of the last samples: facts are told of new ones only. */
	pid_t *sampled;
	size_t n_sampled;
	size_t ticks; /* of pt_sample_tree() */

	/* Records made here that wait for the next drain. */
	unsigned char *queue;
	size_t queue_len, queue_cap;

	pt_record_fn fn; /* while draining */
	void *fn_ctx;
	struct pt_haste haste;
	uint64_t drain_until; /* ... records of later are of the next time */

	/* Who may be followed from outside of the tree, when the drain is over;
	 * somebody is; and there may be more of it than was seen. */
	struct pt_supplier suppliers[PT_MAX_OUTSIDE];
	size_t n_suppliers;
	bool outside, outside_again;

	bool neighbours; /* other users of GPUs were seen */
	struct pt_hook_state hooks[PT_MAX_HOOKS];
	size_t n_hooks;
	uint64_t events;
	uint64_t loss[PT_LOSS_NR]; /* this side's; the kernel's come on top */
	struct pt_cost cost;
	unsigned cores; /* that the target may use */
};

void pt_warn(struct pt_capture *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Keep a record for the next drain; a lost one is counted. */
void pt_queue_record(struct pt_capture *c, const void *rec, size_t len);
/* Look for other users of GPUs on this machine; queues what it finds. */
void pt_neighbours(struct pt_capture *c);
/* A process that is not traced has mapped this file: is it one more? */
void pt_neighbour_mapped(struct pt_capture *c, pid_t pid, const char *path);
/* Queue a PT_REC_MEMORY. */
void pt_memory(struct pt_capture *c);

/* The hook's entry in the table, added when new. Never NULL. */
struct pt_hook_state *pt_hook(struct pt_capture *c, const char *need);
void pt_hook_set(struct pt_capture *c, const char *need, const char *door,
		 const char *note, ...) __attribute__((format(printf, 4, 5)));

/* load.c: attaches a program that was loaded, and takes its link. */
/* The programs, opened; `types`: a memory file that gets the kernel's types which they need,
 * and is to be there until they are loaded. 0 or -errno. */
int pt_skeleton_open(struct pipetrace_bpf **out, int types);
/* Run an iterator to its end and close it; what bpf_iter_create() returned, errno with it.
 * 0 or -errno. */
int pt_iter_run(int fd);
bool pt_attach(struct bpf_program *p, struct bpf_link **link);
#define PT_ATTACH(s, name) pt_attach((s)->progs.name, &(s)->links.name)

/* ---- targets.c: the processes that are followed --------------------------- */
/* Put the tree of every root into the set and seed its threads. */
int pt_targets_fill(struct pt_capture *c, struct pt_err *err);

/* ---- outside.c: suppliers that are not of the tree ------------------------ */
/* Behind a drain, and once a second. */
void pt_outside_take(struct pt_capture *c);
void pt_outside_tick(struct pt_capture *c);

/* ---- load.c: which programs, and attaching them -------------------------- */
/* 0 or -errno with err filled; c->skel is loaded and attached then. */
int pt_load(struct pt_capture *c, const struct pt_capture_opts *o,
	    struct pt_err *err);
/* Map the ring and read it into `fn`. 0 or -errno with `err` filled. */
int pt_records_open(struct pt_capture *c, pt_ringbuf_fn fn,
		 struct pt_err *err);
/* Records made on this side: hand on those that wait; queue the loss counters,
 * and a sample of each process. */
void pt_flush_queue(struct pt_capture *c, pt_record_fn fn, void *ctx);
void pt_queue_loss(struct pt_capture *c);
void pt_sample_tree(struct pt_capture *c);
/* Run the task iterator once; pass is PT_PASS_*, ts 0 means now. */
int pt_run_pass(struct pt_capture *c, uint32_t pass, uint64_t ts);

/* ---- percpu.c -------------------------------------------------------------- */
/* From a CPU's run queue to its preemption count, by the kernel's BTF; 0: it does
 * not say. */
int64_t pt_count_offset(const struct pt_ktypes *k);

/* ---- reads.c: the doors to read calls -------------------------------------- */
/* Before loading: the door, and which programs that takes. 0, or -ENOTSUP when the door that was asked for is not there. */
int pt_reads_choose(struct pt_capture *c, const struct pt_capture_opts *o);
/* After loading; says in the hooks what opened. 0, or -ENOTSUP as above. */
int pt_reads_attach(struct pt_capture *c, const struct pt_capture_opts *o);
/* A tracing program can be put on this function of the kernel. */
bool pt_features_fentry(const char *function);

/* ---- aio.c: reads by libaio, beside the door fexit -------------------------- */
/* This kernel's functions are there and as expected. */
bool pt_aio_probe(const struct pt_features *f, const struct pt_ktypes *k);
/* Before loading. */
void pt_aio_choose(struct pt_capture *c, bool on);
/* After loading; says in the hooks what opened. */
void pt_aio_attach(struct pt_capture *c);

/* ---- socks.c: who sockets are connected to --------------------------------- */
/* Before loading: which programs. */
void pt_socks_choose(struct pt_capture *c, const struct pt_capture_opts *o);
/* After loading; says in the hooks what opened. */
void pt_socks_attach(struct pt_capture *c);
/* Look at the target's open connections: PT_PASS_SEED those not known yet,
 * PT_PASS_FINAL all; ts 0 means now. */
void pt_socks_pass(struct pt_capture *c, uint32_t pass, uint64_t ts);

/* ---- blocks.c: block requests ----------------------------------------------- */
/* Before loading, after it, once a second and at the end. What does not open, the hook says. */
void pt_blocks_choose(struct pt_capture *c, const struct pt_capture_opts *o);
void pt_blocks_attach(struct pt_capture *c, const struct pt_capture_opts *o);
void pt_blocks_tick(struct pt_capture *c);
void pt_blocks_free(struct pt_blocks *b);

/* ---- missed.c: calls whose records were lost ---------------------------------- */
/* Queues the counts since the last look, as of `ts`. */
void pt_missed_tick(struct pt_capture *c, uint64_t ts);
void pt_missed_free(struct pt_capture *c);

/* ---- pyclock.c: Python's stacks of threads on a core ------------------------ */
/* Before loading, and after it. */
void pt_pyclock_choose(struct pt_capture *c, bool wanted);
void pt_pyclock_new(struct pt_capture *c);
void pt_pyclock_free(struct pt_pyclock *k);

/* ---- reads.c: write and fsync calls ------------------------------------------ */
/* Behind pt_reads_choose() and pt_reads_attach(): they share its door. */
void pt_writes_choose(struct pt_capture *c);
void pt_writes_attach(struct pt_capture *c);
/* ---- faults.c: the doors to page faults ------------------------------------ */
/* Before and after loading, as for reads; says in the hooks what opened. */
void pt_faults_choose(struct pt_capture *c, const struct pt_capture_opts *o);
void pt_faults_attach(struct pt_capture *c);

/* ---- uprobes.c: GPU entry points ----------------------------------------- */
int pt_uprobes_new(struct pt_capture *c, bool multi);
/* Forget processes that have gone. */
void pt_uprobes_reap(struct pt_capture *c);
/* Trainers of the tree: attach to every GPU library not attached yet. */
void pt_uprobes_scan(struct pt_capture *c);
/* The same for one process that mapped a library itself. */
void pt_uprobes_process(struct pt_capture *c, pid_t pid);
/* Is the CUDA driver of this process hooked, or was it? */
bool pt_uprobes_driver(const struct pt_capture *c, pid_t pid);
/* Takes out hooks that have told what they were for. */
void pt_uprobes_tick(struct pt_capture *c);
/* Asks for the names of handles, which are those of the runtime's functions: soon, for the
 * process may end. */
void pt_uprobes_names(struct pt_capture *c, bool last_time);
/* Perf events, each of which takes some time to take out. */
unsigned pt_uprobes_links(const struct pt_uprobes *u);
void pt_uprobes_free(struct pt_uprobes *u);

/* ---- marker.c: the function that begins steps ----------------------------- */
/* 0 or -errno with `err` filled: -ENOENT no such function. */
int pt_marker_open(struct pt_capture *c, const struct pt_capture_opts *o,
		   struct pt_err *err);
/* Look again where it has not been found yet. 0 or -errno. */
int pt_marker_scan(struct pt_capture *c);
void pt_marker_free(struct pt_marker *k);

/* ---- nvtx.c: ranges that the program names -------------------------------- */
struct pt_nvtx *pt_nvtx_new(bool multi); /* NULL: out of memory */
/* Is this the file of an NVTX library with exported functions, by its name? */
bool pt_nvtx_lib(const char *path);
/* Attach to the NVTX library of this process, if it has mapped one. */
void pt_nvtx_process(struct pt_capture *c, pid_t pid);
void pt_nvtx_free(struct pt_nvtx *n);

/* ---- devices.c: what the driver says of its devices ------------------------ */
void pt_devwatch_open(struct pt_capture *c);
/* Take the sample that has come, if any, and ask for the next one twice a second.
 * Never blocks. */
void pt_devwatch_drain(struct pt_capture *c);
void pt_devwatch_free(struct pt_devwatch *w);
/* Number of the device in a process with these variables (NULL: not set); `one`:
 * every device of the machine is of the same make. PT_DEVICE_UNKNOWN: it cannot
 * be told. Separate for its unit test. */
uint32_t pt_device_ordinal(const struct pt_rec_device *d, bool one,
			   const char *visible, const char *order);

/* ---- mapwatch.c: GPU libraries that are mapped later ---------------------- */
/* NULL when the kernel or our privileges do not allow it. */
struct pt_mapwatch *pt_mapwatch_new(void);
int pt_mapwatch_fd(const struct pt_mapwatch *w);
/* Calls fn for each file that a process mapped for execution; of `g` what the
 * event told. */
void pt_mapwatch_drain(struct pt_mapwatch *w,
		       void (*fn)(void *ctx, pid_t pid, struct pt_gpulib *g),
		       void *ctx);
/* The event of a CPU that goes offline is dead, also when the CPU comes back, and one
 * that comes has none: once a second. True: mappings may have been missed. */
bool pt_mapwatch_moved(struct pt_mapwatch *w);
void pt_mapwatch_free(struct pt_mapwatch *w);

/* ---- holders.c: everything is let go by processes that nobody kills ---------------- */

#define PT_HOLDERS 4
struct pt_holders {
	pid_t pid[PT_HOLDERS]; /* 0 or less: there is none */
	int go;		       /* closed, they end */
};

/* From here on nothing that we close is taken out. */
void pt_hold_all(struct pt_holders *h);
/* Now it is; waits until it is out, a minute at most: they end without us, too. `pending` is
 * called once where that takes long. */
void pt_let_go(struct pt_holders *h, unsigned probes,
	       void (*pending)(void *ctx, unsigned probes), void *ctx);

#endif
