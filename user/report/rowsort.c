/* SPDX-License-Identifier: BSD-2-Clause */
/* The orders of the tables of files and workers, in the report and in `top`. */
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

int pt_larger(double a, double b)
{
	if (isnan(a) || isnan(b))
		return isnan(a) - isnan(b);
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

struct row { /* equal rows stay in their order */
	const void *at;
	int by;
};

static int file_rows(const void *x, const void *y)
{
	const struct row *a = x, *b = y;
	int d = pt_file_cmp((enum pt_file_sort)a->by, a->at, b->at);

	return d ? d : a->at < b->at ? -1 : a->at > b->at;
}

static int worker_rows(const void *x, const void *y)
{
	const struct row *a = x, *b = y;
	int d = pt_worker_cmp((enum pt_worker_sort)a->by, a->at, b->at);

	return d ? d : a->at < b->at ? -1 : a->at > b->at;
}

/* A sorted copy of `n` rows of `size` bytes in the arena; NULL: no memory. */
static void *sorted(struct pt_report *r, const void *rows, size_t n, size_t size,
		    int by, int (*cmp)(const void *, const void *))
{
	struct row *order = calloc(n, sizeof(*order));
	char *out = order ? pt_arena_calloc(r->arena, n, size) : NULL;
	size_t i;

	for (i = 0; out && i < n; i++)
		order[i] = (struct row){ (const char *)rows + i * size, by };
	if (out)
		qsort(order, n, sizeof(*order), cmp);
	for (i = 0; out && i < n; i++)
		memcpy(out + i * size, order[i].at, size);
	free(order);
	return out;
}

int pt_report_sort_files(struct pt_report *r, enum pt_file_sort by)
{
	void *v;

	if (r->n_files < 2)
		return 0;
	v = sorted(r, r->files, r->n_files, sizeof(*r->files), (int)by,
		   file_rows);
	if (!v)
		return -ENOMEM;
	r->files = v;
	return 0;
}

int pt_report_sort_workers(struct pt_report *r, enum pt_worker_sort by)
{
	void *v;

	if (r->n_workers < 2)
		return 0;
	v = sorted(r, r->workers, r->n_workers, sizeof(*r->workers), (int)by,
		   worker_rows);
	if (!v)
		return -ENOMEM;
	r->workers = v;
	return 0;
}
