/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fleet: which jobs waste GPUs, on what, and who holds up his peers; all out
 * of what the agents of many nodes gave a Prometheus.
 */
#ifndef PT_FLEET_H
#define PT_FLEET_H

#include <jansson.h>
#include <stdio.h>

#include "fleet/prometheus.h"
#include "report/report.h"
#include "view/text/text.h"

#define PT_FLEET_TOP_MAX 1000
#define PT_FLEET_CAUSES (PT_CAUSE_NR + 1) /* the last: others, together */

enum pt_fleet_sort { PT_FLEET_WASTED, PT_FLEET_SHARE, PT_FLEET_GPU, PT_FLEET_SORTS };
extern const char *const pt_fleet_sorts[]; /* their names; ends with NULL */

/* Figures of the window; GPU-seconds unless it says otherwise. NAN: not known. */
struct pt_fleet_job {
	json_t *labels; /* instance, job_id and those of pipetrace_job_info */
	double gpu_s;
	double wasted_s; /* idle, but for want of demand; the estimate */
	double low_s, high_s; /* ... and its likely bounds */
	double busy_low_s, busy_high_s;
	double starved_low_s, starved_high_s; /* idle in data waits */
	double covered_s; /* s of its wall time that samples stand for */
	double cause_s[PT_FLEET_CAUSES];
	char verdict[32]; /* the root that held longest; "": none */
	int severity;	  /* enum pt_severity */
	double verdict_share; /* of the job's scrapes */
};

/* One rank (or node) whose steps take longer than those of its peers. */
struct pt_fleet_straggler {
	json_t *labels; /* instance, job_id, group, rank */
	bool by_data;	/* most of it is waiting for data, else other host work */
	double own_s;	/* host work and data wait of a step, s */
	double median_s, mad_s; /* of all in the group */
	size_t members;
};

struct pt_fleet_mount {
	json_t *labels; /* mount */
	double read_s, read_bytes;
	double jobs;
};

struct pt_fleet {
	double window_s, at; /* at: Unix time, of the server's clock */
	double nodes, jobs, gpu_s;
	double cause_s[PT_FLEET_CAUSES]; /* of all jobs */
	double wasted_s;
	struct pt_fleet_job *job;
	size_t n_jobs;
	struct pt_fleet_straggler *straggler; /* worst first */
	size_t n_stragglers;
	double groups, small_groups; /* with too few members to judge */
	struct pt_fleet_mount *mount; /* most read time first */
	size_t n_mounts;
};

struct pt_fleet_ask {
	double window_s;
	size_t top;
	enum pt_fleet_sort sort;
};

/* Asks. 0, or -errno with a sentence in `why` (see pt_prometheus_query). *f is to
 * be freed either way. */
int pt_fleet_collect(struct pt_prometheus *p, const struct pt_fleet_ask *ask,
		     struct pt_fleet *f, char *why, size_t n);
void pt_fleet_free(struct pt_fleet *f);

const char *pt_fleet_cause_name(size_t i); /* below PT_FLEET_CAUSES */
/* A label's text; "" where it has none. */
const char *pt_fleet_label(const json_t *labels, const char *name);
/* "namespace/pod", "slurm 4711", the group, or the program's name. */
void pt_fleet_whose(const json_t *labels, char *out, size_t n);

/* A member of a group, for the comparison. */
struct pt_fleet_member {
	const char *group;
	double own_s;	 /* host work and data wait of a step */
	double data_s;	 /* ... data wait; NAN: not known */
	double length_s; /* of the whole step; NAN: not known */
	double median_s, mad_s; /* out: of its group */
	size_t members; /* out */
	bool straggles, by_data; /* out */
	size_t index; /* the caller's */
};
#define PT_FLEET_PEERS 3 /* members that a median needs to tell who is late */
/*
 * Sorts by group and judges each member by its group's median: late by more than
 * a tenth of the median step (of its own part, where that is not known), and by more than four times what members usually differ (the
 * median absolute deviation, scaled to a normal distribution's sigma). Durations
 * are compared, never times, so clocks need not agree. Counts groups, and those
 * of two or more members that are too few. Pure.
 */
void pt_fleet_judge(struct pt_fleet_member *m, size_t n, double *scratch,
		    size_t *groups, size_t *small);

/* 0, -ENOMEM or -EIO. */
int pt_fleet_text(const struct pt_fleet *f, FILE *out, const struct pt_text_opts *o);
int pt_fleet_json(const struct pt_fleet *f, FILE *out);

#endif
