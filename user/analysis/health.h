/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the verdicts ask beside steps and waits: where idle time that is not
 * data's goes, how busy the workers are and whether one hangs, which file is
 * slow, whether memory grows, whether steps are steady. Every function here is
 * pure; those that can run out of memory return 0 or -ENOMEM.
 */
#ifndef PT_HEALTH_H
#define PT_HEALTH_H

#include "analysis/internal.h"

/* A pause between two launches that is launching: an eager framework needs
 * some tens of microseconds for an operator. Longer, and the host does
 * something else. */
#define PT_LAUNCH_GAP_NS 500000ull

/* ---- statistics (stat.c) ------------------------------------------------- */
/*
 * Median of the slopes of all pairs (Theil 1950, Sen 1968): up to 29 % of the
 * points may be wrong. At most 400 points are looked at, evenly chosen. Unit:
 * that of y over that of x; NAN below two points. 0 or -ENOMEM.
 */
int pt_theil_sen(const double *x, const double *y, size_t n, double *slope);
/* The line of y over x by least squares, from sums of products of deviations from means: its slope
 * and that one's standard error, in the unit of y over that of x. `free`: points less means; above
 * 1, and xx above 0. */
struct pt_products {
	double xx, xy, yy, free;
};
void pt_fit_slope(const struct pt_products *s, double *slope, double *error);
/* Mann and Kendall's test for a trend: its normal deviate, with ties and the
 * correction for continuity. Meaningful from ten points. */
double pt_mann_kendall(const double *y, size_t n);
/*
 * Does y rise? The chance that n values in random order rise as much, by
 * Kendall's S: counted out below ten points (ties then make it larger than it
 * is), by the normal deviate from there on. 1 below three points.
 */
double pt_rise_chance(const double *y, size_t n);
/*
 * Are the values of x larger than those of y? The chance that two samples of
 * the same distribution differ as much (Wilcoxon 1945, Mann and Whitney 1947):
 * counted for few values that all differ, else the normal deviate with ties and
 * the correction for continuity. 1 where one is empty. 0 or -ENOMEM.
 */
int pt_rank_sum_chance(const double *x, size_t nx, const double *y, size_t ny,
		       double *chance);
/* Spearman's rank correlation; NAN below three points or without any
 * variation. 0 or -ENOMEM. */
int pt_spearman(const double *x, const double *y, size_t n, double *rho);

/* ---- passes over a trainer ------------------------------------------------ */
/* Marks the first step behind each start of the loader (pt_step.first). */
void pt_find_epochs(const struct pt_an *an, struct pt_trainer *t);
/* Each step's copied and synced. */
void pt_mark_calls(struct pt_trainer *t);
/* Where the device's idle time outside of data waits goes: sync_ns, launch_ns,
 * checkpoint_ns and their kin of pt_trainer. */
int pt_split_idle(struct pt_an *an, struct pt_trainer *t);
/* Is what idles while the host works told as the host's? Not where fewer syncs hid it. */
bool pt_is_hosts(const struct pt_trainer *t);
/* ... and so much is left for the syncs. */
uint64_t pt_idle_by_syncs(const struct pt_trainer *t);
/* steps.epochs, first_ms, outliers and max_over_min of the report. */
int pt_fill_step_health(struct pt_an *an, struct pt_trainer *t);
/* memory of the report; behind the series. */
int pt_fill_memory(struct pt_an *an);
/* Bytes a minute by which the process' device memory grows, judged by the
 * allocations and frees that were seen; NAN: no growth can be shown. */
#define PT_GPU_PARTS 6 /* of the window */
struct pt_gpu_balance { /* of allocations and frees */
	uint64_t allocs, frees;
	double bytes; /* allocated */
	int64_t net[PT_GPU_PARTS]; /* allocations less frees in each part */
};
double pt_gpu_growth(const struct pt_gpu_balance *b, uint64_t wall);
void pt_measure_balance(const struct pt_an *an, const struct pt_trainer *t,
			struct pt_gpu_balance *out);

/* ---- facts for the judges ------------------------------------------------- */
enum pt_hang { PT_HANG_NONE, PT_HANG_STOPPED, PT_HANG_UNINTERRUPTIBLE,
	       PT_HANG_WAITING, PT_HANG_SPINNING };

struct pt_hung { /* a worker that makes no progress while others could */
	const struct pt_proc *proc; /* NULL: none */
	const struct pt_thread *th; /* its thread that does */
	enum pt_hang how;
	double seconds;
	bool vain; /* the trainer does not stand still: its patience ends each time */
	bool seems; /* for too short a time to be sure, but longer by far than any step took */
	uint64_t inode; /* of the file that it waits for; 0: none */
	uint32_t dev;
};
/* Of what the trainer's data waits are charged with, its own time-outs: it waits until a time that
 * it gave itself is over, and nobody came. */
double pt_vain_share(const struct pt_trainer *t);
/* With `t` NULL: a child of the target that is stopped or uninterruptible. */
void pt_find_hung(const struct pt_an *an, struct pt_trainer *t,
		  struct pt_hung *out);

struct pt_pool { /* the workers' time, shares of what they were alive */
	double busy;	  /* not idle for want of an index */
	double cpu, run_queue;
	double sending;	  /* their senders are at it */
	double cores_used; /* by the whole target, but for polling the device;
			    * NAN unknown */
	double together; /* pairs of workers that want a core at once: mean number */
	double chance;	 /* ... if they knew nothing of each other */
	bool apart; /* threads that load compute, and who trains goes on beside them */
};
struct pt_pool_time { /* ... in ns; all: that they were alive */
	double all, cpu, run_queue, idle, sending;
	double cores; /* of the whole target, but for polling */
	double programs; /* of the data wait: for processes that lived in it alone */
	double silent;	 /* ... and of which nothing was read */
	double together, chance; /* pairs of workers, times ns; see struct pt_pool */
	double woken, held; /* times: the consumer woke beside a thread of its process that
			     * loads and computes; ... and could not go on before that let it */
};
/* 0 or -ENOMEM. */
int pt_measure_pool(struct pt_an *an, struct pt_trainer *t, struct pt_pool_time *out);
/* turns.c: of processes that make batches, pairs that want a core at once. 0 or -ENOMEM. */
int pt_measure_turns(const struct pt_an *an, const struct pt_trainer *t, double *together,
		     double *chance);
/* turns.c: woken and held of *out. */
void pt_measure_apart(const struct pt_an *an, const struct pt_trainer *t,
		      struct pt_pool_time *out);
void pt_fill_pool(const struct pt_pool_time *k, uint64_t wall, struct pt_pool *out);

struct pt_crowd { /* what the workers want of the cores, and may have */
	double threads;	  /* mean number that compute, per worker; NAN unknown */
	int omp_threads;  /* OMP_NUM_THREADS of the workers; -1 unset, unknown */
	int cpus_allowed; /* CPUs that a worker may run on, least; -1 unknown */
	int mem_nodes;	  /* NUMA nodes of its memory, most; -1 unknown */
};
void pt_measure_crowd(const struct pt_an *an, const struct pt_trainer *t, struct pt_crowd *out);

struct pt_visit { /* of one thread to one file, in which it waited for storage */
	uint64_t begin, end, ns; /* ns: in calls, or blocked; CLOCK_MONOTONIC */
	uint64_t inode;
	uint64_t bytes; /* that its calls returned; 0 unknown */
	uint32_t dev;
};
typedef PT_VEC(struct pt_visit) pt_visits;

struct pt_item { /* one file that takes long, by its longest visit */
	const struct pt_thread *thread; /* whose visit; NULL: none, or many */
	uint64_t inode;
	uint32_t dev;
	double ms, median_ms; /* ... of all visits */
	size_t visits;
	double slow_share; /* of the data wait: by files from a second, or for
			    * the file that is slower than the others */
	/* The file against the others that were waited for (io/slow_file_peers.c). */
	size_t waits;	   /* visits to it with waiting */
	double bytes;	   /* of one, median; NAN unknown */
	double usual_ms;   /* of one, median; NAN none */
	double peers_ms;   /* what so many bytes of others take; NAN unknown */
	size_t peers;	   /* visits to others that this rests on */
	double slower;	   /* times that; NAN unknown */
	double chance;	   /* of being so much slower by chance; NAN not asked */
	bool repeated;	   /* slower by more than chance, time and again */
};
int pt_slowest_item(struct pt_an *an, struct pt_trainer *t,
		    struct pt_item *out);
/*
 * Fill what stands behind slow_share: of the file that `out` names, else of the
 * one that is slower than its peers and waited for the most, if there is one: that
 * one it names, with no thread. Puts `v` into another order. 0 or -ENOMEM.
 */
int pt_compare_files(const struct pt_an *an, const struct pt_trainer *t,
		     pt_visits *v, struct pt_item *out);

struct pt_tail { /* of the batches by how long they took to make */
	size_t n, all;	 /* slow ones; all that were seen */
	double ms, usual_ms; /* medians of the slow ones, of all */
	double share;	 /* of the data wait, for slow ones */
	bool waited; /* nobody was seen to make one: ms are of waits, usual_ms of steps */
	bool caught_up; /* not all were: of some only that their makers have time for them */
	bool bursts; /* they come evenly, among others that take next to nothing */
	enum pt_cause cause; /* of most of that */
	/* the wait among them that was longest for one file or peer */
	uint64_t inode;
	uint32_t dev, peer; /* 1 + its index; 0 none */
};
/* waits/tail.c. 0 or -ENOMEM. */
int pt_measure_tail(const struct pt_an *an, const struct pt_trainer *t,
		    struct pt_tail *out);

struct pt_steady {
	size_t n; /* whole steps, first batches left out */
	bool ahead; /* the host runs ahead of the device: times are without
		     * what waiting for it adds, and max is over the median */
	double max_over_min, p99_over_p50;
	double lost_share; /* of wall, by outliers beyond the median */
	size_t outliers;
	enum pt_cause cause; /* of most of their time */
	bool device;	     /* ... it is the device's own work */
	double size_rho;     /* step time against bytes copied to the device */
	size_t firsts;	     /* first batches seen */
	double first_ms, first_share; /* median of them; excess, of wall */
	double first_ratio;  /* first_ms to the median of the others */
};
int pt_measure_steady(struct pt_an *an, const struct pt_trainer *t,
		      struct pt_steady *out);

struct pt_growth {
	size_t points;
	/* bytes: of the whole capture, its second half; over the capture */
	double per_min, half_per_min, total, level;
	/* that chance makes it rise so: whole capture, second half */
	double chance, half_chance;
};
int pt_measure_growth(const struct pt_an *an, struct pt_growth *out);
/* It rises, by more than chance, and has not stopped to. */
bool pt_growth_shown(const struct pt_growth *g);

/* The data waits, in order. */
int pt_wait_spans(const struct pt_an *an, const struct pt_trainer *t,
		  pt_spans *out);

/* io/faults.c: faults on the data file that most waiting in them is charged to. */
struct pt_fault_file {
	uint32_t dev;
	uint64_t inode; /* 0: not looked at */
	uint64_t faults, bytes; /* of all threads on it in the window */
	double p99_ms;		/* of single waits on it; NAN: none */
};
/* ... and what the trainer's waiting in them was for. */
struct pt_fault_facts {
	uint64_t wait_ns;     /* charged to page faults, all of it */
	uint64_t nameless_ns; /* ... of no file: swapped memory, or not traced */
	uint64_t text_ns;     /* ... of programs and libraries */
	uint64_t file_ns;     /* ... of the data file with most of it; 0: none */
	const struct pt_file *file; /* that file; NULL: its name is not known */
	struct pt_fault_file on; /* that file's */
};
/* 0 or -ENOMEM. */
int pt_measure_faults(const struct pt_an *an, const struct pt_trainer *t,
		      struct pt_fault_file *out);
int pt_fault_facts_of(const struct pt_an *an, const struct pt_trainer *t,
		      const struct pt_fault_file *on, struct pt_fault_facts *out);

#endif
