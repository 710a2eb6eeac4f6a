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
#include "base/arena.h"
#include "base/vec.h"
#include "model/timeline.h"
#include "report/report.h"

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull

struct pt_span {
	uint64_t begin, end;
};
typedef PT_VEC(struct pt_span) pt_spans;
typedef PT_VEC(uint64_t) pt_times;
typedef PT_VEC(double) pt_doubles;

/* A charge of waiting time to a cause, before it is summed up. */
struct pt_charge {
	uint64_t ns;
	uint32_t pid, tid;
	uint32_t dev;
	uint64_t inode; /* 0: no file */
	uint32_t peer;	/* 1 + its index, for NETWORK; 0 unknown */
	bool awaited;	/* ... while its answer had not begun to come */
	uint8_t cause;	/* enum pt_cause */
	int16_t syscall; /* for UNKNOWN: what it was in */
};
typedef PT_VEC(struct pt_charge) pt_charges;
/* charges.c: take one in, joined with its like now or later. 0 or -ENOMEM. */
int pt_add_charge(pt_charges *c, const struct pt_charge *x);
/* One for each cause, thread, file, peer and call; in that order. */
void pt_join_charges(pt_charges *c);

struct pt_worker {
	struct pt_proc *proc;
	struct pt_thread *main;	  /* makes the batches */
	struct pt_thread *feeder; /* sends them; main when it does so itself */
	uint64_t index_pipe;	  /* inode that it takes work from; 0 unknown */
	uint32_t index_dev;
	pt_times done;	  /* batch made, handed to the feeder */
	size_t earlier;	  /* ... of which so many before the window: where the
			   * first one in it began */
	uint64_t wakes;	  /* deliveries that woke the receiver */
	uint64_t delivered; /* data waits that it ended */
	uint64_t charged_ns; /* blocked waiting charged to it ... */
	uint64_t making_ns;  /* ... while it made the batch */
	pt_doubles service_ms; /* busy time per batch */
	double median_ms, slowdown;
	double slow_chance; /* ... is by chance; NAN not looked at */
	bool slow;
	bool hung;
};

/* A moment at which the consumer had a batch: it refilled a worker's queue.
 * A bounded loader hands out a new index for each batch that it delivers. */
struct pt_mark {
	uint64_t ts;
	uint32_t source; /* index in feeders, or in workers (direct writes) */
};

struct pt_feeder {
	struct pt_thread *thread;
	int worker; /* index of the worker whose slot it refills; -1 unknown */
};

struct pt_step {
	uint64_t wait_begin, wait_end; /* the data wait */
	uint64_t begin, end;	       /* wait_begin to the next wait_begin */
	uint64_t pause_begin, pause_end; /* inside the wait, between batches of
					  * two loaders: copying; 0: none */
	uint64_t collective_ns;	       /* the host blocked in collectives */
	uint64_t blocked_ns;	       /* asleep for a batch */
	uint64_t handover_ns, own_read_ns, own_cpu_ns, gpu_wait_ns;
	int worker;		       /* index; -1 unknown */
	uint32_t batches; /* obtained in this wait: 1, or micro-batches */
	uint64_t kind;	  /* the calls around its obtaining */
	uint64_t shape;	  /* of its GPU calls: the set of call sites */
	int mark_source;	       /* -1 none */
	uint8_t cause;		       /* the largest charge */
	bool end_seen;	  /* wait_end from a mark, not from the next call */
	bool first;	  /* of an epoch, or behind another loader start */
	bool partial;	  /* cut by the capture's begin or end */
	bool clipped;	  /* ... by the end of the part that is looked at */
	bool cut_end;	  /* its wait had not ended when the capture did */
};

struct pt_worker_key {
	uint32_t tgid, at;
};

/* A thread of the trainer that makes batches for its main thread. */
struct pt_pool_thread {
	struct pt_thread *thread;
	uint64_t charged_ns; /* of the waits */
	int64_t batches; /* PT_NULL: cannot be told */
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
	struct pt_dev_counts counts;
	pt_spans idle_hard; /* certainly nothing to do */
	pt_spans busy_hard; /* certainly at work */
	pt_spans idle_likely; /* best guess; contains idle_hard */
	uint64_t idle_hard_ns, busy_hard_ns, idle_likely_ns;
	uint64_t busy_lo_ns, busy_hi_ns; /* likely bounds */
	uint64_t starved_lo_ns, starved_likely_ns; /* idle in data waits */
	bool known;	/* a sync was seen, or it was measured */
	bool measured;	/* by activity records */
	bool shared;	/* other processes, not seen here, may use it too */
	uint64_t compute_ns, copy_ns, collective_ns; /* ~0: cannot be told */
	uint64_t covered_ns; /* of the window, by activity records */
	uint64_t act_lost;   /* such records that never came */
	double pageable_share; /* of the bytes copied; NAN unknown */
};


struct pt_trainer {
	struct pt_proc *proc;
	struct pt_thread *main; /* obtains the batches */
	struct pt_thread *pin;	/* hands them over inside the trainer; NULL */
	struct pt_thread *receiver; /* pin, or main: reads the result pipe */
	PT_VEC(struct pt_worker) workers;
	PT_VEC(struct pt_worker_key) index; /* of workers, by tgid */
	PT_VEC(struct pt_feeder) feeders;
	PT_VEC(uint64_t) result_pipes;
	PT_VEC(struct pt_mark) marks;
	PT_VEC(struct pt_step) steps;
	pt_charges charges;
	PT_VEC(struct pt_quota) quotas;
	PT_VEC(struct pt_pool_thread) pool; /* of a loader of threads */
	pt_times pool_rests; /* futexes that they sleep on for want of work */
	int64_t optimizer_steps; /* PT_NULL: cannot be told */
	uint64_t micro_shape, update_shape; /* of steps without and with an
		* update, under gradient accumulation; else equal */
	bool handoffs;	  /* batches come from somebody else */
	bool thread_loader; /* from threads of the trainer itself */
	bool fd_sharing;  /* sockets carry descriptors */
	size_t concurrent; /* workers alive at once, at most */
	bool respawned;	   /* a worker was born during the capture */
	bool marks_direct; /* marks come from workers, not feeders */
	double message_bytes; /* read for a batch in one go; NAN unknown */

	/* devices, by the queue model or measured; the sums are the mean over
	 * them, so that a share of wall time stays one */
	PT_VEC(struct pt_dev) devs; /* by ordinal */
	uint64_t busy_hard_ns; /* certainly busy */
	bool gpu_known;	     /* a sync was seen: the model has footing */
	bool never_drained;
	uint64_t cause_ns[PT_CAUSE_NR]; /* sums of the charges */
	uint8_t top_cause;
	uint64_t starved_lo_ns, starved_likely_ns, starved_hi_ns;
	uint64_t idle_hard_ns, idle_likely_ns;
	struct pt_dev_counts counts; /* over all devices */
	uint64_t collective_ns; /* the main thread in them, outside data waits */

	/* sums over the window */
	uint64_t data_wait_ns, blocked_ns, own_read_ns, own_cpu_ns,
		handover_ns, lead_ns, gpu_wait_ns, transfer_ns, sync_ns;

	/* the main thread writes files; and device idle outside data waits */
	pt_spans writing;
	uint64_t checkpoint_ns;	     /* writing outside of data waits */
	uint64_t checkpoint_wait_ns; /* ... inside of what was taken for one */
	uint64_t checkpoint_idle_ns; /* writing, device idle */
	uint64_t launch_ns;	     /* likely idle between launches */
	uint64_t lack_ns; /* idle behind a sync, host on the run queue */
	uint64_t host_bound_ns, host_bound_launches; /* stretches of launching
				      * behind which no sync had to wait */
};

#define PT_SHARED_LOCKS 16
/* Futexes on which a feeding thread itself sleeps. The thread that it feeds
 * sleeps there too, but that is not its rest: it waits for a lock of the
 * whole process, such as the interpreter's. */
struct pt_shared_locks {
	const struct pt_thread *from; /* whose these are */
	uint64_t addr[PT_SHARED_LOCKS];
	size_t n;
};

struct pt_places;
struct pt_meets;
struct pt_piece_at;
struct pt_pieces;

struct pt_an {
	const struct pt_model *m;
	const struct pt_analysis_opts *o;
	struct pt_report *r;
	struct pt_arena *a; /* the report's */
	const struct pt_thresholds *th; /* what the verdicts decide by */
	uint64_t t0, t1;
	PT_VEC(struct pt_trainer) trainers;
	struct pt_shared_locks *locks; /* those asked for last; may be NULL */
	struct pt_places *places; /* where reads were; NULL: not looked at */
	struct pt_meets *meets; /* of the ranks; NULL: not looked at */
	struct pt_trainer *top; /* worst trainer; NULL when there is none */
	bool part;    /* less than the whole capture is looked at */
	size_t step0; /* the number of the first step in it */
	const struct pt_piece_at *piece; /* it is this piece of a long capture */
	bool met; /* ... and a step begins where it ends */
	const struct pt_pieces *merge; /* it is all of these, and the model has
					* the last one only; see piece.h */
};

/* A step's wait without its pause: one span or two into `out`; how many. */
int pt_step_spans(const struct pt_step *s, struct pt_span *out);

/* Every pass: 0 or -ENOMEM. */
int pt_find_roles(struct pt_an *an);
int pt_find_writing(const struct pt_an *an, struct pt_trainer *t);
int pt_find_steps(struct pt_an *an, struct pt_trainer *t);
int pt_shape_steps(struct pt_an *an, struct pt_trainer *t);
int pt_charge_waits(struct pt_an *an, struct pt_trainer *t);
int pt_model_gpu(struct pt_an *an, struct pt_trainer *t);
void pt_dev_free(struct pt_dev *d); /* what it holds */
int pt_measure_workers(struct pt_an *an, struct pt_trainer *t);
int pt_sum_breakdown(struct pt_an *an, struct pt_trainer *t);
int pt_fill_report(struct pt_an *an);
/* fill_ranks.c: what the trainer's whole steps were spent on. 0 or -ENOMEM. */
int pt_fill_step_parts(const struct pt_an *an, const struct pt_trainer *t,
		       struct pt_r_step_parts *out);
/* ... the meetings of trainer `i` with the others; and what they do not tell. */
void pt_fill_meetings(const struct pt_an *an, size_t i, struct pt_r_meetings *out);
void pt_limit_ranks(struct pt_an *an);
/* gpu of the report, one entry per device. */
int pt_fill_gpu(struct pt_an *an, struct pt_trainer *t);
/* Say in the limits what the door to read calls did not show. */
void pt_limit_reads(struct pt_an *an);
int pt_fill_phases(struct pt_an *an, const struct pt_trainer *t);
int pt_fill_tables(struct pt_an *an);
/* ... those of the top trainer; those of the whole target. */
int pt_fill_rank_tables(struct pt_an *an);
int pt_fill_host_tables(struct pt_an *an);
/* working_set.c: behind the tables. */
void pt_fill_working_set(struct pt_an *an);
/* Whether the set fits into the memory that there is, where both are known. */
void pt_working_set_fits(struct pt_r_memory *m);
/* peers.c: who the job's sockets are connected to; behind the charges. */
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
/* ... is somebody who asks the job, or may be. */
bool pt_is_asked(const struct pt_an *an, const struct pt_iv *iv);
/* devices.c: behind the tables; with samples of NVML alone. */
int pt_fill_devices(struct pt_an *an);
int pt_fill_operations(struct pt_an *an, const struct pt_trainer *t);
int pt_issue_verdicts(struct pt_an *an);
/* damage.c: records missing that no loss counter tells of; and the certainty
 * of the whole report, judged by the records that it rests on (last pass). */
int64_t pt_uncounted_losses(const struct pt_model *m);
int pt_judge_damage(struct pt_an *an);
/* marker.c: steps by the function that the user named, where it was called;
 * behind pt_fill_report(). */
int pt_mark_steps(struct pt_an *an);
/* lanes.c: what can be drawn, into the report's arena. */
int pt_fill_lanes(struct pt_an *an, struct pt_lanes *out);
/* Those of all pieces; `last`: of the last one. */
int pt_join_lanes(struct pt_an *an, const struct pt_lanes *last,
		  struct pt_lanes *out);
/* gpu_exact.c: when the window begins: with the capture, or a moment later when
 * device times are measured from then on. */
uint64_t pt_exact_begin(const struct pt_model *m);
/* window.c: the part of the capture that was asked for; before and behind the
 * search for steps. 0, or -ERANGE where there is none. */
int pt_set_window(struct pt_an *an);
int pt_narrow_to_steps(struct pt_an *an);
int pt_limit_window(struct pt_an *an);
/* What a thread did in the part that is looked at: ns on a CPU, bytes read by
 * its calls (PT_NULL unknown), records of reads. */
uint64_t pt_run_ns(const struct pt_an *an, const struct pt_thread *th);
int64_t pt_bytes_read(const struct pt_an *an, const struct pt_thread *th);
size_t pt_reads_of(const struct pt_an *an, const struct pt_thread *th);
/* realids.c: the model's ids of the report become the kernel's. */
void pt_show_real_ids(struct pt_report *r);
void pt_trainer_free(struct pt_trainer *t);
/* analyze.c: all passes over the trainers, in two halves: who they are and their
 * steps, and what these waited for; the report behind them; its line in
 * `windows`. */
int pt_find_all_steps(struct pt_an *an);
int pt_explain_steps(struct pt_an *an);
int pt_run_passes(struct pt_an *an);
void pt_choose_top(struct pt_an *an);
int pt_report_all(struct pt_an *an);
void pt_sum_row(const struct pt_an *an, struct pt_r_window *out);
void pt_release_trainers(struct pt_an *an);
const struct pt_thresholds *pt_thresholds_of(const struct pt_analysis_opts *o);
/* Slow ones among the workers, by service_ms and median_ms. 0 or -ENOMEM. */
int pt_compare_workers(const struct pt_an *an, struct pt_trainer *t);

/* ---- helpers ------------------------------------------------------------ */
static inline uint64_t pt_max64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}
static inline uint64_t pt_min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}
/* Length of [a,b) inside [c,d). */
static inline uint64_t pt_overlap(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	uint64_t lo = pt_max64(a, c), hi = pt_min64(b, d);

	return hi > lo ? hi - lo : 0;
}
/* The data wait of a step, ns; and the part of it inside [b,e). */
static inline uint64_t pt_step_wait(const struct pt_step *s)
{
	return s->wait_end - s->wait_begin - (s->pause_end - s->pause_begin);
}
static inline uint64_t pt_step_wait_in(const struct pt_step *s, uint64_t b,
				       uint64_t e)
{
	return pt_overlap(b, e, s->wait_begin, s->wait_end) -
	       pt_overlap(b, e, s->pause_begin, s->pause_end);
}
/* When a thread ended; the window's end while it lives. */
static inline uint64_t pt_thread_end(const struct pt_an *an,
				     const struct pt_thread *th)
{
	return th->exited ? th->last : an->t1;
}
/* How many of the moments, in order, are not behind `ts`. */
size_t pt_times_until(const pt_times *v, uint64_t ts);
/* Index of the first of the spans, in order, that ends behind `ts`. */
size_t pt_spans_after(const pt_spans *v, uint64_t ts);
/* Sum of the overlap of two sorted, disjoint span lists. */
uint64_t pt_spans_overlap(const struct pt_span *a, size_t na,
			  const struct pt_span *b, size_t nb);

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
/* Copies in one call of a batch; more is damage. */
#define PT_BATCH_MAX (1u << 20)
#define PT_COPY_H2D 1 /* cudaMemcpyKind */
#define PT_COPY_D2H 2
#define PT_COPY_ANY 4 /* cudaMemcpyDefault: by the addresses */

/* Distribution of `v` (sorted in place); all zero with n == 0. */
void pt_dist_of(double *v, size_t n, struct pt_dist *d);
double pt_median(double *v, size_t n); /* sorts; NAN when empty */

/* Walk what `t` did in [b,e): calls `fn` once per piece, pieces cover [b,e)
 * exactly. iv == NULL: on a CPU. queued: the run-queue part of iv. */
typedef int (*pt_piece_fn)(void *ctx, uint64_t b, uint64_t e,
			   const struct pt_iv *iv, bool queued);
int pt_walk(const struct pt_thread *t, uint64_t b, uint64_t e, pt_piece_fn fn,
	    void *ctx);

/* No item is shorter: an index takes 36 bytes on the pipe. A sender also
 * writes single bytes while it works on one (to make room in a file). */
#define PT_ITEM_BYTES 16

/*
 * The moments at which `from` ended a rest of `th` and gave it an item to
 * send, in order, appended to `out`. One an item: between two wake-ups the
 * sender has written something. *wakes counts every wake-up by `from`.
 */
int pt_rest_wakes(const struct pt_an *an, const struct pt_thread *th,
		  const struct pt_thread *from, pt_times *out, uint64_t *wakes);

/* Name each step's worker and fill the workers' `done`. 0 or -ENOMEM. */
int pt_name_deliverers(struct pt_an *an, struct pt_trainer *t);
/*
 * The part of the wait of `s` that begins at `from` (a moment in it): until
 * the trainer had its next batch, without the pause. A copy of the step with
 * these bounds (its end is that of the part, but for the last) and the worker
 * that delivered this batch (that of the step where the part itself shows
 * none). A wait for one batch is one part.
 */
struct pt_step pt_wait_part(struct pt_trainer *t, const struct pt_step *s,
			    uint64_t from);
/* Does this wait span several result pipes (a loop that draws from two
 * loaders)? Then each sleep has a sender of its own: the last on its pipe;
 * -1 unknown. */
bool pt_waits_on_several(const struct pt_trainer *t, const struct pt_step *s);
int pt_sender_on(const struct pt_trainer *t, const struct pt_step *s,
		 uint64_t pipe);
/* When worker `w` had made the batch that ended the wait of `s`: its last
 * mark before the batch arrived. A worker that is ahead may have made another
 * since. UINT64_MAX when it cannot be told. */
uint64_t pt_made_at(const struct pt_trainer *t, const struct pt_worker *w,
		    const struct pt_step *s);

/* How many different call sites the launches of `p` in [b,e) have, 512 at
 * most, and in *shape a number that is the same for the same set of them.
 * `sites` is room for PT_MAX_SITES. */
#define PT_MAX_SITES 512
size_t pt_shape_of(const struct pt_proc *p, uint64_t b, uint64_t e,
		   uint64_t *sites, uint64_t *shape);

/* A call site, as far as the call's name and its telling argument show it. */
uint64_t pt_call_site(const struct pt_gpu_call *c);

/* What a blocked piece is charged to; `w` is the worker whose main thread it
 * is of, or NULL. */
enum pt_cause pt_piece_cause(const struct pt_an *an, const struct pt_worker *w,
			     const struct pt_iv *iv);

/* All workers are known: from now on they are found quickly. 0 or -ENOMEM. */
int pt_index_workers(struct pt_trainer *t);
/*
 * pool.c: without worker processes the batches may still come from a pool of
 * threads of the trainer: then most of its data wait is sleep that one of them
 * ends (`helped`, of the charges). Fills t->pool. 0 or -ENOMEM.
 */
int pt_find_pool(const struct pt_an *an, struct pt_trainer *t, uint64_t helped);
/* Does a thread of the pool sleep in `iv` because it has nothing to do? */
bool pt_pool_rests(const struct pt_trainer *t, const struct pt_iv *iv);

/* quota.c: does a quota hold the process back? Adds to t->quotas. 0 or
 * -ENOMEM. */
int pt_find_quota(const struct pt_an *an, struct pt_trainer *t,
		  const struct pt_proc *p);
/* What the time of `th` on the run queue in `iv` is charged to: THROTTLE where
 * a quota ended it, else RUN_QUEUE. */
enum pt_cause pt_queue_cause(const struct pt_trainer *t,
			     const struct pt_thread *th, const struct pt_iv *iv);

/* True when `tgid` is one of t's workers; its index in *idx. */
bool pt_is_worker(const struct pt_trainer *t, uint32_t tgid, int *idx);
/* Is this interval of `th` (main or pin) a sleep for the next batch? */
bool pt_is_batch_wait(const struct pt_trainer *t, const struct pt_thread *th,
		      const struct pt_iv *iv);

/* The rank that a process was started as; PT_NULL unknown. */
int64_t pt_rank_of_proc(const struct pt_proc *p);

/* The id with static lifetime, or NULL. */
const char *pt_verdict_static_id(const char *id);

#endif
