/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When to sample which job, and how much that may cost. Pure: times are seconds
 * of the realtime clock, so that nodes with the same setting sample together.
 */
#ifndef PT_AGENT_SCHEDULE_H
#define PT_AGENT_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct pt_schedule {
	double interval; /* s from one sample of a job to its next */
	double sample;	 /* s that one takes; less than interval */
	bool aligned;	 /* all nodes and ranks of a job at once, for comparison */
	uint64_t node;	 /* spreads nodes where they are not aligned */
};

/* The first begin of a sample of job `job` behind `after`, one in each interval of
 * the clock. Aligned: at its begin. Else somewhere within it, by a hash of node, job
 * and interval: what a job does in turns is not met at the same place each time, and
 * a restart of the agent changes nothing. */
double pt_schedule_next(const struct pt_schedule *s, uint64_t job, double after);

/* A number for a name (FNV-1a, 64 bits). */
uint64_t pt_schedule_hash(const char *name);

struct pt_budget {
	double cpu_max;	   /* cores, on average: 0.01 is 1 % of one */
	double stretch;	   /* the interval is so many times the configured one */
	double stretch_max;
	double used;	   /* cores, as last seen, smoothed */
};
#define PT_BUDGET_OPEN(cores)                                                  \
	{ .cpu_max = (cores), .stretch = 1, .stretch_max = 60 }

/*
 * `cpu_s` of CPU were used in `wall_s` at the present rate. Raises the stretch at
 * once to what the budget allows, lowers it by a tenth at a time where that
 * stays inside. True: it changed.
 */
bool pt_budget_spent(struct pt_budget *b, double cpu_s, double wall_s);

#endif
