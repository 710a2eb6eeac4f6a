/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_REPORT_ROWSORT_H
#define PT_REPORT_ROWSORT_H

#include "report/report.h"

/* The larger first, paths and ids from the smallest on; unknown ones last. */
enum pt_file_sort {
	PT_FILE_BYTES = 0,
	PT_FILE_READS,
	PT_FILE_BLOCKED,
	PT_FILE_P99,
	PT_FILE_AGAIN, /* bytes read more than once */
	PT_FILE_PATH,
	PT_FILE_SORTS
};
enum pt_worker_sort {
	PT_WORKER_SLOWDOWN = 0, /* hung ones before all */
	PT_WORKER_P50,
	PT_WORKER_BATCHES,
	PT_WORKER_READ,
	PT_WORKER_DISK,
	PT_WORKER_PID,
	PT_WORKER_SORTS
};
extern const char *const pt_file_sorts[PT_FILE_SORTS];
extern const char *const pt_worker_sorts[PT_WORKER_SORTS];

/* For qsort: below 0 where `a` comes first. What is not finite comes last. */
int pt_larger(double a, double b);
int pt_file_cmp(enum pt_file_sort by, const struct pt_r_file *a,
		const struct pt_r_file *b);
int pt_worker_cmp(enum pt_worker_sort by, const struct pt_r_worker *a,
		  const struct pt_r_worker *b);

/* Put a table in an order; equal rows stay in theirs. 0 or -ENOMEM. */
int pt_report_sort_files(struct pt_report *r, enum pt_file_sort by);
int pt_report_sort_workers(struct pt_report *r, enum pt_worker_sort by);

#endif
