/* SPDX-License-Identifier: BSD-2-Clause */
/* A JSON report read back. The file may be anybody's: nothing in it is taken
 * on trust. */
#ifndef PT_REPORT_READJSON_H
#define PT_REPORT_READJSON_H

#include <stddef.h>

#include "report/report.h"

#define PT_READ_MAX (64u << 20) /* bytes of a report */

struct pt_read_error {
	char text[256]; /* one sentence about the document, no file name */
};

/*
 * Fill `r` (new) from the document in `text`. Keys that are not there are null, those
 * that this version does not know are skipped; texts that were escaped are raw bytes
 * again. What pt_report_json() wrote it writes the same from `r`. 0; -EINVAL with
 * `why` filled when it is not a report of this version or a value is not what the
 * schema allows; -ENOMEM.
 */
int pt_report_read_json(const char *text, size_t len, struct pt_report *r,
			struct pt_read_error *why);

#endif
