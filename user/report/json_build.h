/* SPDX-License-Identifier: BSD-2-Clause */
/* Building JSON values with one sticky error, private to the JSON renderer. */
#ifndef PT_REPORT_JSON_BUILD_H
#define PT_REPORT_JSON_BUILD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "report/report.h"

/* Decimals that a figure is rounded to: what was measured, without noise. */
enum pt_jdec {
	PT_J_WHOLE = 0,	 /* bytes per minute */
	PT_J_FINE = 3,	 /* ms and us */
	PT_J_STD = 6,	 /* seconds, shares, rates */
};

struct pt_jb {
	bool failed; /* out of memory; everything after it is harmless */
};

/* Every `v` is taken over, NULL included. */
void pt_j_put(struct pt_jb *b, json_t *o, const char *key, json_t *v);
void pt_j_add(struct pt_jb *b, json_t *array, json_t *v);

json_t *pt_j_num(double v, enum pt_jdec decimals); /* not finite: null */
json_t *pt_j_int(int64_t v);			   /* PT_NULL: null */
json_t *pt_j_u64(uint64_t v);			   /* decimal string */
json_t *pt_j_name(const char *s); /* one of our own names; NULL: null */
json_t *pt_j_pair(const double v[2], enum pt_jdec decimals);
json_t *pt_j_range(const struct pt_range *r);
json_t *pt_j_dist(const struct pt_dist *d); /* n == 0: null */

/* A string from outside; with "KEY_escaped": true if bytes were escaped. */
void pt_j_text(struct pt_jb *b, json_t *o, const char *key, const char *s);

/* The labels as an object; an outside report's may hold any bytes. */
json_t *pt_j_labels(struct pt_jb *b, const struct pt_report *r);

#endif
