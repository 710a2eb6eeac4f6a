/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>

#include "analysis/lines/lines.h"
#include "analysis/verdicts/verdict.h"

/* What the loading lacks is hands. Workers that wait for something that takes
 * no core: all are busy with that. Workers that compute: a core is left for
 * another. They may be idle meanwhile: batches come in order, and behind a hard one the
 * others run out of indices, of which more workers have more. */
static bool has_room(const struct pt_facts *f, double *left)
{
	*left = (double)f->cores - f->pool.cores_used;
	return f->cores && *left >= f->th->core_free;
}

/* More workers sleep side by side; but a sleep is there for some reason, or for none. */
static const char *first_advice(struct pt_an *an, bool sleeps)
{
	static const struct pt_line_ask ask = { PT_LINES_WORKERS, 1u << PT_CAUSE_SLEEP, "" };
	struct pt_r_line l;

	return !sleeps ? "Raise" : pt_sentence(an,
		"Find the sleep in %s (a rate limit, a pause before it tries again, polling), and "
		"shorten it. Otherwise, raise",
		pt_top_line(an, &ask, PT_NULL, &l) ? pt_line_place(an, &l) : "the loading code");
}

/* `left`: cores, of which each worker more takes one; INFINITY: they take none. */
static void advise(struct pt_an *an, const struct pt_facts *f, double left, bool sleeps,
		   struct pt_r_verdict *v)
{
	int64_t better = pt_better_workers(an, f);
	int needed = pt_workers_needed(f);
	double most = (double)f->t->concurrent + floor(left);
	const char *first = first_advice(an, sleeps);

	v->advice = better ?
		pt_sentence(an, "%s num_workers from %zu to %lld.", first,
				f->t->concurrent, (long long)better) :
		most > (double)f->t->concurrent && most < needed ?
		pt_sentence(an,
			"%s num_workers from %zu to about %.0f, for which there are cores; to "
			"keep up with the GPU it would take about %d.", first,
			f->t->concurrent, most, needed) :
		pt_sentence(an,
			"%s num_workers from %zu to about %d, as far as the cores allow.", first,
			f->t->concurrent, needed);
	pt_replayed_speedup(an, "workers", v);
}

static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_worker *helper = pt_lone_helper(f);
	double left;
	bool room = has_room(f, &left);
	bool busy = f->pool.busy >= f->th->pool_busy;
	bool sleeps = f->largest == PT_GROUP_SLEEP && 2 * f->vain < f->group[PT_GROUP_SLEEP] &&
		      f->group[PT_GROUP_SLEEP] >= f->th->root_share;
	bool waits = sleeps || (f->largest == PT_GROUP_UNKNOWN && busy &&
				f->worker_waits >= f->th->root_share);
	bool computes = room && f->largest == PT_GROUP_CPU &&
			f->group[PT_GROUP_CPU] >= f->th->root_share;

	/* how many there are outside of the job is not its own to say */
	if (!f->t->concurrent || !(waits || computes) ||
	    (!sleeps && (!(f->t->handoffs || f->pool.apart) ||
			 !(f->pool.run_queue <= f->th->pool_run_queue))))
		return 0;
	if (pt_gains_nothing(an, "workers") || (computes && f->in_turn))
		return 0;
	/* a sleep that polls, or that keeps to a rate, is no shorter beside others */
	if (sleeps)
		pt_at_most(&v->certainty, PT_CONF_LOW);
	/* that they compute without the interpreter is seen by those who take it meanwhile */
	if (!f->t->handoffs)
		pt_at_most(&v->certainty, PT_CONF_MEDIUM);
	pt_evidence_starved(f, v);
	pt_evidence_against(v, "workers.busy_share", f->pool.busy, "share",
			    waits ? f->th->pool_busy : NAN);
	pt_evidence_against(v, "workers.run_queue_share", f->pool.run_queue, "share",
			    f->th->pool_run_queue);
	pt_evidence(v, "workers.cpu_share", f->pool.cpu, "share");
	pt_evidence(v, "loader.workers", (double)f->t->concurrent, "count");
	if (f->cores)
		pt_evidence_against(v, "host.cores_not_used_by_job", left, "count",
				    f->th->core_free);
	if (computes && helper) {
		v->title = pt_sentence(an,
			"Too few hands: process %u computes most of what the trainer waits for, alone, "
			"and cores are free.", pt_real_id(helper->proc->tgid));
		pt_blame_helper(an, f, helper, v);
		return 1;
	}
	v->title = pt_sentence(an, sleeps ?
		"Too few workers: num_workers is %zu, and all of them are busy, mostly "
		"sleeping on a timer." :
		waits ?
		"Too few workers: num_workers is %zu, and all of them are busy, mostly "
		"waiting for something that needs no core." :
		busy ?
		"Too few workers: num_workers is %zu, all of them are busy computing, and "
		"cores are free." :
		"Too few workers: num_workers is %zu, the batches that the trainer waits for "
		"take long to compute, and cores are free.",
		f->t->concurrent);
	advise(an, f, waits ? INFINITY : left, sleeps, v);
	return 1;
}

const struct pt_verdict pt_verdict_too_few_workers = { .asked = { { PT_V_WHAT, judge } },
	.lines = { PT_LINES_WORKERS, 1u << PT_CAUSE_CPU,
		   "the workers' computing" },
};
