/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The questions. A counter's growth in the window is what increase() says, and
 * its first value where the job came within the window: it began at nothing then.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "fleet/ask.h"
#include "report/fields.h"

#define VERDICT_SHARE 0.2 /* of the scrapes */


const char *const pt_fleet_sorts[] = { "wasted", "share", "gpu", NULL };

const char *pt_fleet_cause_name(size_t i)
{
	return i < PT_CAUSE_NR ? pt_cause_name((enum pt_cause)i) : "other";
}

const char *pt_fleet_label(const json_t *labels, const char *name)
{
	const char *s = json_string_value(json_object_get(labels, name));

	return s ? s : "";
}

void pt_fleet_whose(const json_t *l, char *out, size_t n)
{
	const char *pod = pt_fleet_label(l, "pod"), *group = pt_fleet_label(l, "group");
	const char *slurm = pt_fleet_label(l, "slurm_job");

	if (*pod)
		snprintf(out, n, "%s/%s", pt_fleet_label(l, "namespace"), pod);
	else if (*slurm)
		snprintf(out, n, "slurm %s", slurm);
	else
		snprintf(out, n, "%s", *group ? group : pt_fleet_label(l, "comm"));
}

int pt_fleet_query(struct pt_fleet_asking *k, json_t **rows, const char *fmt, ...)
{
	char *expr;
	va_list ap;
	int ret;

	*rows = NULL;
	va_start(ap, fmt);
	ret = vasprintf(&expr, fmt, ap);
	va_end(ap);
	if (ret < 0) {
		snprintf(k->why, k->n, "out of memory");
		return -ENOMEM;
	}
	ret = pt_prometheus_query(k->p, expr, k->f->at, rows, k->why, k->n);
	free(expr);
	return ret;
}

char *pt_fleet_grown(const struct pt_fleet_asking *k, const char *by, const char *metric,
		   const char *selector)
{
	long w = lround(k->a->window_s);
	char *s;

	/* the label keeps a series' two values apart, so that both are summed */
	if (asprintf(&s,
		     "sum %s(increase(%s{%s}[%lds]) or label_replace(min_over_time("
		     "%s{%s}[%lds]) and on (instance, job_id) (min_over_time("
		     "pipetrace_job_counting_start_time_seconds[%lds]) >= time() - %ld),"
		     " \"first\", \"1\", \"\", \"\"))",
		     by, metric, selector, w, metric, selector, w, w, w) < 0)
		return NULL;
	return s;
}

static size_t cause_index(const json_t *labels)
{
	int i = pt_enum_find(&pt_enum_cause, pt_fleet_label(labels, "cause"));

	return i < 0 ? PT_CAUSE_NR : (size_t)i;
}

static struct pt_fleet_job *find_job(const struct pt_fleet *f, const json_t *labels)
{
	const char *id = pt_fleet_label(labels, "job_id");
	const char *node = pt_fleet_label(labels, "instance");
	size_t i;

	for (i = 0; i < f->n_jobs; i++)
		if (!strcmp(id, pt_fleet_label(f->job[i].labels, "job_id")) &&
		    !strcmp(node, pt_fleet_label(f->job[i].labels, "instance")))
			return &f->job[i];
	return NULL;
}

static int at_server_time(struct pt_fleet_asking *k)
{
	json_t *rows;
	int ret = pt_fleet_query(k, &rows, "time()");

	if (ret)
		return ret;
	k->f->at = pt_fleet_value(json_array_get(rows, 0));
	json_decref(rows);
	if (k->f->at > 1e8 && k->f->at < 1e11)
		return 0;
	snprintf(k->why, k->n, "the server says not what time it is");
	return -EPROTO;
}

/* Sums over all jobs; what came before a series was first scraped is left out, it
 * is little of so much. */
static int totals(struct pt_fleet_asking *k)
{
	long w = lround(k->a->window_s);
	const json_t *row;
	json_t *rows;
	size_t i;
	int ret = pt_fleet_query(k, &rows, "sum by (cause) (increase("
				 "pipetrace_gpu_lost_seconds_total[%lds]))", w);

	json_array_foreach(rows, i, row) {
		size_t c = cause_index(json_object_get(row, "metric"));

		k->f->cause_s[c] += fmax(0, pt_fleet_value(row));
		if (c != PT_CAUSE_NO_DEMAND)
			k->f->wasted_s += fmax(0, pt_fleet_value(row));
	}
	json_decref(rows);
	ret = ret ?: pt_fleet_query(k, &rows,
		       "label_replace(sum(increase(pipetrace_gpu_seconds_total[%lds])),"
		       " \"of\", \"gpu\", \"\", \"\") or label_replace(count(count by "
		       "(instance) (last_over_time(pipetrace_agent_info[%lds]))), \"of\","
		       " \"nodes\", \"\", \"\") or label_replace(count(last_over_time("
		       "pipetrace_samples_total[%lds])), \"of\", \"jobs\", \"\", \"\")",
		       w, w, w);
	if (ret)
		return ret;
	json_array_foreach(rows, i, row) {
		const char *of = pt_fleet_label(json_object_get(row, "metric"), "of");

		*(!strcmp(of, "gpu") ? &k->f->gpu_s : !strcmp(of, "nodes") ?
			  &k->f->nodes : &k->f->jobs) = pt_fleet_value(row);
	}
	json_decref(rows);
	return 0;
}

int pt_fleet_select(const json_t *labels, char **only)
{
	const json_t *l;
	size_t len, i;
	FILE *f = open_memstream(only, &len);
	const char *s;

	if (!f)
		return -ENOMEM;
	fputs(",job_id=~\"", f);
	json_array_foreach(labels, i, l) {
		if (i)
			fputc('|', f);
		for (s = pt_fleet_label(l, "job_id"); *s; s++) {
			if (*s == '\n') {
				fputs("\\n", f);
				continue;
			}
			if (strchr("\\.+*?()|[]{}^$", *s))
				fputs("\\\\", f);
			if (*s == '"' || *s == '\\')
				fputc('\\', f);
			fputc(*s, f);
		}
	}
	fputc('"', f);
	return fclose(f) ? -ENOMEM : 0;
}

static int select_jobs(struct pt_fleet_asking *k)
{
	json_t *labels = json_array();
	char *only = NULL;
	int ret = labels ? 0 : -ENOMEM;
	size_t i;

	for (i = 0; !ret && i < k->f->n_jobs; i++)
		if (json_array_append(labels, k->f->job[i].labels))
			ret = -ENOMEM;
	ret = ret ?: pt_fleet_select(labels, &only);
	k->only = ret ? NULL : strdup(only + 1);
	free(only);
	json_decref(labels);
	return ret || !k->only ? -ENOMEM : 0;
}

/* The jobs, most wasteful first. */
static int top_jobs(struct pt_fleet_asking *k)
{
	char *lost = pt_fleet_grown(k, PT_FLEET_BY, "pipetrace_gpu_lost_seconds_total",
			   "cause!=\"no_demand\"");
	char *gpu = pt_fleet_grown(k, PT_FLEET_BY, "pipetrace_gpu_seconds_total", "");
	const json_t *row;
	json_t *rows = NULL;
	int ret = -ENOMEM;
	size_t i, c;

	if (lost && gpu && k->a->sort == PT_FLEET_WASTED)
		ret = pt_fleet_query(k, &rows, "topk(%zu, %s)", k->a->top, lost);
	else if (lost && gpu && k->a->sort == PT_FLEET_SHARE)
		ret = pt_fleet_query(k, &rows, "topk(%zu, (%s) / (%s > 0))", k->a->top,
			    lost, gpu);
	else if (lost && gpu)
		ret = pt_fleet_query(k, &rows, "topk(%zu, %s)", k->a->top, gpu);
	free(lost);
	free(gpu);
	if (ret || !json_array_size(rows))
		goto out;
	ret = -ENOMEM;
	k->f->job = calloc(json_array_size(rows), sizeof(*k->f->job));
	if (!k->f->job)
		goto out;
	json_array_foreach(rows, i, row) {
		struct pt_fleet_job *j = &k->f->job[k->f->n_jobs];

		/* a server that knows no topk does not make it longer */
		if (k->f->n_jobs == k->a->top)
			break;
		j->labels = json_copy(json_object_get(row, "metric"));
		if (!j->labels)
			goto out;
		j->gpu_s = j->busy_low_s = j->busy_high_s = j->starved_low_s =
			j->starved_high_s = j->covered_s = NAN;
		for (c = 0; c < PT_FLEET_CAUSES; c++)
			j->cause_s[c] = 0;
		k->f->n_jobs++;
	}
	ret = select_jobs(k);
out:
	json_decref(rows);
	return ret;
}

static int one_counter(struct pt_fleet_asking *k, const char *metric, size_t offset)
{
	char *expr = pt_fleet_grown(k, PT_FLEET_BY, metric, k->only);
	const json_t *row;
	json_t *rows = NULL;
	int ret = expr ? pt_fleet_query(k, &rows, "%s", expr) : -ENOMEM;
	size_t i;

	json_array_foreach(rows, i, row) {
		struct pt_fleet_job *j = find_job(k->f, json_object_get(row, "metric"));

		if (j)
			*(double *)(void *)((char *)j + offset) = fmax(0, pt_fleet_value(row));
	}
	json_decref(rows);
	free(expr);
	return ret;
}

static int causes(struct pt_fleet_asking *k)
{
	char *expr = pt_fleet_grown(k, "by (instance, job_id, cause) ",
			   "pipetrace_gpu_lost_seconds_total", k->only);
	const json_t *row;
	json_t *rows = NULL;
	int ret = expr ? pt_fleet_query(k, &rows, "%s", expr) : -ENOMEM;
	size_t i;

	json_array_foreach(rows, i, row) {
		const json_t *l = json_object_get(row, "metric");
		struct pt_fleet_job *j = find_job(k->f, l);

		if (j)
			j->cause_s[cause_index(l)] += fmax(0, pt_fleet_value(row));
	}
	json_decref(rows);
	free(expr);
	return ret;
}

/* What is worth a warning goes before what is none, unless it was there for a moment
 * only. */
static double order(int severity, double share)
{
	return share + (severity > PT_INFO && share >= VERDICT_SHARE);
}

/* Whose they are, and the root verdict that held longest. */
static int about(struct pt_fleet_asking *k)
{
	long w = lround(k->a->window_s);
	const json_t *row;
	json_t *rows;
	size_t i;
	int ret = pt_fleet_query(k, &rows, "last_over_time(pipetrace_job_info{%s}[%lds])",
			k->only, w);

	json_array_foreach(rows, i, row) {
		json_t *l = json_object_get(row, "metric");
		struct pt_fleet_job *j = find_job(k->f, l);

		if (j && json_object_update_missing(j->labels, l))
			ret = -ENOMEM;
	}
	json_decref(rows);
	ret = ret ?: pt_fleet_query(k, &rows,
			   "sum by (instance, job_id, id, severity) (count_over_time("
			   "pipetrace_verdict{%s,root=\"true\"}[%lds])) / on (instance, "
			   "job_id) group_left () sum " PT_FLEET_BY "(count_over_time("
			   "pipetrace_samples_total{%s}[%lds]))",
			   k->only, w, k->only, w);
	if (ret)
		return ret;
	json_array_foreach(rows, i, row) {
		const json_t *l = json_object_get(row, "metric");
		struct pt_fleet_job *j = find_job(k->f, l);
		int s = pt_enum_find(&pt_enum_severity, pt_fleet_label(l, "severity"));

		s = s < 0 ? PT_INFO : s;
		if (!j || (*j->verdict && order(s, pt_fleet_value(row)) <=
						  order(j->severity, j->verdict_share)))
			continue;
		snprintf(j->verdict, sizeof(j->verdict), "%s", pt_fleet_label(l, "id"));
		j->severity = s;
		j->verdict_share = fmin(1, pt_fleet_value(row));
	}
	json_decref(rows);
	return 0;
}

static int details(struct pt_fleet_asking *k)
{
	static const struct {
		const char *metric;
		size_t offset;
	} all[] = {
		{ "pipetrace_gpu_seconds_total", offsetof(struct pt_fleet_job, gpu_s) },
		{ "pipetrace_gpu_busy_low_seconds_total",
		  offsetof(struct pt_fleet_job, busy_low_s) },
		{ "pipetrace_gpu_busy_high_seconds_total",
		  offsetof(struct pt_fleet_job, busy_high_s) },
		{ "pipetrace_gpu_starved_low_seconds_total",
		  offsetof(struct pt_fleet_job, starved_low_s) },
		{ "pipetrace_gpu_starved_high_seconds_total",
		  offsetof(struct pt_fleet_job, starved_high_s) },
		{ "pipetrace_covered_seconds_total",
		  offsetof(struct pt_fleet_job, covered_s) },
	};
	size_t i, c;
	int ret = causes(k);

	for (i = 0; !ret && i < sizeof(all) / sizeof(*all); i++)
		ret = one_counter(k, all[i].metric, all[i].offset);
	pt_each_of(struct pt_fleet_job, j, k->f->job, k->f->n_jobs) {
		double idle = j->cause_s[PT_CAUSE_NO_DEMAND];

		j->wasted_s = 0;
		for (c = 0; c < PT_FLEET_CAUSES; c++)
			j->wasted_s += c == PT_CAUSE_NO_DEMAND ? 0 : j->cause_s[c];
		/* fmin and fmax leave out what is not known */
		j->low_s = fmin(j->wasted_s, fmax(0, j->gpu_s - j->busy_high_s - idle));
		j->high_s = fmax(j->wasted_s, j->gpu_s - j->busy_low_s - idle);
		if (isnan(j->busy_low_s) || isnan(j->gpu_s))
			j->low_s = j->high_s = NAN;
	}
	return ret ? ret : about(k);
}

int pt_fleet_collect(struct pt_prometheus *p, const struct pt_fleet_ask *ask,
		     struct pt_fleet *f, char *why, size_t n)
{
	struct pt_fleet_asking k = { .p = p, .a = ask, .f = f, .why = why, .n = n };
	int ret;

	memset(f, 0, sizeof(*f));
	f->window_s = ask->window_s;
	ret = at_server_time(&k);
	ret = ret ?: totals(&k);
	ret = ret ?: top_jobs(&k);
	if (!ret && f->n_jobs)
		ret = details(&k);
	ret = ret ?: pt_fleet_stragglers(&k);
	ret = ret ?: pt_fleet_mounts(&k);
	if (ret == -ENOMEM)
		snprintf(why, n, "out of memory");
	free(k.only);
	return ret;
}

void pt_fleet_free(struct pt_fleet *f)
{
	size_t i;

	for (i = 0; i < f->n_jobs; i++)
		json_decref(f->job[i].labels);
	for (i = 0; i < f->n_stragglers; i++)
		json_decref(f->straggler[i].labels);
	for (i = 0; i < f->n_mounts; i++)
		json_decref(f->mount[i].labels);
	free(f->job);
	free(f->straggler);
	free(f->mount);
	memset(f, 0, sizeof(*f));
}
