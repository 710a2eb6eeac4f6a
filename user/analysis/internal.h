/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the analysis passes hand to each other, in the order in which they
 * run: roles -> steps -> waits -> gpu -> workers -> breakdown -> verdicts.
 */
#ifndef PT_ANALYSIS_INTERNAL_H
#define PT_ANALYSIS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analysis/analysis.h"
#include "analysis/spans.h"
#include "base/arena.h"
#include "base/minmax.h"
#include "base/vec.h"
#include "model/timeline.h"
#include "report/report.h"

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull

typedef PT_VEC(uint64_t) pt_times;
typedef PT_VEC(double) pt_doubles;
typedef PT_VEC(uint32_t) pt_ids; /* of the model's threads or processes */

/* A charge of waiting time to a cause, before it is summed up. */
struct pt_charge {
	uint64_t ns;
	uint32_t pid, tid;
	uint32_t dev;
	uint64_t inode; /* 0: no file */
	uint32_t peer;	/* 1 + its index, for NETWORK; 0 unknown */
	bool awaited;	/* ... while its answer had not begun to come */
	uint8_t cause;	/* enum pt_cause */
	int16_t syscall; /* for UNKNOWN: what it was in, or PT_CHARGE_STOPPED */
};
#define PT_CHARGE_STOPPED (-2) /* in none: stopped, by a signal or a debugger */
typedef PT_VEC(struct pt_charge) pt_charges;
/* waits/charges.c: take one in, joined with its like now or later. 0 or -ENOMEM. */
int pt_add_charge(pt_charges *c, const struct pt_charge *x);
/* One for each cause, thread, file, peer and call; in that order. */
void pt_join_charges(pt_charges *c);

enum pt_worker_role {
	PT_ROLE_LOADER, /* a process that delivers */
	PT_ROLE_THREAD, /* of the trainer itself */
	PT_ROLE_HELPER, /* works for one that delivers */
	PT_ROLE_OUTSIDE, /* not of the job's tree */
};

struct pt_worker {
	struct pt_proc *proc;
	struct pt_thread *main;	  /* makes the batches */
	struct pt_thread *feeder; /* sends them; main when it does so itself */
	uint8_t role;		  /* enum pt_worker_role */
	pt_times done;	  /* batch made, handed to the feeder */
	size_t earlier;	  /* ... of which so many before the window: where the
			   * first one in it began */
	pt_times rests;	  /* keys of what it sleeps on for want of work */
	uint64_t delivered; /* waits that it ended */
	uint64_t charged_ns; /* of the ways back from the waits' ends ... */
	uint64_t making_ns;  /* ... while it made the batch */
	uint64_t fed_ns;     /* ... of who feeds it (waits/fed.h) */
	uint64_t starved_ns; /* it waited for that one, and for others like it */
	uint64_t setup_ns;   /* ... from its birth to its first batch */
	pt_doubles service_ms; /* busy time per batch */
	pt_doubles unsorted_ms; /* ... in the order of `done`, from the second on */
	double median_ms, slowdown;
	double slow_chance; /* ... is by chance; NAN not looked at */
	uint64_t asked_at; /* the kind of gap in which the consumer asks it; 0: of any */
	uint32_t slot;	  /* its place among the workers; others had it before */
	uint32_t respawn; /* ... so many */
	uint32_t giver;	  /* who feeds it, a thread; 0 nobody */
	bool slow;
	bool in_parts; /* by times that may be those of several batches, or of parts */
	bool unlike; /* against peers that all run other code of the job's */
	bool hung;
};

/* What a piece of the host's time between GPU calls is: host work (enum
 * pt_host_kind), or one of these. */
enum pt_host_what {
	PT_HOST_NOTHING = PT_HOST_NR,
	PT_HOST_SUPPLIED,  /* asleep until a supplier ended it */
	PT_HOST_READING,   /* asleep for its own reading */
	PT_HOST_LAUNCHING, /* another thread of the actor calls the device, or the
			    * call itself sleeps */
	PT_HOST_HELPED,	   /* threads of its own work while it waits for them */
};

/* Where the loop does work of its own: between these two calls. */
#define PT_HOST_PLACES 32
struct pt_host_place {
	uint64_t prev, next; /* call sites */
	uint64_t n;	     /* times, of those longer than launching */
	uint64_t ns[PT_HOST_NR], idle_ns;
	uint64_t naps; /* sleeps by a timer */
};

/* A stretch in which data is obtained. */
struct pt_fetch {
	uint64_t begin, end;
	const struct pt_thread *th; /* the consumer's */
	uint64_t made; /* the batch was made then; UINT64_MAX unknown */
	uint64_t blocked_ns; /* asleep until a supplier acted */
	uint64_t handover_ns, own_read_ns, own_cpu_ns;
	uint64_t restart_ns; /* in which the loader was started */
	int worker;	/* index: who made it; -1 unknown */
	/* what most of it was for, where it was a file or a peer; see vote() */
	uint64_t inode, on_ns;
	uint32_t dev, peer; /* 1 + its index; 0 none */
	uint8_t cause;	/* the largest charge */
	bool supplied;	/* by others; else the consumer reads by itself */
	bool named;	/* by its Python alone */
};

struct pt_step {
	uint64_t begin, end;
	size_t wait0, n_waits; /* of pt_trainer.waits */
	uint64_t wait_begin, wait_end; /* of the first one, of the last; with
					* none both are the begin */
	uint64_t wait_ns;	       /* all of them */
	uint64_t collective_ns;	       /* the host blocked in collectives */
	uint64_t blocked_ns;	       /* asleep for a batch */
	uint64_t gpu_wait_ns;
	int worker;		       /* index; -1 unknown */
	uint32_t batches; /* obtained in this wait: 1, or micro-batches */
	uint64_t kind;	  /* the calls around its begin */
	uint64_t shape;	  /* of its GPU calls: the set of call sites */
	uint64_t copied;  /* bytes to the device, by calls in it */
	double collective_ms; /* the device in kernels of collectives that begin in
			       * it; NAN: not measured, all of it */
	uint32_t asks;	  /* items that were asked for at its begin */
	bool launches;	  /* kernels, or a graph of them */
	bool synced;	  /* a call in it waits for the device */
	bool started;	  /* ... a worker was born */
	bool burst;	  /* ... all workers were asked at once */
	uint8_t cause;		       /* the largest charge */
	bool first;	  /* of an epoch, or behind another loader start */
	bool partial;	  /* cut by the capture's begin or end */
	bool clipped;	  /* ... by the end of the part that is looked at */
};

struct pt_worker_key {
	uint32_t tgid, at;
};

/* A process that a CPU quota holds back. */
struct pt_quota {
	uint32_t tgid;
	size_t bin; /* where in the period it goes on */
};

/* Calls of a process, on one device or on all. */
struct pt_dev_counts {
	uint64_t kernels, h2d, d2h, other_copies, copy_bytes, syncs,
		failed_allocs;
	uint64_t graph_launches, graph_kernels; /* kernels that they ran */
	uint64_t graphs_unknown; /* launches of graphs from before the trace */
	uint64_t collectives, collective_bytes; /* calls of NCCL or RCCL */
};

#define PT_DEV_NO_ORDINAL UINT32_MAX
/*
 * One device of a process. Spans are in time order and disjoint; all are of the
 * window. "hard" always holds; "likely" has a low and a high guess and, between
 * them, one list of spans as the best guess.
 */
struct pt_dev {
	uint32_t ordinal; /* in the process; PT_DEV_NO_ORDINAL: it never chose */
	uint16_t node;	  /* of the device model */
	bool has_node;
	bool known;	/* a sync was seen, or it was measured */
	bool by_driver; /* else: idle_likely is as much as the driver counts */
	bool measured;	/* by activity records */
	bool shared;	/* other processes, not seen here, may use it too */
	struct pt_dev_counts counts;
	pt_spans idle_hard; /* certainly nothing to do */
	pt_spans busy_hard; /* certainly at work */
	pt_spans idle_likely; /* best guess; contains idle_hard */
	uint64_t idle_hard_ns, busy_hard_ns, idle_likely_ns;
	uint64_t unplaced_ns; /* idle by the driver as well, in no gap that was seen */
	uint64_t busy_lo_ns, busy_hi_ns; /* likely bounds */
	uint64_t starved_lo_ns, starved_likely_ns; /* idle in data waits */
	uint64_t compute_ns, copy_ns, collective_ns; /* ~0: cannot be told */
	uint64_t covered_ns; /* of the window, by activity records */
	uint64_t act_lost;   /* such records that never came */
	double pageable_share; /* of the bytes copied; NAN unknown */
};

struct pt_look;

/* How two parts' join is said in parts/join.c, for each field. */
struct pt_trainer {
	struct pt_proc *proc;
	struct pt_thread *main; /* leads its GPU calls */
	PT_VEC(const struct pt_thread *) relays; /* hand on what others make */
	PT_VEC(struct pt_worker) workers;
	PT_VEC(struct pt_worker_key) index; /* of workers, by tgid */
	PT_VEC(struct pt_step) steps;
	PT_VEC(struct pt_fetch) waits; /* by begin */
	pt_charges charges;
	PT_VEC(struct pt_quota) quotas;
	int64_t optimizer_steps; /* PT_NULL: cannot be told */
	uint64_t micro_shape, update_shape; /* of steps without and with an
		* update, under gradient accumulation; else equal */
	size_t concurrent; /* workers alive at once, at most */
	bool handoffs;	  /* batches come from somebody else */
	bool computes_too; /* its main thread computes for batches: where a loader calls it, or of
			   * what it receives */
	bool thread_loader; /* from threads of the trainer itself */
	bool may_spin; /* pt_may_spin() */
	bool asks_above; /* it waits for others where it may make its batch */
	bool receives; /* ... or computes where it receives something from a socket */
	bool respawned;	   /* a worker was born during the capture */
	bool fd_sharing;   /* descriptors are handed over by workers */
	bool gpu_known;	     /* a sync was seen: the model has footing */
	uint8_t top_cause;
	struct pt_look *look; /* what its steps and waits were found by */

	/* devices, by the queue model or measured; the sums are the mean over
	 * them, so that a share of wall time stays one */
	PT_VEC(struct pt_dev) devs; /* by ordinal */
	uint64_t busy_hard_ns; /* certainly busy */
	uint64_t cause_ns[PT_CAUSE_NR]; /* sums of the charges */
	uint64_t lock_asked_ns; /* of the data wait: makers wait for each other's locks */
	uint64_t handover_queue_ns; /* of RUN_QUEUE: whoever hands on lacks a core */
	uint64_t unadopted_ns; /* of UNKNOWN: its supplier was not followed yet */
	uint64_t setup_ns; /* of the data wait: what workers do once, before their first batch */
	size_t n_born;	   /* workers, during the capture */
	uint64_t starved_lo_ns, starved_likely_ns, starved_hi_ns;
	uint64_t idle_hard_ns, idle_likely_ns;
	/* at least, by the driver's counter; 0: unknown */
	uint64_t idle_driver_ns, busy_driver_ns;
	struct pt_dev_counts counts; /* over all devices */
	uint64_t collective_ns; /* the main thread in them, outside data waits */

	uint64_t host_ns[PT_HOST_NR]; /* host work: in gaps, no data obtained */
	uint64_t host_longest[PT_HOST_NR]; /* of its pieces */
	/* how often it took something that another thread had waited to hand over, and that it
	 * was not seen to wait for */
	uint64_t taken_beside;
	uint64_t plain_lock_ns; /* of PT_HOST_LOCK: for a lock of the job's own making */
	uint64_t output_ns; /* of PT_HOST_PEER: until others take what it hands out */
	uint64_t host_idle_ns; /* the device idles meanwhile, in longer gaps */
	uint64_t host_hidden_ns; /* ... and would not, were there no sync */
	PT_VEC(struct pt_host_place) host_places; /* by when they came first */

	/* sums over the window */
	uint64_t data_wait_ns, blocked_ns, own_read_ns, own_cpu_ns,
		handover_ns, gpu_wait_ns, transfer_ns, sync_ns;

	/* the main thread writes files; and device idle outside data waits */
	pt_spans writing;
	uint64_t checkpoint_ns;	     /* writing outside of data waits */
	uint64_t checkpoint_wait_ns; /* ... inside of what was taken for one */
	uint64_t checkpoint_idle_ns; /* writing, device idle */
	uint64_t launch_ns;	     /* likely idle between launches */
	uint64_t kernel_ns; /* of the computing in data waits: makers are in the kernel */
	uint64_t naps; /* how often the trainer itself sleeps by a timer there */
	uint64_t storage_waits; /* how often they sleep for storage there */
	uint64_t fetching_ns; /* of kernel_ns: goes with the bytes that they fetch from it */
	uint64_t stopped_ns; /* the main thread had been stopped */
	uint64_t lack_ns; /* idle behind a sync, host on the run queue */
	uint64_t host_bound_ns, host_bound_launches; /* stretches of launching
				      * behind which no sync had to wait */
};

struct pt_read_calls {
	uint64_t bound, all; /* those whose bytes are only bounded; all of them */
};

struct pt_places;
struct pt_meets;
struct pt_part_ask;
struct pt_measured;
struct pt_phases;

struct pt_an {
	const struct pt_model *m;
	const struct pt_analysis_opts *o;
	struct pt_report *r;
	struct pt_arena *a; /* the report's */
	const struct pt_thresholds *th; /* what the verdicts decide by */
	uint64_t t0, t1;
	PT_VEC(struct pt_trainer) trainers;
	struct pt_places *places; /* where reads were; NULL: not looked at */
	struct pt_meets *meets; /* of the ranks; NULL: not looked at */
	pt_ids callers; /* waits/callers.c: who asks the job by its own clock */
	struct pt_trainer *top; /* worst trainer; NULL when there is none */
	bool part;    /* less than the whole capture is looked at */
	bool asked;   /* ... as the user asked */
	size_t step0; /* the number of the first step in it */
};

/* Every pass: 0 or -ENOMEM. */
int pt_find_trainers(struct pt_an *an);
struct pt_actor;
struct pt_paths;
int pt_find_writing(const struct pt_an *an, struct pt_trainer *t, const struct pt_actor *a,
		    struct pt_paths *paths);
void pt_shape_steps(struct pt_trainer *t);
/* steps/join.c: obtainings that together feed one update become one step. */
int pt_join_steps(struct pt_trainer *t);
int pt_model_gpu(struct pt_an *an, struct pt_trainer *t);
void pt_dev_free(struct pt_dev *d); /* what it holds */
int pt_measure_workers(struct pt_an *an, struct pt_trainer *t);
int pt_sum_breakdown(struct pt_an *an, struct pt_trainer *t);
/* Report of the joined trainers, and of `k`, the top one's. */
int pt_fill_report(struct pt_an *an, const struct pt_measured *k,
		   const struct pt_read_calls *reads);
/* ranks/fill_ranks.c: what the trainer's whole steps were spent on. 0 or -ENOMEM. */
int pt_fill_step_parts(const struct pt_trainer *t, struct pt_r_step_parts *out);
/* ... and their collective_ms. 0 or -ENOMEM. */
int pt_measure_collectives(const struct pt_an *an, struct pt_trainer *t);
/* ... the meetings of trainer `i` with the others; and what they do not tell. */
void pt_fill_meetings(const struct pt_an *an, size_t i, struct pt_r_meetings *out);
void pt_limit_ranks(struct pt_an *an);
/* Idle causes and failed allocations of its devices: rows of `gpu` for
 * pt_fill_gpu(), which fills the rest of them from the devices' sums. */
int pt_measure_gpu(struct pt_an *an, struct pt_trainer *t);
int pt_fill_gpu(struct pt_an *an, const struct pt_trainer *t,
		const struct pt_report *rows);
int64_t pt_dev_index(const struct pt_dev *d); /* as in the report */
/* Are these calls, which have no records, of this stretch of time? */
static inline bool pt_missed_in(const struct pt_an *an, const struct pt_rec_missed *r)
{
	return r->hdr.ts > an->t0 && r->hdr.ts <= an->t1;
}
uint64_t pt_missed_read_bytes(const struct pt_an *an);
void pt_count_reads(const struct pt_an *an, struct pt_read_calls *out);
void pt_limit_reads(struct pt_an *an, const struct pt_read_calls *calls);
/* phases.c: what the whole steps hold; and the report's rows of it. */
void pt_measure_phases(const struct pt_trainer *t, struct pt_phases *k);
int pt_fill_phases(struct pt_an *an, const struct pt_phases *k);
/* tables.c: rows of a part: of the trainer `t`; of the whole target. */
int pt_measure_rank_tables(struct pt_an *an, struct pt_trainer *t);
int pt_measure_host_tables(struct pt_an *an);
/* ... of a worker's row how long its batches take, and its state. */
void pt_fill_worker_health(struct pt_worker *w, struct pt_r_worker *o);
/* ... of the model's samples, which are kept for the whole. */
int pt_fill_samples(struct pt_an *an);
/* io/working_set.c: memory, and what was seen to be read; behind the tables. */
void pt_measure_memory(struct pt_an *an);
void pt_measure_working_set(struct pt_an *an);
/* ... how much of it there is, and whether it fits; behind the steps. */
void pt_finish_working_set(struct pt_report *r);
/* io/network.c: who the job's sockets are connected to; behind the charges. */
int pt_fill_peers(struct pt_an *an);
/* The socket that a wait is for, where more than its inode is known; NULL. */
const struct pt_sock *pt_wait_sock(const struct pt_an *an, const struct pt_iv *iv);
/* The peer with this index as ADDRESS:PORT, [ADDRESS]:PORT or a Unix socket's
 * name, in the report's arena; NULL: out of memory, or no address. */
const char *pt_peer_name(struct pt_an *an, uint32_t index);
/* ... its address, port and protocol, as in the report. 0 or -ENOMEM. */
int pt_peer_row(struct pt_an *an, uint32_t index, struct pt_r_peer *o);
/* The other side of this wait on a socket is of the job itself. */
bool pt_wait_inside(const struct pt_an *an, const struct pt_iv *iv);
int pt_fill_devices(struct pt_an *an);
int pt_fill_operations(struct pt_an *an, const struct pt_trainer *t);
/* Records missing that no loss counter tells of; and the certainty
 * of the whole report, judged by the records that it rests on (last pass). */
int64_t pt_uncounted_losses(const struct pt_model *m);
int pt_judge_damage(struct pt_an *an);
/* Records that were lost, but for those that speak for themselves: exact GPU times, and
 * processes beyond those that are followed. */
int64_t pt_lost_events(const struct pt_an *an);
/* steps/steady.c: the longest ones of `v`, which it sorts. */
void pt_put_outliers(struct pt_r_steps *r, struct pt_r_outlier *v, size_t n);
/* steps/marker.c: steps by the function that the user named, where it was called;
 * behind pt_fill_report(). */
int pt_mark_steps(struct pt_an *an);
/* gpu/exact.c: when the window begins: with the capture, or a moment later when
 * device times are measured from then on. */
uint64_t pt_exact_begin(const struct pt_model *m);
/* window.c: the part of the capture that was asked for; before and behind the
 * search for steps. 0, or -ERANGE where there is none. *met: a step begins where
 * the part ends. */
int pt_set_window(struct pt_an *an);
int pt_narrow_to_steps(struct pt_an *an, const struct pt_part_ask *ask, bool *met);
int pt_limit_window(struct pt_an *an);
/* What a thread did in the part that is looked at: ns on a CPU, bytes read by
 * its calls (PT_NULL unknown), records of reads. */
uint64_t pt_run_ns(const struct pt_an *an, const struct pt_thread *th);
int64_t pt_bytes_read(const struct pt_an *an, const struct pt_thread *th);
size_t pt_reads_of(const struct pt_an *an, const struct pt_thread *th);
/* The model's ids of the report become the kernel's. */
void pt_show_real_ids(struct pt_report *r);
void pt_trainer_free(struct pt_trainer *t);
/* parts/finish.c: duration, events, losses. 0 or -ENOMEM. */
int pt_fill_capture(const struct pt_an *an, struct pt_report *r);
/* capture.target_overhead, and what a budget did without. Behind the breakdown. 0 or
 * -ENOMEM. */
int pt_fill_overhead(struct pt_an *an);
void pt_release_trainers(struct pt_an *an);
const struct pt_thresholds *pt_thresholds_of(const struct pt_analysis_opts *o);
/* Slow ones among the workers, by service_ms and median_ms. 0 or -ENOMEM. */
int pt_compare_workers(const struct pt_an *an, struct pt_trainer *t);
/* siblings.c: likewise, of helpers. */
int pt_compare_siblings(const struct pt_an *an, struct pt_trainer *t);

/* ---- helpers ------------------------------------------------------------ */
/* The part of the data waits inside [b,e), ns. Called with ascending b: *hint is
 * where to begin, 0 at first. */
uint64_t pt_waits_in(const struct pt_trainer *t, size_t *hint, uint64_t b,
		     uint64_t e);
/* When a thread ended; the window's end while it lives. */
static inline uint64_t pt_thread_end(const struct pt_an *an,
				     const struct pt_thread *th)
{
	return th->exited ? th->last : an->t1;
}
/* Of the machine, or of the job's quota; 0 unknown. */
double pt_cores(const struct pt_model *m);
/* FNV-1a of a text; NULL: as of an empty one. */
static inline uint64_t pt_text_hash(const char *s)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (; s && *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	return h;
}
static inline int64_t pt_count(uint64_t n)
{
	return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}
/* In order, whatever they are. */
void pt_sort_times(pt_times *v);
/* How many of the moments, in order, are not behind `ts`. */
size_t pt_times_until(const pt_times *v, uint64_t ts);

/* Calls that put work on the device or wait for it; queries, allocations and
 * the like come and go without a pattern. */
static inline bool pt_call_is_step(const struct pt_gpu_call *c)
{
	return (c->cls >= PT_API_LAUNCH && c->cls <= PT_API_SYNC_EVENT) ||
	       c->cls == PT_API_COLLECTIVE;
}
static inline bool pt_call_is_submit(const struct pt_gpu_call *c)
{
	return c->cls >= PT_API_LAUNCH && c->cls <= PT_API_MEMSET;
}
static inline bool pt_call_is_sync(const struct pt_gpu_call *c)
{
	return c->cls >= PT_API_SYNC_DEVICE && c->cls <= PT_API_SYNC_EVENT;
}
static inline bool pt_call_is_copy(const struct pt_gpu_call *c)
{
	return c->cls == PT_API_COPY_SYNC || c->cls == PT_API_COPY_ASYNC;
}
static inline bool pt_call_is_launch(const struct pt_gpu_call *c)
{
	return c->cls == PT_API_LAUNCH || c->cls == PT_API_GRAPH_LAUNCH;
}
/* Is there one in [b,e)? Of the thread; tid 0: of any. */
static inline bool pt_launches_in(const struct pt_proc *p, uint32_t tid, uint64_t b, uint64_t e)
{
	pt_each_call(c, p, b, e)
		if (pt_call_is_launch(c) && (!tid || c->tid == tid))
			return true;
	return false;
}
/* Copies in one call of a batch; more is damage. */
#define PT_BATCH_MAX (1u << 20)
#define PT_COPY_H2D 1 /* cudaMemcpyKind */
#define PT_COPY_D2H 2
#define PT_COPY_ANY 4 /* cudaMemcpyDefault: by the addresses */
/* A copy of more from the device than losses and counts: results, which the host works on. */
#define PT_RESULTS_MIN (1 << 10)
static inline bool pt_brings_results(const struct pt_gpu_call *c)
{
	return pt_call_is_copy(c) && c->v[2] == PT_COPY_D2H && c->v[1] >= PT_RESULTS_MIN;
}

/* All of `from` behind what is there. 0 or -ENOMEM. */
int pt_doubles_append(pt_doubles *to, const pt_doubles *from);
/* For qsort(). */
int pt_by_double(const void *a, const void *b);
int pt_by_u64(const void *a, const void *b);
static inline double pt_sec(uint64_t ns)
{
	return (double)ns / NS_PER_S;
}
static inline double pt_ms(uint64_t ns)
{
	return (double)ns / NS_PER_MS;
}
/* Distribution of `v` (sorted in place); all zero with n == 0. */
void pt_dist_of(double *v, size_t n, struct pt_dist *d);
double pt_median(double *v, size_t n); /* sorts; NAN when empty */

/* Walk what `t` did in [b,e): calls `fn` once per piece, pieces cover [b,e)
 * exactly. iv == NULL: on a CPU. queued: the run-queue part of iv. */
typedef int (*pt_piece_fn)(void *ctx, uint64_t b, uint64_t e,
			   const struct pt_iv *iv, bool queued);
int pt_walk(const struct pt_thread *t, uint64_t b, uint64_t e, pt_piece_fn fn,
	    void *ctx);
uint64_t pt_cpu_ns(const struct pt_thread *t, uint64_t b, uint64_t e); /* it ran in [b,e) */
/* Is another worker at one batch for all of [b,e), on a core for most of it? */
bool pt_other_computes(const struct pt_trainer *t, const struct pt_worker *w, uint64_t b, uint64_t e);
/* It had something to hand on, and no room to put it: that was made by taking what was there. */
bool pt_is_for_room(const struct pt_iv *iv);

/* No item is shorter: an index takes 36 bytes on the pipe. A sender also
 * writes single bytes while it works on one (to make room in a file). */
#define PT_ITEM_BYTES 16

/*
 * The moments at which `from` ended a rest of `th` and gave it an item to
 * send, in order, appended to `out`. One an item: between two wake-ups the
 * sender has written something. *wakes counts every wake-up by `from`.
 */
int pt_rest_wakes(const struct pt_an *an, struct pt_paths *paths,
		  const struct pt_thread *th, const struct pt_thread *from,
		  pt_times *out, uint64_t *wakes);
/* The same of a sender that writes nothing (shared memory), into `out`: each time at
 * the word on which it rests longest. 0 or -ENOMEM. */
int pt_word_wakes(const struct pt_an *an, struct pt_paths *paths,
		  const struct pt_thread *th, const struct pt_thread *from,
		  pt_times *out);

/* Bytes that `th` read in [b,e), and until its switches on both sides of it; that it wrote. */
uint64_t pt_read_between(const struct pt_thread *th, uint64_t b, uint64_t e);
uint64_t pt_written_between(const struct pt_thread *th, uint64_t b, uint64_t e);
/* ... and had fetched from storage. */
uint64_t pt_fetched_between(const struct pt_thread *th, uint64_t b, uint64_t e);
/* ... that all threads of the process did, in all. */
uint64_t pt_read_by(const struct pt_an *an, const struct pt_proc *p);
uint64_t pt_written_by(const struct pt_an *an, const struct pt_proc *p);

/* Different call sites, PT_MAX_SITES at most: a table by open addressing, 0 is free. Empty: all 0. */
#define PT_MAX_SITES 512
#define PT_SITE_SLOTS (2 * PT_MAX_SITES)
struct pt_sites {
	uint64_t slot[PT_SITE_SLOTS];
	uint16_t used[PT_MAX_SITES]; /* slots */
	size_t n;
};
bool pt_sites_have(const struct pt_sites *s, uint64_t site);

/* Those of the launches of `p` in [b,e), in place of what *s had; a number that is the same
 * for the same set of them. */
uint64_t pt_shape_of(const struct pt_proc *p, uint64_t b, uint64_t e, struct pt_sites *s);

/* ... of a whole step of that shape; how many, 0: there is none. */
size_t pt_sites_of_shape(const struct pt_trainer *t, uint64_t shape, struct pt_sites *out);

/* A call site, as far as the call's name and its telling argument show it. */
uint64_t pt_call_site(const struct pt_gpu_call *c);

/* The largest; UNKNOWN: all are 0. */
static inline uint8_t pt_largest_cause(const uint64_t ns[PT_CAUSE_NR])
{
	uint8_t most = PT_CAUSE_UNKNOWN;

	for (uint8_t c = 0; c < PT_CAUSE_NR; c++)
		if (ns[c] > ns[most])
			most = c;
	return most;
}

/* workers/programs.c: what a sleep of the main thread of `w` (NULL: of another one) is for, by
 * itself; CPU: a program that it has started computes meanwhile. */
enum pt_cause pt_piece_cause(const struct pt_an *an, const struct pt_trainer *t,
			     const struct pt_worker *w, const struct pt_iv *iv);

/* Are all batches of the worker noticed? One with a sender thread wakes it for each. One that sends
 * by itself is seen only when somebody waits, which chooses slow batches: all of them are where
 * every wait has its deliverer. */
bool pt_shows_all(const struct pt_trainer *t, const struct pt_worker *w);

/* All workers are known: from now on they are found quickly. 0 or -ENOMEM. */
int pt_index_workers(struct pt_trainer *t);
/* waits/quota.c: does a quota hold the process back? Adds to t->quotas. 0 or
 * -ENOMEM. */
int pt_find_quota(const struct pt_an *an, struct pt_trainer *t,
		  const struct pt_proc *p);
/* What the time of `th` on the run queue in `iv` is charged to: THROTTLE where
 * a quota ended it, else RUN_QUEUE. */
enum pt_cause pt_queue_cause(const struct pt_trainer *t,
			     const struct pt_thread *th, const struct pt_iv *iv);

/* Does it make batches? Whoever serves the job's own workers from outside does not. */
static inline bool pt_makes_batches(const struct pt_trainer *t,
				    const struct pt_worker *w)
{
	return w->role != PT_ROLE_HELPER &&
	       !(w->role == PT_ROLE_OUTSIDE && t->concurrent);
}

/* Does the thread of the trainer hand on what others make? */
bool pt_is_relay(const struct pt_trainer *t, const struct pt_thread *th);
/* The worker that `th` is, or is a thread of; its index in *idx, or NULL. */
bool pt_worker_index(const struct pt_trainer *t, const struct pt_thread *th,
		     int *idx);
/* Does the worker sleep in `iv` for want of work? */
bool pt_rests(const struct pt_worker *w, const struct pt_iv *iv);
/* ... for so long of [b,e), ns. */
uint64_t pt_rest_ns(const struct pt_worker *w, uint64_t b, uint64_t e);
/* waits/asked.c: lock_asked_ns; behind the workers' rests. 0 or -ENOMEM. */
int pt_sum_asked(const struct pt_an *an, struct pt_trainer *t);
/* waits/hostwork.c: host work and what it costs; behind the device's idle time. */
void pt_sum_host(const struct pt_an *an, struct pt_trainer *t);
/* workers/workers.c: when each had a batch made, and what they rest on. Behind the
 * search for the loader. 0 or -ENOMEM. */
int pt_find_made(const struct pt_an *an, struct pt_trainer *t);

/* The rank that a process was started as; PT_NULL unknown. */
int64_t pt_rank_of_proc(const struct pt_proc *p);

#endif
