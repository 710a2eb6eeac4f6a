/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * OTLP over HTTP (protobuf, gzip): metrics at an interval, and a log record for
 * every change of a verdict. What waits is bounded; what did not fit is counted.
 */
#ifndef PT_AGENT_OTLP_H
#define PT_AGENT_OTLP_H

#include <stddef.h>
#include <stdint.h>

#include "agent/prom.h"

struct pt_otlp_options {
	const char *endpoint;	  /* http://HOST:4318; /v1/metrics, /v1/logs follow */
	const char *headers_file; /* "Name: value" lines; NULL */
	const char *ca, *cert, *key; /* PEM files; NULL */
	size_t queue_bytes;	  /* that wait at most */
	const char *host;	  /* host.name of the resource */
	const char *version;
};

struct pt_otlp;

/* Starts the thread that sends. 0; -errno with a sentence in `why`. */
int pt_otlp_start(const struct pt_otlp_options *o, struct pt_otlp **out,
		  char *why, size_t n);

/* Queues one export of all metrics of pt_prom_write, same names and meaning.
 * `unix_ns`: now; `start_ns`: since when the counters count. Never waits for the
 * network. 0 or -ENOMEM; what does not fit displaces the oldest metrics, is
 * counted, and told in a log record as soon as one gets through. */
int pt_otlp_metrics(struct pt_otlp *o, const struct pt_prom_agent *a,
		    const struct pt_prom_job *jobs, size_t n, uint64_t start_ns,
		    uint64_t unix_ns);

struct pt_otlp_change { /* of one verdict of one job */
	const struct pt_prom_job *job;
	const char *id, *severity;
	bool ended;	      /* it does not hold any more */
	const char *title, *advice;
	const char *subject;  /* worker, file, peer ...; NULL */
	const char *evidence; /* JSON text, an object; NULL */
	const char *kept;     /* id of the evidence that is kept; NULL */
	uint64_t unix_ns;
};
/* Queues a log record. As above; records of changes go before metrics. */
int pt_otlp_change(struct pt_otlp *o, const struct pt_otlp_change *c);

struct pt_otlp_stats {
	uint64_t sent, retries, dropped; /* requests */
	uint64_t dropped_points, dropped_logs;
	size_t queued_bytes;
};
void pt_otlp_stats(struct pt_otlp *o, struct pt_otlp_stats *s);

/* Sends what waits, for at most `seconds`. NULL is fine. */
void pt_otlp_stop(struct pt_otlp *o, double seconds);

#endif
