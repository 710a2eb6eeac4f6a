// SPDX-License-Identifier: BSD-2-Clause
/* What the agent serves: rendered here, when something has changed. */
#include "agent/agent.h"

#include <errno.h>
#include <stdlib.h>

#include "report/json_build.h"
#include "version.h"

void pt_agent_prom_job(const struct pt_agent *a, const struct pt_ajob *j,
		       struct pt_prom_job *out)
{
	*out = (struct pt_prom_job){
		.job = j->id, .comm = j->comm, .user = j->user,
		.group = j->ranks.group, .pid = j->trainer,
		.rank = j->ranks.rank, .world = j->ranks.world,
		.owner = &j->owner, .labels = a->c.labels,
		.n_labels = a->c.n_labels, .since_unix = j->found_unix,
		.ended = j->ended > 0,
		.t = &j->tally,
	};
}

static void describe(const struct pt_agent *a, struct pt_prom_agent *out)
{
	const struct pt_ajob *j;
	double left_out = 0;

	for (j = a->jobs.first; j; j = j->next)
		left_out += !j->ended && j->left_out;
	*out = (struct pt_prom_agent){
		.version = PT_VERSION,
		.cpu_s = pt_agent_cpu(a),
		.resident_bytes = pt_agent_resident() + a->sample_resident,
		.jobs = (double)a->jobs.n_live,
		.interval_s = pt_agent_interval(a),
		.sample_s = a->c.sample_s,
		.dropped_jobs = (double)a->jobs.dropped + left_out,
		.host = a->jobs.host,
		.interval_wanted_s = a->c.interval_s,
		.cpu_budget = a->c.cpu,
		.memory_budget = (double)a->c.memory,
		.watching = *a->c.watch != '\0',
		.watches = pt_agent_watches(a),
		.watch_cpu_s = pt_agent_watch_cpu(a),
	};
}

/* Freed by the caller. NULL: no memory. */
static struct pt_prom_job *all_jobs(const struct pt_agent *a)
{
	struct pt_prom_job *v = calloc(a->jobs.n + 1, sizeof(*v));
	const struct pt_ajob *j;
	size_t n = 0;

	for (j = a->jobs.first; v && j; j = j->next)
		pt_agent_prom_job(a, j, &v[n++]);
	return v;
}

/* Somebody's name as JSON takes it. */
static json_t *text(const char *s)
{
	json_t *j = pt_j_string(s);

	return j ? j : json_null();
}

static json_t *verdicts(const struct pt_sample *s)
{
	json_t *v = json_array();
	size_t i;

	for (i = 0; i < s->n_verdicts; i++)
		json_array_append_new(v, json_pack(
			"{s:s, s:s, s:b}", "id", s->verdict[i].id, "severity",
			pt_severity_name(s->verdict[i].severity), "root",
			s->verdict[i].root));
	return v;
}

static json_t *owner(const struct pt_owner *o)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "runtime",
			 o->runtime, "container", o->container, "pod", o->pod,
			 "namespace", o->pod_namespace, "container_name",
			 o->container_name, "slurm_job", o->slurm_job,
			 "slurm_step", o->slurm_step);
}

static json_t *one_job(const struct pt_agent *a, const struct pt_ajob *j)
{
	const struct pt_tally *t = &j->tally;
	json_t *o = json_pack("{s:s, s:i, s:i, s:I, s:I, s:I, s:s}", "job", j->id,
			      "pid", (int)j->trainer, "root", (int)j->root, "rank",
			      (json_int_t)j->ranks.rank, "world",
			      (json_int_t)j->ranks.world, "ranks",
			      (json_int_t)j->n_trainers, "group",
			      j->ranks.group);

	json_object_set_new(o, "comm", text(j->comm));
	json_object_set_new(o, "user", text(j->user));
	json_object_set_new(o, "owner", owner(&j->owner));
	json_object_set_new(o, "ended", json_boolean(j->ended > 0));
	json_object_set_new(o, "samples", json_real(t->samples));
	json_object_set_new(o, "failed", json_real(t->failed));
	json_object_set_new(o, "covered_s", json_real(t->covered_s));
	json_object_set_new(o, "observed_s", json_real(t->observed_s));
	json_object_set_new(o, "sample_s", json_real(j->sample_s));
	json_object_set_new(o, "next_unix_s", j->ended ? json_null() :
							 json_real(j->due));
	json_object_set_new(o, "sampling", json_boolean(
		pt_agent_is_sampled((void *)a, j)));
	json_object_set_new(o, "verdicts", t->has_last ? verdicts(&t->last) :
							 json_null());
	return o;
}

static int write_jobs(const struct pt_agent *a, FILE *f)
{
	struct pt_prom_agent me;
	json_t *root = json_object(), *list = json_array();
	const struct pt_ajob *j;
	int ret;

	describe(a, &me);
	for (j = a->jobs.first; j; j = j->next)
		json_array_append_new(list, one_job(a, j));
	json_object_set_new(root, "host", text(a->jobs.host));
	json_object_set_new(root, "agent", json_pack(
		"{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "version", PT_VERSION,
		"cpu_s", me.cpu_s, "resident_bytes", me.resident_bytes,
		"interval_s", me.interval_s, "sample_s", me.sample_s,
		"stretch", a->budget.stretch, "dropped_jobs", me.dropped_jobs,
		"budget_cores", a->c.cpu));
	json_object_set_new(root, "jobs", list);
	ret = json_dumpf(root, f, JSON_INDENT(1)) || fputc('\n', f) == EOF;
	json_decref(root);
	return ret ? -EIO : 0;
}

static int render(const struct pt_agent *a, enum pt_http_page page, FILE *f,
		  const struct pt_prom_job *jobs)
{
	struct pt_prom_agent me;

	switch (page) {
	case PT_PAGE_OPENMETRICS:
	case PT_PAGE_METRICS:
		describe(a, &me);
		return pt_prom_write(f, &me, jobs, a->jobs.n,
				     page == PT_PAGE_OPENMETRICS);
	case PT_PAGE_JOBS:
		return write_jobs(a, f);
	default:
		if (!a->keeps)
			return fputs("{\"evidence\": []}\n", f) < 0 ? -EIO : 0;
		return pt_evidence_list(&a->kept, f);
	}
}

void pt_agent_publish(struct pt_agent *a)
{
	struct pt_prom_job *jobs = all_jobs(a);
	char *out;
	size_t len;
	FILE *f;
	int page, ret;

	for (page = 0; jobs && a->http && page < PT_PAGE_NR; page++) {
		out = NULL;
		f = open_memstream(&out, &len);
		ret = f ? render(a, (enum pt_http_page)page, f, jobs) : -ENOMEM;
		if (f && fclose(f))
			ret = -ENOMEM;
		if (!ret)
			ret = pt_http_publish(a->http, (enum pt_http_page)page, out,
					      len);
		else
			free(out);
		if (ret) /* the page stays as it was */
			pt_say(PT_SAY_WARNING, "out of memory: a page is old");
	}
	free(jobs);
}

void pt_agent_push(struct pt_agent *a)
{
	struct pt_prom_job *jobs = all_jobs(a);
	struct pt_prom_agent me;

	describe(a, &me);
	if (!jobs || pt_otlp_metrics(a->otlp, &me, jobs, a->jobs.n, a->start_ns,
				     (uint64_t)(pt_agent_realtime() * 1e9)))
		pt_say(PT_SAY_WARNING, "out of memory: metrics are not sent");
	free(jobs);
}
