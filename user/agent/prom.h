/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The text that Prometheus scrapes: OpenMetrics 1.0, or the older text format
 * where a scraper does not ask for that. At most PT_PROM_SERIES series per job.
 */
#ifndef PT_AGENT_PROM_H
#define PT_AGENT_PROM_H

#include <stdbool.h>
#include <stdio.h>

#include "agent/owner.h"
#include "agent/tally.h"

#define PT_PROM_SERIES 61
#define PT_PROM_LABEL 128 /* bytes of a label's value, at most, before escaping */
#define PT_PROM_FREE 8	  /* free labels of a job */

struct pt_prom_label {
	char name[64]; /* [a-zA-Z_][a-zA-Z0-9_]*, checked where it is read */
	char value[PT_PROM_LABEL];
};

struct pt_prom_job {
	const char *job; /* the label that all its series have: stable, unique */
	const char *comm, *user;
	/* What all ranks of one job on all nodes have in common; NULL or "": not
	 * known. */
	const char *group;
	long pid, rank, world; /* rank, world: -1 unknown */
	const struct pt_owner *owner;
	const struct pt_prom_label *labels; /* free ones, of the configuration */
	size_t n_labels;
	bool ended; /* what its last sample said holds no more; its counters do */
	double since_unix; /* when its counters began, Unix time; 0: not known */
	const struct pt_tally *t;
};

struct pt_prom_agent {
	const char *version;
	double cpu_s, resident_bytes; /* the agent's own, samples included */
	double jobs, interval_s, sample_s; /* the schedule as it is now */
	double dropped_jobs; /* found, not sampled: over the budget */
	const char *host;	  /* its name, or NULL */
	double interval_wanted_s; /* as configured; 0: not known */
	double cpu_budget;	  /* cores; 0: no budget */
	double memory_budget;	  /* bytes; 0 */
	bool watching; /* [watch] is configured */
	double watches, watch_cpu_s; /* jobs that are watched; what that took */
};

/* What is written: agent/series.h. 0; -EIO (of the stream: no memory), -ENOMEM. */
int pt_prom_write(FILE *f, const struct pt_prom_agent *a,
		  const struct pt_prom_job *jobs, size_t n, bool openmetrics);

#endif
