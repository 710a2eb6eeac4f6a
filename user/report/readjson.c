/* SPDX-License-Identifier: BSD-2-Clause */
#include "report/readjson.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/readjson_get.h"

#define SECONDS_MAX 1e10 /* some centuries */
#define MS_MAX (1e3 * SECONDS_MAX)
#define STEPS_MAX (1u << 20)
#define VERDICTS_MAX 256
#define CHARGES_MAX 4096
#define GPUS_MAX 1024

static const char *cause_name(int i)
{
	return pt_cause_name((enum pt_cause)i);
}

static const char *severity_name(int i)
{
	return pt_severity_name((enum pt_severity)i);
}

static const char *confidence_name(int i)
{
	return pt_confidence_name((enum pt_confidence)i);
}

static const char *certainty_name(int i)
{
	return pt_certainty_name((enum pt_certainty)i);
}

static enum pt_confidence confidence(const struct pt_rd_at *at)
{
	return (enum pt_confidence)pt_rd_name(at, "certainty", PT_CONF_HIGH + 1,
					      PT_CONF_NONE, confidence_name);
}

/* ---- who and where -------------------------------------------------------- */

static void read_host(const struct pt_rd_at *top)
{
	struct pt_rd_at at = pt_rd_object(top, "host", false);
	struct pt_r_host *h = &top->d->r->host;

	h->version = pt_rd_text(&at, "version");
	h->hostname = pt_rd_text(&at, "hostname");
	h->boot_id = pt_rd_text(&at, "boot_id");
	h->kernel = pt_rd_text(&at, "kernel");
	h->driver = pt_rd_text(&at, "driver");
	h->cores = pt_rd_int(&at, "cores", 0);
	h->quota_cores = pt_rd_num(&at, "quota_cores", 0, 1e9);
	h->memory = pt_rd_int(&at, "memory", 0);
	at = pt_rd_object(top, "target", false);
	top->d->r->target.pid = pt_rd_int(&at, "pid", 0);
	top->d->r->target.cmdline = pt_rd_text(&at, "cmdline");
	top->d->r->target.comm = pt_rd_text(&at, "comm");
	top->d->r->target.user = pt_rd_text(&at, "user");
}

/* Text again, whatever JSON type the writer gave it. */
static void read_setting(const struct pt_rd_at *loader, const char *key,
			 struct pt_sourced *s)
{
	struct pt_rd_at at = pt_rd_object(loader, key, false);
	const json_t *v = at.o ? json_object_get(at.o, "value") : NULL;

	s->source = pt_rd_text(&at, "source");
	if (json_is_integer(v))
		s->value = pt_arena_printf(at.d->r->arena, "%lld",
					   (long long)json_integer_value(v));
	else if (json_is_boolean(v))
		s->value = json_is_true(v) ? "true" : "false";
	else
		s->value = pt_rd_text(&at, "value");
	if (json_is_integer(v) && !s->value)
		at.d->err = -ENOMEM;
}

static void read_loader(const struct pt_rd_at *top)
{
	struct pt_rd_at at = pt_rd_object(top, "loader", false);
	struct pt_r_loader *l = &top->d->r->loader;

	read_setting(&at, "kind", &l->kind);
	read_setting(&at, "workers", &l->workers);
	read_setting(&at, "prefetch", &l->prefetch);
	read_setting(&at, "pinned", &l->pinned);
	read_setting(&at, "persistent", &l->persistent);
	read_setting(&at, "start_method", &l->start_method);
	read_setting(&at, "sharing", &l->sharing);
}

/* Reports of versions before labels have none. */
static void read_labels(const struct pt_rd_at *top)
{
	struct pt_rd *d = top->d;
	struct pt_rd_at at;
	const char *key, *value;
	json_t *v;
	int err;

	if (d->err || !json_object_get(top->o, "labels"))
		return;
	at = pt_rd_object(top, "labels", false);
	if (d->err)
		return;
	json_object_foreach((json_t *)at.o, key, v) {
		value = strlen(key) > 1024 ? NULL : json_string_value(v);
		if (!value || strlen(value) > 1024) {
			pt_rd_fail(d, "a label is not a text of at most 1024 "
				      "bytes");
			return;
		}
		err = pt_report_label(d->r, key, value);
		if (err == -ENOSPC)
			pt_rd_fail(d, "there are more than %d labels",
				   PT_LABELS_MAX);
		else if (err)
			d->err = err;
		if (d->err)
			return;
	}
}

static void read_capture(const struct pt_rd_at *top)
{
	struct pt_rd_at at = pt_rd_object(top, "capture", false), lost;
	struct pt_r_capture *c = &top->d->r->capture;

	c->duration = pt_rd_num(&at, "duration", 0, SECONDS_MAX);
	c->begin_ns = pt_rd_int(&at, "begin_ns", 0);
	c->end_ns = pt_rd_int(&at, "end_ns", 0);
	c->mode = pt_rd_text(&at, "mode");
	c->events = pt_rd_int(&at, "events", 0);
	c->complete = pt_rd_bool(&at, "complete");
	lost = pt_rd_object(&at, "lost", false);
	c->lost_total = pt_rd_int(&lost, "total", 0);
	if (c->begin_ns > c->end_ns && c->end_ns != PT_NULL)
		pt_rd_fail(top->d, "the capture ends before it begins");
}

/* ---- steps ---------------------------------------------------------------- */

static void read_dist(const struct pt_rd_at *o, const char *key,
		      struct pt_dist *d)
{
	struct pt_rd_at at = pt_rd_object(o, key, true);
	int64_t n;

	if (!at.o)
		return;
	n = pt_rd_int(&at, "count", 1);
	d->mean = pt_rd_num(&at, "mean", 0, MS_MAX);
	d->std = pt_rd_num(&at, "std", 0, MS_MAX);
	d->min = pt_rd_num(&at, "min", 0, MS_MAX);
	d->p50 = pt_rd_num(&at, "p50", 0, MS_MAX);
	d->p95 = pt_rd_num(&at, "p95", 0, MS_MAX);
	d->p99 = pt_rd_num(&at, "p99", 0, MS_MAX);
	d->max = pt_rd_num(&at, "max", 0, MS_MAX);
	if (n == PT_NULL || isnan(d->mean))
		pt_rd_fail(o->d, "%s%s has no count or no mean", o->path, key);
	else
		d->n = (uint64_t)n;
}

static void read_step(const struct pt_rd_at *at, struct pt_r_step *x)
{
	x->index = pt_rd_int(at, "index", 0);
	x->begin_ns = pt_rd_int(at, "begin_ns", 0);
	x->end_ns = pt_rd_int(at, "end_ns", 0);
	x->period_ms = pt_rd_num(at, "period_ms", 0, MS_MAX);
	x->data_wait_ms = pt_rd_num(at, "data_wait_ms", 0, MS_MAX);
	x->gpu_wait_ms = pt_rd_num(at, "gpu_wait_ms", 0, MS_MAX);
	x->cause = (enum pt_cause)pt_rd_name(at, "cause", PT_CAUSE_NR,
					     PT_CAUSE_UNKNOWN, cause_name);
	x->worker = pt_rd_int(at, "worker", 0);
	x->blocked = pt_rd_bool(at, "blocked");
	if (x->begin_ns == PT_NULL || x->end_ns == PT_NULL ||
	    x->begin_ns > x->end_ns)
		pt_rd_fail(at->d, "%.90s ends before it begins", at->path);
}

static void read_list(const struct pt_rd_at *steps)
{
	struct pt_r_steps *s = &steps->d->r->steps;
	struct pt_r_step *list;
	const json_t *a;
	size_t n, i;

	if (!steps->o || !json_object_get(steps->o, "list"))
		return;
	a = pt_rd_array(steps, "list", STEPS_MAX, &n);
	list = pt_rd_room(steps->d, n, sizeof(*list));
	for (i = 0; list && i < n && !steps->d->err; i++) {
		struct pt_rd_at at = pt_rd_element(steps, "list", a, i);

		read_step(&at, &list[i]);
		if (i && list[i].begin_ns < list[i - 1].begin_ns)
			pt_rd_fail(steps->d, "steps.list is not in order");
	}
	s->list = list;
	s->n_list = list ? n : 0;
}

static void read_steps(const struct pt_rd_at *top)
{
	struct pt_rd_at at = pt_rd_object(top, "steps", false);
	struct pt_r_steps *s = &top->d->r->steps;

	s->count = pt_rd_int(&at, "count", 0);
	s->batches = pt_rd_int(&at, "batches", 0);
	s->certainty = confidence(&at);
	s->source = pt_rd_text(&at, "source");
	read_dist(&at, "period_ms", &s->period_ms);
	s->per_second = pt_rd_num(&at, "per_second", 0, 1e12);
	s->batch_size = pt_rd_int(&at, "batch_size", 0);
	s->samples_per_second = pt_rd_num(&at, "samples_per_second", 0, 1e21);
	s->first_ms = pt_rd_num(&at, "first_ms", 0, MS_MAX);
	s->max_over_min = pt_rd_num(&at, "max_over_min", 0, INFINITY);
	read_list(&at);
}

/* ---- where the time went -------------------------------------------------- */

static void read_part(const struct pt_rd_at *o, const char *key,
		      struct pt_r_part *p)
{
	struct pt_rd_at at = pt_rd_object(o, key, false);

	p->seconds = pt_rd_num(&at, "seconds", 0, SECONDS_MAX);
	p->share = pt_rd_share(&at, "share");
}

static void read_breakdown(const struct pt_rd_at *top)
{
	struct pt_rd_at at = pt_rd_object(top, "breakdown", false), host;
	struct pt_r_breakdown *b = &top->d->r->breakdown;
	const struct {
		const char *key;
		struct pt_r_part *part;
	} parts[] = {
		{ "data_wait", &b->data_wait },	  { "gpu_wait", &b->gpu_wait },
		{ "transfer", &b->transfer },	  { "sync", &b->sync },
		{ "launch", &b->launch },	  { "collective", &b->collective },
		{ "checkpoint", &b->checkpoint }, { "other", &b->other },
	};
	size_t i, known = 0, n = sizeof(parts) / sizeof(parts[0]);

	for (i = 0; i < n; i++) {
		read_part(&at, parts[i].key, parts[i].part);
		known += isfinite(parts[i].part->seconds);
	}
	host = pt_rd_object(&at, "host", false);
	for (i = 0; i < PT_HOST_NR; i++)
		read_part(&host, pt_host_kind_name((enum pt_host_kind)i),
			  &b->host[i]);
	b->known = known == n;
	if (known && known < n)
		pt_rd_fail(top->d, "breakdown knows only some of its parts");
}

static void read_data_wait(const struct pt_rd_at *top)
{
	struct pt_rd_at at = pt_rd_object(top, "data_wait", false);
	struct pt_r_data_wait *w = &top->d->r->data_wait;
	struct pt_r_charge *c;
	const json_t *a;
	size_t n, i;

	w->blocked = pt_rd_num(&at, "blocked", 0, SECONDS_MAX);
	w->own_read = pt_rd_num(&at, "own_read", 0, SECONDS_MAX);
	w->own_cpu = pt_rd_num(&at, "own_cpu", 0, SECONDS_MAX);
	w->handover = pt_rd_num(&at, "handover", 0, SECONDS_MAX);
	w->lead = pt_rd_num(&at, "lead", 0, SECONDS_MAX);
	w->restart = pt_rd_num(&at, "restart", 0, SECONDS_MAX);
	w->evidence = pt_rd_text(&at, "evidence");
	a = pt_rd_array(&at, "causes", CHARGES_MAX, &n);
	c = pt_rd_room(top->d, n, sizeof(*c));
	for (i = 0; c && i < n && !top->d->err; i++) {
		struct pt_rd_at e = pt_rd_element(&at, "causes", a, i);

		c[i].cause = (enum pt_cause)pt_rd_name(&e, "cause", PT_CAUSE_NR,
						       PT_CAUSE_UNKNOWN,
						       cause_name);
		c[i].seconds = pt_rd_num(&e, "seconds", 0, SECONDS_MAX);
		c[i].share = pt_rd_share(&e, "share");
		c[i].what = pt_rd_text(&e, "what");
		c[i].subject_pid = c[i].subject_tid = PT_NULL;
	}
	w->causes = c;
	w->n_causes = c ? n : 0;
}

static void null_gpu(struct pt_r_gpu *g)
{
	g->starved_share[0] = g->starved_share[1] = NAN;
	g->compute = g->copy = g->collective = g->pageable_share = NAN;
	g->kernels = g->copies_h2d = g->copies_d2h = g->copies_other = PT_NULL;
	g->copy_bytes = g->syncs = g->failed_allocations = PT_NULL;
	g->graph_launches = g->collectives = g->collective_bytes = PT_NULL;
	g->mem_reserved = g->mem_peak = PT_NULL;
	g->mem_growth_per_min = NAN;
}

static void read_gpu(const struct pt_rd_at *at, struct pt_r_gpu *g)
{
	struct pt_rd_at busy = pt_rd_object(at, "busy", false);
	struct pt_rd_at idle = pt_rd_object(at, "idle", false);

	null_gpu(g);
	g->uuid = pt_rd_text(at, "uuid");
	g->index = pt_rd_int(at, "index", 0);
	g->certainty = (enum pt_certainty)pt_rd_name(&idle, "certainty",
						     PT_ESTIMATED + 1,
						     PT_CERT_NONE,
						     certainty_name);
	g->busy_share = pt_rd_share(&busy, "share");
	pt_rd_pair(&busy, "hard", g->busy_hard);
	pt_rd_pair(&busy, "likely", g->busy_likely);
	g->idle_share = pt_rd_share(&idle, "share");
	pt_rd_pair(&idle, "hard", g->idle_hard);
	pt_rd_pair(&idle, "likely", g->idle_likely);
}

static void read_gpus(const struct pt_rd_at *top)
{
	struct pt_report *r = top->d->r;
	struct pt_r_gpu *g;
	const json_t *a;
	size_t n, i;

	a = pt_rd_array(top, "gpu", GPUS_MAX, &n);
	g = pt_rd_room(top->d, n, sizeof(*g));
	for (i = 0; g && i < n && !top->d->err; i++) {
		struct pt_rd_at at = pt_rd_element(top, "gpu", a, i);

		read_gpu(&at, &g[i]);
	}
	r->gpu = g;
	r->n_gpu = g ? n : 0;
}

static void read_verdict(const struct pt_rd_at *at, struct pt_r_verdict *v)
{
	struct pt_rd_at gain = pt_rd_object(at, "expected_speedup", false);
	struct pt_rd_at subject = pt_rd_object(at, "subject", false);

	v->id = pt_rd_text(at, "id");
	v->severity = (enum pt_severity)pt_rd_name(at, "severity",
						   PT_CRITICAL + 1, PT_INFO,
						   severity_name);
	v->certainty = confidence(at);
	v->title = pt_rd_text(at, "title");
	v->consequence_of = pt_rd_text(at, "consequence_of");
	v->advice = pt_rd_text(at, "advice");
	v->subject_pid = pt_rd_int(&subject, "pid", 0);
	v->subject_rank = pt_rd_int(&subject, "rank", 0);
	v->subject_line = pt_rd_int(&subject, "line", 0);
	v->subject_file = pt_rd_text(&subject, "file");
	v->subject_peer = pt_rd_text(&subject, "peer");
	v->expected_speedup.value = pt_rd_num(&gain, "value", 0, 1e15);
	v->expected_speedup.low = pt_rd_num(&gain, "low", 0, 1e15);
	v->expected_speedup.high = pt_rd_num(&gain, "high", 0, 1e15);
	if (!v->id || !v->title)
		pt_rd_fail(at->d, "%.80s has no id or no title", at->path);
}

static void read_verdicts(const struct pt_rd_at *top)
{
	struct pt_report *r = top->d->r;
	struct pt_r_verdict *v;
	const json_t *a;
	size_t n, i;

	a = pt_rd_array(top, "verdicts", VERDICTS_MAX, &n);
	v = pt_rd_room(top->d, n, sizeof(*v));
	for (i = 0; v && i < n && !top->d->err; i++) {
		struct pt_rd_at at = pt_rd_element(top, "verdicts", a, i);

		read_verdict(&at, &v[i]);
	}
	r->verdicts = v;
	r->n_verdicts = v ? n : 0;
}

/* ---- the document --------------------------------------------------------- */

static void check_schema(const struct pt_rd_at *top)
{
	const json_t *v = json_object_get(top->o, "schema");
	const char *s = json_string_value(v);

	if (!s || strncmp(s, "pipetrace.", 10))
		pt_rd_fail(top->d, "it is JSON, but no report of pipetrace");
	else if (!strncmp(s, "pipetrace.diff/", 15))
		pt_rd_fail(top->d, "it is a comparison, not a report");
	else if (strcmp(s, PT_REPORT_SCHEMA))
		pt_rd_fail(top->d, "it is \"%.64s\", this version reads "
			   PT_REPORT_SCHEMA, s);
}

int pt_report_read_json(const char *text, size_t len, struct pt_report *r,
			struct pt_read_error *why)
{
	struct pt_rd d = { .r = r, .why = why };
	struct pt_rd_at top = { .d = &d };
	json_error_t e;
	json_t *doc;

	if (len > PT_READ_MAX) {
		pt_rd_fail(&d, "it is larger than %u MiB (a smaller "
			   "--print-steps makes a smaller one)",
			   PT_READ_MAX >> 20);
		return d.err;
	}
	doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	if (!doc) {
		if (json_error_code(&e) == json_error_out_of_memory)
			return -ENOMEM;
		pt_rd_fail(&d, "it is not JSON (line %d: %.120s)", e.line,
			   e.text);
		return d.err;
	}
	top.o = doc;
	if (json_is_object(doc))
		check_schema(&top);
	else
		pt_rd_fail(&d, "it is JSON, but no report of pipetrace");
	if (!d.err) {
		read_host(&top);
		read_loader(&top);
		read_labels(&top);
		read_capture(&top);
		read_steps(&top);
		read_breakdown(&top);
		read_data_wait(&top);
		read_gpus(&top);
		read_verdicts(&top);
	}
	json_decref(doc);
	return d.err;
}
