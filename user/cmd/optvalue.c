// SPDX-License-Identifier: BSD-2-Clause
/* What options say, as text: numbers, times, ids, names. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/options.h"

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

int pt_opts_label(const struct pt_opts *o, struct pt_report *r)
{
	char key[65];
	size_t i, n;
	int ret = 0;

	for (i = 0; i < o->n_labels && !ret; i++) {
		n = strcspn(o->labels[i], "=");
		memcpy(key, o->labels[i], n);
		key[n] = '\0';
		ret = pt_report_label(r, key, o->labels[i] + n + 1);
	}
	return ret;
}
