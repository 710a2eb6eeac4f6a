/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* The device idles while the trainer waits for data. A consequence wherever
 * a root was found, else the finding itself, with what is known of why. */
int pt_judge_gpu_starved(struct pt_an *an, const struct pt_facts *f,
			 struct pt_r_verdict *v)
{
	if (f->insufficient || !f->is_starved)
		return 0;
	if (pt_evidence_starved(an, f, v))
		return -ENOMEM;
	pt_evidence_add(v, "data_wait.unknown_share",
			f->cause[PT_CAUSE_UNKNOWN], "share", NAN, PT_MEASURED);
	v->title = f->t->gpu_known ?
		pt_arena_printf(an->a,
			"The GPU starves: %s %.0f %% of the time it idles while the trainer waits for data.",
			f->bounded ? "at least" : "about",
			100 * f->starved_shown) :
		pt_arena_printf(an->a,
			"The trainer waits for data %.0f %% of the time and never for the GPU, which may idle meanwhile.",
			100 * f->wait_share);
	v->advice = pt_arena_printf(an->a,
		"Most of the waiting is charged to: %s.",
		pt_cause_name(f->t->top_cause));
	/* the root's, where there is one */
	if (f->t)
		pt_speedup_bound(f, &v->expected_speedup);
	return v->title && v->advice ? 1 : -ENOMEM;
}
