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
 * Fill `r` (new) from the document in `text`: host, target, loader, labels,
 * capture (hooks and limits left out), steps with their list, breakdown,
 * data_wait, gpu shares and verdicts (evidence left out). The rest stays as
 * pt_report_new() made it. Texts keep the escapes that they have in JSON.
 * 0; -EINVAL with `why` filled when it is not a report of this version or a
 * value is not what the schema allows; -ENOMEM.
 */
int pt_report_read_json(const char *text, size_t len, struct pt_report *r,
			struct pt_read_error *why);

#endif
