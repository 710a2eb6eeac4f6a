/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside the agent's HTTP server. */
#ifndef PT_AGENT_HTTP_INT_H
#define PT_AGENT_HTTP_INT_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "agent/http.h"
#include "agent/http_clients.h"
#include "agent/http_local.h"
#include "agent/http_request.h"
#include "base/clock.h"

/* A published text. The server and the one that publishes hold it in common. */
struct pt_http_text {
	atomic_uint refs;
	char *text;
	size_t len;
	/* Made by the server's thread when first asked for. */
	struct MHD_Response *plain, *gzip;
	bool no_gzip; /* it would save nothing */
};

struct pt_http_token {
	char *path; /* NULL: there is none, and nobody has it */
	char text[PT_HTTP_TOKEN_MAX];
	size_t len; /* 0: none could be read; nobody is let in */
	struct stat seen;
	double looked; /* s, monotonic; when the file was last looked at */
};

/* Who comes by a port, and who by the socket in the file system. */
enum { PT_HTTP_PORT, PT_HTTP_LOCAL, PT_HTTP_DOORS };

struct pt_http {
	struct MHD_Daemon *daemon[PT_HTTP_DOORS]; /* NULL: that door is not there */
	pthread_t thread;
	bool threaded;
	int listen, wake; /* wake: an eventfd that ends the thread */
	struct pt_http_local local;
	int evidence;	  /* a directory, or -1 */
	unsigned port;
	char *cert, *key; /* PEM; NULL: no TLS */
	struct pt_http_token token;
	bool open_metrics; /* the token is not asked for there */

	pthread_mutex_t lock; /* of `page` */
	struct pt_http_text *page[PT_PAGE_NR];

	/* of the server's thread alone */
	struct pt_http_clients clients;
	struct MHD_Response *not_found, *not_allowed, *unauthorized, *unready,
		*healthy;

	atomic_ulong requests, refused;
	atomic_uint connections;
};

/* Looks at the file again, at most once a second (`force`: now). 0; -errno: there
 * is no usable token. */
int pt_http_token_look(struct pt_http_token *t, double now, bool force);

/* The handler of libmicrohttpd; `cls` is the server. */
enum MHD_Result pt_http_answer(void *cls, struct MHD_Connection *c, const char *url,
			       const char *method, const char *version,
			       const char *upload, size_t *upload_size, void **request);

/* Its counterpart: the request is over, in whatever way. */
void pt_http_completed(void *cls, struct MHD_Connection *c, void **request,
		       enum MHD_RequestTerminationCode how);

/* The answers that are always the same. 0 or -ENOMEM. */
int pt_http_answers_make(struct pt_http *h);
void pt_http_answers_free(struct pt_http *h);

void pt_http_text_unref(struct pt_http_text *t);

/* The client of a connection. NULL: it was not noted for lack of memory. */
struct pt_http_client *pt_http_client_of(struct MHD_Connection *c);

#endif
