/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/verdicts/verdict.h"

/* Workers are started anew again and again: for each epoch, or each batch. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_steady *s = &f->steady;
	double starting;

	if (!f->t->respawned || s->firsts < 2 || s->n < PT_MIN_STEPS ||
	    f->first_lost < f->th->starved_info)
		return 0;
	starting = an->r->data_wait.restart / f->wall_s;
	pt_evidence(v, "loader.starts", (double)s->firsts, "count");
	pt_evidence(v, "steps.first_ms", s->first_ms, "ms");
	pt_evidence_against(v, "steps.first_share", s->first_share, "share",
			    f->th->starved_info);
	pt_evidence(v, "data_wait.restart_share", starting, "share");
	pt_verdict_costs(f, v, f->first_lost);
	v->certainty = PT_CONF_HIGH;
	v->subject_pid = f->t->main->tgid;
	v->title = pt_sentence(an,
		"The loader restarted its workers %zu times in %.0f s; after each restart the "
		"first batch takes %.0f ms, %.0f %% of the time in total (%.0f %% for "
		"starting them alone).",
		s->firsts, f->wall_s, s->first_ms, 100 * s->first_share,
		100 * starting);
	v->advice = "Keep the workers between epochs (persistent_workers=True), or make epochs longer.";
	return 1;
}

/* Single workers are replaced, and what each does before its first batch is most of the wait. */
static int judge_replaced(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	size_t born = f->t->n_born, places = f->t->concurrent;

	if (f->setup < f->th->slow_share || born < PT_REPLACED * places)
		return 0;
	pt_evidence_starved(f, v);
	pt_evidence(v, "loader.workers", (double)places, "count");
	pt_evidence(v, "loader.workers_started", (double)born, "count");
	pt_evidence_against(v, "data_wait.setup_share", f->setup, "share", f->th->slow_share);
	v->subject_pid = f->t->main->tgid;
	v->title = pt_sentence(an,
		"Workers end and are replaced: %zu were started in %.0f s, no more than %zu "
		"at a time, and what they do before their first batch is %.0f %% of the "
		"data wait.", born, f->wall_s, places, 100 * f->setup);
	v->advice = "Let workers live longer (maxtasksperchild, or what makes them end), or do what "
		    "each does first once, before the workers are started.";
	return 1;
}

static int judge_root(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	int yes = f->mostly_first ? judge(an, f, v) : 0;

	return yes ? yes : judge_replaced(an, f, v);
}

const struct pt_verdict pt_verdict_loader_restart = {
	.asked = { { PT_V_WHERE, judge_root }, { PT_V_BESIDE, judge } }
};
