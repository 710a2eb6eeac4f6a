/* SPDX-License-Identifier: BSD-2-Clause */
/* Building JSON values with one sticky error, private to the JSON renderer. */
#ifndef PT_REPORT_JSON_BUILD_H
#define PT_REPORT_JSON_BUILD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "report/report.h"

/* Digits that hold every value that pt_j_num() rounds, and no binary noise. */
#define PT_J_DIGITS 15
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
/* ... with PT_J_STD, as a member. */
void pt_j_std(struct pt_jb *b, json_t *o, const char *key, double v);
json_t *pt_j_int(int64_t v);			   /* PT_NULL: null */
json_t *pt_j_u64(uint64_t v);			   /* decimal string */
json_t *pt_j_name(const char *s); /* one of our own names; NULL: null */
json_t *pt_j_pair(const double v[2], enum pt_jdec decimals);
json_t *pt_j_range(const struct pt_range *r);
json_t *pt_j_dist(const struct pt_dist *d); /* n == 0: null */

json_t *pt_j_string(const char *s); /* from outside, any bytes; NULL: no memory */
/* ... as a member; with "KEY_escaped": true if bytes were escaped. NULL: null. */
void pt_j_text(struct pt_jb *b, json_t *o, const char *key, const char *s);

/* Writes the document and a newline, indented by `indent` (at most 8; 0: compact), with
 * the digits of a rounded figure; frees it. 0; -ENOMEM: it is not whole; -EIO. */
int pt_j_write(const struct pt_jb *b, json_t *o, FILE *out, unsigned indent);

/* The labels as an object; an outside report's may hold any bytes. */
json_t *pt_j_labels(struct pt_jb *b, const struct pt_report *r);

#endif
