/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/otlp_post.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/readfile.h"
#include "net/libcurl.h"
#include "version.h"

#define CONNECT_S 5
#define REQUEST_S 15  /* of one request in all: it is some kilobytes */
#define ANSWER_MAX (1 << 20) /* whoever sends more is cut off */
#define HEADERS_MAX (64 << 10)
#define ENDPOINT_MAX 2000

struct pt_otlp_post {
	CURLM *multi;
	CURL *easy;
	struct curl_slist *headers;
	char *url[PT_OTLP_SIGNALS];
	char *headers_file; /* NULL: none */
	struct stat seen;   /* of it */
	struct pt_otlp_answer *answer;
	size_t got; /* bytes of the answer, kept or not */
};

static int check_endpoint(const char *s, char *why, size_t n)
{
	size_t i, len = s ? strlen(s) : 0;

	if (len > ENDPOINT_MAX || !s ||
	    (strncmp(s, "http://", 7) && strncmp(s, "https://", 8)) ||
	    !s[strcspn(s, "/") + 2])
		goto bad;
	for (i = 0; i < len; i++)
		if ((unsigned char)s[i] <= 0x20 || (unsigned char)s[i] >= 0x7f ||
		    strchr("?#\"<>\\^`{|}", s[i]))
			goto bad;
	return 0;
bad:
	snprintf(why, n, "%.200s is no endpoint: http://HOST:PORT or https://HOST:PORT",
		 s ? s : "nothing");
	return -EINVAL;
}

static int check_files(const struct pt_otlp_options *o, char *why, size_t n)
{
	const char *const file[] = { o->ca, o->cert, o->key };
	size_t i;

	for (i = 0; i < 3; i++) {
		if (!file[i] || !access(file[i], R_OK))
			continue;
		snprintf(why, n, "cannot read %s: %s", file[i], strerror(errno));
		return -errno;
	}
	if (!o->cert != !o->key) {
		snprintf(why, n, "a client's certificate needs its key");
		return -EINVAL;
	}
	return 0;
}

/* ---- headers ------------------------------------------------------------------- */

#define TOKEN                                                                  \
	"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

static bool ours(const char *name, size_t n)
{
	static const char *const all[] = { "content-type",	"content-length",
					   "content-encoding",	"transfer-encoding",
					   "host",		"connection",
					   "expect" };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (strlen(all[i]) == n && !strncasecmp(name, all[i], n))
			return true;
	return false;
}

int pt_otlp_headers(char *text, int (*each)(void *ctx, const char *line), void *ctx,
		    char *why, size_t n)
{
	char *line, *save = NULL;
	int count = 0, number = 0;

	for (line = text; line && *line; line = save) {
		size_t name, i;

		save = strchr(line, '\n');
		if (save)
			*save++ = '\0';
		number++;
		i = strlen(line);
		if (i && line[i - 1] == '\r')
			line[i - 1] = '\0';
		if (!*line || *line == '#')
			continue;
		name = strspn(line, TOKEN);
		/* What libcurl takes for "no such header" is "Name:" alone. */
		if (!name || line[name] != ':' || !line[name + 1 + strspn(line + name + 1, " \t")]) {
			snprintf(why, n, "line %d is no \"Name: value\"", number);
			return -EINVAL;
		}
		for (i = name; line[i]; i++) {
			if ((unsigned char)line[i] >= 0x20 && line[i] != 0x7f)
				continue;
			snprintf(why, n, "line %d has a control character", number);
			return -EINVAL;
		}
		if (ours(line, name)) {
			snprintf(why, n, "line %d: %.*s is set by the sender itself",
				 number, (int)name, line);
			return -EINVAL;
		}
		if (each(ctx, line)) {
			snprintf(why, n, "no memory");
			return -ENOMEM;
		}
		count++;
	}
	return count;
}

static int append(void *ctx, const char *line)
{
	struct curl_slist **list = ctx, *more = pt_curl.slist_append(*list, line);

	if (!more)
		return -ENOMEM;
	*list = more;
	return 0;
}

static struct curl_slist *own_headers(void)
{
	static const char *const own[] = { "Content-Type: application/x-protobuf",
					   "Content-Encoding: gzip", "Expect:" };
	struct curl_slist *list = NULL;
	size_t i;

	for (i = 0; i < sizeof(own) / sizeof(*own); i++) {
		if (append(&list, own[i])) {
			pt_curl.slist_free_all(list);
			return NULL;
		}
	}
	return list;
}

/* Reads the file again where it has changed; the old ones hold where it is no good. */
static int look_at_headers(struct pt_otlp_post *p, char *why, size_t n)
{
	struct curl_slist *list;
	struct stat st = { 0 };
	char *text = NULL, reason[120] = "";
	size_t len = 0;
	int err = 0;

	if (p->headers && (!p->headers_file ||
			   (!stat(p->headers_file, &st) &&
			    pt_stat_same(&st, &p->seen))))
		return 0;
	list = own_headers();
	if (!list)
		err = -ENOMEM;
	if (!err && p->headers_file) {
		(void)!stat(p->headers_file, &st);
		err = pt_read_file(p->headers_file, HEADERS_MAX, &text, &len);
		if (!err && strlen(text) != len)
			err = -EINVAL;
		err = err ?: pt_otlp_headers(text, append, &list, reason, sizeof(reason));
		err = err > 0 ? 0 : err;
	}
	if (err) {
		snprintf(why, n, "headers of %s: %s",
			 p->headers_file ? p->headers_file : "OTLP",
			 *reason ? reason : strerror(-err));
		pt_curl.slist_free_all(list);
	} else {
		pt_curl.slist_free_all(p->headers);
		p->headers = list;
		p->seen = st;
	}
	if (text)
		explicit_bzero(text, len);
	free(text);
	return err;
}

/* ---- set up -------------------------------------------------------------------- */

static size_t on_answer(char *data, size_t one, size_t n, void *ctx)
{
	struct pt_otlp_post *p = ctx;
	struct pt_otlp_answer *a = p->answer;
	size_t keep = PT_OTLP_ANSWER - a->len;

	(void)one; /* always 1 */
	if (keep > n)
		keep = n;
	memcpy(a->body + a->len, data, keep);
	a->len += keep;
	p->got += n;
	return p->got > ANSWER_MAX ? 0 : n; /* 0 ends the transfer */
}

#define SET(option, value) (err = err ? err : pt_curl.easy_setopt(p->easy, option, value))

static int set_up(struct pt_otlp_post *p, const struct pt_otlp_options *o)
{
	const char *scheme = o->endpoint[4] == 's' ? "https" : "http";
	CURLcode err = CURLE_OK;

	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_POST, 1L);
	SET(CURLOPT_USERAGENT, "pipetrace/" PT_VERSION);
	SET(CURLOPT_PROTOCOLS_STR, scheme);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
	SET(CURLOPT_TIMEOUT, (long)REQUEST_S);
	SET(CURLOPT_WRITEFUNCTION, on_answer);
	SET(CURLOPT_WRITEDATA, p);
	SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	SET(CURLOPT_KEYPASSWD, ""); /* nobody is there to be asked for one */
	if (o->ca)
		SET(CURLOPT_CAINFO, o->ca);
	if (o->cert) {
		SET(CURLOPT_SSLCERT, o->cert);
		SET(CURLOPT_SSLKEY, o->key);
	}
	if (err)
		return -ENOTSUP;
	/* Newer than the rest: a name that is never resolved does not hold the end. */
	pt_curl.easy_setopt(p->easy, CURLOPT_QUICK_EXIT, 1L);
	return 0;
}

int pt_otlp_post_new(const struct pt_otlp_options *o, struct pt_otlp_post **out,
		     char *why, size_t n)
{
	static const char *const path[] = { [PT_OTLP_LOGS] = "logs",
					    [PT_OTLP_METRICS] = "metrics" };
	struct pt_otlp_post *p;
	size_t len;
	int err, i;

	*out = NULL;
	err = check_endpoint(o->endpoint, why, n);
	err = err ?: check_files(o, why, n);
	err = err ?: pt_libcurl_load("OTLP", why, n);
	if (err)
		return err;
	p = calloc(1, sizeof(*p));
	if (!p)
		goto no_memory;
	len = strlen(o->endpoint);
	while (o->endpoint[len - 1] == '/')
		len--;
	for (i = 0; i < PT_OTLP_SIGNALS; i++)
		if (asprintf(&p->url[i], "%.*s/v1/%s", (int)len, o->endpoint,
			     path[i]) < 0)
			p->url[i] = NULL;
	if (o->headers_file)
		p->headers_file = strdup(o->headers_file);
	p->multi = pt_curl.multi_init();
	p->easy = pt_curl.easy_init();
	if (!p->url[0] || !p->url[1] || !p->multi || !p->easy ||
	    (o->headers_file && !p->headers_file))
		goto no_memory;
	err = look_at_headers(p, why, n);
	if (!err) {
		err = set_up(p, o);
		if (err)
			snprintf(why, n, "the libcurl that is here is too old for OTLP");
	}
	if (err) {
		pt_otlp_post_free(p);
		return err;
	}
	*out = p;
	return 0;
no_memory:
	pt_otlp_post_free(p);
	snprintf(why, n, "no memory");
	return -ENOMEM;
}

void pt_otlp_post_free(struct pt_otlp_post *p)
{
	int i;

	if (!p)
		return;
	if (p->easy)
		pt_curl.easy_cleanup(p->easy);
	if (p->multi)
		pt_curl.multi_cleanup(p->multi);
	pt_curl.slist_free_all(p->headers);
	for (i = 0; i < PT_OTLP_SIGNALS; i++)
		free(p->url[i]);
	free(p->headers_file);
	free(p);
}

void pt_otlp_post_wake(struct pt_otlp_post *p)
{
	pt_curl.multi_wakeup(p->multi);
}

/* ---- a request ----------------------------------------------------------------- */

/* Whether the transfer has ended, and how. */
static bool ended(struct pt_otlp_post *p, CURLcode *how)
{
	CURLMsg *m;
	int left;

	while ((m = pt_curl.multi_info_read(p->multi, &left))) {
		if (m->msg != CURLMSG_DONE)
			continue;
		*how = m->data.result;
		return true;
	}
	return false;
}

int pt_otlp_post(struct pt_otlp_post *p, enum pt_otlp_signal s, const void *data,
		 size_t len, double (*until)(void *), void *ctx,
		 struct pt_otlp_answer *a)
{
	CURLcode err = CURLE_OK, how = CURLE_ABORTED_BY_CALLBACK;
	curl_off_t after = 0;
	char why[200];
	int running;

	a->status = 0;
	a->len = 0;
	a->retry_after = 0;
	p->answer = a;
	p->got = 0;
	look_at_headers(p, why, sizeof(why)); /* the old ones hold where it fails */
	SET(CURLOPT_URL, p->url[s]);
	SET(CURLOPT_HTTPHEADER, p->headers);
	SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
	SET(CURLOPT_POSTFIELDS, data);
	if (err || pt_curl.multi_add_handle(p->multi, p->easy))
		return -EIO;
	for (;;) {
		double left;

		if (pt_curl.multi_perform(p->multi, &running) || ended(p, &how))
			break;
		left = until(ctx) - pt_now();
		if (left <= 0)
			break;
		if (pt_curl.multi_poll(p->multi, NULL, 0, left > 1 ? 1000 : (int)(left * 1e3) + 1,
				   NULL))
			break;
	}
	/* An answer that breaks off after its head is none. */
	if (how == CURLE_OK) {
		pt_curl.easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &a->status);
		if (!pt_curl.easy_getinfo(p->easy, CURLINFO_RETRY_AFTER, &after) && after > 0)
			a->retry_after = (double)after;
	}
	pt_curl.multi_remove_handle(p->multi, p->easy);
	return how == CURLE_OK && a->status ? 0 : -EIO;
}
