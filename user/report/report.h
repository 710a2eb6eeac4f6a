/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report: what the analysis found, and the only thing that a renderer
 * sees. Field names follow the JSON contract ("pipetrace.report/1").
 *
 * Units: seconds unless the name says _ms, _us, _ns or _per_min; shares 0..1;
 * bytes plain. Not observed: NAN for doubles, PT_NULL for integers, NULL for
 * strings and arrays; every such gap has an entry in capture.limits.
 *
 * Ownership: everything a report points at lives in its arena and dies with
 * pt_report_free(). Strings are raw bytes from outside: a renderer escapes
 * them for the place that it prints in.
 */
#ifndef PT_REPORT_H
#define PT_REPORT_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

#define PT_REPORT_SCHEMA "pipetrace.report/1"
#define PT_NULL INT64_MIN

enum pt_certainty { /* of a figure */
	PT_CERT_NONE = 0, /* null */
	PT_MEASURED,
	PT_BOUNDED,
	PT_ESTIMATED,
};
const char *pt_certainty_name(enum pt_certainty c); /* NULL for NONE */

enum pt_confidence { /* of a conclusion */
	PT_CONF_NONE = 0,
	PT_CONF_LOW,
	PT_CONF_MEDIUM,
	PT_CONF_HIGH,
};
const char *pt_confidence_name(enum pt_confidence c); /* "low" ... */

enum pt_severity { PT_INFO = 0, PT_WARNING, PT_CRITICAL };
const char *pt_severity_name(enum pt_severity s);

/* One enumeration of causes, everywhere (DESIGN: causes). */
#define PT_CAUSES(X)                                                           \
	X(CPU, "cpu") X(RUN_QUEUE, "run_queue") X(THROTTLE, "throttle")        \
	X(DISK, "disk") X(PAGE_FAULT, "page_fault") X(NETWORK, "network")      \
	X(LOCK, "lock") X(IPC, "ipc") X(WORKER_IDLE, "worker_idle")            \
	X(PREFETCH_FULL, "prefetch_full") X(COMPILE, "compile")                \
	X(COLLECTIVE, "collective") X(TRANSFER, "transfer") X(SYNC, "sync")    \
	X(LAUNCH, "launch") X(CHECKPOINT, "checkpoint")                        \
	X(NO_DEMAND, "no_demand") X(OTHER_HOST, "other_host")                  \
	X(SLEEP, "sleep") X(UNKNOWN, "unknown")
enum pt_cause {
#define X(id, name) PT_CAUSE_##id,
	PT_CAUSES(X)
#undef X
	PT_CAUSE_NR
};
const char *pt_cause_name(enum pt_cause c);

struct pt_dist { /* n == 0: null */
	uint64_t n;
	double mean, std, min, p50, p95, p99, max;
};

struct pt_range {
	double value, low, high;
};

/* A setting and where it was read ("observed", "cmdline", "environment"). */
struct pt_sourced {
	const char *value; /* NULL: unknown */
	const char *source;
};

struct pt_r_label { /* --label key=value: what the user calls this run */
	const char *key, *value;
};

struct pt_r_threshold { /* that the user set to another value */
	const char *name, *unit;
	double value, usual; /* usual: the default */
};

struct pt_limit { /* something that this report cannot show */
	const char *what;   /* stable id, e.g. "reads", "gpu.busy" */
	const char *reason; /* one sentence */
};

struct pt_r_host {
	const char *version; /* of pipetrace */
	const char *hostname, *boot_id, *kernel, *numa, *driver, *lockdown;
	int64_t cores;
	double quota_cores;
	int64_t memory, shm_size;
};

struct pt_r_target {
	int64_t pid;
	const char *cmdline, *comm, *user, *container;
	double started;		  /* seconds since the epoch */
	int64_t resolved_from;	  /* the pid that the user gave, when another */
	int64_t trainer; /* the process that the top level speaks of: of several
			  * ranks the worst */
	const char *job_kind, *job_id, *job_name;
};

struct pt_r_loader {
	struct pt_sourced kind, workers, prefetch, pinned, persistent,
		start_method, sharing;
};

struct pt_r_hook {
	const char *need; /* "sched", "reads", "gpu", "faults" ... */
	const char *door; /* "tp_btf", "uprobe_multi", "none" ... */
	const char *note; /* what is lost, or NULL */
};

struct pt_r_loss {
	const char *cause;
	int64_t count;
};

struct pt_r_capture {
	double duration;
	int64_t begin_ns, end_ns, begin_unix_ns;
	const char *mode;
	const struct pt_r_hook *hooks;
	size_t n_hooks;
	int64_t events;
	int64_t lost_total;
	const struct pt_r_loss *lost;
	size_t n_lost;
	double tracer_cpu_s;
	struct pt_range target_overhead; /* share of the target's CPU time */
	bool complete;			 /* false: the session broke off */
	bool no_gpu_library; /* the target had mapped none until the end */
	struct pt_limit *limits;
	size_t n_limits, cap_limits;
};

struct pt_r_outlier {
	int64_t index;
	double ms;
	enum pt_cause cause;
};

struct pt_r_epoch {
	int64_t index, batches;
	double total;
	struct pt_dist period_ms;
	double first_ms;
};

struct pt_r_step { /* for --print-steps */
	int64_t index;
	int64_t begin_ns, end_ns;   /* CLOCK_MONOTONIC */
	double period_ms, data_wait_ms, gpu_wait_ms;
	enum pt_cause cause;	    /* of its data wait; UNKNOWN if none */
	int64_t worker;		    /* pid that delivered; PT_NULL */
	bool blocked;		    /* the trainer blocked for this batch */
};

/* Durations per whole step, ms; they need no clock that ranks or nodes share. Own:
 * what is left of the step. Medians of parts do not sum to that of the step. */
struct pt_r_step_parts {
	struct pt_dist own, data_wait, gpu_wait, collective;
	struct pt_dist collective_gpu; /* the device in kernels of collectives;
					* n 0: not measured */
};

struct pt_r_steps {
	int64_t count, batches, optimizer_steps;
	enum pt_confidence certainty;
	const char *source; /* "handoff", "gpu_gap", "marker" */
	struct pt_dist period_ms;
	struct pt_r_step_parts parts;
	double per_second;
	int64_t batch_size;
	double samples_per_second;
	double first_ms, max_over_min;
	const struct pt_r_epoch *epochs;
	size_t n_epochs;
	const struct pt_r_outlier *outliers;
	size_t n_outliers;
	const struct pt_r_step *list; /* every step, in order */
	size_t n_list;
};

struct pt_r_part {
	double seconds, share;
};

/* What the host does between GPU calls while no data is obtained. */
#define PT_HOST_KINDS(X)                                                       \
	X(COMPUTING, "computing") X(QUEUED, "run_queue")                       \
	X(SLEEPING, "sleeping") X(WRITING, "writing") X(LOCK, "lock")          \
	X(CHILD, "child") X(COLLECTIVE, "collective") X(CLIENT, "client")      \
	X(OTHER, "other")
enum pt_host_kind {
#define X(id, name) PT_HOST_##id,
	PT_HOST_KINDS(X)
#undef X
	PT_HOST_NR
};
const char *pt_host_kind_name(enum pt_host_kind k);

struct pt_r_breakdown { /* of trainer wall time; shares sum to 1 */
	bool known;
	struct pt_r_part data_wait, gpu_wait, transfer, sync, launch,
		collective, checkpoint, other;
	struct pt_r_part host[PT_HOST_NR]; /* detail of the last four, and of
					    * sync and launch */
};

struct pt_r_charge {
	enum pt_cause cause;
	double seconds, share;	/* share of the whole data wait */
	int64_t subject_pid;	/* whose; PT_NULL */
	int64_t subject_tid;
	const char *what;	/* a file, a call, a free phrase; or NULL */
	const char *fs_class;	/* where that file lies, as in pt_r_file; NULL */
};

struct pt_r_data_wait { /* charges sum to the data wait */
	double blocked, own_read, own_cpu, handover, lead;
	double restart; /* ... of it, in which the loader was started */
	const char *evidence; /* most of it rests on: "supplied", "read"; NULL none */
	const struct pt_r_charge *causes; /* largest first */
	size_t n_causes;
};

struct pt_r_device { /* by the driver's own samples (NVML) */
	bool known; /* false: everything else here is unknown */
	const char *name;
	struct pt_dist util; /* share of a sample period with a kernel running */
	struct pt_dist sm_mhz;
	int64_t sm_max_mhz;
	const char *const *throttle; /* what held the clocks down, ever */
	size_t n_throttle;
	int64_t processes, traced; /* with a context on it, at the end */
	int64_t mem_total;
};

/* Allocations of device memory that failed with one code. */
struct pt_r_alloc_failure {
	int64_t code;	  /* as returned */
	const char *name; /* of the code, as the headers have it; NULL */
	int64_t count;
	int64_t largest_bytes, smallest_bytes; /* asked for */
	int64_t retried; /* the thread's next allocation asked for as much */
	int64_t recovered; /* ... and it, or a retry of it, was granted */
	/* At the last of them: held by what the trace saw allocated and not
	 * freed, and free by the driver's sample before it (NVML). */
	int64_t held_bytes, free_bytes;
	uint64_t last_ns; /* CLOCK_MONOTONIC */
};

struct pt_r_gpu {
	const char *uuid;
	int64_t index;
	enum pt_certainty certainty;
	double busy_share, busy_hard[2], busy_likely[2];
	double compute, copy, collective;	 /* shares */
	double idle_share, idle_hard[2], idle_likely[2];
	double starved_share[2]; /* idle while the trainer waits for data,
				  * share of wall: lower bound, likely */
	const struct pt_r_charge *idle_causes;
	size_t n_idle_causes;
	int64_t kernels, copies_h2d, copies_d2h, copies_other, copy_bytes;
	int64_t graph_launches; /* their kernels and copies are counted above */
	int64_t collectives, collective_bytes; /* calls of NCCL or RCCL */
	double pageable_share;
	int64_t syncs, failed_allocations;
	struct pt_r_alloc_failure *alloc_failures; /* by count */
	size_t n_alloc_failures;
	int64_t mem_reserved, mem_peak;
	double mem_growth_per_min;
	struct pt_r_device device;
};

enum pt_worker_state {
	PT_WORKER_OK = 0,
	PT_WORKER_SLOW,
	PT_WORKER_HUNG,
	PT_WORKER_DONE,
	PT_WORKER_EXITED,
};
const char *pt_worker_state_name(enum pt_worker_state s);

struct pt_r_worker {
	int64_t pid, tid, rank, batches;
	const char *role; /* "loader", "pin", "feeder", "helper" ... */
	struct pt_dist batch_ms;
	/* seconds of the window, by what the worker did */
	double cpu, run_queue, throttle, disk, page_fault, network, lock, ipc,
		worker_idle, prefetch_full, other;
	double window; /* seconds it was observed; the parts sum to it */
	int64_t read_bytes, reads;
	double slowdown; /* against the median of its peers; NAN */
	enum pt_worker_state state;
};

/* The collectives in which this rank meets the others that were traced. */
struct pt_r_meetings {
	int64_t count; /* joined on all ranks; PT_NULL: could not be */
	bool measured; /* by times of devices, else by calls */
	enum pt_confidence certainty;
	int64_t late_count;	/* ... to which one rank was clearly last */
	double last_share;	/* ... and it was this one */
	struct pt_dist late_ms; /* in those, behind the first one */
	double waits_for_others; /* s: it had come, and somebody had not */
	double held_others;	 /* s: all others had come, and only it had not */
	double lost;	    /* s of those that they lost by it, likely */
	const char *reason; /* data_wait gpu checkpoint host; NULL: never last */
	double reason_s;    /* what it did so much longer than the others */
};

struct pt_r_rank {
	int64_t pid, rank;
	int64_t steps;
	struct pt_r_breakdown breakdown;
	struct pt_r_data_wait data_wait;
	double gpu_busy_share;
	struct pt_r_step_parts parts;
	struct pt_r_meetings meetings;
};

struct pt_r_phase {
	const char *name; /* data forward backward optimizer gpu_wait compute
			   * other */
	double seconds, share;
	enum pt_certainty certainty;
};

struct pt_r_operation {
	const char *name, *kind; /* api kernel copy memset nvtx python phase */
	int64_t calls;
	/* of the host in an api or nvtx row, of the device in the others */
	double total_s, mean_us, min_us, max_us, p50_us, p99_us, share;
	double cpu_s; /* of the calling thread */
	double gpu_s;
	enum pt_certainty certainty; /* of the times; NONE without any */
	int64_t bytes; /* of copies and memsets */
};

enum pt_op_sort {
	PT_SORT_TOTAL = 0,
	PT_SORT_CALLS,
	PT_SORT_MEAN,
	PT_SORT_MAX,
	PT_SORT_GPU,
	PT_SORT_CPU,
	PT_SORT_NAME,
	PT_SORT_NR
};
const char *pt_op_sort_name(enum pt_op_sort s); /* "total" ... */

/* In which order a file was read, each thread by itself. */
struct pt_r_pattern {
	const char *kind; /* sequential random stride mixed; NULL unknown */
	double sequential; /* share of the reads that begin where the thread's
			    * last one ended, or at 0 again */
	double read_bytes; /* a call with data, mean */
	double run_bytes;  /* until the next jump or beginning, mean */
	int64_t stride;	   /* bytes; PT_NULL: none */
	int64_t readers;   /* threads */
};

struct pt_r_file {
	const char *path;
	uint32_t dev;
	uint64_t inode;
	int64_t opens, reads, bytes, reread_bytes;
	double read_s, blocked_s, p99_ms, cached_share;
	struct pt_r_pattern pattern;
	int64_t reread_lo, reread_hi; /* bounds of reread_bytes; PT_NULL */
	int64_t fetched_bytes; /* from storage, by its reads */
	const char *fs;	      /* file system: "ext4", "nfs4", "fuse.sshfs" */
	const char *fs_class; /* "local" "network" "memory" "user" */
	const char *device;   /* the disk below, "vda"; NULL: none, unknown */
	/* page faults of those who mapped it: that had to bring pages in or to
	 * wait, what they brought in, whole pages, and how long they waited */
	int64_t faults, fault_bytes;
	double fault_s;
	int64_t text; /* 1: a program or library, 0: data, PT_NULL unknown */
};

/* What was read from files that have a disk, or a network, behind them. */
struct pt_r_working_set {
	int64_t read_bytes, files;
	int64_t seen[2];  /* different bytes in the window: bounds */
	int64_t whole[2]; /* of all that the job goes through: bounds; the upper
			   * one PT_NULL where more may follow */
	int fits; /* in memory: 1, 0, or -1 cannot tell */
	enum pt_certainty certainty; /* of `seen` */
};

struct pt_r_memory { /* bytes, at the end of the window; PT_NULL unknown */
	int64_t total, available, cache;
	int64_t limit, used; /* of the tightest cgroup; limit PT_NULL: none */
	int64_t room;	     /* for pages of files */
	int64_t refaulted; /* evicted and fetched again, in refault_s */
	const char *refaulted_in; /* "cgroup" (the target's own) or "host" */
	double refault_s;
	struct pt_r_working_set set;
};

struct pt_r_write { /* of one process on one file */
	const char *path;
	uint32_t dev;
	uint64_t inode;
	int64_t pid, calls, fsyncs, bytes;
	double write_s, fsync_s;
	double blocked_s; /* asleep in either */
	const char *fs, *fs_class, *device; /* as in pt_r_file */
};

struct pt_r_disk { /* that requests of the target went to */
	const char *name, *model;
	const char *kind; /* "rotational", "solid_state" */
	uint32_t dev;	  /* the kernel's number */
	int64_t reads, read_bytes, writes, write_bytes, failed;
	/* from a request's making to its completion */
	struct pt_dist latency_ms, read_latency_ms, write_latency_ms;
	double depth_mean; /* of the target, when a request came */
	int64_t depth_max;
	/* of every process, by the disk's own counters */
	int64_t all_reads, all_read_bytes, all_writes, all_write_bytes;
	double all_latency_ms, all_depth, busy_share;
	double target_share; /* of its bytes */
};

struct pt_r_peer { /* what sockets of the job are connected to */
	const char *address;  /* NULL unknown; of a Unix socket its name */
	const char *protocol; /* tcp udp unix vsock other */
	int64_t port, connections, opened; /* opened: in the window, of those */
	int64_t bytes;		  /* received */
	double rate_bps;	  /* ... a second of the window */
	double wait_s;		  /* of all threads of the job */
	double first_byte_share;  /* ... before answers began to come */
	double data_wait_s;	  /* charged to it, of the data wait */
	struct pt_dist connect_ms, first_byte_ms;
	double round_trip_ms;	  /* TCP's own smoothed measurement */
	int64_t retransmits, out_of_order; /* of this side; of the other's */
	int64_t workers;	  /* processes that waited */
	enum pt_certainty certainty; /* of the waits */
};

struct pt_r_point { /* series, one per interval, over the target's tree */
	double t; /* seconds since begin */
	double cpu; /* cores in use */
	double rss, shm, gpu_util, gpu_mem, read_bps, data_wait_share;
};

/* The observed steps replayed with one thing changed. */
struct pt_r_whatif {
	const char *change; /* "workers", "no_disk_wait", "slow_worker_fixed",
			     * "transfers_overlapped", "fewer_syncs", ... */
	int64_t value;	    /* e.g. the number of workers; PT_NULL */
	double step_ms;	    /* predicted; NAN where it cannot be told */
	struct pt_range speedup; /* old step time / new; NAN cannot tell */
	const char *note;   /* what limits it, or NULL */
};

struct pt_r_evidence {
	const char *metric; /* "gpu.starved_share" ... */
	double value;
	const char *unit; /* "share" "s" "ms" "bytes" "count" ... */
	double threshold; /* NAN: none */
	enum pt_certainty certainty;
};

struct pt_r_verdict {
	const char *id; /* stable ids of DESIGN */
	const char *kind; /* of io_bound; one of our own names. NULL */
	enum pt_severity severity;
	enum pt_confidence certainty;
	const char *title;	  /* one sentence */
	const char *consequence_of; /* id of its root cause, NULL for a root */
	int64_t subject_pid, subject_rank, subject_line;
	const char *subject_file;
	const char *subject_peer; /* ADDRESS:PORT */
	const struct pt_r_evidence *evidence;
	size_t n_evidence;
	const char *advice; /* NULL: nothing to do */
	struct pt_range expected_speedup; /* NAN: cannot tell */
};

#define PT_R_WINDOW_VERDICTS 8
struct pt_r_window { /* a part of the capture, judged by itself */
	double at, duration; /* s; at: from the capture's begin */
	int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC */
	int64_t steps;
	double step_ms, step_p95_ms; /* of whole steps */
	double data_wait_share; /* of wall */
	double starved_share;	/* device idle in data waits, likely; of wall */
	double gpu_busy_share;	/* of the first device */
	const char *verdicts[PT_R_WINDOW_VERDICTS]; /* ids, root cause first;
						     * static */
	size_t n_verdicts;
	bool reported; /* the rest of the report is of this one */
};

struct pt_report {
	struct pt_arena *arena;
	struct pt_r_host host;
	struct pt_r_target target;
	struct pt_r_loader loader;
	struct pt_r_label *labels; /* in the order given, keys differ */
	size_t n_labels;
	const struct pt_r_threshold *thresholds; /* not at their defaults */
	size_t n_thresholds;
	struct pt_r_capture capture;
	struct pt_r_steps steps;
	struct pt_r_breakdown breakdown;
	struct pt_r_data_wait data_wait;
	const struct pt_r_gpu *gpu;
	size_t n_gpu;
	const struct pt_r_worker *workers;
	size_t n_workers;
	const struct pt_r_rank *ranks;
	size_t n_ranks;
	const struct pt_r_phase *phases; /* of whole steps, the training
					  * thread's time; shares sum to 1 */
	size_t n_phases;		 /* 0: unknown */
	const struct pt_r_operation *operations;
	size_t n_operations;
	const struct pt_r_file *files;
	size_t n_files;
	const struct pt_r_disk *disks; /* by bytes */
	size_t n_disks;
	const struct pt_r_write *writes; /* by time */
	size_t n_writes;
	const struct pt_r_peer *peers; /* largest data wait first */
	size_t n_peers;
	const struct pt_r_point *series;
	size_t n_series;
	struct pt_r_window *windows; /* in order; none: the report is of all */
	size_t n_windows;
	double mem_growth_per_min;
	enum pt_certainty mem_growth_certainty;
	struct pt_r_memory memory;
	const struct pt_r_whatif *whatif; /* best single change first */
	size_t n_whatif;
	int64_t best_workers; /* PT_NULL: cannot tell, or no loader */
	const struct pt_r_verdict *verdicts; /* root cause first */
	size_t n_verdicts;
};

/* An empty report: every figure null. NULL when out of memory. */
struct pt_report *pt_report_new(void);
/* ... in an arena of the caller's, with which it is freed. */
struct pt_report *pt_report_new_in(struct pt_arena *arena);
void pt_report_free(struct pt_report *r);

/* Add a limit; `reason` is copied, duplicates (same what and reason) are
 * dropped. printf-style. 0 or -ENOMEM. */
int pt_report_limit(struct pt_report *r, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define PT_LABELS_MAX 32
/* Add a label, or change it where the key is there; both are copied. 0,
 * -ENOSPC beyond PT_LABELS_MAX, or -ENOMEM. */
int pt_report_label(struct pt_report *r, const char *key, const char *value);

/* Order the operations: largest first, unknown last; names from A to Z. Equal
 * ones by calls, kind and name. 0 or -ENOMEM. */
int pt_report_sort_operations(struct pt_report *r, enum pt_op_sort by);

/* Highest severity among the verdicts; -1 when there is none. */
int pt_report_severity(const struct pt_report *r);

#endif
