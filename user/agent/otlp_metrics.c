/* SPDX-License-Identifier: BSD-2-Clause */
/* Names, types and labels are those of agent/series.c. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/otlp_parts.h"
#include "agent/series.h"
#include "base/vec.h"

#define CUMULATIVE 2 /* AGGREGATION_TEMPORALITY_CUMULATIVE */

struct build {
	struct pt_arena *a;
	uint64_t start, now;
	PT_VEC(Otlp__Metric *) metric;
	/* of the family under way */
	PT_VEC(Otlp__NumberDataPoint *) number;
	PT_VEC(Otlp__HistogramDataPoint *) histogram;
	const struct pt_series_family *family;
	size_t points;
	int err;
};

static const char *unit_of(const struct pt_series_family *f)
{
	/* by UCUM, as OpenTelemetry wants them */
	if (!f->unit || !strcmp(f->unit, "ratio"))
		return "1";
	return !strcmp(f->unit, "seconds") ? "s" :
	       !strcmp(f->unit, "bytes")   ? "By" :
					     f->unit;
}

/* Copies a vector of pointers into the arena and empties it. */
static void *move_to_arena(struct build *b, void *v, size_t *n)
{
	void **kept = pt_arena_calloc(b->a, *n, sizeof(*kept));

	if (kept)
		memcpy(kept, v, *n * sizeof(*kept));
	else
		b->err = -ENOMEM;
	*n = 0;
	return kept;
}

static int fill(struct build *b, Otlp__Metric *m, size_t n)
{
	if (b->family->type == PT_SERIES_HISTOGRAM) {
		m->histogram = PT_OTLP_NEW(b->a, histogram, Histogram);
		if (!m->histogram)
			return -ENOMEM;
		m->histogram->n_data_points = n;
		m->histogram->data_points = move_to_arena(b, b->histogram.v, &b->histogram.n);
		m->histogram->has_aggregation_temporality = 1;
		m->histogram->aggregation_temporality = CUMULATIVE;
	} else if (b->family->type == PT_SERIES_COUNTER) {
		m->sum = PT_OTLP_NEW(b->a, sum, Sum);
		if (!m->sum)
			return -ENOMEM;
		m->sum->n_data_points = n;
		m->sum->data_points = move_to_arena(b, b->number.v, &b->number.n);
		m->sum->has_aggregation_temporality = 1;
		m->sum->aggregation_temporality = CUMULATIVE;
		m->sum->has_is_monotonic = m->sum->is_monotonic = 1;
	} else {
		m->gauge = PT_OTLP_NEW(b->a, gauge, Gauge);
		if (!m->gauge)
			return -ENOMEM;
		m->gauge->n_data_points = n;
		m->gauge->data_points = move_to_arena(b, b->number.v, &b->number.n);
	}
	return 0;
}

/* The family is complete: it becomes a metric, if it has points. */
static void close_family(struct build *b)
{
	size_t n = b->number.n + b->histogram.n;
	Otlp__Metric *m;

	if (!b->family || !n || b->err)
		return;
	m = PT_OTLP_NEW(b->a, metric, Metric);
	if (!m) {
		b->err = -ENOMEM;
		return;
	}
	m->name = pt_arena_printf(b->a, "%s%s", b->family->name,
				  b->family->type == PT_SERIES_COUNTER ? "_total" :
				  b->family->type == PT_SERIES_INFO    ? "_info" :
									 "");
	m->description = (char *)b->family->help;
	m->unit = (char *)unit_of(b->family);
	if (fill(b, m, n) || !m->name || b->err || pt_vec_push(&b->metric, m))
		b->err = -ENOMEM;
	b->points += n;
}

static void on_family(void *ctx, const struct pt_series_family *f)
{
	struct build *b = ctx;

	close_family(b);
	b->family = f;
}

static Otlp__KeyValue **labels(struct build *b, const struct pt_series_point *p)
{
	Otlp__KeyValue **kv = pt_arena_calloc(b->a, p->n_labels + 1, sizeof(*kv));
	size_t i;

	for (i = 0; kv && i < p->n_labels; i++) {
		char *name = pt_arena_strdup(b->a, p->label[i].name);

		kv[i] = name ? pt_otlp_pair(b->a, name,
				    pt_otlp_any(b->a, p->label[i].value, PT_PROM_LABEL)) :
			       NULL;
		if (!kv[i])
			return NULL;
	}
	return kv;
}

/* What a sample stands for is a fraction of a step; a count here is whole. Each
 * bucket is rounded for itself, so none ever falls. */
static int histogram_point(struct build *b, const struct pt_series_point *p,
			   Otlp__KeyValue **kv)
{
	Otlp__HistogramDataPoint *d = PT_OTLP_NEW(b->a, histogram_data_point, HistogramDataPoint);
	size_t i, n = p->n_bounds;

	if (!d)
		return -ENOMEM;
	d->attributes = kv;
	d->n_attributes = p->n_labels;
	d->has_start_time_unix_nano = d->has_time_unix_nano = 1;
	d->start_time_unix_nano = b->start;
	d->time_unix_nano = b->now;
	d->bucket_counts = pt_arena_calloc(b->a, n + 1, sizeof(*d->bucket_counts));
	d->explicit_bounds = pt_arena_calloc(b->a, n + 1, sizeof(*d->explicit_bounds));
	if (!d->bucket_counts || !d->explicit_bounds)
		return -ENOMEM;
	d->n_bucket_counts = n + 1;
	d->n_explicit_bounds = n;
	d->has_count = d->has_sum = 1;
	d->sum = p->value;
	for (i = 0; i <= n; i++) {
		double x = p->count[i];

		d->bucket_counts[i] = x > 0 && x < 1e18 ? (uint64_t)llround(x) : 0;
		d->count += d->bucket_counts[i];
		if (i < n)
			d->explicit_bounds[i] = p->bound[i];
	}
	return pt_vec_push(&b->histogram, d);
}

static int number_point(struct build *b, const struct pt_series_point *p,
			Otlp__KeyValue **kv)
{
	Otlp__NumberDataPoint *d = PT_OTLP_NEW(b->a, number_data_point, NumberDataPoint);

	if (!d)
		return -ENOMEM;
	d->attributes = kv;
	d->n_attributes = p->n_labels;
	d->has_start_time_unix_nano = b->family->type == PT_SERIES_COUNTER;
	d->start_time_unix_nano = b->start;
	d->has_time_unix_nano = d->has_as_double = 1;
	d->time_unix_nano = b->now;
	d->as_double = p->value;
	return pt_vec_push(&b->number, d);
}

static void on_point(void *ctx, const struct pt_series_family *f,
		     const struct pt_series_point *p)
{
	struct build *b = ctx;
	Otlp__KeyValue **kv;

	if (b->err || !isfinite(p->value))
		return;
	kv = labels(b, p);
	if (!kv)
		b->err = -ENOMEM;
	else if (f->type == PT_SERIES_HISTOGRAM)
		b->err = histogram_point(b, p, kv);
	else
		b->err = number_point(b, p, kv);
}

int pt_otlp_encode_metrics(const struct pt_otlp_who *who,
			   const struct pt_prom_agent *a,
			   const struct pt_prom_job *jobs, size_t n,
			   uint64_t start_ns, uint64_t unix_ns,
			   struct pt_otlp_bytes *out)
{
	Otlp__ExportMetrics request = OTLP__EXPORT_METRICS__INIT;
	Otlp__ResourceMetrics of_resource = OTLP__RESOURCE_METRICS__INIT;
	Otlp__ScopeMetrics of_scope = OTLP__SCOPE_METRICS__INIT;
	Otlp__ResourceMetrics *resources[] = { &of_resource };
	Otlp__ScopeMetrics *scopes[] = { &of_scope };
	Otlp__Resource r;
	Otlp__Scope scope;
	struct build b = { .a = pt_arena_new(), .start = start_ns, .now = unix_ns };
	const struct pt_series_visitor v = { &b, on_family, on_point };

	memset(out, 0, sizeof(*out));
	if (!b.a)
		return -ENOMEM;
	b.err = pt_otlp_resource(b.a, who, &r, &scope);
	if (!b.err) {
		int err = pt_series_visit(a, jobs, n, &v);

		close_family(&b);
		b.err = err ? err : b.err;
	}
	if (b.err)
		goto out;
	of_scope.scope = &scope;
	of_scope.metrics = b.metric.v;
	of_scope.n_metrics = b.metric.n;
	of_resource.resource = &r;
	of_resource.scope_metrics = scopes;
	of_resource.n_scope_metrics = 1;
	request.resource_metrics = resources;
	request.n_resource_metrics = 1;
	out->len = otlp__export_metrics__get_packed_size(&request);
	out->count = b.points;
	out->data = malloc(out->len + 1);
	if (out->data)
		otlp__export_metrics__pack(&request, out->data);
	else
		b.err = -ENOMEM;
out:
	pt_vec_free(&b.metric);
	pt_vec_free(&b.number);
	pt_vec_free(&b.histogram);
	pt_arena_free(b.a);
	return b.err;
}
