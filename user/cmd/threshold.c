// SPDX-License-Identifier: BSD-2-Clause
/* The option --threshold. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cmd/options.h"

static void list_names(char *out, size_t size)
{
	size_t i, at = 0;

	for (i = 0; i < pt_threshold_count && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%s", i ? " " : "",
				       pt_threshold_defs[i].name);
}

int pt_opts_threshold(struct pt_opts *o, const char *text)
{
	const struct pt_threshold_def *d;
	char names[1024];
	int ret = pt_threshold_set(&o->thresholds, text, &d);

	if (ret == -ENOENT) {
		list_names(names, sizeof(names));
		pt_error("there is no threshold \"%.*s\"; there are: %s",
			 (int)strcspn(text, "="), text, names);
	} else if (ret) {
		pt_error("--threshold %s takes a number from %g to %g (%s; the "
			 "default is %g), as in %s=%g",
			 d->name, d->low, d->high, d->unit, d->value, d->name,
			 d->value);
	}
	return ret ? -EINVAL : 0;
}
