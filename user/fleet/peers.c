/* SPDX-License-Identifier: BSD-2-Clause */
/* Who holds up his peers, and where reads wait: questions over all jobs. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "fleet/ask.h"

#define MOUNTS 10
#define STRAGGLERS 50
#define MEMBERS 2000 /* of groups with one, asked for more */
/* A rank of which fewer were seen may have been seen in another phase of the job
 * than its peers. */
#define SAMPLES 5

/* Seconds of a counter for each step, of the jobs of `only` that have a group and
 * samples enough. */
static int per_step(struct pt_fleet_asking *k, const char *counter, const char *phases,
		    const char *only, json_t **rows)
{
	long w = lround(k->a->window_s);

	return pt_fleet_query(k, rows,
		     "sum " PT_FLEET_BY "(increase(%s{job_id!=\"\"%s%s}[%lds])) / (sum "
		     PT_FLEET_BY "(increase(pipetrace_steps_total{%s}[%lds])) > 0) * on "
		     "(instance, job_id) group_left (group, rank) max by (instance, "
		     "job_id, group, rank) (last_over_time(pipetrace_job_info{"
		     "group!=\"\"%s}[%lds])) and on (instance, job_id) max by (instance, "
		     "job_id) (max_over_time(pipetrace_samples_total{%s}[%lds])) >= %d",
		     counter, phases, only, w, *only ? only + 1 : "", w, only, w,
		     *only ? only + 1 : "", w, SAMPLES);
}
#define PHASES "pipetrace_step_phase_seconds_total"
#define LENGTH "pipetrace_covered_seconds_total"

PT_ORDER(worse, struct pt_fleet_straggler, pt_cmp(y->own_s / y->median_s, x->own_s / x->median_s))

static int keep_stragglers(struct pt_fleet *f, const struct pt_fleet_member *m,
			   size_t n, const json_t *rows)
{
	size_t i, count = 0;

	for (i = 0; i < n; i++)
		count += m[i].straggles;
	if (!count)
		return 0;
	f->straggler = calloc(count, sizeof(*f->straggler));
	if (!f->straggler)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		struct pt_fleet_straggler *s = &f->straggler[f->n_stragglers];

		if (!m[i].straggles)
			continue;
		*s = (struct pt_fleet_straggler){
			.labels = json_incref(json_object_get(
				json_array_get(rows, m[i].index), "metric")),
			.by_data = m[i].by_data, .own_s = m[i].own_s,
			.median_s = m[i].median_s, .mad_s = m[i].mad_s,
			.members = m[i].members };
		f->n_stragglers++;
	}
	qsort(f->straggler, count, sizeof(*f->straggler), worse);
	while (f->n_stragglers > STRAGGLERS)
		json_decref(f->straggler[--f->n_stragglers].labels);
	return 0;
}

/* One value each of (instance, job_id), found again in the other answer. */
static json_t *index_of(const json_t *rows)
{
	json_t *o = json_object();
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) {
		const json_t *l = json_object_get(row, "metric");
		char *key;

		if (asprintf(&key, "%s\n%s", pt_fleet_label(l, "instance"),
			     pt_fleet_label(l, "job_id")) < 0)
			continue;
		json_object_set(o, key, json_object_get(row, "value"));
		free(key);
	}
	return o;
}

static double look_up(const json_t *index, const json_t *l)
{
	double x = NAN;
	char *key;

	if (asprintf(&key, "%s\n%s", pt_fleet_label(l, "instance"),
		     pt_fleet_label(l, "job_id")) < 0)
		return x;
	if (json_object_get(index, key))
		x = json_number_value(json_object_get(index, key));
	free(key);
	return x;
}

/* The labels of all members of groups with a straggler; they lie together. */
static json_t *suspects(const struct pt_fleet_member *m, size_t n, const json_t *steps)
{
	json_t *labels = json_array();
	size_t i, j, end;

	for (i = 0; labels && i < n; i = end) {
		bool any = false;

		for (end = i; end < n && !strcmp(m[end].group, m[i].group); end++)
			any = any || m[end].straggles;
		for (j = i; any && labels && j < end; j++) {
			if (!json_array_append(labels, json_object_get(
				    json_array_get(steps, m[j].index), "metric")))
				continue;
			json_decref(labels);
			labels = NULL;
		}
	}
	return labels;
}

/* How long their steps are and how long they wait for data: asked for them alone. */
static int look_closer(struct pt_fleet_asking *k, struct pt_fleet_member *m, size_t n,
		       const json_t *steps)
{
	json_t *labels = suspects(m, n, steps), *data = NULL, *length = NULL;
	json_t *by_data = NULL, *by_length = NULL;
	char *only = NULL;
	int ret = labels ? 0 : -ENOMEM;
	size_t i;

	if (ret || !json_array_size(labels))
		goto out;
	/* of so many, all are asked for */
	if (json_array_size(labels) > MEMBERS)
		only = strdup("");
	else
		ret = pt_fleet_select(labels, &only);
	if (!only)
		ret = -ENOMEM;
	ret = ret ?: per_step(k, PHASES, ",phase=\"data_wait\"", only, &data);
	ret = ret ?: per_step(k, LENGTH, "", only, &length);
	by_data = ret ? NULL : index_of(data);
	by_length = ret ? NULL : index_of(length);
	for (i = 0; by_data && by_length && i < n; i++) {
		const json_t *l = json_object_get(json_array_get(steps, m[i].index),
						  "metric");

		m[i].data_s = look_up(by_data, l);
		m[i].length_s = look_up(by_length, l);
	}
out:
	json_decref(by_data);
	json_decref(by_length);
	json_decref(data);
	json_decref(length);
	json_decref(labels);
	free(only);
	return ret;
}

int pt_fleet_stragglers(struct pt_fleet_asking *k)
{
	struct pt_fleet_member *m = NULL;
	size_t n, i, groups, small;
	double *scratch = NULL;
	json_t *steps = NULL;
	const json_t *row;
	int ret = per_step(k, PHASES, ",phase=~\"data_wait|host\"", "", &steps);

	if (ret)
		goto out;
	n = json_array_size(steps);
	m = calloc(n + 1, sizeof(*m));
	scratch = calloc(n + 1, sizeof(*scratch));
	ret = -ENOMEM;
	if (!m || !scratch)
		goto out;
	json_array_foreach(steps, i, row) {
		m[i].group = pt_fleet_label(json_object_get(row, "metric"), "group");
		m[i].own_s = pt_fleet_value(row);
		m[i].data_s = m[i].length_s = NAN;
		m[i].index = i;
	}
	pt_fleet_judge(m, n, scratch, &groups, &small);
	ret = look_closer(k, m, n, steps);
	if (ret)
		goto out;
	pt_fleet_judge(m, n, scratch, &groups, &small); /* by a tenth of a step, and why */
	k->f->groups = (double)groups;
	k->f->small_groups = (double)small;
	ret = keep_stragglers(k->f, m, n, steps);
out:
	free(m);
	free(scratch);
	json_decref(steps);
	return ret;
}

int pt_fleet_mounts(struct pt_fleet_asking *k)
{
	long w = lround(k->a->window_s);
	json_t *rows = NULL, *more = NULL, *count = NULL;
	const json_t *row;
	size_t i, j, n;
	int ret;

	ret = pt_fleet_query(k, &rows, "topk(%d, sum by (mount) (increase("
			     "pipetrace_mount_read_seconds_total[%lds])))", MOUNTS, w);
	ret = ret ?: pt_fleet_query(k, &more, "sum by (mount) (increase("
				    "pipetrace_mount_read_bytes_total[%lds]))", w);
	ret = ret ?: pt_fleet_query(k, &count, "count by (mount) ("
				    "pipetrace_mount_read_seconds_total)");
	n = json_array_size(rows) < MOUNTS ? json_array_size(rows) : MOUNTS;
	if (ret || !n)
		goto out;
	ret = -ENOMEM;
	k->f->mount = calloc(n, sizeof(*k->f->mount));
	if (!k->f->mount)
		goto out;
	for (i = 0; i < n; i++) {
		struct pt_fleet_mount *m = &k->f->mount[k->f->n_mounts++];

		row = json_array_get(rows, i);
		m->labels = json_incref(json_object_get(row, "metric"));
		m->read_s = fmax(0, pt_fleet_value(row));
		m->read_bytes = m->jobs = NAN;
		json_array_foreach(more, j, row)
			if (json_equal(json_object_get(row, "metric"), m->labels))
				m->read_bytes = fmax(0, pt_fleet_value(row));
		json_array_foreach(count, j, row)
			if (json_equal(json_object_get(row, "metric"), m->labels))
				m->jobs = pt_fleet_value(row);
	}
	ret = 0;
out:
	json_decref(rows);
	json_decref(more);
	json_decref(count);
	return ret;
}
