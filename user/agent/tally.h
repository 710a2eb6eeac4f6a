/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A job's counters, summed up over its samples. Counters are honest under
 * sampling: what a sample saw stands for the time since the one before, and how
 * much of that time was seen is counted beside it. Pure.
 */
#ifndef PT_AGENT_TALLY_H
#define PT_AGENT_TALLY_H

#include "agent/sample.h"

#define PT_TALLY_BUCKETS 12
/* Upper ends in seconds: from a small inference step to a slow epoch's batch. */
extern const double pt_tally_bucket[PT_TALLY_BUCKETS];

struct pt_tally {
	/* counters; of the job's whole time, as far as samples stand for it */
	double covered_s;  /* of wall time */
	double observed_s; /* ... of which samples saw */
	double gpu_s;	   /* GPU-seconds in covered_s */
	double busy_low_s, busy_high_s;
	double lost_s[PT_CAUSE_NR]; /* GPU-seconds idle */
	double steps;
	double read_bytes, read_s;
	double step_bucket[PT_TALLY_BUCKETS + 1]; /* the last: above all */
	double step_sum_s;
	/* counters of what was done, not scaled */
	double samples, failed, lost_events, tracer_cpu_s;
	/* the last sample */
	struct pt_sample last;
	bool has_last;
	double last_end; /* s of the caller's monotonic clock; 0 none */
};

/*
 * A sample that ended at `end` (s, monotonic) of a job that lives since `born`.
 * It stands for the time since the last one ended, or since the job was born, but
 * for no more than `most` seconds: what was longer ago nobody saw.
 */
void pt_tally_add(struct pt_tally *t, const struct pt_sample *s, double born,
		  double end, double most);
/* One that failed: its time stays uncovered. */
void pt_tally_failed(struct pt_tally *t);

#endif
