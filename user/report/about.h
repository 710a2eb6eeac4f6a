/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a capture knows beside its records: host, target, labels, hooks. A
 * recorded file carries it, so that a report made from the file says the same
 * as the live one.
 *
 * Layout: pairs of NUL-terminated texts, name and value. Unknown names are
 * skipped; a fact that was not observed is left out.
 */
#ifndef PT_REPORT_ABOUT_H
#define PT_REPORT_ABOUT_H

#include <stddef.h>
#include <stdio.h>

#include "report/report.h"

/* No value is longer, none of a list has more entries: what is read may come
 * from anybody. */
#define PT_ABOUT_TEXT 65536
#define PT_ABOUT_LIST 4096

/* `marked`: see below. 0 or -EIO (of `out`). */
int pt_about_write(const struct pt_report *r, bool marked, FILE *out);

#define PT_ABOUT_THRESHOLDS 64
struct pt_about { /* what the report itself has no place for before it is made */
	const char *thresholds[PT_ABOUT_THRESHOLDS]; /* NAME=VALUE */
	size_t n_thresholds;
	bool marked; /* where it was cut into parts, marks in the stream say */
};

/* Fill r's host, target, labels and the session's part of its capture, and
 * *a (zeroed; texts in r's arena). What is damaged is left out: 0; -ENOMEM. */
int pt_about_read(struct pt_report *r, struct pt_about *a, const void *data,
		  size_t len);

/*
 * The limits that follow from the hooks that did not open and from a target
 * without a GPU library; behind the analysis, which may have said it in its
 * own words. 0 or -ENOMEM.
 */
int pt_about_limits(struct pt_report *r);

#endif
