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

/* Member `key`, which must be there; NULL after an error. */
static const json_t *member(const struct pt_rd_at *at, const char *key)
{
	const json_t *v;

	if (at->d->err || !at->o)
		return NULL;
	v = json_object_get(at->o, key);
	if (!v)
		pt_rd_fail(at->d, "%s%s is missing", at->path, key);
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
	struct pt_rd_at to = { .d = at->d, .o = member(at, key) };

	snprintf(to.path, sizeof(to.path), "%.60s%.32s.", at->path, key);
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
	const json_t *v = member(at, key);

	*n = 0;
	if (!v)
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
static double clamp(double share)
{
	return isnan(share) ? NAN : fmin(1, fmax(0, share));
}

double pt_rd_share(const struct pt_rd_at *at, const char *key)
{
	return clamp(pt_rd_num(at, key, -1e-5, 1 + 1e-5));
}

void pt_rd_pair(const struct pt_rd_at *at, const char *key, double out[2])
{
	const json_t *v = member(at, key);
	size_t i;

	out[0] = out[1] = NAN;
	if (!v || json_is_null(v))
		return;
	if (json_array_size(v) != 2) {
		wrong(at, key, "a pair of numbers");
		return;
	}
	for (i = 0; i < 2; i++)
		out[i] = clamp(number(at, key, json_array_get(v, i), -1e-5,
				      1 + 1e-5));
	if (out[0] > out[1] + 1e-5)
		pt_rd_fail(at->d, "%s%s has its bounds the wrong way round",
			   at->path, key);
}

int64_t pt_rd_int(const struct pt_rd_at *at, const char *key, int64_t min)
{
	const json_t *v = member(at, key);

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

const char *pt_rd_text(const struct pt_rd_at *at, const char *key)
{
	const json_t *v = member(at, key);
	char *copy;

	if (!v || json_is_null(v))
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
	return copy;
}

bool pt_rd_bool(const struct pt_rd_at *at, const char *key)
{
	const json_t *v = member(at, key);

	if (v && !json_is_boolean(v))
		wrong(at, key, "true or false");
	return json_is_true(v);
}

int pt_rd_name(const struct pt_rd_at *at, const char *key, int n, int none,
	       const char *(*name_of)(int))
{
	const json_t *v = member(at, key);
	const char *s = json_string_value(v), *name;
	int i;

	if (!v || json_is_null(v))
		return none;
	for (i = 0; s && i < n; i++) {
		name = name_of(i);
		if (name && !strcmp(name, s))
			return i;
	}
	wrong(at, key, "a name that this version of pipetrace knows");
	return none;
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
