/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/parts/fields.h"

#include <math.h>
#include <string.h>

#include "report/fields.h"

void pt_dist_join(struct pt_dist *to, const struct pt_dist *d)
{
	double a, b, mean, squares;

	if (!d->n)
		return;
	if (!to->n) {
		*to = *d;
		return;
	}
	a = (double)to->n / (double)(to->n + d->n);
	b = 1 - a;
	mean = a * to->mean + b * d->mean;
	/* around the common mean; each one's are its variance, of n - 1 */
	squares = (double)(to->n - 1) * to->std * to->std +
		  (double)to->n * (to->mean - mean) * (to->mean - mean) +
		  (double)(d->n - 1) * d->std * d->std +
		  (double)d->n * (d->mean - mean) * (d->mean - mean);
	to->std = sqrt(squares / (double)(to->n + d->n - 1));
	to->mean = mean;
	to->p50 = a * to->p50 + b * d->p50;
	to->p95 = a * to->p95 + b * d->p95;
	to->p99 = a * to->p99 + b * d->p99;
	to->min = fmin(to->min, d->min);
	to->max = fmax(to->max, d->max);
	to->n += d->n;
}

/* The mean of two by their weights; what is unknown has none. */
static double mean_by(double a, double na, double b, double nb)
{
	if (!isfinite(a) || !(na > 0))
		return b;
	return isfinite(b) && nb > 0 ? (a * na + b * nb) / (na + nb) : a;
}

static uint64_t join_u64(enum pt_join_how how, uint64_t a, uint64_t b)
{
	switch (how) {
	case PT_JOIN_SPLIT:
		return a == UINT64_MAX || b == UINT64_MAX ? UINT64_MAX : a + b;
	case PT_JOIN_MIN:
		return a < b ? a : b;
	case PT_JOIN_MAX:
		return a > b ? a : b;
	default:
		return a + b;
	}
}

static int64_t join_i64(enum pt_join_how how, int64_t a, int64_t b)
{
	bool none = a == PT_NULL, both = !none && b != PT_NULL;

	switch (how) {
	case PT_JOIN_MIN:
		return a < b ? a : b;
	case PT_JOIN_MAX:
		return a > b ? a : b;
	case PT_JOIN_SEEN:
		return both ? a + b : none ? b : a;
	default:
		return both ? a + b : PT_NULL;
	}
}

static double join_double(enum pt_join_how how, double a, double b,
			  const struct pt_join_weights *w)
{
	size_t k = how - PT_JOIN_MEAN0;

	switch (how) {
	case PT_JOIN_MIN:
		return fmin(a, b); /* that of numbers */
	case PT_JOIN_MAX:
		return fmax(a, b);
	case PT_JOIN_SEEN:
		return !isfinite(b) ? a : isfinite(a) ? a + b : b;
	case PT_JOIN_SUM:
		return a + b; /* unknown stays so */
	default:
		return mean_by(a, w->to[k], b, w->from[k]);
	}
}

static void join_one(const struct pt_join_field *f, char *to, const char *from,
		     const struct pt_join_weights *w)
{
	size_t i;

	switch ((enum pt_join_type)f->type) {
	case PT_JOIN_U64:
		for (i = 0; i < f->size / sizeof(uint64_t); i++)
			((uint64_t *)to)[i] = join_u64(f->how, ((uint64_t *)to)[i],
						       ((const uint64_t *)from)[i]);
		break;
	case PT_JOIN_I64:
		for (i = 0; i < f->size / sizeof(int64_t); i++)
			((int64_t *)to)[i] = join_i64(f->how, ((int64_t *)to)[i],
						      ((const int64_t *)from)[i]);
		break;
	case PT_JOIN_U32:
		if ((*(const uint32_t *)from > *(uint32_t *)to) ==
		    (f->how == PT_JOIN_MAX))
			*(uint32_t *)to = *(const uint32_t *)from;
		break;
	case PT_JOIN_DOUBLE:
		*(double *)to = join_double(f->how, *(double *)to,
					    *(const double *)from, w);
		break;
	case PT_JOIN_BOOL:
		*(bool *)to = f->how == PT_JOIN_ANY ?
				      *(bool *)to || *(const bool *)from :
				      *(bool *)to && *(const bool *)from;
		break;
	case PT_JOIN_OTHER:
		break;
	}
}

void pt_join_fields(const struct pt_join_field *f, size_t n, void *to,
		    const void *from, const struct pt_join_weights *w)
{
	size_t i;

	for (i = 0; i < n; i++) {
		char *x = (char *)to + f[i].at;
		const char *y = (const char *)from + f[i].at;

		switch ((enum pt_join_how)f[i].how) {
		case PT_JOIN_OWN:
		case PT_JOIN_FIRST:
			break;
		case PT_JOIN_LAST:
			memcpy(x, y, f[i].size);
			break;
		case PT_JOIN_DIST:
			pt_dist_join((struct pt_dist *)x, (const struct pt_dist *)y);
			break;
		default:
			join_one(&f[i], x, y, w);
		}
	}
}

void pt_join_check(const struct pt_join_field *f, size_t n, const void *x, size_t size)
{
	size_t at, i;

	for (at = 0; at < size; at++) {
		for (i = 0; i < n && at - f[i].at >= f[i].size; i++)
			;
		if (i == n && ((const unsigned char *)x)[at])
			__builtin_trap();
	}
}

static enum pt_join_type type_of(const struct pt_field *f)
{
	switch (f->cls) {
	case PT_FIELD_REAL:
		return PT_JOIN_DOUBLE;
	case PT_FIELD_INT:
		return PT_JOIN_I64;
	case PT_FIELD_ENUM:
		return PT_JOIN_U32;
	default:
		return PT_JOIN_OTHER;
	}
}

void pt_join_row(const struct pt_row *row, void *to, const void *from,
		 const struct pt_join_weights *w)
{
	static const uint8_t how[] = {
		[PT_ROW_JOIN_UNSAID] = PT_JOIN_OWN,
		[PT_ROW_JOIN_SAME] = PT_JOIN_FIRST,  [PT_ROW_JOIN_SUM] = PT_JOIN_SUM,
		[PT_ROW_JOIN_SUM_KNOWN] = PT_JOIN_SEEN, [PT_ROW_JOIN_MEAN] = PT_JOIN_MEAN0,
		[PT_ROW_JOIN_MEAN_2] = PT_JOIN_MEAN1, [PT_ROW_JOIN_MEAN_3] = PT_JOIN_MEAN2,
		[PT_ROW_JOIN_LEAST] = PT_JOIN_MIN,	 [PT_ROW_JOIN_MOST] = PT_JOIN_MAX,
		[PT_ROW_JOIN_LAST] = PT_JOIN_LAST,   [PT_ROW_JOIN_ANEW] = PT_JOIN_OWN,
	};
	static const uint8_t size[] = {
		[PT_JOIN_DOUBLE] = sizeof(double), [PT_JOIN_I64] = sizeof(int64_t),
		[PT_JOIN_U32] = sizeof(uint32_t),  [PT_JOIN_OTHER] = 0,
	};
	const struct pt_field *f;

	for (f = row->fields; f->cls != PT_FIELD_END; f++) {
		struct pt_join_field x = { .at = (uint16_t)f->off, .how = how[f->join],
					   .type = (uint8_t)type_of(f) };

		x.size = size[x.type];
		if (f->cls == PT_FIELD_DIST && x.how == PT_JOIN_SUM)
			x.how = PT_JOIN_DIST;
		pt_join_fields(&x, 1, to, from, w);
	}
}
