/* SPDX-License-Identifier: BSD-2-Clause */
/* OTLP requests as bytes (protobuf). Pure. */
#ifndef PT_AGENT_OTLP_ENCODE_H
#define PT_AGENT_OTLP_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include "agent/otlp.h"

struct pt_otlp_bytes {
	uint8_t *data; /* malloc */
	size_t len;
	size_t count; /* data points, or log records */
};

#define PT_OTLP_TEXT 1024     /* bytes of a title or an advice, at most */
#define PT_OTLP_EVIDENCE 16384 /* ... of evidence; what is longer is left out whole */

/* Who speaks: the resource. */
struct pt_otlp_who {
	const char *host, *version;
};

/* One request of all metrics: cumulative since `start_ns`. 0 or -ENOMEM. */
int pt_otlp_encode_metrics(const struct pt_otlp_who *who,
			   const struct pt_prom_agent *a,
			   const struct pt_prom_job *jobs, size_t n,
			   uint64_t start_ns, uint64_t unix_ns,
			   struct pt_otlp_bytes *out);

/* One request with one record. Requests of records, one after the other, are one
 * request (so protobuf merges repeated fields). 0 or -ENOMEM. */
int pt_otlp_encode_change(const struct pt_otlp_who *who,
			  const struct pt_otlp_change *c, struct pt_otlp_bytes *out);

/* ... that says what was not delivered. */
int pt_otlp_encode_loss(const struct pt_otlp_who *who, uint64_t points, uint64_t logs,
			uint64_t unix_ns, struct pt_otlp_bytes *out);

/* What an answer says to be rejected. 0: nothing, or it cannot be read. */
uint64_t pt_otlp_rejected(const uint8_t *answer, size_t len);

#endif
