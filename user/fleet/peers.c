/* SPDX-License-Identifier: BSD-2-Clause */
/* Who holds up his peers, and where reads wait: questions over all jobs. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/ask.h"

#define MOUNTS 10
#define STRAGGLERS 50

/* Seconds of each step in some phases of it, of the jobs that have a group. */
static int per_step(struct pt_fleet_asking *k, const char *phases, json_t **rows)
{
	long w = lround(k->a->window_s);

	return pt_fleet_query(k, rows,
		     "sum " PT_FLEET_BY "(increase(pipetrace_step_phase_seconds_total{phase=~\"%s\"}"
		     "[%lds])) / (sum " PT_FLEET_BY "(increase(pipetrace_steps_total[%lds])) > 0)"
		     " * on (instance, job_id) group_left (group, rank) max by (instance, "
		     "job_id, group, rank) (last_over_time(pipetrace_job_info{"
		     "group!=\"\"}[%lds]))",
		     phases, w, w, w);
}

static int worse(const void *a, const void *b)
{
	const struct pt_fleet_straggler *x = a, *y = b;
	double p = x->step_s / x->median_s, q = y->step_s / y->median_s;

	return (p < q) - (p > q);
}

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
			.by_data = m[i].by_data, .step_s = m[i].step_s,
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

int pt_fleet_stragglers(struct pt_fleet_asking *k)
{
	json_t *steps = NULL, *data = NULL, *index = NULL;
	struct pt_fleet_member *m = NULL;
	size_t n, i, groups, small;
	double *scratch = NULL;
	const json_t *row;
	int ret = per_step(k, "data_wait|host", &steps);

	if (!ret)
		ret = per_step(k, "data_wait", &data);
	if (ret)
		goto out;
	n = json_array_size(steps);
	m = calloc(n + 1, sizeof(*m));
	scratch = calloc(n + 1, sizeof(*scratch));
	index = index_of(data);
	ret = -ENOMEM;
	if (!m || !scratch || !index)
		goto out;
	json_array_foreach(steps, i, row) {
		const json_t *l = json_object_get(row, "metric");

		m[i].group = pt_fleet_label(l, "group");
		m[i].step_s = pt_fleet_value(row);
		m[i].data_s = look_up(index, l);
		m[i].index = i;
	}
	pt_fleet_judge(m, n, scratch, &groups, &small);
	k->f->groups = (double)groups;
	k->f->small_groups = (double)small;
	ret = keep_stragglers(k->f, m, n, steps);
out:
	free(m);
	free(scratch);
	json_decref(index);
	json_decref(steps);
	json_decref(data);
	return ret;
}

int pt_fleet_mounts(struct pt_fleet_asking *k)
{
	char *time = pt_fleet_grown(k, "by (mount) ", "pipetrace_mount_read_seconds_total", "");
	char *bytes = pt_fleet_grown(k, "by (mount) ", "pipetrace_mount_read_bytes_total", "");
	long w = lround(k->a->window_s);
	json_t *rows = NULL, *more = NULL, *count = NULL;
	const json_t *row;
	int ret = -ENOMEM;
	size_t i, j, n;

	if (time && bytes)
		ret = pt_fleet_query(k, &rows, "topk(%d, %s)", MOUNTS, time);
	if (!ret)
		ret = pt_fleet_query(k, &more, "%s", bytes);
	if (!ret)
		ret = pt_fleet_query(k, &count, "count by (mount) (last_over_time("
			    "pipetrace_mount_read_seconds_total[%lds]))", w);
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
	free(time);
	free(bytes);
	return ret;
}
