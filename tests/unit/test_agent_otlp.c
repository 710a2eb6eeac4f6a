/* SPDX-License-Identifier: BSD-2-Clause */
/* OTLP: what is encoded, the queue and its bound, headers, refused set-ups. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "agent/gzip.h"
#include "agent/otlp_parts.h"
#include "agent/otlp_post.h"
#include "agent/otlp_queue.h"
#include "otlp.pb-c.h"

static const struct pt_otlp_who who = { "node-1", "9" };

static const char *attribute(Otlp__KeyValue **kv, size_t n, const char *key)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (!strcmp(kv[i]->key, key))
			return kv[i]->value->string_value;
	return NULL;
}

static Otlp__Metric *metric(Otlp__ExportMetrics *r, const char *name)
{
	Otlp__ScopeMetrics *s = r->resource_metrics[0]->scope_metrics[0];
	size_t i;

	for (i = 0; i < s->n_metrics; i++)
		if (!strcmp(s->metrics[i]->name, name))
			return s->metrics[i];
	return NULL;
}

static void metrics(void **state)
{
	struct pt_tally t = { .gpu_s = 12.5, .step_sum_s = 3, .has_last = true };
	struct pt_prom_job j = { .job = "a\xff" "b", .t = &t, .rank = -1, .world = -1 };
	struct pt_prom_agent a = { .version = "9", .cpu_s = 1.5, .jobs = NAN };
	struct pt_otlp_bytes b;
	Otlp__ExportMetrics *r;
	Otlp__NumberDataPoint *p;
	Otlp__HistogramDataPoint *h;
	Otlp__Resource *res;
	size_t i, points = 0;

	(void)state;
	t.last.data_wait_share = NAN;
	t.last.slowdown = 2;
	t.step_bucket[0] = 0.4;
	t.step_bucket[1] = 2.6;
	t.step_bucket[PT_TALLY_BUCKETS] = 1;
	assert_int_equal(pt_otlp_encode_metrics(&who, &a, &j, 1, 5, 7, &b), 0);
	r = otlp__export_metrics__unpack(NULL, b.len, b.data);
	assert_non_null(r);
	res = r->resource_metrics[0]->resource;
	assert_string_equal(attribute(res->attributes, res->n_attributes, "host.name"),
			    "node-1");
	assert_string_equal(
		attribute(res->attributes, res->n_attributes, "service.name"),
		"pipetrace");
	assert_string_equal(
		attribute(res->attributes, res->n_attributes, "service.version"), "9");

	assert_non_null(metric(r, "pipetrace_gpu_seconds_total")->sum);
	assert_int_equal(metric(r, "pipetrace_gpu_seconds_total")->sum->is_monotonic, 1);
	assert_int_equal(
		metric(r, "pipetrace_gpu_seconds_total")->sum->aggregation_temporality,
		2);
	assert_string_equal(metric(r, "pipetrace_gpu_seconds_total")->unit, "s");
	p = metric(r, "pipetrace_gpu_seconds_total")->sum->data_points[0];
	assert_true(p->as_double == 12.5);
	assert_int_equal(p->start_time_unix_nano, 5);
	assert_int_equal(p->time_unix_nano, 7);
	assert_string_equal(attribute(p->attributes, p->n_attributes, "job_id"),
			    "a\\xffb");
	assert_non_null(metric(r, "pipetrace_worker_slowdown_ratio")->gauge);
	/* unknown is no point, and no points are no metric */
	assert_null(metric(r, "pipetrace_data_wait_ratio"));
	assert_null(metric(r, "pipetrace_agent_jobs"));
	assert_null(metric(r, "pipetrace_gpu_lost_seconds_total"));

	h = metric(r, "pipetrace_step_seconds")->histogram->data_points[0];
	assert_int_equal(h->n_bucket_counts, h->n_explicit_bounds + 1);
	assert_int_equal(h->bucket_counts[0], 0);
	assert_int_equal(h->bucket_counts[1], 3);
	assert_int_equal(h->count, 4);
	assert_true(h->sum == 3);
	assert_true(h->explicit_bounds[0] == pt_tally_bucket[0]);

	for (i = 0; i < r->resource_metrics[0]->scope_metrics[0]->n_metrics; i++) {
		Otlp__Metric *m = r->resource_metrics[0]->scope_metrics[0]->metrics[i];

		points += m->gauge ? m->gauge->n_data_points :
			  m->sum   ? m->sum->n_data_points :
				     m->histogram->n_data_points;
	}
	assert_int_equal(points, b.count);
	otlp__export_metrics__free_unpacked(r, NULL);
	free(b.data);
}

static void changes(void **state)
{
	struct pt_owner owner = { .pod = "pod-1" };
	struct pt_prom_job j = { .job = "j", .owner = &owner, .rank = 2 };
	struct pt_otlp_change c = { .job = &j, .id = "slow_worker", .severity = "warning",
				    .title = "\xf0\x9f", .advice = "do", .unix_ns = 3,
				    .evidence = "{}" };
	struct pt_otlp_bytes b, two;
	char *lots = calloc(1, PT_OTLP_EVIDENCE + 2);
	Otlp__ExportLogs *r;
	Otlp__LogRecord *l;
	uint8_t *both;

	(void)state;
	assert_non_null(lots);
	assert_int_equal(pt_otlp_encode_change(&who, &c, &b), 0);
	memset(lots, 'x', PT_OTLP_EVIDENCE + 1);
	c.evidence = lots;
	c.ended = true;
	assert_int_equal(pt_otlp_encode_change(&who, &c, &two), 0);
	/* two requests in a row are one */
	both = malloc(b.len + two.len);
	memcpy(both, b.data, b.len);
	memcpy(both + b.len, two.data, two.len);
	r = otlp__export_logs__unpack(NULL, b.len + two.len, both);
	assert_non_null(r);
	assert_int_equal(r->n_resource_logs, 2);
	l = r->resource_logs[0]->scope_logs[0]->log_records[0];
	assert_int_equal(l->severity_number, 13);
	assert_string_equal(l->body->string_value, "\\xf0\\x9f");
	assert_string_equal(attribute(l->attributes, l->n_attributes, "evidence"), "{}");
	assert_string_equal(attribute(l->attributes, l->n_attributes, "state"), "holds");
	assert_string_equal(attribute(l->attributes, l->n_attributes, "pod"), "pod-1");
	l = r->resource_logs[1]->scope_logs[0]->log_records[0];
	assert_int_equal(l->severity_number, 9);
	assert_string_equal(attribute(l->attributes, l->n_attributes, "state"), "ended");
	assert_null(attribute(l->attributes, l->n_attributes, "evidence"));
	otlp__export_logs__free_unpacked(r, NULL);
	free(both);
	free(b.data);
	free(two.data);
	free(lots);
}

static int put(struct pt_otlp_queue *q, enum pt_otlp_signal s, size_t len, size_t count)
{
	return pt_otlp_queue_put(q, s, malloc(len), len, count);
}

#define EACH (1000 + sizeof(struct pt_otlp_item))

static void queue(void **state)
{
	struct pt_otlp_queue q;
	size_t bytes;

	(void)state;
	pt_otlp_queue_init(&q, 4 * EACH);
	assert_int_equal(put(&q, PT_OTLP_METRICS, 1000, 10), 0);
	assert_int_equal(put(&q, PT_OTLP_METRICS, 1000, 20), 0);
	assert_int_equal(put(&q, PT_OTLP_LOGS, 1000, 1), 0);
	assert_int_equal(put(&q, PT_OTLP_LOGS, 1000, 1), 0);
	assert_int_equal(q.bytes, 4 * EACH);
	assert_int_equal(q.dropped, 0);
	/* new metrics displace old ones, a record too */
	assert_int_equal(put(&q, PT_OTLP_METRICS, 1000, 40), 0);
	assert_int_equal(q.lost[PT_OTLP_METRICS], 10);
	assert_int_equal(put(&q, PT_OTLP_LOGS, 1000, 1), 0);
	assert_int_equal(q.lost[PT_OTLP_METRICS], 30);
	/* what is being sent stays */
	assert_int_equal(pt_otlp_queue_take(&q, PT_OTLP_METRICS, 0, &bytes), 1);
	assert_int_equal(bytes, 1000);
	assert_int_equal(put(&q, PT_OTLP_LOGS, 1000, 1), 0);
	assert_int_equal(q.lost[PT_OTLP_METRICS], 30);
	assert_int_equal(q.lost[PT_OTLP_LOGS], 1);
	/* no metrics for records, then: the new ones are lost */
	assert_int_equal(put(&q, PT_OTLP_METRICS, 1000, 80), 0);
	assert_int_equal(q.lost[PT_OTLP_METRICS], 110);
	assert_int_equal(q.bytes, 4 * EACH);
	assert_int_equal(pt_otlp_queue_done(&q, PT_OTLP_METRICS, PT_OTLP_AGAIN), 40);
	/* larger than all */
	assert_int_equal(put(&q, PT_OTLP_LOGS, 5 * EACH, 1), 0);
	assert_int_equal(q.lost[PT_OTLP_LOGS], 2);
	/* batches: two fit, and one that does not fit goes alone */
	assert_int_equal(pt_otlp_queue_take(&q, PT_OTLP_LOGS, 2500, &bytes), 2);
	assert_int_equal(bytes, 2000);
	assert_int_equal(pt_otlp_queue_done(&q, PT_OTLP_LOGS, PT_OTLP_SENT), 2);
	assert_int_equal(q.lost[PT_OTLP_LOGS], 2);
	assert_int_equal(pt_otlp_queue_take(&q, PT_OTLP_LOGS, 10, &bytes), 1);
	assert_int_equal(pt_otlp_queue_done(&q, PT_OTLP_LOGS, PT_OTLP_REFUSED), 1);
	assert_int_equal(q.lost[PT_OTLP_LOGS], 3);
	assert_null(q.first[PT_OTLP_LOGS]);
	assert_int_equal(pt_otlp_queue_take(&q, PT_OTLP_LOGS, 10, &bytes), 0);
	/* an emptied list takes new ones */
	assert_int_equal(put(&q, PT_OTLP_LOGS, 1000, 1), 0);
	assert_non_null(q.first[PT_OTLP_LOGS]);
	assert_int_equal(q.bytes, 2 * EACH);
	pt_otlp_queue_free(&q);
	assert_int_equal(q.bytes, 0);
}

static int collect(void *ctx, const char *line)
{
	strcat(strcat(ctx, line), "|");
	return 0;
}

static void headers(void **state)
{
	static const char *const bad[] = {
		"no colon",  ": x",	     "Name:",		   "Name: \t",
		"A B: x",    "X: a\x01",     "Content-Type: x",	   "host: x",
		"X: a\rY: b", "\xc3\xa4: x", "Content-Encoding: x", " X: y",
	};
	char text[] = "Authorization: Bearer x\r\n\n# why\nX-A:b", got[100] = "", why[100];
	size_t i;

	(void)state;
	assert_int_equal(pt_otlp_headers(text, collect, got, why, sizeof(why)), 2);
	assert_string_equal(got, "Authorization: Bearer x|X-A:b|");
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		char *copy = strdup(bad[i]);

		*why = '\0';
		assert_int_equal(pt_otlp_headers(copy, collect, got, why, sizeof(why)),
				 -EINVAL);
		assert_non_null(strstr(why, "line 1"));
		free(copy);
	}
}

static void refused_starts(void **state)
{
	static const struct {
		struct pt_otlp_options o;
		const char *why;
	} bad[] = {
		{ { .endpoint = NULL }, "nothing is no endpoint" },
		{ { .endpoint = "localhost:4318" }, "no endpoint" },
		{ { .endpoint = "file:///etc/passwd" }, "no endpoint" },
		{ { .endpoint = "http://" }, "no endpoint" },
		{ { .endpoint = "http://a b" }, "no endpoint" },
		{ { .endpoint = "http://a\r\nX: y" }, "no endpoint" },
		{ { .endpoint = "http://a/?b" }, "no endpoint" },
		{ { .endpoint = "http://a", .ca = "/x" }, "cannot read /x" },
		{ { .endpoint = "http://a", .cert = "/dev/null" }, "needs its key" },
		{ { .endpoint = "http://a", .headers_file = "/x" }, "headers of /x" },
	};
	struct pt_otlp *o;
	char why[400];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		*why = '\0';
		assert_true(pt_otlp_start(&bad[i].o, &o, why, sizeof(why)) < 0);
		assert_null(o);
		if (!strstr(why, bad[i].why))
			fail_msg("\"%s\" instead of \"%s\"", why, bad[i].why);
	}
	pt_otlp_stop(NULL, 0);
}

static void answers_and_gzip(void **state)
{
	static const uint8_t part[] = { 0x0a, 0x05, 0x08, 0x07, 0x12, 0x01, 'x' };
	static const uint8_t minus[] = { 0x0a, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff,
					 0xff, 0xff, 0xff, 0xff, 0x01 };
	uint8_t back[5000];
	uLongf n = sizeof(back);
	z_stream z = { 0 };
	char text[5000];
	void *zipped;
	size_t len;

	(void)state;
	assert_int_equal(pt_otlp_rejected(part, sizeof(part)), 7);
	assert_int_equal(pt_otlp_rejected(part, 3), 0);
	assert_int_equal(pt_otlp_rejected(minus, sizeof(minus)), 0);
	assert_int_equal(pt_otlp_rejected((const uint8_t *)"<html>", 6), 0);
	assert_int_equal(pt_otlp_rejected(NULL, 0), 0);
	memset(text, 'x', sizeof(text));
	assert_int_equal(pt_gzip(text, sizeof(text), &zipped, &len), 0);
	assert_true(len < 200);
	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	z.next_in = zipped;
	z.avail_in = (uInt)len;
	z.next_out = back;
	z.avail_out = (uInt)n;
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	assert_int_equal(z.total_out, sizeof(text));
	inflateEnd(&z);
	free(zipped);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(metrics),
		cmocka_unit_test(changes),
		cmocka_unit_test(queue),
		cmocka_unit_test(headers),
		cmocka_unit_test(refused_starts),
		cmocka_unit_test(answers_and_gzip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
