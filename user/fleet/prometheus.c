/* SPDX-License-Identifier: BSD-2-Clause */
/* The HTTP API of a Prometheus. */
#include "fleet/prometheus.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/readfile.h"
#include "net/libcurl.h"
#include "version.h"

#define TOKEN_MAX 4096
#define URL_MAX 2048
#define CONNECT_MS 10000L

struct pt_prometheus {
	CURL *h;
	struct curl_slist *headers;
	char url[URL_MAX + 32];
	char error[CURL_ERROR_SIZE];
	double deadline; /* monotonic, s */
	char *body;
	size_t len, cap;
	bool too_long;
};

/* Ours is the path below the given one. */
static int take_url(struct pt_prometheus *p, const char *url, char *why, size_t n)
{
	const char *host = !strncmp(url, "http://", 7) ? url + 7 :
			   !strncmp(url, "https://", 8) ? url + 8 : NULL;
	size_t len = strlen(url), i;

	for (i = 0; i < len; i++)
		if ((unsigned char)url[i] <= ' ' || (unsigned char)url[i] >= 0x7f)
			host = NULL;
	if (!host || !*host || *host == '/' || *host == ':' || len > URL_MAX ||
	    strpbrk(host, "?#")) {
		snprintf(why, n, "the URL must be like http://HOST:9090");
		return -EINVAL;
	}
	if (memchr(host, '@', strcspn(host, "/"))) {
		snprintf(why, n, "no passwords in the URL, please: --token-file");
		return -EINVAL;
	}
	while (url[len - 1] == '/')
		len--;
	snprintf(p->url, sizeof(p->url), "%.*s/api/v1/query", (int)len, url);
	return 0;
}

static int take_token(struct pt_prometheus *p, const char *path, char *why,
		      size_t n)
{
	char line[TOKEN_MAX + 32], *token;
	struct curl_slist *more;
	size_t len;
	int err = pt_read_token(path, TOKEN_MAX, &token, &len);

	if (err == -EINVAL || err == -EFBIG)
		snprintf(why, n, "%s holds no token: one line of at most %d characters",
			 path, TOKEN_MAX);
	else if (err)
		snprintf(why, n, "cannot read %s: %s", path, strerror(-err));
	if (err)
		return err;
	snprintf(line, sizeof(line), "Authorization: Bearer %s", token);
	more = pt_curl.slist_append(p->headers, line);
	if (more)
		p->headers = more;
	explicit_bzero(line, sizeof(line));
	explicit_bzero(token, len);
	free(token);
	return more ? 0 : -ENOMEM;
}

static size_t take_body(char *data, size_t one, size_t count, void *arg)
{
	struct pt_prometheus *p = arg;
	size_t n = one * count, want;
	char *b;

	if (n > PT_PROMETHEUS_BYTES - p->len) {
		p->too_long = true;
		return 0;
	}
	if (p->len + n > p->cap) {
		want = p->cap ? p->cap * 2 : 1 << 16;
		while (want < p->len + n)
			want *= 2;
		b = realloc(p->body, want);
		if (!b)
			return 0;
		p->body = b;
		p->cap = want;
	}
	memcpy(p->body + p->len, data, n);
	p->len += n;
	return n;
}

#define SET(opt, value) bad |= pt_curl.easy_setopt(p->h, CURLOPT_##opt, value)

static int set_up(struct pt_prometheus *p, const char *ca)
{
	int bad = 0;

	SET(URL, p->url);
	SET(PROTOCOLS_STR, "http,https");
	SET(FOLLOWLOCATION, 0L); /* it could lead to another host, with the token */
	SET(NOSIGNAL, 1L);
	SET(CONNECTTIMEOUT_MS, CONNECT_MS);
	SET(ACCEPT_ENCODING, "gzip");
	SET(USERAGENT, "pipetrace/" PT_VERSION);
	SET(HTTPHEADER, p->headers);
	SET(ERRORBUFFER, p->error);
	SET(WRITEFUNCTION, take_body);
	SET(WRITEDATA, p);
	if (ca)
		SET(CAINFO, ca);
	return bad ? -EIO : 0;
}

int pt_prometheus_open(const struct pt_prometheus_options *o,
		       struct pt_prometheus **out, char *why, size_t n)
{
	struct pt_prometheus *p = calloc(1, sizeof(*p));
	int ret = -ENOMEM;

	*out = NULL;
	snprintf(why, n, "out of memory");
	if (!p)
		return ret;
	ret = take_url(p, o->url, why, n);
	ret = ret ?: pt_libcurl_load("pipetrace fleet", why, n);
	if (!ret && o->token_file)
		ret = take_token(p, o->token_file, why, n);
	if (ret)
		goto out;
	snprintf(why, n, "libcurl cannot be set up");
	p->h = pt_curl.easy_init();
	ret = p->h ? set_up(p, o->ca) : -ENOMEM;
	p->deadline = pt_now() + o->timeout_s;
out:
	if (ret)
		pt_prometheus_close(p);
	else
		*out = p;
	return ret;
}

/* What an error's body says, if it is such a body. */
static void say_error(const json_t *j, long status, char *why, size_t n)
{
	const char *what = json_string_value(json_object_get(j, "error"));

	if (what)
		snprintf(why, n, "the server says: %.300s", what);
	else if (status == 401 || status == 403)
		snprintf(why, n, "the server asks for a token that it knows "
			 "(HTTP status %ld): --token-file", status);
	else if (status >= 300 && status < 400)
		snprintf(why, n, "the server sends elsewhere (HTTP status %ld): "
			 "give that URL", status);
	else
		snprintf(why, n, "the server answers with HTTP status %ld: is it "
			 "a Prometheus?", status);
}

/* One of "result": checked, and its value a number. NULL: leave it out. */
static json_t *row(const json_t *r, bool *bad)
{
	json_t *metric = json_object_get(r, "metric");
	const char *text = json_string_value(
		json_array_get(json_object_get(r, "value"), 1));
	const char *key;
	char *end;
	json_t *v;
	double x;

	*bad = true;
	if (!text || !json_is_object(metric))
		return NULL;
	json_object_foreach(metric, key, v)
		if (!json_is_string(v))
			return NULL;
	x = strtod(text, &end);
	if (end == text || *end)
		return NULL;
	*bad = false;
	return isfinite(x) ? json_pack("{s:O,s:f}", "metric", metric, "value", x) :
			     NULL;
}

int pt_prometheus_parse(const char *text, size_t len, json_t **rows, char *why,
			size_t n)
{
	json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL), *data, *all;
	const char *type;
	int ret = -EPROTO;
	size_t i;

	*rows = json_array();
	data = json_object_get(j, "data");
	all = json_object_get(data, "result");
	type = json_string_value(json_object_get(data, "resultType"));
	snprintf(why, n, "what the server answers is not of Prometheus' API");
	if (!*rows || !type || !json_is_array(all))
		goto out;
	if (!strcmp(type, "scalar")) {
		json_t *one = json_pack("{s:{},s:O}", "metric", "value", all);
		bool bad = true;
		json_t *r = one ? row(one, &bad) : NULL;

		json_decref(one);
		if (!bad && r)
			ret = json_array_append_new(*rows, r) ? -ENOMEM : 0;
		goto out;
	}
	if (strcmp(type, "vector"))
		goto out;
	if (json_array_size(all) > PT_PROMETHEUS_ROWS) {
		snprintf(why, n, "the server answers with too many values");
		goto out;
	}
	for (i = 0; i < json_array_size(all); i++) {
		bool bad;
		json_t *r = row(json_array_get(all, i), &bad);

		if (bad || (r && json_array_append_new(*rows, r)))
			goto out;
	}
	ret = 0;
out:
	json_decref(j);
	if (ret) {
		json_decref(*rows);
		*rows = NULL;
	}
	return ret;
}

static int answer(struct pt_prometheus *p, json_t **rows, char *why, size_t n)
{
	long status = 0;
	json_t *j;

	pt_curl.easy_getinfo(p->h, CURLINFO_RESPONSE_CODE, &status);
	if (status == 200)
		return pt_prometheus_parse(p->body ? p->body : "", p->len, rows,
					   why, n);
	j = json_loadb(p->body ? p->body : "", p->len, 0, NULL);
	say_error(j, status, why, n);
	json_decref(j);
	return -EPROTO;
}

int pt_prometheus_query(struct pt_prometheus *p, const char *expr, double at,
			json_t **rows, char *why, size_t n)
{
	double left = p->deadline - pt_now();
	char *escaped = NULL, *post = NULL;
	int bad = 0, ret = -ENOMEM;
	CURLcode code;

	*rows = NULL;
	snprintf(why, n, "the server took too long");
	if (left <= 0)
		return -ETIMEDOUT;
	snprintf(why, n, "out of memory");
	escaped = pt_curl.easy_escape(p->h, expr, 0);
	if (!escaped)
		return ret;
	if ((at > 0 ? asprintf(&post, "time=%.3f&query=%s", at, escaped) :
		      asprintf(&post, "query=%s", escaped)) < 0) {
		post = NULL;
		goto out;
	}
	p->len = 0;
	p->too_long = false;
	p->error[0] = '\0';
	SET(POSTFIELDS, post);
	SET(TIMEOUT_MS, (long)fmax(1, fmin(left, 86400) * 1000));
	code = bad ? CURLE_FAILED_INIT : pt_curl.easy_perform(p->h);
	ret = -EIO;
	if (p->too_long)
		snprintf(why, n, "the server answers with more than %u MiB",
			 PT_PROMETHEUS_BYTES >> 20);
	else if (code == CURLE_OPERATION_TIMEDOUT)
		snprintf(why, n, "the server took too long");
	else if (code)
		snprintf(why, n, "%s", *p->error ? p->error :
					     pt_curl.easy_strerror(code));
	else
		ret = answer(p, rows, why, n);
	if (!bad)
		pt_curl.easy_setopt(p->h, CURLOPT_POSTFIELDS, NULL);
out:
	pt_curl.free(escaped);
	free(post);
	return ret;
}

void pt_prometheus_close(struct pt_prometheus *p)
{
	if (!p)
		return;
	if (p->h)
		pt_curl.easy_cleanup(p->h);
	if (p->headers)
		pt_curl.slist_free_all(p->headers);
	/* the library stays: others of its threads and handlers may */
	free(p->body);
	free(p);
}
