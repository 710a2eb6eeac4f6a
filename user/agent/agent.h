/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the agent's files: its state, of which there is one. */
#ifndef PT_AGENT_AGENT_H
#define PT_AGENT_AGENT_H

#include <jansson.h>

#include "agent/child.h"
#include "agent/config.h"
#include "agent/daemon.h"
#include "agent/evidence.h"
#include "agent/http.h"
#include "agent/jobs.h"
#include "agent/otlp.h"
#include "agent/say.h"
#include "agent/schedule.h"

#define PT_SLOTS 16
#define PT_WATCHES 16
#define PT_PAGES 64 /* of evidence that wait to be made */

struct pt_slot { /* a sample that runs */
	struct pt_child child;
	struct pt_ajob *job; /* NULL: free */
	char recording[PATH_MAX]; /* "": none is made */
	double length; /* s */
};

struct pt_awatch { /* a job that is watched all the time */
	struct pt_child child;
	struct pt_ajob *job; /* NULL: free */
	char stage[PATH_MAX]; /* where its windows come */
};

struct pt_agent {
	const struct pt_agent_options *o;
	struct pt_config c;
	int signals;
	bool stopping;

	struct pt_ajobs jobs;
	double next_search; /* monotonic, as all of these */
	struct pt_slot slot[PT_SLOTS];
	struct pt_awatch watch[PT_WATCHES];
	double watched_cpu; /* s, of watches that have ended */

	struct pt_evidence kept;
	bool keeps;	  /* evidence is configured, and its folder is open */
	bool disk_is_full; /* told */
	bool is_late;	   /* told: there are more jobs than can be sampled */
	struct pt_child page;
	char page_id[PT_EVIDENCE_ID];
	char pages[PT_PAGES][PT_EVIDENCE_ID];
	size_t n_pages;

	struct pt_budget budget;
	double window, window_cpu; /* of the budget's present window */
	double sample_resident, window_resident; /* bytes; of the last window */

	struct pt_http *http;
	struct pt_otlp *otlp;
	uint64_t start_ns; /* unix */
	double next_otlp, next_publish;
	bool changed; /* what the pages say */
};

double pt_agent_realtime(void);

/* sampling.c: starts what is due; takes what has ended. The next moment
 * (monotonic) when there may be something to do. */
double pt_agent_sample(struct pt_agent *a);
/* Gives every job its next moment anew. */
void pt_agent_reschedule(struct pt_agent *a);
void pt_agent_schedule_job(struct pt_agent *a, struct pt_ajob *j);
bool pt_agent_is_sampled(void *agent, const struct pt_ajob *j);
unsigned pt_agent_running(const struct pt_agent *a);

/* watching.c: starts, asks to end and takes windows. The next moment, as above. */
double pt_agent_watch(struct pt_agent *a);
void pt_agent_watch_end(struct pt_agent *a, double now);
void pt_agent_watch_kill(struct pt_agent *a);
/* Removes what an earlier agent's watches left. */
void pt_agent_watch_sweep(const struct pt_agent *a);
unsigned pt_agent_watches(const struct pt_agent *a);
double pt_agent_watch_cpu(const struct pt_agent *a); /* s so far */
/* Sampled or watched: it is not to be forgotten. */
bool pt_agent_is_busy(void *agent, const struct pt_ajob *j);

/* budget.c: CPU seconds so far, of samples as well, but not of watches: these cannot be
 * made fewer; own memory in bytes. */
double pt_agent_cpu(const struct pt_agent *a);
double pt_agent_resident(void);
void pt_agent_budget_begin(struct pt_agent *a);
/* Once in a while: does the rate have to change? */
void pt_agent_budget_tick(struct pt_agent *a, double now);
/* After a sample that took so many bytes: is there memory for such a one? */
void pt_agent_budget_memory(struct pt_agent *a, struct pt_ajob *j,
			    double resident);
/* s from one sample of a job to its next, as it is now. */
double pt_agent_interval(const struct pt_agent *a);

/* keep.c: evidence of a sample, its pages, and what changed. */
void pt_agent_keep(struct pt_agent *a, struct pt_ajob *j, const char *text,
		   size_t len, const char *recording, char id[PT_EVIDENCE_ID]);
/* `what`: why, where it is no sample. `recording` is moved. 0, or -errno. */
int pt_agent_keep_sample(struct pt_agent *a, struct pt_ajob *j, const struct pt_sample *s,
			 const char *what, const char *text, size_t len,
			 const char *recording, char id[PT_EVIDENCE_ID]);
int pt_agent_keep_open(struct pt_agent *a, struct pt_err *err);
/* A path for the recording of this slot's sample; "": none is made. */
void pt_agent_keep_path(struct pt_agent *a, struct pt_slot *s);
/* Starts the next page, or takes the one that is made. */
void pt_agent_keep_pages(struct pt_agent *a);
/* Verdicts of `was` (NULL: none) and of the job's last sample. `r`: of that;
 * NULL: the job has ended, and so have its verdicts. */
void pt_agent_changes(struct pt_agent *a, struct pt_ajob *j,
		      const struct pt_sample *was, const struct pt_report *r,
		      const char *kept);

/* pages.c: what is served and sent. */
void pt_agent_prom_job(const struct pt_agent *a, const struct pt_ajob *j,
		       struct pt_prom_job *out);
void pt_agent_publish(struct pt_agent *a);
void pt_agent_push(struct pt_agent *a);

#endif
