/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>

#include "analysis/lines/lines.h"
#include "analysis/verdicts/verdict.h"

#define LINES { PT_LINES_SUBJECT, PT_LINES_ALL, "that worker's time" }

/* What to do; where looks tell in which line it is, that is where to begin. */
static const char *advice_of(struct pt_an *an, const struct pt_worker *w,
			     const struct pt_r_verdict *v)
{
	static const struct pt_line_ask lines = LINES;
	struct pt_r_line l;

	if (w->unlike)
		return "This worker runs other code than the others: make that cheaper, or let several "
		       "do it. If it makes no batches, but holds a lock that the training loop waits "
		       "for, hold the lock for less time.";
	if (w->role == PT_ROLE_HELPER)
		return pt_top_line(an, &lines, v->subject_pid, &l) ?
			pt_sentence(an,
				"Find out why it spends longer in %s than its peers. Each of them is asked "
				"for every batch, so all wait for the slowest.", pt_line_place(an, &l)) :
			"Find out why it takes longer than its peers. Each of them is asked for every "
			"batch, so all wait for the slowest.";
	if (!pt_top_line(an, &lines, v->subject_pid, &l))
		return "Check what this worker does differently: its files, its node's disk or "
		       "its core. Batches are delivered in order, so the others wait for it.";
	return pt_sentence(an,
		"Find out why this worker spends longer in %s than its peers: larger items or "
		"other files, an augmentation that only it applies, a slower disk or a busy "
		"core. Batches are delivered in order, so the others wait for it.",
		pt_line_place(an, &l));
}

static const char *name_of(struct pt_an *an, const struct pt_worker *w)
{
	uint32_t id = pt_real_id(w->proc->tgid);

	if (w->role == PT_ROLE_THREAD)
		return pt_sentence(an, "Thread %u", pt_real_id(w->main->tid));
	return w->respawn ? pt_sentence(an, "Worker %u (and %u before it in the same place)", id,
					w->respawn) :
			    pt_sentence(an, "Worker %u", id);
}

/* Batches are delivered in order, so one slow worker holds all others up. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_worker *w = f->slow;

	if (!w)
		return 0;
	/* what it does may be something else than batches */
	if (w->slow_chance > f->th->slow_chance || w->in_parts || w->unlike)
		pt_at_most(&v->certainty, PT_CONF_MEDIUM);
	pt_evidence_starved(f, v);
	pt_evidence_against(v, "worker.slowdown", w->slowdown, "ratio", f->th->slow_factor);
	if (isfinite(w->slow_chance)) /* of a helper no single batches are seen */
		pt_evidence_against(v, "worker.slowdown_chance", w->slow_chance, "share",
				    f->th->slow_chance);
	pt_evidence(v, "worker.batch_ms.p50", w->median_ms, "ms");
	pt_evidence_against(v, "data_wait.charged_to_worker", f->slow_charge, "share",
			    f->th->slow_share);
	v->subject_pid = w->proc->tgid;
	v->title = pt_sentence(an,
		"%s takes %.1f times as long as %s and accounts for %.0f %% of the wait "
		"for batches.", name_of(an, w), w->slowdown,
		w->unlike ? "the others, which run other code," : "its peers", 100 * f->slow_charge);
	v->advice = advice_of(an, w, v);
	pt_replayed_speedup(an, "slow_worker_fixed", v);
	return 1;
}

const struct pt_verdict pt_verdict_slow_worker = { .asked = { { PT_V_WHERE, judge } },
	.lines = LINES,
};
