/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/verdicts/verdict.h"

static const char *what(const struct pt_steady *s)
{
	return s->device ? "the GPU's own work" : pt_cause_words(s->cause);
}

/* Steps of very different length; first batches are left out. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_steady *s = &f->steady;
	bool sized = s->size_rho >= f->th->size_rho;

	/* Ahead of a device that is never out of work, the host's pace is
	 * nobody's step time. */
	if (s->n < PT_UNSTABLE_MIN_STEPS || (s->ahead && !f->is_starved) ||
	    !(s->max_over_min > f->th->unstable_ratio ||
	      s->p99_over_p50 > f->th->unstable_ratio))
		return 0;
	pt_evidence_against(v, s->ahead ? "steps.max_over_p50" : "steps.max_over_min",
			    s->max_over_min, "ratio", f->th->unstable_ratio);
	pt_evidence_against(v, "steps.p99_over_p50", s->p99_over_p50, "ratio",
			    f->th->unstable_ratio);
	pt_evidence_against(v, "steps.outliers_lost_share", s->lost_share, "share",
			    f->th->starved_info);
	pt_evidence_against(v, "steps.size_correlation", s->size_rho, "ratio",
			    f->th->size_rho);
	v->severity = s->lost_share >= f->th->starved_info ? PT_WARNING : PT_INFO;
	v->certainty = PT_CONF_HIGH;
	*f->lost = s->lost_share;
	/* batches that come late are the loader's doing */
	if (f->data_root && !s->device && s->cause != PT_CAUSE_OTHER_HOST &&
	    s->cause != PT_CAUSE_CHECKPOINT)
		v->consequence_of = f->data_root;
	v->title = !s->outliers ?
		pt_sentence(an,
			"Step times vary: the longest is %.1f times the %s, though none is "
			"twice the median%s.",
			s->max_over_min, s->ahead ? "median" : "shortest",
			sized ? ", and longer ones copy more data" : "") :
		pt_sentence(an,
			"Step times vary: the longest is %.1f times the %s; most of the "
			"outliers' time is %s%s.",
			s->max_over_min, s->ahead ? "median" : "shortest", what(s),
			sized ? ", and longer steps copy more data" : "");
	v->advice = sized ?
		"Inputs vary in size: sort or bucket them by length, or pad to a few sizes." :
		"Check the outliers in the step list: a slow file or node, a thrashing cache, "
		"a heavy augmentation, or something else on this host.";
	return 1;
}

const struct pt_verdict pt_verdict_unstable_steps = { .asked = { { PT_V_BESIDE, judge } } };
