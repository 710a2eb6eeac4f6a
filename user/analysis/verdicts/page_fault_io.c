/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* Workers read mapped files that are not in memory: faults wait for storage. */
int pt_judge_page_fault_io(struct pt_an *an, const struct pt_facts *f,
			   struct pt_r_verdict *v)
{
	double fault = f->cause[PT_CAUSE_PAGE_FAULT];

	if (f->largest != PT_GROUP_IO || f->group[PT_GROUP_IO] < f->th->root_share ||
	    fault <= f->cause[PT_CAUSE_DISK])
		return 0;
	if (pt_evidence_starved(an, f, v, 2))
		return -ENOMEM;
	pt_evidence_add(v, "data_wait.page_fault_share", fault, "share",
			f->th->root_share, PT_MEASURED);
	pt_evidence_add(v, "data_wait.disk_share", f->cause[PT_CAUSE_DISK],
			"share", NAN, PT_MEASURED);
	v->title = pt_arena_printf(an->a,
		"The GPU waits for page faults: %.0f %% of the waiting for data is workers touching mapped memory that has to come from storage.",
		100 * fault);
	v->advice = "Read the mapped data sequentially or ahead (MADV_WILLNEED), leave the host memory to keep it in the page cache, and check for swapping: random access to a mapped file fetches page by page.";
	pt_expected_speedup(an, f, "no_disk_wait", &v->expected_speedup);
	return v->title && v->advice ? 1 : -ENOMEM;
}
