/* SPDX-License-Identifier: BSD-2-Clause */
/* Values out of a JSON document with one sticky error, private to the reader.
 * After the first error every call gives the null of its type. */
#ifndef PT_REPORT_READJSON_GET_H
#define PT_REPORT_READJSON_GET_H

#include <jansson.h>

#include "report/fields.h"
#include "report/readjson.h"

struct pt_rd {
	struct pt_report *r;
	struct pt_read_error *why;
	int err;       /* 0, -EINVAL or -ENOMEM */
	size_t values; /* read so far that are not null */
};

/* The first complaint stays; later ones are dropped. printf-style. */
void pt_rd_fail(struct pt_rd *d, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* A place in the document, for messages: an object, and its path. */
struct pt_rd_at {
	struct pt_rd *d;
	const json_t *o; /* NULL after an error */
	char path[96];
};

/* Member `key`: an object; o is NULL where it is not there, or null with
 * `null_ok`. */
struct pt_rd_at pt_rd_object(const struct pt_rd_at *at, const char *key,
			     bool null_ok);
/* Member `key`: an array of at most `max` elements. *n is 0 after an error. */
const json_t *pt_rd_array(const struct pt_rd_at *at, const char *key,
			  size_t max, size_t *n);
/* Element i of that array: an object. */
struct pt_rd_at pt_rd_element(const struct pt_rd_at *at, const char *key,
			      const json_t *array, size_t i);

#define PT_RD_FIGURE 1e13   /* no duration, rate or share is larger */
#define PT_RD_ROUNDING 1e-5 /* of figures with six decimals, and their sums */
double pt_rd_num(const struct pt_rd_at *at, const char *key, double min,
		 double max);			   /* null: NAN */
double pt_rd_share(const struct pt_rd_at *at, const char *key);
void pt_rd_shares(const struct pt_rd_at *at, const char *key, double out[2]);
int64_t pt_rd_int(const struct pt_rd_at *at, const char *key,
		  int64_t min);			   /* null: PT_NULL */
void pt_rd_counts(const struct pt_rd_at *at, const char *key, int64_t out[2]);
/* A number, and one that is a decimal string; false, and *v as it was: null. */
bool pt_rd_number(const struct pt_rd_at *at, const char *key, uint64_t max,
		  uint64_t *v);
bool pt_rd_decimal(const struct pt_rd_at *at, const char *key, uint64_t max,
		   uint64_t *v);
/* As it was before it was escaped. */
const char *pt_rd_text(const struct pt_rd_at *at, const char *key);
bool pt_rd_bool(const struct pt_rd_at *at, const char *key);
int64_t pt_rd_tri(const struct pt_rd_at *at, const char *key);
/* One of the names, as its number; of an open set, null for one that is not known. */
int pt_rd_name(const struct pt_rd_at *at, const char *key,
	       const struct pt_enum *names);
/* Room for `n` elements in the report; NULL for none and after an error. */
void *pt_rd_room(struct pt_rd *d, size_t n, size_t size);

#endif
