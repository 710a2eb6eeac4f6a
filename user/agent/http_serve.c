/* SPDX-License-Identifier: BSD-2-Clause */
/* What is asked for, and the answer. All of it in the server's one thread. */
#include "agent/http_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/gzip.h"
#include "base/readfile.h"

#define GZIP_LEAST 1024 /* bytes; below that it is not worth a header */

/* Our pages are whole in themselves: their scripts run, in an origin of their own,
 * and load nothing. */
#define CSP_HTML                                                               \
	"default-src 'none'; script-src 'unsafe-inline'; "                     \
	"style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "          \
	"form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
#define CSP_NONE "default-src 'none'; frame-ancestors 'none'; sandbox"

#define JSON_TYPE "application/json"
#define HTML_TYPE "text/html; charset=utf-8"
#define TEXT_TYPE "text/plain; charset=utf-8"

static bool add_header(struct MHD_Response *r, const char *name, const char *value)
{
	return MHD_add_response_header(r, name, value) == MHD_YES;
}

/* NULL, and the answer is gone, where memory lacks. */
static struct MHD_Response *dressed(struct MHD_Response *r, const char *type,
				    const char *csp)
{
	if (r && add_header(r, "Content-Type", type) &&
	    add_header(r, "Content-Security-Policy", csp) &&
	    add_header(r, "X-Content-Type-Options", "nosniff") &&
	    add_header(r, "Cache-Control", "no-store") &&
	    add_header(r, "Referrer-Policy", "no-referrer"))
		return r;
	if (r)
		MHD_destroy_response(r);
	return NULL;
}

static struct MHD_Response *fixed(const char *text)
{
	return dressed(MHD_create_response_from_buffer(strlen(text), (void *)text,
						       MHD_RESPMEM_PERSISTENT),
		       TEXT_TYPE, CSP_NONE);
}

int pt_http_answers_make(struct pt_http *h)
{
	h->not_found = fixed("not found\n");
	h->not_allowed = fixed("only GET and HEAD\n");
	h->unauthorized = fixed("a bearer token is asked for\n");
	h->unready = fixed("nothing yet\n");
	h->healthy = fixed("ok\n");
	if (!h->not_found || !h->not_allowed || !h->unauthorized || !h->unready ||
	    !h->healthy || !add_header(h->not_allowed, "Allow", "GET, HEAD") ||
	    !add_header(h->not_allowed, "Connection", "close") ||
	    !add_header(h->unauthorized, "WWW-Authenticate", "Bearer") ||
	    !add_header(h->unready, "Retry-After", "5"))
		return -ENOMEM;
	return 0;
}

void pt_http_answers_free(struct pt_http *h)
{
	struct MHD_Response *all[] = { h->not_found, h->not_allowed,
				       h->unauthorized, h->unready, h->healthy };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i])
			MHD_destroy_response(all[i]);
}

void pt_http_text_unref(struct pt_http_text *t)
{
	if (!t || atomic_fetch_sub(&t->refs, 1) != 1)
		return;
	if (t->plain)
		MHD_destroy_response(t->plain);
	if (t->gzip)
		MHD_destroy_response(t->gzip);
	free(t->text);
	free(t);
}

static const char *type_of(enum pt_http_page page)
{
	switch (page) {
	case PT_PAGE_OPENMETRICS:
		return "application/openmetrics-text; version=1.0.0; charset=utf-8";
	case PT_PAGE_METRICS:
		return "text/plain; version=0.0.4; charset=utf-8";
	default:
		return JSON_TYPE;
	}
}

static struct MHD_Response *vary(struct MHD_Response *r)
{
	if (r && add_header(r, "Vary", "Accept, Accept-Encoding"))
		return r;
	if (r)
		MHD_destroy_response(r);
	return NULL;
}

static struct MHD_Response *compressed(const struct pt_http_text *t,
				       enum pt_http_page page)
{
	struct MHD_Response *r;
	void *to;
	size_t len;

	if (t->len < GZIP_LEAST || pt_gzip(t->text, t->len, &to, &len))
		return NULL;
	r = MHD_create_response_from_buffer(len, to, MHD_RESPMEM_MUST_FREE);
	if (!r)
		free(to);
	r = vary(dressed(r, type_of(page), CSP_NONE));
	if (r && !add_header(r, "Content-Encoding", "gzip")) {
		MHD_destroy_response(r);
		r = NULL;
	}
	return r;
}

static struct MHD_Response *plain(struct pt_http_text *t, enum pt_http_page page)
{
	return vary(dressed(MHD_create_response_from_buffer(t->len, t->text,
							    MHD_RESPMEM_PERSISTENT),
			    type_of(page), CSP_NONE));
}

static enum MHD_Result queue(struct MHD_Connection *c, unsigned status,
			     struct MHD_Response *r, uint64_t bytes)
{
	struct pt_http_client *client = pt_http_client_of(c);

	if (!r || !client)
		return MHD_NO; /* the connection is closed */
	pt_http_client_answers(client, bytes, pt_now());
	return MHD_queue_response(c, status, r);
}

static const char *header(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

static enum MHD_Result page(struct pt_http *h, struct MHD_Connection *c,
			    enum pt_http_page which, void **request)
{
	bool gzip = pt_http_weight(header(c, "Accept-Encoding"), "gzip") > 0;
	struct pt_http_text *t;

	pthread_mutex_lock(&h->lock);
	t = h->page[which];
	if (t)
		atomic_fetch_add(&t->refs, 1);
	pthread_mutex_unlock(&h->lock);
	if (!t)
		return queue(c, MHD_HTTP_SERVICE_UNAVAILABLE, h->unready, 0);
	*request = t; /* given back when the request is over */
	if (gzip && !t->gzip && !t->no_gzip) {
		t->gzip = compressed(t, which);
		t->no_gzip = !t->gzip;
	}
	if (gzip && t->gzip)
		return queue(c, MHD_HTTP_OK, t->gzip, t->len);
	if (!t->plain)
		t->plain = plain(t, which);
	return queue(c, MHD_HTTP_OK, t->plain, t->len);
}

static enum MHD_Result evidence(struct pt_http *h, struct MHD_Connection *c,
				const char *name)
{
	static const char *const type[] = {
		[PT_FILE_JSON] = JSON_TYPE,
		[PT_FILE_HTML] = HTML_TYPE,
		[PT_FILE_PTRACE] = "application/octet-stream",
	};
	enum pt_http_file file = pt_http_evidence(name);
	enum MHD_Result res;
	struct MHD_Response *r;
	struct stat st;
	int fd = -1;

	if (file && h->evidence >= 0)
		fd = openat(h->evidence, name,
			    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
		close(fd);
		fd = -1;
	}
	if (fd < 0)
		return queue(c, MHD_HTTP_NOT_FOUND, h->not_found, 0);
	r = MHD_create_response_from_fd64((uint64_t)st.st_size, fd);
	if (!r) {
		close(fd);
		return MHD_NO;
	}
	r = dressed(r, type[file], file == PT_FILE_HTML ? CSP_HTML : CSP_NONE);
	if (r && file == PT_FILE_PTRACE &&
	    !add_header(r, "Content-Disposition", "attachment")) {
		MHD_destroy_response(r);
		r = NULL;
	}
	res = queue(c, MHD_HTTP_OK, r, (uint64_t)st.st_size);
	if (r)
		MHD_destroy_response(r);
	return res;
}

/* ---- the token, in a file that may change while we run --------------------------- */

int pt_http_token_look(struct pt_http_token *t, double now, bool force)
{
	struct stat st = { 0 };
	char *text;
	size_t n;
	int err;

	if (!t->path || (!force && now < t->looked + 1))
		return 0;
	t->looked = now;
	if (!stat(t->path, &st) && t->len && pt_stat_same(&st, &t->seen))
		return 0;
	t->seen = st;
	t->len = 0;
	err = pt_read_token(t->path, sizeof(t->text) - 1, &text, &n);
	if (err)
		return err;
	memcpy(t->text, text, n);
	t->len = n;
	explicit_bzero(text, n);
	free(text);
	return 0;
}

/* Did it come by the socket in the file system, and is it root's? */
static bool is_local(struct pt_http *h, struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_DAEMON);

	if (!i || !i->daemon || i->daemon != h->daemon[PT_HTTP_LOCAL])
		return false;
	i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
	return i && pt_http_local_trusts(i->connect_fd);
}

static bool let_in(struct pt_http *h, struct MHD_Connection *c)
{
	if (is_local(h, c))
		return true;
	if (!h->token.path)
		return false;
	pt_http_token_look(&h->token, pt_now(), false);
	return pt_http_bearer(header(c, "Authorization"), h->token.text, h->token.len);
}

/* What a request has: nothing yet, this mark once its head was seen, or the text
 * that it is answered with. */
static char seen;

void pt_http_completed(void *cls, struct MHD_Connection *c, void **request,
		       enum MHD_RequestTerminationCode how)
{
	struct pt_http_client *client = pt_http_client_of(c);

	(void)cls;
	(void)how;
	if (*request && *request != &seen)
		pt_http_text_unref(*request);
	*request = NULL;
	if (client)
		pt_http_client_answered(client, pt_now());
}

enum MHD_Result pt_http_answer(void *cls, struct MHD_Connection *c, const char *url,
			       const char *method, const char *version,
			       const char *upload, size_t *upload_size, void **request)
{
	struct pt_http *h = cls;
	bool metrics;

	(void)version;
	(void)upload;
	if (!*request) {
		*request = &seen;
		atomic_fetch_add(&h->requests, 1);
		if (!strcmp(method, "GET") || !strcmp(method, "HEAD"))
			return MHD_YES; /* is there a body? */
		atomic_fetch_add(&h->refused, 1);
		return queue(c, MHD_HTTP_METHOD_NOT_ALLOWED, h->not_allowed, 0);
	}
	if (*upload_size) { /* nobody has a reason to send us anything */
		atomic_fetch_add(&h->refused, 1);
		return MHD_NO;
	}
	*request = NULL;
	if (!strcmp(url, "/healthz"))
		return queue(c, MHD_HTTP_OK, h->healthy, 0);
	metrics = !strcmp(url, "/metrics");
	if (!(metrics && h->open_metrics) && !let_in(h, c)) {
		atomic_fetch_add(&h->refused, 1);
		return queue(c, MHD_HTTP_UNAUTHORIZED, h->unauthorized, 0);
	}
	if (metrics)
		return page(h, c,
			    pt_http_wants_openmetrics(header(c, "Accept")) ?
				    PT_PAGE_OPENMETRICS :
				    PT_PAGE_METRICS,
			    request);
	if (!strcmp(url, "/jobs"))
		return page(h, c, PT_PAGE_JOBS, request);
	if (!strcmp(url, "/evidence") || !strcmp(url, "/evidence/"))
		return page(h, c, PT_PAGE_EVIDENCE, request);
	if (!strncmp(url, "/evidence/", 10))
		return evidence(h, c, url + 10);
	return queue(c, MHD_HTTP_NOT_FOUND, h->not_found, 0);
}
