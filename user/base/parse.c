// SPDX-License-Identifier: BSD-2-Clause
#include "base/parse.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int pt_parse_int(const char *text, int64_t min, int64_t max, int64_t *out)
{
	char *end;
	long long v;

	/* strtoll would take blanks and signs that nobody means */
	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno || *end || v < min || v > max)
		return -EINVAL;
	*out = v;
	return 0;
}

int pt_parse_seconds(const char *text, double *out)
{
	char *end;
	double v;

	if (text[strspn(text, "0123456789.")] || !*text)
		return -EINVAL;
	v = strtod(text, &end);
	if (end == text || *end || !isfinite(v) || v <= 0 ||
	    v > 366.0 * 24 * 3600)
		return -EINVAL;
	*out = v;
	return 0;
}

/* "20s", "500ms", "1.5m", "2h", or seconds; at most a year. What follows the
 * number and its unit, or NULL. */
static const char *span(const char *text, uint64_t *ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = { { "ms", 1e6 }, { "s", 1e9 }, { "m", 60e9 },
		      { "h", 3600e9 } };
	size_t digits = strspn(text, "0123456789"), part = 0, i, n = 0;
	const char *end = text + digits;
	double v, unit = 1e9;
	char number[32];

	/* the dots of a range are none of the number */
	if (end[0] == '.')
		part = strspn(end + 1, "0123456789");
	if (part)
		end += 1 + part;
	if (!(digits + part) || (size_t)(end - text) >= sizeof(number))
		return NULL;
	memcpy(number, text, (size_t)(end - text));
	number[end - text] = '\0';
	v = strtod(number, NULL);
	for (i = 0; i < sizeof(units) / sizeof(*units) && !n; i++) {
		if (strncmp(end, units[i].name, strlen(units[i].name)))
			continue;
		n = strlen(units[i].name);
		unit = units[i].ns;
	}
	v *= unit;
	if (!(v <= 366.0 * 24 * 3600e9))
		return NULL;
	*ns = (uint64_t)(v + 0.5);
	return end + n;
}

int pt_parse_span(const char *text, uint64_t *ns)
{
	const char *end = span(text, ns);

	return end && !*end ? 0 : -EINVAL;
}

int pt_parse_size(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	size_t n = strlen(text);
	const char *unit = n ? strchr(units, text[n - 1]) : NULL;
	char number[16];
	int64_t v;

	if (unit && *unit)
		n--;
	if (!n || n >= sizeof(number))
		return -EINVAL;
	memcpy(number, text, n);
	number[n] = '\0';
	if (pt_parse_int(number, 1, 1ll << 50, &v))
		return -EINVAL;
	for (; unit && unit >= units && v <= 1ll << 50; unit--)
		v *= 1024;
	if (v < 64 * 1024 || v > 1ll << 50)
		return -EINVAL;
	*bytes = (uint64_t)v;
	return 0;
}

int pt_parse_window(const char *text, uint64_t *from, uint64_t *until)
{
	const char *at = text;

	*from = *until = 0;
	if (strncmp(at, "..", 2))
		at = span(at, from);
	if (!at || strncmp(at, "..", 2))
		return -EINVAL;
	at += 2;
	if (*at && (pt_parse_span(at, until) || *until <= *from))
		return -EINVAL;
	return *from || *until ? 0 : -EINVAL;
}

int pt_parse_steps(const char *text, int64_t *first, int64_t *last)
{
	const char *dots = strstr(text, "..");
	char one[24];
	size_t n = dots ? (size_t)(dots - text) : 0;

	*first = 0;
	*last = INT64_MAX - 1;
	if (!dots || n >= sizeof(one) || !strcmp(text, ".."))
		return -EINVAL;
	memcpy(one, text, n);
	one[n] = '\0';
	if (n && pt_parse_int(one, 0, INT32_MAX, first))
		return -EINVAL;
	if (dots[2] && pt_parse_int(dots + 2, *first, INT32_MAX, last))
		return -EINVAL;
	return 0;
}

int pt_parse_at(const char *text, uint64_t *ns, bool *aligned)
{
	*aligned = text[0] == '/';
	if ((!*aligned && text[0] != '+') || pt_parse_span(text + 1, ns) ||
	    !*ns)
		return -EINVAL;
	return 0;
}

int pt_parse_pids(const char *text, pid_t *out, size_t max)
{
	char one[16];
	size_t len, n = 0, i;
	int64_t v;

	for (;; text += len + 1) {
		len = strcspn(text, ",");
		if (!len || len >= sizeof(one))
			return -EINVAL;
		memcpy(one, text, len);
		one[len] = '\0';
		/* the kernel's largest pid_max is 2^22 */
		if (pt_parse_int(one, 1, 1 << 22, &v))
			return -EINVAL;
		for (i = 0; i < n && out[i] != (pid_t)v; i++)
			;
		if (i == n) {
			if (n == max)
				return -EINVAL;
			out[n++] = (pid_t)v;
		}
		if (!text[len])
			return (int)n;
	}
}

int pt_parse_percent(const char *text, double *out)
{
	char *end;
	double v;

	if (text[strspn(text, "0123456789.%")] || !*text)
		return -EINVAL;
	v = strtod(text, &end);
	if (end == text || (*end && strcmp(end, "%")) || !(v <= 100))
		return -EINVAL;
	*out = v / 100;
	return 0;
}

int pt_parse_label(const char *text)
{
	size_t key = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				  "abcdefghijklmnopqrstuvwxyz0123456789_-./");
	const char *c = text + key;

	if (!key || key > 64 || *c++ != '=' || strlen(c) > 256)
		return -EINVAL;
	for (; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return -EINVAL;
	return 0;
}

int pt_parse_marker(const char *text)
{
	const char *colon = strchr(text, ':');
	const char *name = colon ? colon + 1 : text;
	size_t i, n = strlen(text);

	if (!*name || colon == text || strchr(name, ':') || n > 512)
		return -EINVAL;
	for (i = 0; i < n; i++)
		if ((unsigned char)text[i] <= ' ' || text[i] == 0x7f)
			return -EINVAL;
	return 0;
}
