/* SPDX-License-Identifier: BSD-2-Clause */
/* The orders of the tables, in the report and in `top`. */
#include "report/rowsort.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const pt_file_sorts[PT_FILE_SORTS] = {
	[PT_FILE_BYTES] = "bytes",     [PT_FILE_READS] = "reads",
	[PT_FILE_BLOCKED] = "blocked", [PT_FILE_P99] = "p99",
	[PT_FILE_AGAIN] = "again",     [PT_FILE_PATH] = "path",
};

const char *const pt_worker_sorts[PT_WORKER_SORTS] = {
	[PT_WORKER_SLOWDOWN] = "slowdown", [PT_WORKER_P50] = "p50",
	[PT_WORKER_BATCHES] = "batches",   [PT_WORKER_READ] = "read",
	[PT_WORKER_DISK] = "disk",	   [PT_WORKER_PID] = "pid",
};

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
int pt_larger(double a, double b)
{
	bool known_a = isfinite(a), known_b = isfinite(b);

	if (!known_a || !known_b)
		return (int)known_b - (int)known_a;
	return a > b ? -1 : a < b;
}

static int more(int64_t a, int64_t b)
{
	return a > b ? -1 : a < b; /* PT_NULL is the least there is */
}

int pt_file_cmp(enum pt_file_sort by, const struct pt_r_file *a,
		const struct pt_r_file *b)
{
	switch (by) {
	case PT_FILE_READS:
		return more(a->reads, b->reads);
	case PT_FILE_BLOCKED:
		return pt_larger(a->blocked_s, b->blocked_s);
	case PT_FILE_P99:
		return pt_larger(a->p99_ms, b->p99_ms);
	case PT_FILE_AGAIN:
		return more(a->reread_bytes, b->reread_bytes);
	case PT_FILE_PATH:
		return !a->path || !b->path ? !a->path - !b->path :
					      strcmp(a->path, b->path);
	default:
		return more(a->bytes, b->bytes);
	}
}

int pt_worker_cmp(enum pt_worker_sort by, const struct pt_r_worker *a,
		  const struct pt_r_worker *b)
{
	switch (by) {
	case PT_WORKER_P50:
		return pt_larger(a->batch_ms.n ? a->batch_ms.p50 : NAN,
				 b->batch_ms.n ? b->batch_ms.p50 : NAN);
	case PT_WORKER_BATCHES:
		return more(a->batches, b->batches);
	case PT_WORKER_READ:
		return more(a->read_bytes, b->read_bytes);
	case PT_WORKER_DISK:
		return pt_larger(a->disk, b->disk);
	case PT_WORKER_PID:
		return more(b->pid, a->pid);
	default: /* a hung one has no slowdown, and is the worst */
		if ((a->state == PT_WORKER_HUNG) != (b->state == PT_WORKER_HUNG))
			return a->state == PT_WORKER_HUNG ? -1 : 1;
		return pt_larger(a->slowdown, b->slowdown);
	}
}

static int by_text(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "");
}

static int by_figure(enum pt_op_sort by, const struct pt_r_operation *a,
		     const struct pt_r_operation *b)
{
	switch (by) {
	case PT_SORT_TOTAL:
		return pt_larger(a->total_s, b->total_s);
	case PT_SORT_MEAN:
		return pt_larger(a->mean_us, b->mean_us);
	case PT_SORT_MAX:
		return pt_larger(a->max_us, b->max_us);
	case PT_SORT_GPU:
		return pt_larger(a->gpu_s, b->gpu_s);
	case PT_SORT_CPU:
		return pt_larger(a->cpu_s, b->cpu_s);
	case PT_SORT_NAME:
		return by_text(a->name, b->name);
	default:
		return 0;
	}
}

/* Equal ones by calls, kind and name. */
static int op_cmp(enum pt_op_sort by, const struct pt_r_operation *a,
		  const struct pt_r_operation *b)
{
	int d = by_figure(by, a, b);

	d = d ? d : more(a->calls, b->calls);
	d = d ? d : by_text(a->kind, b->kind);
	return d ? d : by_text(a->name, b->name);
}

struct row { /* equal rows stay in their order */
	const void *at;
	int by;
};

#define ROWS_BY(name, cmp, sort)                                               \
	static int name(const void *x, const void *y)                          \
	{                                                                      \
		const struct row *a = x, *b = y;                               \
		int d = cmp((enum sort)a->by, a->at, b->at);                   \
									       \
		return d ? d : a->at < b->at ? -1 : a->at > b->at;             \
	}
ROWS_BY(file_rows, pt_file_cmp, pt_file_sort)
ROWS_BY(worker_rows, pt_worker_cmp, pt_worker_sort)
ROWS_BY(operation_rows, op_cmp, pt_op_sort)

/* The `n` rows of `size` bytes at *rows become a sorted copy in the arena. */
static int sort(struct pt_report *r, const void **rows, size_t n, size_t size, int by,
		int (*cmp)(const void *, const void *))
{
	struct row *order = n < 2 ? NULL : calloc(n, sizeof(*order));
	char *out = order ? pt_arena_calloc(r->arena, n, size) : NULL;
	size_t i;

	if (n < 2)
		return 0;
	for (i = 0; out && i < n; i++)
		order[i] = (struct row){ (const char *)*rows + i * size, by };
	if (out)
		qsort(order, n, sizeof(*order), cmp);
	for (i = 0; out && i < n; i++)
		memcpy(out + i * size, order[i].at, size);
	free(order);
	*rows = out ? out : *rows;
	return out ? 0 : -ENOMEM;
}

int pt_report_sort_files(struct pt_report *r, enum pt_file_sort by)
{
	return sort(r, (const void **)&r->files, r->n_files, sizeof(*r->files), (int)by, file_rows);
}

int pt_report_sort_workers(struct pt_report *r, enum pt_worker_sort by)
{
	return sort(r, (const void **)&r->workers, r->n_workers, sizeof(*r->workers), (int)by,
		    worker_rows);
}

int pt_report_sort_operations(struct pt_report *r, enum pt_op_sort by)
{
	return sort(r, (const void **)&r->operations, r->n_operations, sizeof(*r->operations),
		    (int)by, operation_rows);
}
