// SPDX-License-Identifier: BSD-2-Clause
/* "step > 3x median", as it is typed. */
#include "base/when.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

#define LEAST_NS 1000000.0
#define MOST_NS (24 * 3600e9)

static const struct {
	const char *subject;
	uint8_t units; /* 1 << enum pt_when_unit */
} forms[PT_WHEN_NR] = {
	[PT_WHEN_STEP] = { "step", 1 << PT_WHEN_NS | 1 << PT_WHEN_MEDIANS },
	[PT_WHEN_WAIT] = { "wait", 1 << PT_WHEN_NS | 1 << PT_WHEN_SHARE },
	[PT_WHEN_WORKER] = { "worker silent", 1 << PT_WHEN_NS },
	[PT_WHEN_RANK] = { "rank late", 1 << PT_WHEN_NS },
};

/* One blank between words, none around them. False: too long. */
static bool tidy(const char *text, size_t n, char *out, size_t size)
{
	size_t i, k = 0;

	for (i = 0; i < n; i++) {
		if (text[i] == ' ' && (!k || out[k - 1] == ' '))
			continue;
		if (k + 1 >= size)
			return false;
		out[k++] = text[i];
	}
	out[k - (k && out[k - 1] == ' ')] = '\0';
	return true;
}

static int times(const char *text, double *out)
{
	char *end;

	if (text[strspn(text, "0123456789.")] != 'x')
		return -EINVAL;
	*out = strtod(text, &end);
	if (strcmp(end, "x median") && strcmp(end, "xmedian"))
		return -EINVAL;
	return *out >= 1.1 && *out <= 1000 ? 0 : -EINVAL;
}

static int limit_of(const char *text, struct pt_when *out)
{
	size_t n = strlen(text);
	uint64_t ns;

	if (!times(text, &out->limit)) {
		out->unit = PT_WHEN_MEDIANS;
		return 0;
	}
	if (n && text[n - 1] == '%') {
		out->unit = PT_WHEN_SHARE;
		return pt_parse_percent(text, &out->limit) || out->limit <= 0 ||
		       out->limit >= 1 ? -EINVAL : 0;
	}
	/* without a unit it may be meant in either */
	if (!n || !strchr("smh", text[n - 1]) || pt_parse_span(text, &ns))
		return -EINVAL;
	out->unit = PT_WHEN_NS;
	out->limit = (double)ns;
	return out->limit >= LEAST_NS && out->limit <= MOST_NS ? 0 : -EINVAL;
}

int pt_parse_when(const char *text, struct pt_when *out)
{
	const char *more = strchr(text, '>');
	char subject[32], limit[32];
	unsigned i;

	*out = (struct pt_when){ 0 };
	if (!more || !tidy(text, (size_t)(more - text), subject, sizeof(subject)) ||
	    !tidy(more + 1, strlen(more + 1), limit, sizeof(limit)) ||
	    limit_of(limit, out))
		return -EINVAL;
	for (i = 0; i < PT_WHEN_NR; i++) {
		if (strcmp(subject, forms[i].subject) ||
		    !(forms[i].units & 1u << out->unit))
			continue;
		out->of = (uint8_t)i;
		return 0;
	}
	return -EINVAL;
}
