/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>

#include "analysis/lines/lines.h"
#include "analysis/ranks/meets.h"
#include "analysis/verdicts/verdict.h"

static const struct {
	const char *did, *advice;
} late[PT_LATE_NR] = {
	[PT_LATE_DATA] = { "it waits for data",
		"Fix this rank's loading: its shard of the data, its node's disk or its cores." },
	[PT_LATE_GPU] = { "its GPU is busy for longer",
		"Check this rank's GPU (clocks, temperature, power limit, other "
		"processes on it) and how much work its part of the batch is." },
	[PT_LATE_WRITE] = { "it writes files",
		"Write checkpoints asynchronously, or from every rank in turn." },
	[PT_LATE_HOST] = { "its host does other work",
		"Check what else this rank's process does (logging, evaluation, "
		"garbage collection) and which cores it may use." },
};

/* Else they are jobs of their own. `micro`: the micro-batches of one may be steps, as it waits
 * for its device in each; then it has a whole number of times as many. */
static bool in_lock_step(const struct pt_an *an, const struct pt_facts *f, bool micro)
{
	double mine = (double)f->t->steps.n;

	pt_each(const struct pt_trainer, t, &an->trainers) {
		double n = (double)t->steps.n, most = fmax(n, mine), least = fmin(n, mine);
		double times = micro && least > 0 ? round(most / least) : 1;

		if (n < PT_MIN_STEPS ||
		    fabs(most - times * least) > times + f->th->rank_period * mine)
			return false;
	}
	return an->trainers.n >= 2;
}

/* Ranks in lock step of which one waits for its own loader: the others spend
 * that time in a collective, which looks like GPU work from outside. */
static int by_data_wait(struct pt_an *an, const struct pt_facts *f,
			struct pt_r_verdict *v)
{
	double own = f->wait_share, others = 0, wall = f->wall_s * NS_PER_S;

	if (!f->is_starved || !in_lock_step(an, f, false))
		return 0;
	pt_each(const struct pt_trainer, t, &an->trainers) {
		if (t != f->t)
			others = fmax(others, (double)t->data_wait_ns / wall);
	}
	if (own - others < f->th->rank_excess)
		return 0;
	pt_evidence(v, "rank.data_wait_share", own, "share");
	pt_evidence_against(v, "rank.data_wait_excess", own - others, "share",
			    f->th->rank_excess);
	/* Before that rank's own reason; but behind what all ranks suffer from,
	 * where that is more. */
	*f->lost = own - others >= others ? 1 : own - others;
	v->severity = pt_severity_of(f, own - others);
	v->advice = late[PT_LATE_DATA].advice;
	v->certainty = PT_CONF_MEDIUM; /* the lock step may be an accident */
	v->subject_pid = f->t->proc->tgid;
	v->title = pt_sentence(an,
		"One rank holds up the others: process %u waits for data %.0f %% of the time, "
		"the others at most %.0f %%, and all ranks run in step.",
		pt_real_id(f->t->proc->tgid), 100 * own, 100 * others);
	return pt_tell_late(an, f->t, true, v) ?: 1;
}

/* ... or of which one does something else for longer: the others' hosts wait for it where
 * they meet (over a socket, as gloo does). */
static int by_host_waits(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	double wall = f->wall_s * NS_PER_S, share, held;
	const struct pt_trainer *last = f->t, *first = f->t;
	enum pt_late_part why;

	if (!in_lock_step(an, f, true) || (f->t->gpu_known && f->idle < f->th->starved_info))
		return 0;
	pt_each(const struct pt_trainer, t, &an->trainers) {
		if (t->host_ns[PT_HOST_COLLECTIVE] > first->host_ns[PT_HOST_COLLECTIVE])
			first = t;
		if (t->host_ns[PT_HOST_COLLECTIVE] < last->host_ns[PT_HOST_COLLECTIVE])
			last = t;
	}
	share = (double)(first->host_ns[PT_HOST_COLLECTIVE] -
			 last->host_ns[PT_HOST_COLLECTIVE]) / wall;
	if (share < f->th->rank_excess)
		return 0;
	pt_evidence_add(v, "rank.held_others_excess", share, "share", f->th->rank_excess,
			PT_ESTIMATED);
	pt_verdict_costs(f, v, share);
	v->certainty = f->t->gpu_known ? PT_CONF_MEDIUM : PT_CONF_LOW;
	v->subject_pid = last->proc->tgid;
	v->subject_rank = pt_rank_of_proc(last->proc);
	held = ((double)last->gpu_wait_ns - (double)first->gpu_wait_ns) / wall;
	why = held >= share / 2 ? PT_LATE_GPU : PT_LATE_HOST;
	v->title = pt_sentence(an,
		"One rank holds up the others: they wait for process %u %.0f %% of the time%s%s.",
		pt_real_id(last->proc->tgid), 100 * share, why == PT_LATE_GPU ? "; " : "",
		why == PT_LATE_GPU ? late[why].did : "");
	v->advice = late[why].advice;
	return why == PT_LATE_GPU ? 1 : pt_tell_late(an, last, false, v) ?: 1;
}

/* By the collectives that all ranks meet in: one of them comes last, and the others'
 * devices wait for it. */
static int by_meetings(struct pt_an *an, const struct pt_facts *f,
		       struct pt_r_verdict *v)
{
	const struct pt_meets *m = an->meets;
	const struct pt_meet_rank *r;
	const struct pt_trainer *t;
	enum pt_late_part reason;
	double share, last;
	uint64_t excess;
	int worst = pt_meets_worst(an, &excess);

	if (worst < 0)
		return 0;
	r = &m->rank[worst];
	t = &an->trainers.v[worst];
	share = (double)excess / (f->wall_s * NS_PER_S);
	if (share < f->th->rank_excess)
		return 0;
	reason = pt_late_reason(r);
	last = m->clear ? (double)r->last / (double)m->clear : 0;
	pt_evidence_add(v, "rank.held_others_excess", share, "share", f->th->rank_excess,
			m->measured ? PT_MEASURED : PT_ESTIMATED);
	pt_evidence(v, "rank.last_share", last, "share");
	pt_evidence(v, "rank.late_p50", r->late_ms.p50 / 1000, "s");
	pt_evidence_add(v, "rank.reason_excess",
			(double)r->part_ns[reason] / (f->wall_s * NS_PER_S), "share", NAN,
			m->measured ? PT_MEASURED : PT_ESTIMATED);
	pt_verdict_costs(f, v, share);
	if (reason == PT_LATE_DATA && f->t == t && f->starved_shown > share)
		*f->lost = f->starved_shown + 1e-6; /* before its own reason */
	v->certainty = !m->sure || m->several ? PT_CONF_LOW :
		       m->measured	      ? PT_CONF_HIGH : PT_CONF_MEDIUM;
	v->subject_pid = t->proc->tgid;
	v->subject_rank = pt_rank_of_proc(t->proc);
	v->title = pt_sentence(an,
		"One rank holds up the others: process %u arrives last at %.0f %% of the "
		"collectives that have a late rank, which costs the others %.0f %% of the "
		"time; meanwhile %s.",
		pt_real_id(t->proc->tgid), 100 * last, 100 * share,
		late[reason].did);
	v->advice = late[reason].advice;
	if (reason != PT_LATE_DATA && reason != PT_LATE_HOST)
		return 1;
	return pt_tell_late(an, t, reason == PT_LATE_DATA, v) ?: 1;
}

/* Where the collectives tell it, they do. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	int told;

	if (an->meets && an->meets->known)
		return by_meetings(an, f, v);
	told = by_data_wait(an, f, v);
	return told ? told : by_host_waits(an, f, v);
}

const struct pt_verdict pt_verdict_rank_straggler = { .asked = { { PT_V_RANK, judge } } };
