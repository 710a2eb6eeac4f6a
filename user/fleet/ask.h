/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files that ask; private to them. */
#ifndef PT_FLEET_ASK_H
#define PT_FLEET_ASK_H

#include "fleet/fleet.h"

#define PT_FLEET_BY "by (instance, job_id) "

struct pt_fleet_asking {
	struct pt_prometheus *p;
	const struct pt_fleet_ask *a;
	struct pt_fleet *f;
	char *only; /* job_id=~"...": the jobs that are shown */
	char *why;
	size_t n;
};

/* The rows of one question, for the caller to free. 0, or -errno with a sentence in
 * k->why. */
int pt_fleet_query(struct pt_fleet_asking *k, json_t **rows, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* How much a counter grew in the window, summed `by` ("": over all), as PromQL for
 * the caller to free; NULL: out of memory. */
char *pt_fleet_grown(const struct pt_fleet_asking *k, const char *by,
		     const char *metric, const char *selector);

/* `,job_id=~"a|b"`, of an array of labels: a regular expression between PromQL's
 * quotes. 0 or -ENOMEM; to be freed. */
int pt_fleet_select(const json_t *labels, char **only);

static inline double pt_fleet_value(const json_t *row)
{
	return json_number_value(json_object_get(row, "value"));
}

int pt_fleet_stragglers(struct pt_fleet_asking *k);
int pt_fleet_mounts(struct pt_fleet_asking *k);

#endif
