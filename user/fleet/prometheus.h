/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asks a Prometheus server (or what speaks its HTTP API, version 1) for values.
 * The server may be anybody's: what it says is bounded in size and in time, and
 * nothing of it is trusted.
 */
#ifndef PT_FLEET_PROMETHEUS_H
#define PT_FLEET_PROMETHEUS_H

#include <jansson.h>
#include <stddef.h>

#define PT_PROMETHEUS_BYTES (128u << 20) /* of one answer, at most */
#define PT_PROMETHEUS_ROWS 2000000	 /* ... and values */

struct pt_prometheus_options {
	const char *url;	/* http://HOST[:PORT][/PATH], or https */
	const char *token_file; /* of a bearer token; NULL */
	const char *ca;		/* PEM file; NULL: the system's */
	double timeout_s;	/* for all queries together */
};

struct pt_prometheus;

/* Nothing is sent yet. `o` is not kept. 0, or -errno with one sentence in `why`; ""
 * where it was said already. */
int pt_prometheus_open(const struct pt_prometheus_options *o,
		       struct pt_prometheus **out, char *why, size_t n);

/*
 * The value of `expr` at `at` (Unix time in s; 0: the server's now). *rows: an
 * array of {"metric": {label: text}, "value": number}, for the caller to free;
 * values that are not finite are left out. 0, or -errno with one sentence in
 * `why`, which may hold what the server said: not safe for a terminal.
 */
int pt_prometheus_query(struct pt_prometheus *p, const char *expr, double at,
			json_t **rows, char *why, size_t n);

/* The rows of an answer's text, as above. No I/O. */
int pt_prometheus_parse(const char *text, size_t len, json_t **rows, char *why,
			size_t n);

/* NULL is fine. */
void pt_prometheus_close(struct pt_prometheus *p);

#endif
