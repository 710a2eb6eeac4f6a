/* SPDX-License-Identifier: BSD-2-Clause */
/* The GPU jobs of this machine, for `list` and `top`. */
#ifndef PT_JOBS_H
#define PT_JOBS_H

#include "view/top/top.h"

struct pt_jobs {
	struct pt_top_job *v;
	size_t n;
	bool hidden; /* some processes could not be looked at */
};

/*
 * Find them anew. `before` (may be NULL): the last answer; the driver, which
 * may take half a second, is asked for devices only where other processes are
 * there than then. 0 or -errno. The caller frees `out`.
 */
int pt_jobs_find(struct pt_jobs *out, const struct pt_jobs *before);
void pt_jobs_free(struct pt_jobs *j);

#endif
