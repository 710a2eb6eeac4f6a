/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every number that a verdict decides by. Shares are of the trainer's wall
 * time unless the name says otherwise. Where the field's guides give a
 * threshold it is theirs; the others say what they rest on.
 */
#ifndef PT_THRESHOLDS_H
#define PT_THRESHOLDS_H

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

/* ---- causes of a data wait ----------------------------------------------- */
/* A cause is the root from this share of the data wait, when no other group
 * has more. */
#define PT_ROOT_SHARE 0.30
/* CPU-bound loading whose wait is a quarter run queue lacks cores. */
#define PT_RUNQ_SHARE 0.25
/* One worker, file or first batch is the root from half of the wait. */
#define PT_SLOW_SHARE 0.50
/* A worker is slow from this many times its peers' batch time. */
#define PT_SLOW_FACTOR 1.5
/* Workers that are idle for less than this are all busy ... */
#define PT_POOL_BUSY 0.85
/* ... and do not lack cores below this share of their time on the run queue. */
#define PT_POOL_RUNQ 0.10
/* Idle workers whose senders are busy for so much of the time are not short
 * of indices: what they made is stuck on its way. */
#define PT_POOL_SENDING 0.50
/* So many cores must be unused for one more worker. */
#define PT_CORE_FREE 1.0

/* ---- items --------------------------------------------------------------- */
/* Guides: above 10 ms an item is slow, above 1 s it deserves a warning. */
#define PT_ITEM_MS 10.0
#define PT_SLOW_ITEM_MS 1000.0

/* ---- hanging ------------------------------------------------------------- */
/* A stopped process is no matter of patience; a wait may end after all: slow
 * items take a second, loaders' time-outs minutes. */
#define PT_STOPPED_S 1.0
#define PT_HUNG_S 5.0
/* ... and longer than so many batches of its peers. */
#define PT_HUNG_BATCHES 10

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
/* Samples; Mann and Kendall's normal deviate is good from ten, and both
 * halves are looked at. */
#define PT_GROWTH_MIN_POINTS 20
/* Two-sided 1 % for the whole, 5 % for the second half alone: growth that
 * has ended was a warm-up. */
#define PT_GROWTH_DEVIATE 2.576
#define PT_GROWTH_HALF_DEVIATE 1.96
/* ... at no less than this part of the whole's pace. */
#define PT_GROWTH_HALF_PACE 0.25
/* Over the capture, of the memory in use; less does not matter yet. */
#define PT_GROWTH_SHARE 0.02
#define PT_GROWTH_WARNING 0.10

#endif
