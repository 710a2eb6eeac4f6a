/* SPDX-License-Identifier: BSD-2-Clause */
/* What a request says, judged: names, tokens, accepted formats. Pure. */
#ifndef PT_AGENT_HTTP_REQUEST_H
#define PT_AGENT_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define PT_HTTP_ID_MAX 128	/* bytes of an evidence's id */
#define PT_HTTP_TOKEN_MAX 4096 /* ... of a bearer token */

enum pt_http_file { PT_FILE_NONE, PT_FILE_JSON, PT_FILE_HTML, PT_FILE_PTRACE };

/* Which file of evidence "ID.SUFFIX" names: an id of [0-9a-z-] and one of three
 * suffixes; anything else is PT_FILE_NONE. Nothing in it is a path. */
enum pt_http_file pt_http_evidence(const char *name);

/* Whether a header Authorization (may be NULL) bears the token. The time that it
 * takes depends on what the client sent only. */
bool pt_http_bearer(const char *authorization, const char *token, size_t len);

/* The weight (RFC 9110, 12.4.2: 0 to 1) that a list such as Accept or
 * Accept-Encoding gives to `what`; its parameters but q are not looked at. -1: it is
 * not in the list. */
double pt_http_weight(const char *list, const char *what);

/* Whether /metrics is wanted as OpenMetrics. */
bool pt_http_wants_openmetrics(const char *accept);

/* ADDR:PORT or [ADDR]:PORT, numeric. 0; -EINVAL. */
int pt_http_address(const char *s, struct sockaddr_storage *sa, socklen_t *len);

#endif
