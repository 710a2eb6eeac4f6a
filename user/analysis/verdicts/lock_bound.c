/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* Loading waits for locks: threads of a process hold each other up. */
int pt_judge_lock_bound(struct pt_an *an, const struct pt_facts *f,
			struct pt_r_verdict *v)
{
	bool turns = f->asked >= f->th->lock_asked;
	/* Threads that load share the interpreter for certain; what threads of a worker
	 * sleep for is often whoever computes for the next batch. */
	enum pt_confidence most = f->t && f->t->thread_loader ? PT_CONF_MEDIUM :
								PT_CONF_LOW;

	if (!turns && (f->largest != PT_GROUP_LOCK ||
		       f->group[PT_GROUP_LOCK] < f->th->root_share))
		return 0;
	if (pt_evidence_starved(an, f, v))
		return -ENOMEM;
	pt_evidence_add(v, "data_wait.lock_share", f->cause[PT_CAUSE_LOCK],
			"share", turns ? NAN : f->th->root_share, PT_MEASURED);
	pt_evidence_add(v, "data_wait.lock_asked_share", f->asked, "share",
			turns ? f->th->lock_asked : NAN, PT_MEASURED);
	v->title = turns ? pt_arena_printf(an->a,
		"The workers take turns: for %.0f %% of the waiting for data one of them waits for a lock that another one has meanwhile.",
		100 * f->asked) : pt_arena_printf(an->a,
		"Loading waits for locks: %.0f %% of the waiting for data is threads asleep for one another.",
		100 * f->group[PT_GROUP_LOCK]);
	/* what the holders did meanwhile was not seen to be all there is */
	if (!turns && v->certainty > most)
		v->certainty = most;
	v->advice = "Find what the loading shares: a lock around a file handle, a database or a cache, or the interpreter's own lock where threads load (processes do not share it).";
	pt_speedup_bound(f, &v->expected_speedup);
	return v->title && v->advice ? 1 : -ENOMEM;
}
