/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "agent/otlp_post.h"

#define TOKEN                                                                  \
	"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

static bool ours(const char *name, size_t n)
{
	static const char *const all[] = { "content-type",	"content-length",
					   "content-encoding",	"transfer-encoding",
					   "host",		"connection",
					   "expect" };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (strlen(all[i]) == n && !strncasecmp(name, all[i], n))
			return true;
	return false;
}

int pt_otlp_headers(char *text, int (*each)(void *ctx, const char *line), void *ctx,
		    char *why, size_t n)
{
	char *line, *save = NULL;
	int count = 0, number = 0;

	for (line = text; line && *line; line = save) {
		size_t name, i;

		save = strchr(line, '\n');
		if (save)
			*save++ = '\0';
		number++;
		i = strlen(line);
		if (i && line[i - 1] == '\r')
			line[i - 1] = '\0';
		if (!*line || *line == '#')
			continue;
		name = strspn(line, TOKEN);
		/* What libcurl takes for "no such header" is "Name:" alone. */
		if (!name || line[name] != ':' || !line[name + 1 + strspn(line + name + 1, " \t")]) {
			snprintf(why, n, "line %d is no \"Name: value\"", number);
			return -EINVAL;
		}
		for (i = name; line[i]; i++) {
			if ((unsigned char)line[i] >= 0x20 && line[i] != 0x7f)
				continue;
			snprintf(why, n, "line %d has a control character", number);
			return -EINVAL;
		}
		if (ours(line, name)) {
			snprintf(why, n, "line %d: %.*s is set by the sender itself",
				 number, (int)name, line);
			return -EINVAL;
		}
		if (each(ctx, line)) {
			snprintf(why, n, "no memory");
			return -ENOMEM;
		}
		count++;
	}
	return count;
}
