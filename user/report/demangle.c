// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/demangle.h"
#include "report/report.h"

int pt_report_demangle(struct pt_report *r)
{
	struct pt_r_operation *v = (struct pt_r_operation *)r->operations;
	char *name;
	size_t i;

	for (i = 0; i < r->n_operations; i++) {
		if (!v[i].name || !v[i].kind || strcmp(v[i].kind, "kernel"))
			continue;
		name = pt_demangle(v[i].name);
		if (!name)
			continue;
		v[i].name = pt_arena_strdup(r->arena, name);
		free(name);
		if (!v[i].name)
			return -ENOMEM;
	}
	return 0;
}
