/* SPDX-License-Identifier: BSD-2-Clause */
#include "report/readjson_get.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX 65536

void pt_rd_fail(struct pt_rd *d, const char *fmt, ...)
{
	va_list ap;

	if (d->err)
		return;
	d->err = -EINVAL;
	va_start(ap, fmt);
	vsnprintf(d->why->text, sizeof(d->why->text), fmt, ap);
	va_end(ap);
}

/* Member `key`; NULL: it is not there, or null, or there was an error. */
static const json_t *member(const struct pt_rd_at *at, const char *key)
{
	const json_t *v = at->d->err ? NULL : json_object_get(at->o, key);

	if (!v || json_is_null(v))
		return NULL;
	at->d->values++;
	return v;
}

static void *wrong(const struct pt_rd_at *at, const char *key, const char *want)
{
	pt_rd_fail(at->d, "%s%s is not %s", at->path, key, want);
	return NULL;
}

struct pt_rd_at pt_rd_object(const struct pt_rd_at *at, const char *key,
			     bool null_ok)
{
	struct pt_rd_at to = { .d = at->d };

	snprintf(to.path, sizeof(to.path), "%.60s%.32s.", at->path, key);
	if (at->d->err)
		return to;
	to.o = json_object_get(at->o, key);
	if (to.o && !json_is_object(to.o)) {
		if (!null_ok || !json_is_null(to.o))
			wrong(at, key, "an object");
		to.o = NULL;
	}
	return to;
}

const json_t *pt_rd_array(const struct pt_rd_at *at, const char *key,
			  size_t max, size_t *n)
{
	const json_t *v = at->d->err ? NULL : json_object_get(at->o, key);

	*n = 0;
	if (!v || json_is_null(v))
		return NULL;
	if (!json_is_array(v))
		return wrong(at, key, "an array");
	if (json_array_size(v) > max) {
		pt_rd_fail(at->d, "%s%s has more than %zu elements", at->path,
			   key, max);
		return NULL;
	}
	*n = json_array_size(v);
	return v;
}

struct pt_rd_at pt_rd_element(const struct pt_rd_at *at, const char *key,
			      const json_t *array, size_t i)
{
	struct pt_rd_at to = { .d = at->d };

	snprintf(to.path, sizeof(to.path), "%.60s%.24s[%zu].", at->path, key,
		 i);
	if (at->d->err)
		return to;
	to.o = json_array_get(array, i);
	if (!json_is_object(to.o)) {
		pt_rd_fail(at->d, "%s%s[%zu] is not an object", at->path, key,
			   i);
		to.o = NULL;
	}
	return to;
}

static double number(const struct pt_rd_at *at, const char *key,
		     const json_t *v, double min, double max)
{
	double x;

	if (!v || json_is_null(v))
		return NAN;
	if (!json_is_number(v)) {
		wrong(at, key, "a number");
		return NAN;
	}
	x = json_number_value(v);
	if (x >= min && x <= max)
		return x;
	pt_rd_fail(at->d, "%s%s is %g, which is out of its range", at->path,
		   key, x);
	return NAN;
}

double pt_rd_num(const struct pt_rd_at *at, const char *key, double min,
		 double max)
{
	return number(at, key, member(at, key), min, max);
}

/* Sums of rounded shares may pass 1 by the rounding. */
static double share(const struct pt_rd_at *at, const char *key, const json_t *v)
{
	double x = number(at, key, v, -PT_RD_ROUNDING, 1 + PT_RD_ROUNDING);

	return isnan(x) ? NAN : fmin(1, fmax(0, x));
}

double pt_rd_share(const struct pt_rd_at *at, const char *key)
{
	return share(at, key, member(at, key));
}

/* Element i of a pair; NULL: the pair is null. */
static const json_t *of_pair(const struct pt_rd_at *at, const char *key, size_t i)
{
	const json_t *v = member(at, key);

	if (v && json_array_size(v) != 2)
		return wrong(at, key, "a pair of numbers");
	return json_array_get(v, i);
}

void pt_rd_shares(const struct pt_rd_at *at, const char *key, double out[2])
{
	out[0] = share(at, key, of_pair(at, key, 0));
	out[1] = share(at, key, of_pair(at, key, 1));
}

static int64_t integer(const struct pt_rd_at *at, const char *key,
		       const json_t *v, int64_t min)
{
	if (!v || json_is_null(v))
		return PT_NULL;
	if (!json_is_integer(v)) {
		wrong(at, key, "a whole number");
		return PT_NULL;
	}
	if (json_integer_value(v) >= min)
		return json_integer_value(v);
	pt_rd_fail(at->d, "%s%s is %lld, which is out of its range", at->path,
		   key, (long long)json_integer_value(v));
	return PT_NULL;
}

int64_t pt_rd_int(const struct pt_rd_at *at, const char *key, int64_t min)
{
	return integer(at, key, member(at, key), min);
}

void pt_rd_counts(const struct pt_rd_at *at, const char *key, int64_t out[2])
{
	out[0] = integer(at, key, of_pair(at, key, 0), 0);
	out[1] = integer(at, key, of_pair(at, key, 1), 0);
}

bool pt_rd_number(const struct pt_rd_at *at, const char *key, uint64_t max,
		  uint64_t *v)
{
	int64_t n = pt_rd_int(at, key, 0);

	if (n == PT_NULL)
		return false;
	if ((uint64_t)n <= max)
		*v = (uint64_t)n;
	else
		pt_rd_fail(at->d, "%s%s is out of its range", at->path, key);
	return (uint64_t)n <= max;
}

bool pt_rd_decimal(const struct pt_rd_at *at, const char *key, uint64_t max,
		   uint64_t *v)
{
	const json_t *m = member(at, key);
	const char *s = json_string_value(m), *end = s;
	uint64_t n = 0;
	bool good = s && *s;

	if (!m)
		return false;
	for (; good && *end; end++)
		good = *end >= '0' && *end <= '9' &&
		       !__builtin_mul_overflow(n, (uint64_t)10, &n) &&
		       !__builtin_add_overflow(n, (uint64_t)(*end - '0'), &n);
	if (good && n <= max)
		*v = n;
	else
		wrong(at, key, "a decimal number");
	return good && n <= max;
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' :
	       c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* What pt_str_utf8() escaped, in place; false: it is not of its making. */
static bool unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (*s != '\\') {
			*to++ = *s;
		} else if (s[1] == '\\') {
			*to++ = *s++;
		} else if (s[1] == 'x' && hex(s[2]) >= 8 && hex(s[3]) >= 0) {
			*to++ = (char)(hex(s[2]) << 4 | hex(s[3]));
			s += 3;
		} else {
			return false;
		}
	}
	*to = '\0';
	return true;
}

const char *pt_rd_text(const struct pt_rd_at *at, const char *key)
{
	const json_t *v = member(at, key);
	char *copy, flag[64];

	if (!v)
		return NULL;
	if (!json_is_string(v))
		return wrong(at, key, "a text");
	if (json_string_length(v) > TEXT_MAX) {
		pt_rd_fail(at->d, "%s%s is longer than %d bytes", at->path, key,
			   TEXT_MAX);
		return NULL;
	}
	copy = pt_arena_strdup(at->d->r->arena, json_string_value(v));
	if (!copy)
		at->d->err = -ENOMEM;
	snprintf(flag, sizeof(flag), "%.50s_escaped", key);
	if (copy && json_is_true(json_object_get(at->o, flag)) && !unescape(copy))
		return wrong(at, key, "an escaped text");
	return copy;
}

bool pt_rd_bool(const struct pt_rd_at *at, const char *key)
{
	const json_t *v = at->d->err ? NULL : json_object_get(at->o, key);

	if (v && !json_is_boolean(v))
		wrong(at, key, "true or false");
	return json_is_true(v);
}

int64_t pt_rd_tri(const struct pt_rd_at *at, const char *key)
{
	return member(at, key) ? pt_rd_bool(at, key) : PT_NULL;
}

int pt_rd_name(const struct pt_rd_at *at, const char *key,
	       const struct pt_enum *names)
{
	const json_t *v = member(at, key);
	const char *s = json_string_value(v);
	int i = pt_enum_find(names, s);

	if (!v || i >= 0)
		return v ? i : names->null;
	if (!s || !names->open)
		wrong(at, key, "a name that this version of pipetrace knows");
	return names->null;
}

void *pt_rd_room(struct pt_rd *d, size_t n, size_t size)
{
	void *p;

	if (d->err || !n)
		return NULL;
	p = pt_arena_calloc(d->r->arena, n, size);
	if (!p)
		d->err = -ENOMEM;
	return p;
}
