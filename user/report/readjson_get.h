/* SPDX-License-Identifier: BSD-2-Clause */
/* Values out of a JSON document with one sticky error, private to the reader.
 * After the first error every call gives the null of its type. */
#ifndef PT_REPORT_READJSON_GET_H
#define PT_REPORT_READJSON_GET_H

#include <jansson.h>

#include "report/readjson.h"

struct pt_rd {
	struct pt_report *r;
	struct pt_read_error *why;
	int err; /* 0, -EINVAL or -ENOMEM */
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

/* Member `key`: an object; with `null_ok` o is NULL where it is null. */
struct pt_rd_at pt_rd_object(const struct pt_rd_at *at, const char *key,
			     bool null_ok);
/* Member `key`: an array of at most `max` elements. *n is 0 after an error. */
const json_t *pt_rd_array(const struct pt_rd_at *at, const char *key,
			  size_t max, size_t *n);
/* Element i of that array: an object. */
struct pt_rd_at pt_rd_element(const struct pt_rd_at *at, const char *key,
			      const json_t *array, size_t i);

double pt_rd_num(const struct pt_rd_at *at, const char *key, double min,
		 double max);			   /* null: NAN */
double pt_rd_share(const struct pt_rd_at *at, const char *key);
void pt_rd_pair(const struct pt_rd_at *at, const char *key, double out[2]);
int64_t pt_rd_int(const struct pt_rd_at *at, const char *key,
		  int64_t min);			   /* null: PT_NULL */
const char *pt_rd_text(const struct pt_rd_at *at, const char *key);
bool pt_rd_bool(const struct pt_rd_at *at, const char *key);
/* One of `n` names that `name_of` gives, as its number; null: `none`. */
int pt_rd_name(const struct pt_rd_at *at, const char *key, int n, int none,
	       const char *(*name_of)(int));
/* Room for `n` elements in the report; NULL for none and after an error. */
void *pt_rd_room(struct pt_rd *d, size_t n, size_t size);

#endif
