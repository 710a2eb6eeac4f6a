/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A job's counters, summed up over its samples. Counters are honest under
 * sampling: what a sample saw stands for the time since the one before, and how
 * much of that time was seen is counted beside it. Pure.
 */
#ifndef PT_AGENT_TALLY_H
#define PT_AGENT_TALLY_H

#include "agent/sample.h"

#define PT_TALLY_BUCKETS 7
#define PT_TALLY_CAUSES 8 /* that have a counter of their own, and no_demand */
#define PT_TALLY_MOUNTS 32
/* Upper ends in seconds: from a small inference step to a slow epoch's batch. */
extern const double pt_tally_bucket[PT_TALLY_BUCKETS];

struct pt_tally {
	/* counters; of the job's whole time, as far as samples stand for it */
	double covered_s;  /* of wall time */
	double observed_s; /* ... of which samples saw */
	double gpu_s;	   /* GPU-seconds in covered_s */
	double busy_low_s, busy_high_s;
	double lost_s[PT_CAUSE_NR]; /* GPU-seconds idle */
	double starved_low_s, starved_high_s; /* ... in data waits */
	double steps;
	double phase_s[PT_PHASE_NR]; /* where steps are known */
	double read_bytes, read_s, reads;
	struct pt_sample_mount mount[PT_TALLY_MOUNTS]; /* as they came */
	size_t n_mounts;
	double step_bucket[PT_TALLY_BUCKETS + 1]; /* the last: above all */
	double step_sum_s;
	/* counters of what was done, not scaled */
	double samples, failed, events, lost_events, tracer_cpu_s;
	double windows; /* that a watch kept */
	bool watched;	/* it is, or was */
	/* Causes in the order in which they came, as far as they are told apart:
	 * what a counter counts never changes. */
	uint8_t cause[PT_TALLY_CAUSES];
	size_t n_causes;
	/* the last sample */
	struct pt_sample last;
	bool has_last;
	double last_end; /* s of the caller's monotonic clock; 0 none */
};

/*
 * A sample that ended at `end` (s, monotonic) of a job that lives since `born`.
 * The time since the last one ended (or since the job was born) is charged half by
 * that one and half by this one, so that how much a sample counts does not depend
 * on when it was taken: the sums are right on average, whatever the job does in
 * turns. No more than `most` seconds: what was longer ago nobody saw.
 */
void pt_tally_add(struct pt_tally *t, const struct pt_sample *s, double born,
		  double end, double most);
/* One that failed: its time stays uncovered. */
void pt_tally_failed(struct pt_tally *t);

/* GPU-seconds of the causes that have no counter of their own. */
double pt_tally_other_s(const struct pt_tally *t);
/* The first `n` mounts by read time, and of bytes where nothing was waited for:
 * their places in t->mount. Returns how many. */
size_t pt_tally_top_mounts(const struct pt_tally *t, size_t *top, size_t n);

#endif
