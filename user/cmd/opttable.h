/* SPDX-License-Identifier: BSD-2-Clause */
/* Between options.c, which reads the options, and opttable.c, which lists them. */
#ifndef PT_OPTTABLE_H
#define PT_OPTTABLE_H

#include <argp.h>

#include "cmd/options.h"

enum { /* options without a letter */
	K_JSON = 0x100,
	K_SUMMARY,
	K_BATCH,
	K_STEPS,
	K_FAIL,
	K_MODE,
	K_NOMULTI,
	K_NOGPU,
	K_NOADOPT,
	K_NOPYTHON,
	K_BUDGET,
	K_CUPTI,
	K_READS,
	K_MARKER,
	K_RAW,
	K_PIECE,
	K_ASCII,
	K_LABEL,
	K_REGRESSION,
	K_THRESHOLD,
	K_SORT,
	K_TOP,
	K_FORCE,
	K_FORMAT,
	K_INTERVAL,
	K_LAST,
	K_WINDOW,
	K_RANGE,
	K_AT,
	K_SCHEDULE,
	K_MAXSIZE,
	K_WHEN, /* of watch, as those up to memory */
	K_KEEP,
	K_WARMUP,
	K_COOLDOWN,
	K_MAXWINDOWS,
	K_MAXBYTES,
	K_MEMORY,
	K_CONFIG,
	K_LISTEN,
	K_CHECK,
	K_URL, /* of fleet, as those up to timeout */
	K_SINCE,
	K_JOBS,
	K_RANK,
	K_TOKEN,
	K_CA,
	K_TIMEOUT,
	K_EXPORT, /* and one for each format */
};

/* By enum pt_optset: the options, and what follows the program's name (NULL:
 * nothing does). */
extern const struct argp_option *const pt_opts_tables[];
extern const char *const pt_opts_arguments[];

#endif
