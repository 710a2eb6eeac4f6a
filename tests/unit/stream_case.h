/* SPDX-License-Identifier: BSD-2-Clause */
/* One simulated job, its report, and what must be true of every report. */
#ifndef PT_TEST_STREAM_CASE_H
#define PT_TEST_STREAM_CASE_H

#include "stream_job.h"

struct st_case {
	struct job j;
	struct pt_model *m;
	struct pt_report *r;
};

/* Simulate, cut to [t0,t1) from the job's begin (0, 0: a usual window), feed,
 * analyse. */
void case_open(struct st_case *c, const struct job_opts *o, uint64_t t0,
	       uint64_t t1);
/* The usual window, without what a change would win. */
void case_figures(struct st_case *c, const struct job_opts *o);
void case_close(struct st_case *c);

/* What is wrong with a report whatever was recorded, in `buf`; NULL when
 * nothing is. */
const char *case_trouble(const struct pt_report *r, char *buf, size_t n);

/* Seconds of the data wait that are charged to a cause. */
double case_charged(const struct pt_report *r, enum pt_cause cause);
/* The report as JSON text, without what depends on the number of records. The
 * caller frees it. */
char *case_json(const struct pt_report *r);
/* The first verdict's id; "" when there is none. */
const char *case_root(const struct pt_report *r);
/* The verdict of that id; NULL when there is none. */
const struct pt_r_verdict *case_verdict(const struct pt_report *r, const char *id);
/* The reported step that begins within `slack` of `ts`; NULL. */
const struct pt_r_step *case_step(const struct pt_report *r, uint64_t ts,
				  uint64_t slack);

#endif
