/* SPDX-License-Identifier: BSD-2-Clause */
/* The fleet as JSON: docs/fleet.schema.json. */
#include <math.h>

#include "fleet/fleet.h"
#include "report/json_build.h"

static json_t *causes(struct pt_jb *b, const double *cause_s)
{
	json_t *a = json_array();
	size_t i;

	for (i = 0; i < PT_FLEET_CAUSES; i++) {
		json_t *o;

		if (!(cause_s[i] > 0))
			continue;
		o = json_object();
		pt_j_put(b, o, "cause", pt_j_name(pt_fleet_cause_name(i)));
		pt_j_std(b, o, "gpu_seconds", cause_s[i]);
		pt_j_add(b, a, o);
	}
	return a;
}

/* A label, null where there is none. */
static void label(struct pt_jb *b, json_t *o, const char *key, const json_t *labels,
		  const char *name)
{
	json_t *v = json_object_get(labels, name);

	pt_j_put(b, o, key, v ? json_incref(v) : json_null());
}

static json_t *job(struct pt_jb *b, const struct pt_fleet_job *j)
{
	static const char *const same[] = { "job_id", "comm", "user", "group", "rank",
					    "pod", "namespace", "container", "slurm_job" };
	const double wasted[2] = { j->low_s, j->high_s };
	const double starved[2] = { j->starved_low_s, j->starved_high_s };
	json_t *o = json_object(), *v = json_null();
	size_t i;

	label(b, o, "node", j->labels, "instance");
	for (i = 0; i < sizeof(same) / sizeof(*same); i++)
		label(b, o, same[i], j->labels, same[i]);
	pt_j_std(b, o, "gpu_seconds", j->gpu_s);
	pt_j_std(b, o, "wasted_gpu_seconds", j->wasted_s);
	pt_j_put(b, o, "wasted_likely", isnan(j->low_s) ? json_null() :
					pt_j_pair(wasted, PT_J_STD));
	pt_j_put(b, o, "starved_gpu_seconds", isnan(starved[0]) ? json_null() :
					      pt_j_pair(starved, PT_J_STD));
	pt_j_std(b, o, "wasted_share", j->gpu_s > 0 ? j->wasted_s / j->gpu_s : NAN);
	pt_j_std(b, o, "covered_seconds", j->covered_s);
	pt_j_put(b, o, "causes", causes(b, j->cause_s));
	if (*j->verdict) {
		v = json_object();
		pt_j_text(b, v, "id", j->verdict);
		pt_j_put(b, v, "severity",
			 pt_j_name(pt_severity_name((enum pt_severity)j->severity)));
		pt_j_std(b, v, "time_share", j->verdict_share);
	}
	pt_j_put(b, o, "verdict", v);
	return o;
}

static json_t *straggler(struct pt_jb *b, const struct pt_fleet_straggler *s)
{
	json_t *o = json_object();

	label(b, o, "node", s->labels, "instance");
	label(b, o, "job_id", s->labels, "job_id");
	label(b, o, "group", s->labels, "group");
	label(b, o, "rank", s->labels, "rank");
	pt_j_put(b, o, "reason", pt_j_name(s->by_data ? "data_wait" : "host"));
	pt_j_std(b, o, "own_seconds", s->own_s);
	pt_j_std(b, o, "median_seconds", s->median_s);
	pt_j_std(b, o, "median_absolute_deviation", s->mad_s);
	pt_j_put(b, o, "members", pt_j_int((int64_t)s->members));
	return o;
}

static json_t *mount(struct pt_jb *b, const struct pt_fleet_mount *m)
{
	json_t *o = json_object();

	label(b, o, "mount", m->labels, "mount");
	pt_j_std(b, o, "read_seconds", m->read_s);
	pt_j_put(b, o, "read_bytes", pt_j_num(m->read_bytes, PT_J_WHOLE));
	pt_j_put(b, o, "jobs", pt_j_num(m->jobs, PT_J_WHOLE));
	return o;
}

int pt_fleet_json(const struct pt_fleet *f, FILE *out)
{
	struct pt_jb b = { 0 };
	json_t *o = json_object(), *a, *t = json_object();
	size_t i;

	pt_j_put(&b, o, "schema", json_string("pipetrace.fleet/1"));
	pt_j_put(&b, o, "tool", json_string("pipetrace"));
	pt_j_put(&b, o, "at", pt_j_num(f->at, PT_J_FINE));
	pt_j_put(&b, o, "window_seconds", pt_j_num(f->window_s, PT_J_FINE));
	pt_j_put(&b, t, "nodes", pt_j_num(f->nodes, PT_J_WHOLE));
	pt_j_put(&b, t, "jobs", pt_j_num(f->jobs, PT_J_WHOLE));
	pt_j_std(&b, t, "gpu_seconds", f->gpu_s);
	pt_j_std(&b, t, "wasted_gpu_seconds", f->wasted_s);
	pt_j_put(&b, t, "causes", causes(&b, f->cause_s));
	pt_j_put(&b, t, "groups", pt_j_num(f->groups, PT_J_WHOLE));
	pt_j_put(&b, t, "groups_too_small", pt_j_num(f->small_groups, PT_J_WHOLE));
	pt_j_put(&b, o, "totals", t);
	a = json_array();
	for (i = 0; i < f->n_jobs; i++)
		pt_j_add(&b, a, job(&b, &f->job[i]));
	pt_j_put(&b, o, "jobs", a);
	a = json_array();
	for (i = 0; i < f->n_stragglers; i++)
		pt_j_add(&b, a, straggler(&b, &f->straggler[i]));
	pt_j_put(&b, o, "stragglers", a);
	a = json_array();
	for (i = 0; i < f->n_mounts; i++)
		pt_j_add(&b, a, mount(&b, &f->mount[i]));
	pt_j_put(&b, o, "mounts", a);
	return pt_j_write(&b, o, out, 2);
}
