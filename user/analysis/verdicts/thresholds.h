/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every number that a verdict decides by. Shares are of the trainer's wall
 * time unless the name says otherwise. Where the field's guides give a
 * threshold it is theirs; the others say what they rest on. The values here
 * are the defaults; what a user may change is in PT_THRESHOLDS below.
 */
#ifndef PT_THRESHOLDS_H
#define PT_THRESHOLDS_H

#include <stddef.h>

/* ---- idle time of the device -------------------------------------------- */
/* Guides: above 30 % idle is bad, below 10 % is the goal. The same three
 * steps serve whatever the device waits for. */
#define PT_STARVED_INFO 0.10
#define PT_STARVED_WARNING 0.20
#define PT_STARVED_CRITICAL 0.30
/* Above this share of idle time that nothing explains, "balanced" would be
 * wrong. */
#define PT_IDLE_BAD 0.30
/* Launching that no sync ever caught up with, where the device's share of it
 * cannot be seen. */
#define PT_HOST_BOUND_SHARE 0.30
/* The trainer waits to be asked from this share of its data wait. */
#define PT_DEMAND_SHARE 0.50

/* Idle time behind a sync is the host's work and the sync's doing both. Without the
 * work all of it would go, without the sync what can be hidden: from so much of it on the
 * sync is what to mend first. */
#define PT_SYNC_HIDDEN 0.87
/* Host work is told as of every so many steps from here on, in steps; else as of each. */
#define PT_HOST_EVERY 1.5
/* So many sleeps in a row, as a mean, are no pause: it waits for something that it looks at again
 * and again. Chosen: a logger's pause is one; loops that poll had 11 and 14. */
#define PT_HOST_POLLS 3.0
/* Bytes a second that copies get through a fast slot: 16 lanes of PCI Express 4.0, 31.5e9 by their
 * rate. Chosen: four fifths of that. Copies from and to pageable memory are slower. */
#define PT_COPY_BYTES_S 25e9
/* Where less of the time goes to obtaining data, where batches come from was not seen. Chosen: a
 * tenth of what is called starving. */
#define PT_FED_SHARE 0.01
/* Of the steps: so many times something was taken that a thread had ready, which is then as likely
 * the batch as what the loop reads by itself. Chosen: a queue that is always full had 1. */
#define PT_TAKEN 0.75
/* Shorter sleeps of the trainer's, ms, on average: it may poll for what others make. Loops that do
 * sleep 0.2 to 2 ms at a time. */
#define PT_POLL_MS 5
/* Share of its computing, in one line: that may be a loop that asks for something again and
 * again, which looks like work from outside. Chosen: a loop that spins had 98 %. */
#define PT_HOST_ONE_LINE 0.95
/* Flushing is what a checkpoint's time goes to from this share of it. */
#define PT_FLUSH_SHARE 0.5

/* ---- enough to tell ------------------------------------------------------- */
/* A capture of fewer seconds has no share of anything. */
#define PT_MIN_S 0.5
/* Records lost, share of all: times are promised within 1 %. */
#define PT_LOST_SHARE 0.01
/* Records damaged, share of all: with a tenth of the promise one can no longer be sure
 * of what the report says; beyond it nothing is. */
#define PT_DAMAGE_UNSURE 0.001
#define PT_DAMAGE_WRONG 0.01

/* ---- how sure (certainty.c) ------------------------------------------------ */
/* High is right 99 times in 100, medium 90: by these, on recordings of composed jobs
 * (docs/composed-jobs.md). A figure so near to its threshold, as a share of that, could as
 * well have failed. */
#define PT_SURE_NEAR 0.2
/* So much of the data wait was not followed to a cause: half may hide another root, a
 * fifth makes its share unsure. */
#define PT_SURE_UNFOLLOWED 0.5
#define PT_SURE_PARTLY 0.2
/* Two causes so near to each other, as shares of the data wait, are both to blame. */
#define PT_SURE_LEAD 0.15
/* A cause whose removal is told to gain no more than this, at best, may be none. */
#define PT_SURE_GAIN 1.1
/* More workers, or fewer syncs, that gain less than this by the replay of the steps are not
 * what lacks. */
#define PT_LEAST_GAIN 1.01
/* Fewer steps are few of anything. */
#define PT_SURE_STEPS 10

/* ---- causes of a data wait ----------------------------------------------- */
/* A cause is the root from this share of the data wait, when no other group
 * has more. */
#define PT_ROOT_SHARE 0.30
/* Makers that take turns under a lock for so much of the wait are no more of them:
 * what is under it decides. */
#define PT_LOCK_ASKED 0.50
/* ... for certain where they hardly rest (pool_busy), or it is nearly all of the wait: else there is
 * time left under it. Of 36 composed jobs that a lock held up the workers of six rested more, and
 * there it was 0.95 and more. */
#define PT_LOCK_NEARLY 0.90
/* Of two that wait for each other through somebody else each does so for at least this part of what
 * the other one does. */
#define PT_LOCK_MUTUAL 0.25
/* Workers that compute at once for less than so much of what chance would give take turns;
 * where chance would give less than so many pairs, that says nothing. */
#define PT_TURNS 0.30
#define PT_TURNS_CHANCE 0.10
/* A training thread that woke so often beside a thread that loads and computes, and had to wait for
 * the interpreter in no more of these moments than this: the loading computes without it. */
#define PT_APART_MIN 20
#define PT_APART_HELD 0.10
/* So much of a host's delay, or more, do the syncs behind it make up for where the device has work:
 * all of it where it had some all along. From so many equal ones on, between which the host differs
 * by so much, in the mean square: a wake-up alone takes tens of us. */
#define PT_DELAYS_MADE_UP 0.50
#define PT_DELAYS_MIN 20
#define PT_DELAYS_NS 100e3
/* Of fewer samples of who has the interpreter's lock meanwhile none is named. */
#define PT_HOLDER_SAMPLES 20
/* Starving of which nobody knows why counts as so much of itself beside other costs: a
 * checkpoint that is certain is the better first line. */
#define PT_UNEXPLAINED 0.50
/* CPU-bound loading whose wait is a quarter run queue lacks cores. */
#define PT_RUNQ_SHARE 0.25
/* One worker, file or first batch is the root from half of the wait. */
#define PT_SLOW_SHARE 0.50
/* So often, on average, is the worker of each place replaced. */
#define PT_REPLACED 2
/* A worker is slow from this many times its peers' batch time. */
#define PT_SLOW_FACTOR 1.5
/* ... and its mean so many times that of its peers: where they take as long together, in
 * a few batches that take very long, they lack the same thing (a disk that all wait for) */
#define PT_SLOW_MEAN 1.2
/* Where less of its time against its peers' is sure, as batches were missed or were seen in parts,
 * no median tells. */
#define PT_SLOW_SURE 0.8
/* A worker that is slow half of the time (every other epoch) has no median to speak of:
 * what 40 % of its batches take at least is so many times the factor above. Twice as
 * much: two humps, not one wide one. */
#define PT_SLOW_HUMPS 2.0
/* One that was slow for a while: of its slow batches so much came one behind the other,
 * and its peers had no more than so much as many. */
#define PT_SLOW_BEHIND 0.5
#define PT_SLOW_PEERS 0.2
/* Fewer batches tell nothing of a worker. */
#define PT_SLOW_BATCHES 3
/* ... and chance, in any of the workers, makes it so less often than this. */
#define PT_SLOW_CHANCE 0.01
/* ... or than this, and then it is not certain, where each batch takes PT_TAIL_FACTOR times as
 * long as any of its peers': the order of few is never rarer. */
#define PT_SLOW_FEW_CHANCE 0.05
/* ... of it, where mostly batches are noticed that somebody waited for, which chose the slow ones.
 * Chosen: of such with a chance above 0.1 % one was wrong, all right ones were below. */
#define PT_SLOW_SOME_SHOWN 0.1
/* Workers that are idle for less than this are all busy ... */
#define PT_POOL_BUSY 0.85
/* ... and do not lack cores below this share of their time on the run queue. */
#define PT_POOL_RUNQ 0.10
/* Idle workers whose senders are busy for so much of the time are not short
 * of indices: what they made is stuck on its way. */
#define PT_POOL_SENDING 0.50
/* A loader's worker computes in one thread; from here on in more. */
#define PT_CROWD_THREADS 1.5
/* A thread that runs for less than this share of what the busiest one of its process
 * does is no part of its computing: a sender, a helper at rest. */
#define PT_CROWD_COMPUTES 0.2
/* ... and of the time, where the programs that it starts (gzip) do the computing */
#define PT_CROWD_RUNS 0.05
/* So many cores must be unused for one more worker that computes: most of one.
 * The trainer and the helper threads always use a little of it. */
#define PT_CORE_FREE 0.75
/* Where the cores are the limit and there are fewer workers than these, so many must be unused
 * for one more to be advised. */
#define PT_CORE_PART 0.5

/* A batch is slow from so many times the usual, where no more than this part of all
 * are: else the work is uneven, not a few items. */
#define PT_TAIL_FACTOR 4.0
#define PT_TAIL_PART 0.2
/* Fewer batches do not tell a few from many. */
#define PT_TAIL_BATCHES 16
/* Batches that were not noticed, share of all, at most: behind one that was not the next
 * one looks slow. */
#define PT_TAIL_NOTICED 0.15
/* ... and fewer of them than so much say nothing of the others. */
#define PT_TAIL_FEW 0.5
/* This part of those that were not noticed is made right behind slow ones, without a rest, in up to
 * so many times what they usually take together. Chosen. */
#define PT_TAIL_CAUGHT 0.7
#define PT_TAIL_CATCHING 1.5
/* Makers at work for less of the time than this have time left for more batches. Chosen. */
#define PT_TAIL_WORK 0.5
/* The others take next to nothing: so much of what a slow one takes, at most. Chosen. */
#define PT_TAIL_NOTHING 0.02
/* With less of the time than so much without a slow batch, how much would be waited without
 * them is not known. Chosen. */
#define PT_TAIL_REST 0.1
/* Waits for a service whose batches are not noticed: with fewer distances between long ones,
 * or where these vary by less than this part of their mean, they are not a few items. */
#define PT_TAIL_APART 3
#define PT_TAIL_EVEN 0.3

/* ---- network --------------------------------------------------------------- */
/* More than so much of the waiting is before answers begin: latency is what costs, else
 * it is bandwidth. */
#define PT_LATENCY_SHARE 0.5
/* Connections made for each answer, from which on keeping them open is advised. */
#define PT_RECONNECTS 0.5

/* ---- items --------------------------------------------------------------- */
/* Guides: above 10 ms an item is slow, above 1 s it deserves a warning. */
#define PT_ITEM_MS 10.0
#define PT_SLOW_ITEM_MS 1000.0
/* A file is slower than others of its size from several times their time:
 * below, where on the disk it lies and who else reads may be the reason. */
#define PT_SLOW_FILE_FACTOR 3.0
/* ... time and again from so many visits: two are no habit. */
#define PT_SLOW_FILE_VISITS 3
/* Of fewer visits a median tells nothing. */
#define PT_ITEM_VISITS 8

/* ---- order of reads in a file --------------------------------------------- */
/* Jumps among the moves from one read to the next. A few (a table of contents,
 * the next shard) do not keep the kernel from reading ahead. */
#define PT_PATTERN_SOME 0.10
/* A record that is fetched by its place takes up to three calls (its index, its
 * header, its body): from one jump in three moves on, records are fetched in no
 * order. */
#define PT_PATTERN_MANY (1.0 / 3)
/* So many of the jumps are as wide as the one before. */
#define PT_PATTERN_STRIDE 0.75
/* Fewer moves tell nothing. */
#define PT_PATTERN_MOVES 4

/* ---- kinds of waiting for storage (io/kind.c) ------------------------------- */
/* The kernel reads ahead so far by default (VM_READAHEAD_PAGES). */
#define PT_READ_AHEAD (128.0 * 1024)
/* Most of what is fetched was evicted before. */
#define PT_IO_REFAULT 0.5
/* One file that half of the waiting is for has it in its name. */
#define PT_IO_ONE_FILE 0.5
/* A dataset of files has at least so many in a window. */
#define PT_IO_MANY_FILES 16
/* ... most of the waiting is for a thing (the bytes, others who wait, opening files,
 * jumps); what is fitted is held against it with so many standard errors, two being 95 %. */
#define PT_IO_MOSTLY 0.5
#define PT_IO_ERRORS 2
/* Of fewer requests a latency tells nothing. */
#define PT_IO_REQUESTS 16
/* Requests of so much of what was fetched are known. */
#define PT_IO_SEEN 0.5
/* Most of the waiting is above the disk, which answers in the rest. */
#define PT_IO_HELD 0.5
/* Disks and network file systems take requests up to about that. */
#define PT_IO_REQUEST (1024.0 * 1024)
/* Bytes a second of the slowest link in use (100 Mbit/s Ethernet); disks give
 * several times that, in order. */
#define PT_IO_SLOWEST 12.5e6
/* A fit needs so many waits, and what they were for must vary (its standard
 * deviation, of its mean): else length and size cannot be told apart. */
#define PT_IO_FIT_WAITS 20
#define PT_IO_FIT_SPREAD 0.05
/* ... sizes alone, beside who else waits: more, for few large or small ones at
 * the edges of files would decide. */
#define PT_IO_FIT_SIZES 0.25

/* Of the computing of makers that read, so much in the kernel is the reading itself. */
#define PT_KERNEL_READS 0.75
/* ... or all of it, where storage is waited for so often that this much computing goes with each
 * wait: a page or a block is asked for, comes in and is copied. Measured on a virtual disk: 79 us
 * for a page of 4 KiB, 83 us for 64 KiB. */
#define PT_KERNEL_EACH_NS 150000
/* ... and with each byte that is fetched: memory for it is found, and it is copied. A core fetches no
 * more than 4 GB/s through the page cache; measured on a virtual disk: 5.1 GB for a second of it. */
#define PT_KERNEL_BYTE_NS 0.25
/* ... and the waits alone come to this part of what a root cause needs. */
#define PT_KERNEL_WAITS 0.5

/* ---- hanging ------------------------------------------------------------- */
/* A stopped process is no matter of patience; a wait may end after all: slow
 * items take a second, loaders' time-outs minutes. */
#define PT_STOPPED_S 1.0
#define PT_HUNG_S 5.0
/* ... and longer than so many batches of its peers. */
#define PT_HUNG_BATCHES 10
/* ... and computes for so much of that time: it does not wait. */
#define PT_HUNG_SPINS 0.9
/* ... but not while the job makes so many steps for each worker. */
#define PT_HUNG_GOES_ON 8
/* ... nor before a step has taken so many times as long as they do. */
#define PT_HUNG_STILL 3
/* ... or waits so much of the data wait until its own patience is over: it goes on without. */
#define PT_HUNG_VAIN 0.5
/* For less than what hangs, it may, from so many seconds, if no step took a part of that. */
#define PT_HUNG_SEEMS_S 2.0
#define PT_HUNG_SEEMS_STEPS 20
/* Stopped and resumed: of the data wait so much is no accident. */
#define PT_STOPPED_SHARE 0.5

/* ---- steps ----------------------------------------------------------------- */
#define PT_MIN_STEPS 3
/* Guides: max / min above 2.0 is high variance. */
#define PT_UNSTABLE_RATIO 2.0
#define PT_UNSTABLE_MIN_STEPS 20
/* "Several times the later ones". */
#define PT_FIRST_RATIO 3.0
/* Step time follows the size of the input from this rank correlation; with
 * 20 steps chance gives it less than once in a thousand. */
#define PT_SIZE_RHO 0.7

/* ---- ranks ------------------------------------------------------------------ */
/* In lock step: mean step times within this share of each other. */
#define PT_RANK_PERIOD 0.03
/* One rank waits for data by so much more of its time than the others. */
#define PT_RANK_EXCESS 0.10

/* ---- memory -------------------------------------------------------------- */
/* Five samples that all rise do so by chance once in 120 times; fewer cannot
 * tell a trend. */
#define PT_GROWTH_MIN_POINTS 5
/* A warm-up is over by then, or shows as a second half that is flatter: from
 * fewer samples growth is only pointed out. */
#define PT_GROWTH_SURE_POINTS 20
/* By chance less often than this: the whole, and the second half alone where
 * it has points enough; growth that has ended was a warm-up. */
#define PT_GROWTH_CHANCE 0.01
#define PT_GROWTH_HALF_CHANCE 0.025
/* ... at no less than this part of the whole's pace. */
#define PT_GROWTH_HALF_PACE 0.25
/* Over the capture, of the memory in use; less does not matter yet. */
#define PT_GROWTH_SHARE 0.02
#define PT_GROWTH_WARNING 0.10

/* ---- what a user may change ------------------------------------------------ */
/* X(name, default, least, most, unit) */
#define PT_THRESHOLDS(X)                                                       \
	X(starved_info, PT_STARVED_INFO, 0, 1, "share")                        \
	X(starved_warning, PT_STARVED_WARNING, 0, 1, "share")                  \
	X(starved_critical, PT_STARVED_CRITICAL, 0, 1, "share")                \
	X(idle_bad, PT_IDLE_BAD, 0, 1, "share")                                \
	X(host_bound_share, PT_HOST_BOUND_SHARE, 0, 1, "share")                \
	X(demand_share, PT_DEMAND_SHARE, 0, 1, "share")                        \
	X(root_share, PT_ROOT_SHARE, 0, 1, "share")                            \
	X(lock_asked, PT_LOCK_ASKED, 0, 1, "share")                             \
	X(run_queue_share, PT_RUNQ_SHARE, 0, 1, "share")                       \
	X(slow_share, PT_SLOW_SHARE, 0, 1, "share")                            \
	X(slow_factor, PT_SLOW_FACTOR, 1, 1000, "ratio")                       \
	X(slow_chance, PT_SLOW_CHANCE, 0, 1, "share")                          \
	X(pool_busy, PT_POOL_BUSY, 0, 1, "share")                              \
	X(pool_run_queue, PT_POOL_RUNQ, 0, 1, "share")                         \
	X(pool_sending, PT_POOL_SENDING, 0, 1, "share")                        \
	X(core_free, PT_CORE_FREE, 0, 100000, "count")                         \
	X(item_ms, PT_ITEM_MS, 0, 1e9, "ms")                                   \
	X(slow_item_ms, PT_SLOW_ITEM_MS, 0, 1e9, "ms")                         \
	X(stopped_s, PT_STOPPED_S, 0, 1e6, "s")                                \
	X(hung_s, PT_HUNG_S, 0, 1e6, "s")                                      \
	X(unstable_ratio, PT_UNSTABLE_RATIO, 1, 1000, "ratio")                 \
	X(first_ratio, PT_FIRST_RATIO, 1, 1000, "ratio")                       \
	X(size_rho, PT_SIZE_RHO, 0, 1, "ratio")                                \
	X(rank_period, PT_RANK_PERIOD, 0, 1, "share")                          \
	X(rank_excess, PT_RANK_EXCESS, 0, 1, "share")                          \
	X(growth_share, PT_GROWTH_SHARE, 0, 1000, "share")                     \
	X(growth_warning, PT_GROWTH_WARNING, 0, 1000, "share")

struct pt_thresholds {
#define X(name, value, low, high, unit) double name;
	PT_THRESHOLDS(X)
#undef X
};
extern const struct pt_thresholds pt_thresholds_default;

struct pt_threshold_def {
	const char *name, *unit;
	double value; /* the default */
	double low, high;
	size_t offset; /* in struct pt_thresholds */
};
extern const struct pt_threshold_def pt_threshold_defs[];
extern const size_t pt_threshold_count;

double pt_threshold_get(const struct pt_thresholds *t,
			const struct pt_threshold_def *d);
/* "NAME=VALUE". 0; -ENOENT: no such name; -EINVAL: no number, or one beyond
 * *def's bounds. *def is the one that was named, or NULL. */
int pt_threshold_set(struct pt_thresholds *t, const char *text,
		     const struct pt_threshold_def **def);

#endif
