/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every metric of the agent, once: /metrics writes it as text, OTLP sends it. At
 * most PT_PROM_SERIES series per job. Pure.
 */
#ifndef PT_AGENT_SERIES_H
#define PT_AGENT_SERIES_H

#include "agent/prom.h"

enum pt_series_type {
	PT_SERIES_GAUGE,
	PT_SERIES_COUNTER, /* its samples have _total after the name */
	PT_SERIES_HISTOGRAM,
	PT_SERIES_INFO, /* always 1, its samples have _info after the name */
};

struct pt_series_family {
	const char *name; /* without _total, _info */
	enum pt_series_type type;
	const char *unit; /* NULL: none */
	const char *help; /* one sentence */
};

#define PT_SERIES_LABELS (20 + PT_PROM_FREE)
struct pt_series_label {
	const char *name;
	/* UTF-8, at most PT_PROM_LABEL bytes, no control characters but '\n';
	 * never empty. */
	const char *value;
};

struct pt_series_point {
	const struct pt_prom_job *job; /* NULL: of the agent itself */
	const struct pt_series_label *label; /* the job's own, job_id, is first */
	size_t n_labels;
	double value; /* of a histogram: the sum */
	/* of a histogram: n_bounds upper ends, and as many counts and one more;
	 * each for itself, not summed up */
	const double *bound, *count;
	size_t n_bounds;
};

/* All that is given lives until the call returns. A family comes before all its
 * points, and every family comes, with points or without. */
struct pt_series_visitor {
	void *ctx;
	void (*family)(void *ctx, const struct pt_series_family *f);
	void (*point)(void *ctx, const struct pt_series_family *f,
		      const struct pt_series_point *p);
};

/* 0 or -ENOMEM. */
int pt_series_visit(const struct pt_prom_agent *a, const struct pt_prom_job *jobs,
		    size_t n, const struct pt_series_visitor *v);

/* Is it the name of one of a job's own labels? */
bool pt_series_owns(const char *name);

/* A label's value as it is shown anywhere: cut to PT_PROM_LABEL bytes at a
 * character's end, invalid UTF-8 as \xHH, control characters but '\n' as '?'.
 * The caller frees it; NULL: no memory. */
char *pt_series_value(const char *s);

#endif
