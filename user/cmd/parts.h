/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A capture in parts, each judged by itself: the active parts of a schedule. The
 * report is of the last part; of the others a line each is kept.
 */
#ifndef PT_PARTS_H
#define PT_PARTS_H

#include <stdbool.h>

#include "analysis/analysis.h"
#include "base/vec.h"
#include "cmd/pieces.h"
#include "model/model.h"
#include "report/report.h"

struct pt_parts {
	PT_VEC(struct pt_r_window) rows;
	bool whole; /* nothing is dropped: the user asks for a part himself */
};

/* A record that the model has taken: judge the part that it ends. 0 or -ENOMEM. */
int pt_parts_see(struct pt_parts *p, struct pt_model *m,
		 const struct pt_analysis_opts *o, const void *rec);
/* Behind the last record, live and read: the report of these, of those of a long
 * capture, or of all that is held. 0, -ENOMEM, or -ERANGE: there is no such part. */
int pt_parts_report(struct pt_parts *p, struct pt_long *l, struct pt_model *m,
		    struct pt_analysis_opts *o, struct pt_report *r);
void pt_parts_free(struct pt_parts *p);

#endif
