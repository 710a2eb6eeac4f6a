/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What one sample of a job said, out of its report (schema pipetrace.report/1).
 * The report comes from a process of ours, about a job of somebody else: numbers
 * out of range are refused, names are bounded.
 */
#ifndef PT_AGENT_SAMPLE_H
#define PT_AGENT_SAMPLE_H

#include <jansson.h>
#include <stdint.h>

#include "report/report.h"

#define PT_SAMPLE_VERDICTS 24 /* there are as many ids, and one more */
#define PT_SAMPLE_STEPS 4096  /* kept of one sample, at most */

struct pt_sample_verdict {
	char id[32];
	uint8_t severity; /* enum pt_severity */
	bool root;	  /* no consequence of another one */
};

struct pt_sample { /* NAN: not known. GPU-seconds: over all devices */
	double duration; /* s that were observed */
	double gpus;
	double busy_s, busy_hard_s[2], busy_likely_s[2]; /* GPU-seconds */
	double idle_s[PT_CAUSE_NR];			 /* ... by cause */
	double starved_s[2]; /* ... idle in data waits: certain, likely */
	double data_wait_share; /* of the trainer's time */
	double steps;		/* NAN: none were told apart */
	double slowdown;	/* of the slowest worker */
	double read_bytes, read_s;
	double events, lost, tracer_cpu_s;
	bool complete;
	size_t n_verdicts;
	struct pt_sample_verdict verdict[PT_SAMPLE_VERDICTS];
	size_t n_step_s; /* steps.list, where the report has it */
	float step_s[PT_SAMPLE_STEPS];
};

/* 0, or -EINVAL with one sentence in `why` (a static text). */
int pt_sample_read(const json_t *report, struct pt_sample *s, const char **why);

#endif
