/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the fields of a part's results join with those of the part before. Each struct
 * that is joined has a list of all its fields; one that is added to it and not to the
 * list does not compile; one that is so small that it fits between the others ends every
 * unit test.
 */
#ifndef PT_ANALYSIS_FIELDS_H
#define PT_ANALYSIS_FIELDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "report/report.h"

enum pt_join_how {
	PT_JOIN_OWN,   /* by the code of that struct's join */
	PT_JOIN_FIRST, /* as in the first part */
	PT_JOIN_LAST,  /* as in the latest */
	PT_JOIN_SUM,   /* unknown in one part (NAN, PT_NULL): unknown */
	PT_JOIN_SEEN,  /* a sum; unknown in one part: nothing there */
	PT_JOIN_SPLIT, /* a sum; UINT64_MAX in one part: that */
	PT_JOIN_MIN,
	PT_JOIN_MAX,
	PT_JOIN_ANY, /* bool */
	PT_JOIN_ALL,
	PT_JOIN_DIST, /* see pt_dist_join() */
	PT_JOIN_MEAN0, /* by the first, second, third weight */
	PT_JOIN_MEAN1,
	PT_JOIN_MEAN2,
};

enum pt_join_type {
	PT_JOIN_OTHER,
	PT_JOIN_U64,
	PT_JOIN_I64,
	PT_JOIN_U32,
	PT_JOIN_DOUBLE,
	PT_JOIN_BOOL,
};

struct pt_join_field {
	uint16_t at, size;
	uint8_t how, type; /* of an array that of each element */
};

struct pt_dev_counts; /* counters alone */

/* clang-format off */
#define PT_JOIN_TYPE(x) _Generic((x), uint64_t: PT_JOIN_U64, \
	uint64_t *: PT_JOIN_U64, struct pt_dev_counts: PT_JOIN_U64, \
	int64_t: PT_JOIN_I64, int64_t *: PT_JOIN_I64, unsigned int: PT_JOIN_U32, \
	double: PT_JOIN_DOUBLE, bool: PT_JOIN_BOOL, default: PT_JOIN_OTHER)
#define PT_JOIN_SIZE(T, how, name) + sizeof(((T *)0)->name)
#define PT_JOIN_FIELD(T, how, name) { offsetof(T, name), \
	sizeof(((T *)0)->name), PT_JOIN_##how, PT_JOIN_TYPE(((T *)0)->name) },
/* `list`(X) is X(how, name) for each field of struct `T`, which has `pad` bytes
 * between them. */
#define PT_JOIN_LIST(fields, T, list, pad) \
	_Static_assert(sizeof(T) == (pad) list(PT_JOIN_SIZE, T), \
		       "how does each field of " #T " join?"); \
	static const struct pt_join_field fields[] = { list(PT_JOIN_FIELD, T) }; \
	PT_JOIN_CHECK(fields, T)
#if defined(__SANITIZE_ADDRESS__) && __has_builtin(__builtin_clear_padding)
/* In the tests, before anything else runs. */
#define PT_JOIN_CHECK(fields, T) \
	__attribute__((constructor)) static void fields##_has_each_field(void) \
	{ \
		T all_; \
		memset(&all_, 0xff, sizeof(all_)); \
		__builtin_clear_padding(&all_); \
		pt_join_check(fields, sizeof(fields) / sizeof((fields)[0]), &all_, sizeof(all_)); \
	} \
	_Static_assert(1, "")
#else
#define PT_JOIN_CHECK(fields, T) _Static_assert(1, "")
#endif
/* clang-format on */
/* Of `x` all is 0 but what fields have: is each in the list? */
void pt_join_check(const struct pt_join_field *f, size_t n, const void *x, size_t size);

/* Weights of what was joined so far, and of what comes to it. */
struct pt_join_weights {
	double to[3], from[3];
};

void pt_join_fields(const struct pt_join_field *f, size_t n, void *to,
		    const void *from, const struct pt_join_weights *w);
#define PT_JOIN(fields, to, from, w)                                           \
	pt_join_fields(fields, sizeof(fields) / sizeof((fields)[0]), to, from, w)

/* Rows of the report, each field as report.def says. */
struct pt_row;
void pt_join_row(const struct pt_row *row, void *to, const void *from,
		 const struct pt_join_weights *w);

/* Two distributions as one: count, mean, deviation and extremes exact, the
 * quantiles the mean by count, which lies between theirs. */
void pt_dist_join(struct pt_dist *to, const struct pt_dist *d);

#endif
