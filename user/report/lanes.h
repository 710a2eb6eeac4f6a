/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a picture of the capture shows beside the model's own timelines: the
 * trainers' steps, their data waits, who fed them, and when the device had
 * nothing to do. Made by pt_analyze() on request; see pt_analysis_opts.
 *
 * Times are CLOCK_MONOTONIC nanoseconds, ids the model's (pt_real_id() for
 * people). Everything lives in the report's arena. Pure.
 */
#ifndef PT_LANES_H
#define PT_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pt_lane_span {
	uint64_t begin, end;
};

struct pt_lane_step {
	uint64_t begin, end;
	/* the data wait: one span, or two around a pause for another loader's
	 * batch; in [begin, end] */
	struct pt_lane_span wait[2];
	unsigned n_wait;
	uint64_t made; /* the worker had made the batch; UINT64_MAX unknown */
	int worker;    /* index; -1 unknown */
	uint32_t batches;
	uint8_t cause; /* enum pt_cause, the largest of the wait */
	bool partial;  /* cut by the capture's begin or end */
};

/* What a device did in a time of which no spans are kept: shares. */
struct pt_lane_mix {
	uint64_t begin, end;
	double busy, starved, idle; /* best guess; starved: idle in a data wait */
};

struct pt_lane_worker {
	uint32_t tgid, tid; /* the thread that makes the batches */
	/* the moments at which it had made a batch, in order; none where not
	 * every batch can be seen */
	const uint64_t *made;
	size_t n_made;
};

struct pt_lane_trainer {
	uint32_t tgid, main_tid;
	int64_t rank; /* PT_NULL unknown */
	bool top;     /* the report's top level is about it */
	const struct pt_lane_step *steps; /* in order */
	size_t n_steps;
	const struct pt_lane_worker *workers;
	size_t n_workers;
	/* Device idle: certain, and by the best guess, which contains it. In
	 * order, disjoint. With `device_known` false there is no
	 * best guess. */
	const struct pt_lane_span *idle_hard, *idle_likely;
	size_t n_idle_hard, n_idle_likely;
	bool device_known;
	/* Of a capture that was looked at in pieces: the spans are of the last
	 * one, and of those before it there is this. */
	const struct pt_lane_mix *before;
	size_t n_before;
};

struct pt_past;

struct pt_lanes {
	const struct pt_past *past; /* what the model has not; or NULL */
	const struct pt_lane_trainer *trainers;
	size_t n_trainers;
};

#endif
