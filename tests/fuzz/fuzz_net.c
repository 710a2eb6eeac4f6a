/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What servers answer.
 *
 * otlp: a byte of flags (below); where it says so, and up to a NUL, a text; a byte for
 * the status, one for Retry-After, and the body. prometheus: answers, a NUL between them,
 * each a byte for the status and the body; questions beyond the last get the first
 * ones again.
 */
#include "fuzz.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/otlp_encode.h"
#include "agent/otlp_post.h"
#include "base/clock.h"
#include "fleet/ask.h"

static const long statuses[] = { 200, 401, 503, 302, 0, 429, 500, 204 };
#define STATUSES (sizeof(statuses) / sizeof(*statuses))
#define BROKEN 0x80

static struct {
	const uint8_t *data;
	size_t size, at, asked;
} peer;

/* ---- otlp ----------------------------------------------------------------------- */

enum { HEADERS = 1, ENDPOINT = 2, FILES = 4, NO_KEY = 8 }; /* flags */

static bool collector(struct fake_answer *a)
{
	if (peer.size < 2)
		return false;
	a->status = statuses[peer.data[0] % STATUSES];
	a->broken = peer.data[0] & BROKEN;
	a->retry_after = (int8_t)peer.data[1];
	a->body = peer.data + 2;
	a->len = peer.size - 2;
	return true;
}

static double soon(void *ctx)
{
	(void)ctx;
	return pt_now() + 1;
}

void otlp_run(const uint8_t *data, size_t size)
{
	struct pt_otlp_answer *a = malloc(sizeof(*a));
	struct pt_otlp_options o = { .endpoint = "http://host:4318/" };
	struct pt_otlp_post *p;
	char why[300] = "", *text = NULL;
	uint8_t flags = size ? *data++ : 0;
	int i, err;

	if (!a)
		abort();
	size -= size > 0;
	if (flags & (HEADERS | ENDPOINT)) {
		text = fuzz_text(data, strnlen((const char *)data, size));
		data += strlen(text);
		size -= strlen(text);
		if (flags & HEADERS) {
			fake_file("/headers", text, strlen(text));
			o.headers_file = "/proc/headers";
		} else {
			o.endpoint = text;
		}
	}
	if (flags & FILES)
		o.ca = o.cert = o.key = "/dev/null";
	if (flags & NO_KEY)
		o.cert = o.ca = flags & FILES ? "/no/such/file" : "/dev/null";
	peer.data = data;
	peer.size = size;
	fake_server = collector;
	if (pt_otlp_post_new(&o, &p, why, sizeof(why))) {
		FUZZ_HOLDS(*why);
		goto out;
	}
	for (i = 0; i < 2; i++) {
		err = pt_otlp_post(p, (enum pt_otlp_signal)i, "x", 1, soon, NULL, a);
		FUZZ_HOLDS(a->len <= sizeof(a->body) && a->retry_after >= 0);
		FUZZ_HOLDS(err || a->status);
		pt_otlp_rejected(a->body, a->len);
	}
	pt_otlp_post_wake(p);
	pt_otlp_post_free(p);
out:
	fake_clear();
	free(text);
	free(a);
}

void otlp_seeds(void)
{
	static const char rejects[] = "\0\5\x0a\x09\x08\x07\x12\x05" "sorry";

	fuzz_seed_as("rejects", 0, rejects, sizeof(rejects) - 1);
	fuzz_seed_as("busy", FILES, "\2\3later", 7);
	fuzz_seed_as("broken", 0, "\x80\0", 2);
	fuzz_seed_as("nobody", 0, "", 0);
	fuzz_seed_as("headers", HEADERS, "# mine\nX-A: b\r\nX-B:c\n\0\0\0", 23);
	fuzz_seed_as("own-header", HEADERS, "Host: b\n\0\0\0", 11);
	fuzz_seed_as("no-header", HEADERS, "Host\n\0\0\0", 8);
	fuzz_seed_as("control", HEADERS, "A: b\1\n\0\0\0", 10);
	fuzz_seed_as("endpoint", ENDPOINT, "https://h:1/a//\0\0\0", 18);
	fuzz_seed_as("no-endpoint", ENDPOINT, "http://h?x\0\0\0", 13);
	fuzz_seed_as("no-file", FILES | NO_KEY, "\0\0", 2);
	fuzz_seed_as("no-key", NO_KEY, "\0\0", 2);
}

/* ---- prometheus ----------------------------------------------------------------- */

static bool prometheus(struct fake_answer *a)
{
	const uint8_t *s, *end;

	if (!peer.size || ++peer.asked > 100)
		return false;
	if (peer.at >= peer.size)
		peer.at = 0;
	s = peer.data + peer.at;
	end = memchr(s, 0, peer.size - peer.at);
	if (!end)
		end = peer.data + peer.size;
	peer.at = (size_t)(end - peer.data) + 1;
	if (s == end)
		return true; /* status 0 */
	a->status = statuses[(*s & 0x7f) % STATUSES];
	a->broken = *s & BROKEN;
	a->body = s + 1;
	a->len = (size_t)(end - s) - 1;
	return true;
}

static void check_fleet(const struct pt_fleet *f)
{
	const struct pt_text_opts t = { .width = 80 };
	FILE *out = fopen("/dev/null", "w");
	char buf[64];
	size_t i;

	if (!out)
		abort();
	for (i = 0; i < f->n_jobs; i++) {
		FUZZ_HOLDS(!(f->job[i].low_s > f->job[i].high_s));
		pt_fleet_whose(f->job[i].labels, buf, sizeof(buf));
	}
	FUZZ_HOLDS(!pt_fleet_text(f, out, &t));
	FUZZ_HOLDS(!pt_fleet_json(f, out));
	fclose(out);
}

void prometheus_run(const uint8_t *data, size_t size)
{
	struct pt_prometheus_options o = { .url = "http://h:9090/", .timeout_s = 60 };
	struct pt_fleet_ask ask = { .window_s = 3600, .top = 3,
				    .sort = size % PT_FLEET_SORTS };
	struct pt_prometheus *p;
	struct pt_fleet f;
	char why[400] = "";
	json_t *rows;
	char *text;

	peer.data = data;
	peer.size = size;
	peer.at = peer.asked = 0;
	fake_server = prometheus;
	fake_file("/proc/token", "abc\n", 4);
	o.token_file = size % 2 ? "/proc/token" : NULL;
	if (pt_prometheus_open(&o, &p, why, sizeof(why)))
		abort();
	if (!pt_fleet_collect(p, &ask, &f, why, sizeof(why)))
		check_fleet(&f);
	else
		FUZZ_HOLDS(*why);
	pt_fleet_free(&f);
	pt_prometheus_close(p);
	text = fuzz_text(data, size);
	o.url = text;
	o.token_file = NULL;
	if (!pt_prometheus_open(&o, &p, why, sizeof(why)))
		pt_prometheus_close(p);
	if (!pt_prometheus_parse(text, size, &rows, why, sizeof(why)))
		json_decref(rows);
	free(text);
	fake_clear();
}

#define OK "\x08" /* status 200, and no NUL */
#define VECTOR(rows)                                                           \
	OK "{\"data\":{\"resultType\":\"vector\",\"result\":[" rows "]}}"
#define ROW(labels, value) "{\"metric\":{" labels "},\"value\":[1700000000,\"" value "\"]}"
#define JOB(node, id) "\"instance\":\"" node "\",\"job_id\":\"" id "\""
#define TIME OK "{\"data\":{\"resultType\":\"scalar\",\"result\":[1700000000,\"1700000000\"]}}"
#define JOBS VECTOR(ROW(JOB("n1", "a|b\\\"") ",\"cause\":\"io\",\"phase\":\"host\"", "30") "," \
		    ROW(JOB("n2", "c") ",\"cause\":\"odd\",\"of\":\"gpu\"", "1e2") "," \
		    ROW(JOB("n3", "d") ",\"of\":\"nodes\"", "NaN"))

void prometheus_seeds(void)
{
	static const char straggler[] =
		TIME "\0" JOBS "\0" JOBS "\0" JOBS "\0" JOBS "\0" JOBS "\0" JOBS "\0"
		JOBS "\0" JOBS "\0" JOBS "\0" JOBS "\0"
		VECTOR(ROW(JOB("n1", "c") ",\"pod\":\"p\",\"namespace\":\"n\",\"id\":\"x\"", "1"))
		"\0"
		VECTOR(ROW(JOB("n1", "a|b\\\"") ",\"id\":\"io_bound\",\"severity\":\"critical\"", "1"))
		"\0"
		VECTOR(ROW(JOB("n1", "1") ",\"group\":\"g\",\"rank\":\"0\"", "1") ","
		       ROW(JOB("n1", "2") ",\"group\":\"g\",\"rank\":\"1\"", "1") ","
		       ROW(JOB("n1", "3") ",\"group\":\"g\",\"rank\":\"2\"", "1.01") ","
		       ROW(JOB("n1", "4") ",\"group\":\"g\",\"rank\":\"3\"", "9"))
		"\0"
		VECTOR(ROW(JOB("n1", "4"), "8") "," ROW(JOB("n1", "1"), "0.1")) "\0"
		VECTOR(ROW(JOB("n1", "4"), "9")) "\0"
		VECTOR(ROW("\"mount\":\"nfs\"", "5") "," ROW("\"mount\":\"/\"", "2")) "\0"
		VECTOR(ROW("\"mount\":\"nfs\"", "5e9")) "\0"
		VECTOR(ROW("\"mount\":\"nfs\"", "3"));
	static const char all[] = TIME "\0" JOBS;

	fuzz_seed("fleet", straggler, sizeof(straggler) - 1);
	fuzz_seed("jobs", all, sizeof(all) - 1);
	fuzz_seed_text("time", TIME);
	fuzz_seed_text("empty", TIME);
	fuzz_seed_text("error", "\x06{\"status\":\"error\",\"error\":\"no such function\"}");
	fuzz_seed_text("who", "\x01{}");
	fuzz_seed_text("elsewhere", "\x03<html>");
	fuzz_seed_text("no-json", OK "<html>");
	fuzz_seed_text("broken", "\x88{");
	fuzz_seed_text("matrix", OK "{\"data\":{\"resultType\":\"matrix\",\"result\":[]}}");
	fuzz_seed_text("bad-row", VECTOR("{\"metric\":{\"a\":1},\"value\":[1,\"x\"]}"));
	fuzz_seed_text("url", "https://host:9090/path/");
	fuzz_seed_text("password", "http://me:pw@host");
}
