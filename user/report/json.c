/* SPDX-License-Identifier: BSD-2-Clause */
/* The document and the parts that describe the session: who, where, how. */
#include "report/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "report/json_int.h"

/* 15 digits hold every value that pt_j_num() rounds, and no binary noise. */
#define REAL_DIGITS 15

static json_t *host(struct pt_jb *b, const struct pt_r_host *h)
{
	json_t *o = json_object();

	pt_j_text(b, o, "version", h->version);
	pt_j_text(b, o, "hostname", h->hostname);
	pt_j_text(b, o, "boot_id", h->boot_id);
	pt_j_text(b, o, "kernel", h->kernel);
	pt_j_put(b, o, "cores", pt_j_int(h->cores));
	pt_j_put(b, o, "quota_cores", pt_j_num(h->quota_cores, PT_J_STD));
	pt_j_put(b, o, "memory", pt_j_int(h->memory));
	pt_j_put(b, o, "shm_size", pt_j_int(h->shm_size));
	pt_j_text(b, o, "numa", h->numa);
	pt_j_text(b, o, "driver", h->driver);
	pt_j_text(b, o, "lockdown", h->lockdown);
	return o;
}

static json_t *job(struct pt_jb *b, const struct pt_r_target *t)
{
	json_t *o;

	if (!t->job_kind && !t->job_id && !t->job_name)
		return json_null();
	o = json_object();
	pt_j_text(b, o, "kind", t->job_kind);
	pt_j_text(b, o, "id", t->job_id);
	pt_j_text(b, o, "name", t->job_name);
	return o;
}

static json_t *target(struct pt_jb *b, const struct pt_r_target *t)
{
	json_t *o = json_object();

	pt_j_put(b, o, "pid", pt_j_int(t->pid));
	pt_j_text(b, o, "cmdline", t->cmdline);
	pt_j_text(b, o, "comm", t->comm);
	pt_j_text(b, o, "user", t->user);
	pt_j_put(b, o, "started", pt_j_num(t->started, PT_J_STD));
	pt_j_put(b, o, "resolved_from", pt_j_int(t->resolved_from));
	pt_j_put(b, o, "trainer", pt_j_int(t->trainer));
	pt_j_text(b, o, "container", t->container);
	pt_j_put(b, o, "job", job(b, t));
	return o;
}

/* Settings are text in the report; those that are numbers or truths become
 * such in JSON. `kind` and the like stay text because no name is numeric. */
static json_t *setting_value(struct pt_jb *b, const char *s)
{
	size_t n = strspn(s, "0123456789");
	char *clean;
	json_t *v;

	if (n && !s[n] && n <= 15 && (n == 1 || s[0] != '0'))
		return json_integer(strtoll(s, NULL, 10));
	if (!strcmp(s, "true"))
		return json_true();
	if (!strcmp(s, "false"))
		return json_false();
	clean = pt_str_utf8(s, NULL);
	v = clean ? json_string(clean) : NULL;
	free(clean);
	if (!v)
		b->failed = true;
	return v;
}

static void setting(struct pt_jb *b, json_t *o, const char *key,
		    const struct pt_sourced *s)
{
	json_t *v = json_object();

	pt_j_put(b, v, "value",
		 s->value ? setting_value(b, s->value) : json_null());
	pt_j_text(b, v, "source", s->source);
	pt_j_put(b, o, key, v);
}

static json_t *loader(struct pt_jb *b, const struct pt_r_loader *l)
{
	json_t *o = json_object();

	setting(b, o, "kind", &l->kind);
	setting(b, o, "workers", &l->workers);
	setting(b, o, "prefetch", &l->prefetch);
	setting(b, o, "pinned", &l->pinned);
	setting(b, o, "persistent", &l->persistent);
	setting(b, o, "start_method", &l->start_method);
	setting(b, o, "sharing", &l->sharing);
	return o;
}

/* Keyed text, e.g. need -> door. One need with several doors (libraries that
 * were mapped later) lists them all. */
static void keyed(struct pt_jb *b, json_t *o, const char *key, const char *text)
{
	char *k = pt_str_utf8(key, NULL), *t = pt_str_utf8(text, NULL);
	const char *old;

	if (!k || !t) {
		b->failed = true;
		goto out;
	}
	old = json_string_value(json_object_get(o, k));
	if (!old)
		pt_j_put(b, o, k, json_string(t));
	else if (strcmp(old, t))
		pt_j_put(b, o, k, json_sprintf("%s, %s", old, t));
out:
	free(k);
	free(t);
}

static void hooks(struct pt_jb *b, json_t *o, const struct pt_r_capture *c)
{
	static const char *const always[] = { "reads", "sched", "gpu",
					      "faults" };
	json_t *doors = json_object(), *notes = json_object();

	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		pt_j_put(b, doors, always[i], json_null());
	for (size_t i = 0; i < c->n_hooks; i++) {
		const struct pt_r_hook *h = &c->hooks[i];

		if (h->need && h->door)
			keyed(b, doors, h->need, h->door);
		if (h->need && h->note && *h->note)
			keyed(b, notes, h->need, h->note);
	}
	pt_j_put(b, o, "hooks", doors);
	pt_j_put(b, o, "hook_notes", notes);
}

static json_t *lost(struct pt_jb *b, const struct pt_r_capture *c)
{
	json_t *o = json_object(), *by = json_object();

	for (size_t i = 0; i < c->n_lost; i++) {
		char *cause = pt_str_utf8(
			c->lost[i].cause ? c->lost[i].cause : "unknown", NULL);

		if (cause)
			pt_j_put(b, by, cause, pt_j_int(c->lost[i].count));
		else
			b->failed = true;
		free(cause);
	}
	pt_j_put(b, o, "total", pt_j_int(c->lost_total));
	pt_j_put(b, o, "by_cause", by);
	return o;
}

static void limit(struct pt_jb *b, json_t *a, const char *what,
		  const char *reason)
{
	json_t *o = json_object();

	pt_j_text(b, o, "what", what);
	pt_j_text(b, o, "reason", reason);
	pt_j_add(b, a, o);
}

static json_t *limits(struct pt_jb *b, const struct pt_report *r)
{
	const struct pt_r_capture *c = &r->capture;
	json_t *a = json_array();

	for (size_t i = 0; i < c->n_limits; i++)
		limit(b, a, c->limits[i].what, c->limits[i].reason);
	/* keys of the contract that struct pt_report cannot carry yet */
	if (!r->n_phases)
		limit(b, a, "phases", "no whole step was seen");
	if (r->n_workers) {
		limit(b, a, "workers.item_ms",
		      "single items are not told apart in this version");
		limit(b, a, "workers.lines",
		      "source lines are not sampled in this version");
	}
	return a;
}

static json_t *capture(struct pt_jb *b, const struct pt_report *r)
{
	const struct pt_r_capture *c = &r->capture;
	json_t *o = json_object();

	pt_j_put(b, o, "duration", pt_j_num(c->duration, PT_J_STD));
	pt_j_put(b, o, "begin_ns", pt_j_int(c->begin_ns));
	pt_j_put(b, o, "end_ns", pt_j_int(c->end_ns));
	pt_j_put(b, o, "begin_unix_ns",
		 c->begin_unix_ns == PT_NULL ?
			 json_null() :
			 pt_j_u64((uint64_t)c->begin_unix_ns));
	pt_j_text(b, o, "mode", c->mode);
	hooks(b, o, c);
	pt_j_put(b, o, "events", pt_j_int(c->events));
	pt_j_put(b, o, "lost", lost(b, c));
	pt_j_put(b, o, "tracer_cpu_s", pt_j_num(c->tracer_cpu_s, PT_J_STD));
	pt_j_put(b, o, "target_overhead", pt_j_range(&c->target_overhead));
	pt_j_put(b, o, "complete", json_boolean(c->complete));
	pt_j_put(b, o, "limits", limits(b, r));
	return o;
}

static json_t *document(struct pt_jb *b, const struct pt_report *r,
			const struct pt_json_opts *o)
{
	json_t *d = json_object(), *mem = json_object();

	pt_j_put(b, d, "schema", json_string(PT_REPORT_SCHEMA));
	pt_j_put(b, d, "tool", json_string("pipetrace"));
	pt_j_put(b, d, "host", host(b, &r->host));
	pt_j_put(b, d, "target", target(b, &r->target));
	pt_j_put(b, d, "loader", loader(b, &r->loader));
	pt_j_put(b, d, "labels", pt_j_labels(b, r));
	pt_j_put(b, d, "thresholds", pt_j_thresholds(b, r));
	pt_j_put(b, d, "capture", capture(b, r));
	pt_j_put(b, d, "steps", pt_j_steps(b, &r->steps, o->steps));
	pt_j_put(b, d, "breakdown", pt_j_breakdown(b, &r->breakdown));
	pt_j_put(b, d, "data_wait", pt_j_data_wait(b, &r->data_wait));
	pt_j_put(b, d, "gpu", pt_j_gpus(b, r));
	pt_j_put(b, d, "workers", pt_j_workers(b, r));
	pt_j_put(b, d, "ranks", pt_j_ranks(b, r));
	pt_j_put(b, d, "phases", pt_j_phases(b, r));
	pt_j_put(b, d, "operations", pt_j_operations(b, r));
	pt_j_put(b, d, "files", pt_j_files(b, r));
	pt_j_put(b, d, "disks", pt_j_disks(b, r));
	pt_j_put(b, d, "writes", pt_j_writes(b, r));
	pt_j_put(b, d, "peers", pt_j_peers(b, r));
	pt_j_put(b, d, "series", pt_j_series(b, r));
	pt_j_put(b, d, "windows", pt_j_windows(b, r));
	pt_j_put(b, mem, "growth_per_min",
		 pt_j_num(r->mem_growth_per_min, PT_J_WHOLE));
	pt_j_put(b, mem, "certainty",
		 pt_j_name(pt_certainty_name(r->mem_growth_certainty)));
	pt_j_memory(b, mem, &r->memory);
	pt_j_put(b, d, "memory", mem);
	pt_j_put(b, d, "whatif", pt_j_whatif(b, r));
	pt_j_put(b, d, "verdicts", pt_j_verdicts(b, r));
	return d;
}

int pt_report_json(const struct pt_report *r, FILE *out,
		   const struct pt_json_opts *o)
{
	static const struct pt_json_opts defaults = { 0 };
	struct pt_jb b = { 0 };
	size_t flags = JSON_REAL_PRECISION(REAL_DIGITS);
	int err = 0;
	json_t *d;

	if (!o)
		o = &defaults;
	flags |= o->indent ? JSON_INDENT(o->indent > 8 ? 8 : o->indent) :
			     JSON_COMPACT;
	d = document(&b, r, o);
	if (b.failed || !d)
		err = -ENOMEM;
	else if (json_dumpf(d, out, flags) || fputc('\n', out) == EOF ||
		 fflush(out))
		err = -EIO;
	json_decref(d);
	return err;
}
