/* SPDX-License-Identifier: BSD-2-Clause */
/* A log record for every change of a verdict, and for what was lost. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/otlp_parts.h"

enum { SEVERITY_INFO = 9, SEVERITY_WARN = 13, SEVERITY_ERROR = 17 };
#define ATTRIBUTES 24 /* of a log record, at most */

struct record {
	struct pt_arena *a;
	Otlp__LogRecord log;
	Otlp__KeyValue *attribute[ATTRIBUTES];
	int err;
};

static void attribute(struct record *r, const char *key, Otlp__AnyValue *value)
{
	if (r->log.n_attributes == ATTRIBUTES)
		return;
	r->attribute[r->log.n_attributes] = pt_otlp_pair(r->a, key, value);
	if (r->attribute[r->log.n_attributes])
		r->log.n_attributes++;
	else
		r->err = -ENOMEM;
}

static void attribute_text(struct record *r, const char *key, const char *s, size_t most)
{
	if (s && *s)
		attribute(r, key, pt_otlp_any(r->a, s, most));
}

static int begin_record(struct record *r, int severity, uint64_t unix_ns,
			const char *body)
{
	memset(r, 0, sizeof(*r));
	r->a = pt_arena_new();
	if (!r->a)
		return -ENOMEM;
	otlp__log_record__init(&r->log);
	r->log.attributes = r->attribute;
	r->log.has_time_unix_nano = r->log.has_observed_time_unix_nano = 1;
	r->log.time_unix_nano = r->log.observed_time_unix_nano = unix_ns;
	r->log.has_severity_number = 1;
	r->log.severity_number = (uint32_t)severity;
	r->log.severity_text = (char *)(severity == SEVERITY_ERROR ? "ERROR" :
					severity == SEVERITY_WARN  ? "WARN" :
								     "INFO");
	r->log.body = pt_otlp_any(r->a, body, PT_OTLP_TEXT);
	if (!r->log.body)
		r->err = -ENOMEM;
	return 0;
}

/* Frees the record. */
static int pack_record(struct record *r, const struct pt_otlp_who *who,
		       struct pt_otlp_bytes *out)
{
	Otlp__ExportLogs request = OTLP__EXPORT_LOGS__INIT;
	Otlp__ResourceLogs of_resource = OTLP__RESOURCE_LOGS__INIT;
	Otlp__ScopeLogs of_scope = OTLP__SCOPE_LOGS__INIT;
	Otlp__ResourceLogs *resources[] = { &of_resource };
	Otlp__ScopeLogs *scopes[] = { &of_scope };
	Otlp__LogRecord *records[] = { &r->log };
	Otlp__Resource who_it_is;
	Otlp__Scope scope;

	memset(out, 0, sizeof(*out));
	if (!r->err)
		r->err = pt_otlp_resource(r->a, who, &who_it_is, &scope);
	if (!r->err) {
		of_scope.scope = &scope;
		of_scope.log_records = records;
		of_scope.n_log_records = 1;
		of_resource.resource = &who_it_is;
		of_resource.scope_logs = scopes;
		of_resource.n_scope_logs = 1;
		request.resource_logs = resources;
		request.n_resource_logs = 1;
		out->count = 1;
		out->len = otlp__export_logs__get_packed_size(&request);
		out->data = malloc(out->len + 1);
		if (out->data)
			otlp__export_logs__pack(&request, out->data);
		else
			r->err = -ENOMEM;
	}
	pt_arena_free(r->a);
	return r->err;
}

static int severity_of(const struct pt_otlp_change *c)
{
	if (c->ended || !c->severity)
		return SEVERITY_INFO;
	return !strcmp(c->severity, "critical") ? SEVERITY_ERROR :
	       !strcmp(c->severity, "warning")	? SEVERITY_WARN :
						  SEVERITY_INFO;
}

int pt_otlp_encode_change(const struct pt_otlp_who *who,
			  const struct pt_otlp_change *c, struct pt_otlp_bytes *out)
{
	const struct pt_prom_job *j = c->job;
	struct record r;
	int err = begin_record(&r, severity_of(c), c->unix_ns, c->title);

	if (err)
		return err;
	attribute_text(&r, "job_id", j->job, PT_PROM_LABEL);
	attribute_text(&r, "comm", j->comm, PT_PROM_LABEL);
	attribute_text(&r, "user", j->user, PT_PROM_LABEL);
	attribute_text(&r, "group", j->group, PT_PROM_LABEL);
	attribute(&r, "pid", pt_otlp_any_int(r.a, (uint64_t)j->pid));
	if (j->rank >= 0)
		attribute(&r, "rank", pt_otlp_any_int(r.a, (uint64_t)j->rank));
	if (j->owner) {
		attribute_text(&r, "container_id", j->owner->container, PT_PROM_LABEL);
		attribute_text(&r, "pod", j->owner->pod, PT_PROM_LABEL);
		attribute_text(&r, "namespace", j->owner->pod_namespace, PT_PROM_LABEL);
		attribute_text(&r, "slurm_job", j->owner->slurm_job, PT_PROM_LABEL);
	}
	attribute_text(&r, "verdict", c->id, PT_PROM_LABEL);
	attribute_text(&r, "severity", c->severity, PT_PROM_LABEL);
	attribute_text(&r, "state", c->ended ? "ended" : "holds", PT_PROM_LABEL);
	attribute_text(&r, "subject", c->subject, PT_OTLP_TEXT);
	attribute_text(&r, "advice", c->advice, PT_OTLP_TEXT);
	/* Half of a JSON text is none. */
	if (c->evidence && strlen(c->evidence) <= PT_OTLP_EVIDENCE)
		attribute_text(&r, "evidence", c->evidence, 4 * PT_OTLP_EVIDENCE);
	else if (c->evidence)
		attribute(&r, "evidence_left_out_bytes",
			  pt_otlp_any_int(r.a, strlen(c->evidence)));
	attribute_text(&r, "evidence_id", c->kept, PT_PROM_LABEL);
	return pack_record(&r, who, out);
}

int pt_otlp_encode_loss(const struct pt_otlp_who *who, uint64_t points, uint64_t logs,
			uint64_t unix_ns, struct pt_otlp_bytes *out)
{
	struct record r;
	char body[160];
	int err;

	snprintf(body, sizeof(body),
		 "%llu metric points and %llu log records were not delivered",
		 (unsigned long long)points, (unsigned long long)logs);
	err = begin_record(&r, SEVERITY_WARN, unix_ns, body);
	if (err)
		return err;
	attribute(&r, "lost_metric_points", pt_otlp_any_int(r.a, points));
	attribute(&r, "lost_log_records", pt_otlp_any_int(r.a, logs));
	return pack_record(&r, who, out);
}
