/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How sure a verdict is. High is a promise: right 99 times in 100; medium, 90. A judge
 * says what it knows itself (a process is stopped, or seems to be); here is what all
 * verdicts share. Each rule lowers, none raises.
 */
#include <math.h>

#include "analysis/verdicts/verdict.h"

static bool near_threshold(const struct pt_r_verdict *v)
{
	size_t i;

	for (i = 0; i < v->n_evidence; i++) {
		const struct pt_r_evidence *e = &v->evidence[i];

		if (e->threshold > 0 && isfinite(e->value) &&
		    fabs(e->value - e->threshold) < PT_SURE_NEAR * e->threshold)
			return true;
	}
	return false;
}

static double second_group(const struct pt_facts *f)
{
	double most = 0;
	int g;

	for (g = 0; g < PT_GROUP_NR; g++)
		if (g != (int)f->largest && f->group[g] > most)
			most = f->group[g];
	return most;
}

/* What the data wait was for. */
static enum pt_confidence of_causes(const struct pt_facts *f)
{
	double unfollowed = f->group[PT_GROUP_UNKNOWN];

	bool partly = unfollowed >= PT_SURE_PARTLY;
	bool close = f->group[f->largest] - second_group(f) < PT_SURE_LEAD;

	/* what was not followed may be what comes second */
	if (unfollowed >= PT_SURE_UNFOLLOWED || (partly && close))
		return PT_CONF_LOW;
	/* a worker that takes long each so many batches makes several at once, or has slow items */
	if (partly || close || !f->halves_agree || (f->lonely && !f->slow) ||
	    (f->tail.bursts && !f->tail.n) ||
	    (f->largest == PT_GROUP_IO && f->reads_decide))
		return PT_CONF_MEDIUM;
	return PT_CONF_HIGH;
}

void pt_lower_certainty(const struct pt_facts *f, enum pt_verdict_stage stage,
			struct pt_r_verdict *v)
{
	if (stage == PT_V_FRONT || stage == PT_V_HUNG || !f->t)
		return;
	/* it is idle for something that has no name */
	if (stage == PT_V_CALM && !(f->idle - f->starved < f->th->starved_info))
		pt_at_most(&v->certainty, PT_CONF_LOW);
	if (stage == PT_V_CALM)
		return;
	if (stage == PT_V_RESULT && !f->data_root) /* why is not known */
		pt_at_most(&v->certainty, PT_CONF_LOW);
	if (near_threshold(v) || f->whole_steps < PT_SURE_STEPS)
		pt_at_most(&v->certainty, PT_CONF_MEDIUM);
	if (pt_explains_starving(stage))
		pt_at_most(&v->certainty, of_causes(f));
	/* without it, the job would take as long: it may not be what limits */
	if (pt_explains_starving(stage) && v->severity != PT_INFO &&
	    v->expected_speedup.high < PT_SURE_GAIN)
		pt_at_most(&v->certainty, PT_CONF_LOW);
	/* that such a program makes the batch is a guess */
	if (pt_explains_starving(stage) && f->silent >= f->th->slow_share)
		pt_at_most(&v->certainty, PT_CONF_LOW);
	/* its own reads are seen; the time between them is taken for loading */
	if (pt_explains_starving(stage) && f->own >= f->th->slow_share)
		pt_at_most(&v->certainty, f->taken || f->t->may_spin ? PT_CONF_LOW : PT_CONF_MEDIUM);
}
