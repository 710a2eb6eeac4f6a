/* SPDX-License-Identifier: BSD-2-Clause */
/* The order of the operations table. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report/report.h"

const char *pt_op_sort_name(enum pt_op_sort s)
{
	static const char *const names[PT_SORT_NR] = {
		[PT_SORT_TOTAL] = "total", [PT_SORT_CALLS] = "calls",
		[PT_SORT_MEAN] = "mean",   [PT_SORT_MAX] = "max",
		[PT_SORT_GPU] = "gpu",	   [PT_SORT_CPU] = "cpu",
		[PT_SORT_NAME] = "name",
	};

	return (unsigned)s < PT_SORT_NR ? names[s] : NULL;
}

/* Larger ones first, what is unknown behind what is known. */
static int larger(double x, double y)
{
	bool known_x = isfinite(x), known_y = isfinite(y);

	if (!known_x || !known_y)
		return (int)known_y - (int)known_x;
	return x > y ? -1 : x < y;
}

static double calls(const struct pt_r_operation *o)
{
	return o->calls == PT_NULL ? NAN : (double)o->calls;
}

static int by_text(const char *x, const char *y)
{
	return strcmp(x ? x : "", y ? y : "");
}

static int by_rest(const struct pt_r_operation *x,
		   const struct pt_r_operation *y)
{
	int d = larger(calls(x), calls(y));

	d = d ? d : by_text(x->kind, y->kind);
	return d ? d : by_text(x->name, y->name);
}

#define BY(key, first)                                                         \
	static int by_##key(const void *a, const void *b)                      \
	{                                                                      \
		const struct pt_r_operation *x = a, *y = b;                    \
		int d = first;                                                 \
									       \
		return d ? d : by_rest(x, y);                                  \
	}
BY(total, larger(x->total_s, y->total_s))
BY(calls, larger(calls(x), calls(y)))
BY(mean, larger(x->mean_us, y->mean_us))
BY(max, larger(x->max_us, y->max_us))
BY(gpu, larger(x->gpu_s, y->gpu_s))
BY(cpu, larger(x->cpu_s, y->cpu_s))
BY(name, by_text(x->name, y->name))

int pt_report_sort_operations(struct pt_report *r, enum pt_op_sort by)
{
	static int (*const order[PT_SORT_NR])(const void *, const void *) = {
		[PT_SORT_TOTAL] = by_total, [PT_SORT_CALLS] = by_calls,
		[PT_SORT_MEAN] = by_mean,   [PT_SORT_MAX] = by_max,
		[PT_SORT_GPU] = by_gpu,	    [PT_SORT_CPU] = by_cpu,
		[PT_SORT_NAME] = by_name,
	};
	struct pt_r_operation *v;

	if (r->n_operations < 2 || (unsigned)by >= PT_SORT_NR)
		return 0;
	v = pt_arena_calloc(r->arena, r->n_operations, sizeof(*v));
	if (!v)
		return -ENOMEM;
	memcpy(v, r->operations, r->n_operations * sizeof(*v));
	qsort(v, r->n_operations, sizeof(*v), order[by]);
	r->operations = v;
	return 0;
}
