/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/lines/lines.h"
#include "analysis/verdicts/verdict.h"

/* No other verdict says why: in which line the workers are at least. */
static void name_line(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	static const struct pt_line_ask sleeping = { PT_LINES_WORKERS, 1u << PT_CAUSE_SLEEP,
						     "the workers' sleeping" };
	static const struct pt_line_ask unknown = { PT_LINES_WORKERS, 1u << PT_CAUSE_UNKNOWN,
						    "the workers' unidentified waits" };

	if (f->t->top_cause == PT_CAUSE_UNKNOWN)
		pt_name_line(an, &unknown, v);
	if (f->t->top_cause != PT_CAUSE_SLEEP)
		return;
	pt_name_line(an, &sleeping, v);
	v->advice = "Most of the data wait is sleeping. Find what sleeps there: a rate limit, a pause "
		    "before something is tried again, polling.";
}

/* The device idles while the trainer waits for data. A consequence wherever
 * a root was found, else the finding itself, with what is known of why. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	if (!f->is_starved)
		return 0;
	pt_evidence_starved(f, v);
	pt_evidence(v, "data_wait.unknown_share", f->cause[PT_CAUSE_UNKNOWN], "share");
	v->title = f->t->gpu_known ?
		pt_sentence(an,
			"The GPU is starved for data: %s %.0f %% of the time it sits idle "
			"while the trainer waits for data.",
			f->bounded ? "at least" : "about",
			100 * f->starved_shown) :
		pt_sentence(an,
			"The trainer waits for data %.0f %% of the time and never for the "
			"GPU, which may be idle meanwhile.",
			100 * f->wait_share);
	v->advice = pt_sentence(an,
		"Most of the data wait is %s.",
		pt_cause_words(f->t->top_cause));
	/* the root's, where there is one */
	pt_speedup_share(f->starved_hi, &v->expected_speedup);
	if (!f->data_root)
		name_line(an, f, v);
	return 1;
}

const struct pt_verdict pt_verdict_gpu_starved = { .asked = { { PT_V_RESULT, judge } } };
