/* SPDX-License-Identifier: BSD-2-Clause */
/* What those who show verdicts know of them, beside what the report says: no view
 * names one by itself. */
#ifndef PT_VERDICTS_H
#define PT_VERDICTS_H

#include "report/report.h"

enum { /* how many there are: PT_VERDICT_NR */
#define PT_VERDICT(id, flags, limits) PT_VERDICT_AT_##id,
#include "report/verdicts.def"
	PT_VERDICT_NR
};

enum {
	PT_VERDICT_WELL = 1,   /* nothing is wrong */
	PT_VERDICT_OPEN = 2,   /* whatever was not seen may be what it takes to conclude */
	PT_VERDICT_ALWAYS = 4, /* is shown where there is no room for all */
};

/* Has the verdict this flag? Not one that is not in the list. */
bool pt_verdict_is(const char *id, unsigned flag);
/* Does one of the report's verdicts rest on what this limit is about? */
bool pt_verdicts_rest_on(const struct pt_report *r, const char *limit);
/* Does it matter to a reader of these verdicts that this was not seen? */
bool pt_limit_matters(const struct pt_report *r, const char *limit);

/* What people read before the value of a figure that verdicts rest on (evidence.def); NULL:
 * not in the list. */
const char *pt_evidence_words(const char *metric);

#endif
