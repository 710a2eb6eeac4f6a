/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a node's agent serves: /metrics for Prometheus, and the evidence that it
 * keeps. The pages are rendered by the agent and only handed out here, so that no
 * client, however slow or many, costs a sample anything.
 */
#ifndef PT_AGENT_HTTP_H
#define PT_AGENT_HTTP_H

#include <stdbool.h>
#include <stddef.h>

enum pt_http_page {
	PT_PAGE_OPENMETRICS, /* /metrics, where the scraper asks for it */
	PT_PAGE_METRICS,     /* /metrics, the older text format */
	PT_PAGE_JOBS,	     /* /jobs: the jobs now, JSON */
	PT_PAGE_EVIDENCE,    /* /evidence: what is kept, JSON */
	PT_PAGE_NR,
};

struct pt_http_options {
	const char *listen;	/* ADDR:PORT or [ADDR]:PORT; NULL: none */
	const char *cert, *key; /* PEM files; NULL: no TLS */
	const char *token_file; /* a bearer token, for all but /healthz */
	/* Where evidence lies: /evidence/ID.json, .html and .ptrace are its files. */
	const char *evidence;
	/* Without a token_file: /metrics is for everybody, and all else for who has
	 * the token in this file. NULL: for nobody. */
	const char *own_token;
	/* Where root asks without a token, by a socket in the file system; NULL:
	 * nowhere. It is gone when the server stops. */
	const char *local;
	bool local_or_not; /* where it cannot be made, all else is served */
};

struct pt_http;

/* Listens and serves in threads of its own. 0, with a sentence in `why` if there is no
 * `local` though it was asked for; -errno with a sentence (an address that is no
 * address, a port in use, a key that is none). `o` and its strings are not kept. */
int pt_http_start(const struct pt_http_options *o, struct pt_http **out,
		  char *why, size_t n);

/* Replaces a page. `text` is taken (malloc) whatever is returned. 0 or -ENOMEM.
 * Never waits for a client. */
int pt_http_publish(struct pt_http *h, enum pt_http_page page, char *text,
		    size_t len);

/* The port that it listens on (for :0); 0: none. */
unsigned pt_http_port(const struct pt_http *h);

struct pt_http_stats {
	unsigned long requests, refused; /* refused: no token, too many, bad */
	unsigned connections;		 /* open now */
};
void pt_http_stats(struct pt_http *h, struct pt_http_stats *s);

/* Ends all connections. NULL is fine. */
void pt_http_stop(struct pt_http *h);

#endif
