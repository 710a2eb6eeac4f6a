/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is wrong with the records themselves. A thread numbers its records, so
 * one that never came is known even where nobody counted it. What rests on
 * damaged records is said with less certainty.
 */
#include "analysis/internal.h"
#include "analysis/verdicts/thresholds.h"


/* Missing by their numbers, and in no counter: a stream that was damaged on
 * its way, not by a full ring. */
int64_t pt_uncounted_losses(const struct pt_model *m)
{
	uint64_t missing = pt_model_missing(m);
	uint64_t counted = m->lost[PT_LOSS_RING_FULL] +
			   m->lost[PT_LOSS_FILES_FULL];

	return missing > counted ? (int64_t)(missing - counted) : 0;
}

static void at_most(enum pt_confidence *c, enum pt_confidence most)
{
	if (*c > most)
		*c = most;
}

int pt_judge_damage(struct pt_an *an)
{
	struct pt_report *r = an->r;
	/* const is for those who read the report; this is still its making */
	struct pt_r_verdict *v = (struct pt_r_verdict *)r->verdicts;
	/* measured GPU times say for themselves what they lack */
	int64_t lost = r->capture.lost_total -
		       (int64_t)an->m->lost[PT_LOSS_ACTIVITY];
	int64_t late = (int64_t)an->m->disordered;
	double share;
	size_t i;

	if (r->capture.events <= 0 || !(lost > 0 || late > 0))
		return 0;
	share = (double)(lost + late) / (double)r->capture.events;
	if (share > PT_DAMAGE_UNSURE) {
		enum pt_confidence most = share > PT_DAMAGE_WRONG ? PT_CONF_LOW :
							  PT_CONF_MEDIUM;

		at_most(&r->steps.certainty, most);
		for (i = 0; i < r->n_verdicts; i++)
			at_most(&v[i].certainty, most);
	}
	return pt_report_limit(r, "records", "%lld records were lost and %lld came behind later ones, of %lld: times around them are off.",
			       (long long)lost, (long long)late,
			       (long long)r->capture.events);
}
