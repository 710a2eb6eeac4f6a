/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/verdicts/thresholds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct pt_thresholds pt_thresholds_default = {
#define X(name, value, low, high, unit) .name = value,
	PT_THRESHOLDS(X)
#undef X
};

const struct pt_threshold_def pt_threshold_defs[] = {
#define X(name, value, low, high, unit)                                        \
	{ #name, unit, value, low, high, offsetof(struct pt_thresholds, name) },
	PT_THRESHOLDS(X)
#undef X
};
const size_t pt_threshold_count =
	sizeof(pt_threshold_defs) / sizeof(pt_threshold_defs[0]);

double pt_threshold_get(const struct pt_thresholds *t,
			const struct pt_threshold_def *d)
{
	double v;

	memcpy(&v, (const char *)t + d->offset, sizeof(v));
	return v;
}

static const struct pt_threshold_def *find(const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < pt_threshold_count; i++)
		if (strlen(pt_threshold_defs[i].name) == len &&
		    !strncmp(pt_threshold_defs[i].name, name, len))
			return &pt_threshold_defs[i];
	return NULL;
}

int pt_threshold_set(struct pt_thresholds *t, const char *text,
		     const struct pt_threshold_def **def)
{
	size_t len = strcspn(text, "=");
	const char *number = text + len + 1;
	const struct pt_threshold_def *d = find(text, len);
	char *end;
	double v;

	*def = d;
	if (!d)
		return -ENOENT;
	/* strtod would take blanks, signs, "inf" and "nan" */
	if (!text[len] || !*number || number[strspn(number, "0123456789.")])
		return -EINVAL;
	v = strtod(number, &end);
	if (*end || !(v >= d->low && v <= d->high))
		return -EINVAL;
	memcpy((char *)t + d->offset, &v, sizeof(v));
	return 0;
}
