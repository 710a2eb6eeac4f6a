/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>

#include "analysis/lines/lines.h"
#include "analysis/verdicts/verdict.h"

/* Loading waits for locks: threads of a process hold each other up. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	bool turns = f->asked >= f->th->lock_asked;
	/* Threads that load share the interpreter for certain; what threads of a worker
	 * sleep for is often whoever computes for the next batch. */
	enum pt_confidence most = f->t->thread_loader ? PT_CONF_MEDIUM :
							PT_CONF_LOW;

	if (!turns && (f->largest != PT_GROUP_LOCK ||
		       f->group[PT_GROUP_LOCK] < f->th->root_share))
		return 0;
	pt_evidence_starved(f, v);
	pt_evidence_against(v, "data_wait.lock_share", f->cause[PT_CAUSE_LOCK], "share",
			    turns ? NAN : f->th->root_share);
	pt_evidence_against(v, "data_wait.lock_asked_share", f->asked, "share",
			    turns ? f->th->lock_asked : NAN);
	v->title = turns ? pt_sentence(an,
		"The workers take turns: for %.0f %% of the data wait one of them waits for a "
		"lock that another one holds.",
		100 * f->asked) : pt_sentence(an,
		"Loading waits for locks: %.0f %% of the data wait is threads waiting for one "
		"another.",
		100 * f->group[PT_GROUP_LOCK]);
	/* what the holders did meanwhile was not seen to be all there is */
	if (!turns)
		pt_at_most(&v->certainty, most);
	/* who waits behind one slow item that has the lock would wait for that in any case */
	else if (f->pool.busy < f->th->pool_busy && f->asked < PT_LOCK_NEARLY)
		pt_at_most(&v->certainty, PT_CONF_LOW);
	v->advice = "Find what the loading code shares: a lock around a file handle, a "
		    "database or a cache, an order that the workers keep (let them work before "
		    "they wait for their turn), or Python's global interpreter lock where threads "
		    "load (processes do not share it).";
	return pt_tell_holder(an, f->t, true, v) ?: 1;
}

/* Whatever it is by which one worker lets another go on: what they do then is done one at a time. */
static int judge_unseen(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	if (!f->in_turn || f->largest != PT_GROUP_CPU || f->group[PT_GROUP_CPU] < f->th->root_share)
		return 0;
	pt_evidence_starved(f, v);
	pt_evidence_against(v, "workers.at_once", f->pool.together, "count",
			    PT_TURNS * f->pool.chance);
	pt_evidence(v, "workers.at_once_by_chance", f->pool.chance, "count");
	pt_evidence(v, "workers.cpu_share", f->pool.cpu, "share");
	pt_at_most(&v->certainty, PT_CONF_MEDIUM);
	v->title = pt_sentence(an,
		"The workers take turns: hardly ever do two of them compute at once, though each "
		"one does for %.0f %% of its time and none lacks work.",
		100 * f->pool.cpu);
	v->advice = "Find what they share, which was not seen: a lock of a server or a manager, a "
		    "connection, a token that goes round. Do less while it is held, or make the "
		    "computing that is done then cheaper; more workers alone gain nothing.";
	return 1;
}

/* Before it is asked which worker or item is slow: what is under the lock decides. */
static int judge_turns(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	return f->asked >= f->th->lock_asked ? judge(an, f, v) : judge_unseen(an, f, v);
}

/* The training thread's own work waits for one: what holds the loop up is whoever has
 * it. */
static int judge_host(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	double share = pt_sec(f->t->host_ns[PT_HOST_LOCK]) / f->wall_s;
	bool plain = 2 * f->t->plain_lock_ns > f->t->host_ns[PT_HOST_LOCK];

	if (f->host < f->th->starved_info || !f->host_place ||
	    f->host_what != PT_HOST_LOCK)
		return 0;
	pt_evidence_add(v, "gpu.idle_host_share", f->host, "share", f->th->starved_info,
			PT_ESTIMATED);
	pt_evidence(v, "host.lock_share", share, "share");
	pt_verdict_costs(f, v, f->host);
	v->certainty = f->t->gpu_known || pt_idle_then(f, f->host) ? PT_CONF_MEDIUM :
								      PT_CONF_LOW;
	if (f->host_once)
		pt_at_most(&v->certainty, PT_CONF_LOW);
	v->subject_pid = f->t->main->tgid;
	v->title = pt_sentence(an,
		"Between GPU calls the training thread waits for a lock%s hold, %.0f %% of the "
		"time, while the GPU sits idle.",
		plain ? " of the job's own that others" :
			" that other threads of its process", 100 * share);
	if (plain) {
		static const struct pt_line_ask asleep = {
			PT_LINES_LOOP, 1u << PT_CAUSE_LOCK, "the training thread's lock waits"
		};

		v->advice = "Let the others hold it for less: copy what they need under the "
			    "lock, and work on the copy without it. Or let the training thread "
			    "leave its part to them.";
		pt_name_line(an, &asleep, v);
		return 1;
	}
	v->advice = "In Python that is the global interpreter lock: move threads that compute "
		    "(loaders, loggers) to a process, or to code that releases the lock.";
	return pt_tell_holder(an, f->t, false, v) ?: 1;
}

const struct pt_verdict pt_verdict_lock_bound = {
	.asked = { { PT_V_WHERE, judge_turns }, { PT_V_WHAT, judge }, { PT_V_IDLE, judge_host } },
	.lines = { PT_LINES_WORKERS, 1u << PT_CAUSE_LOCK,
		   "the workers' lock waits" },
};
