/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/verdicts/verdict.h"

/* A process that lives has made something at nearly each step: the batch, perhaps. */
static bool has_ready(const struct pt_trainer *t)
{
	pt_each(const struct pt_worker, w, &t->workers)
		if (!w->main->exited && w->done.n > w->earlier &&
		    (double)(w->done.n - w->earlier) >= PT_TAKEN * (double)t->steps.n)
			return true;
	return false;
}

/* Who is asked for most of it, where that is known; else NULL. */
static const char *who_is_asked(struct pt_an *an, const struct pt_trainer *t)
{
	const struct pt_charge *most = NULL;

	pt_each(const struct pt_charge, c, &t->charges) {
		if (c->cause == PT_CAUSE_NETWORK && c->peer && (!most || c->ns > most->ns))
			most = c;
	}
	return most ? pt_peer_name(an, most->peer - 1) : NULL;
}

/* Most of it is short sleeps of its own: it may poll for what others make. */
static bool polls(const struct pt_facts *f)
{
	double ms = f->vain * pt_ms(f->t->data_wait_ns);

	return f->vain >= f->th->slow_share && f->t->naps && ms < PT_POLL_MS * (double)f->t->naps;
}

static int judge_polls(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	pt_evidence_against(v, "data_wait.sleep_share", f->vain, "share", f->th->slow_share);
	pt_at_most(&v->certainty, PT_CONF_LOW);
	v->title = pt_sentence(an,
		"Before each batch goes to the device the training thread sleeps, shortly and again "
		"and again, %.0f %% of the time. Whether it polls until others have made the batch, "
		"or sleeps while it makes it, cannot be seen.", 100 * f->wait_share);
	v->advice = "If it polls there, whoever makes the batch is too slow: speed that up. If it makes "
		    "the batch (a rate limit, a pause before it tries again), do that ahead of time, in "
		    "worker processes or threads.";
	return 1;
}

static int judge_asks(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const char *who = who_is_asked(an, f->t);

	pt_evidence_against(v, "data_wait.network_share", f->cause[PT_CAUSE_NETWORK], "share",
			    f->th->slow_share);
	v->subject_peer = who;
	v->title = pt_sentence(an,
		"The training thread asks %s for every batch and waits for the answer, %.0f %% of "
		"the time, while the GPU waits.", who ? who : "a remote side", 100 * f->wait_share);
	v->advice = "Ask ahead of time, from worker processes or threads (2 to 4; waiting costs no "
		    "core), so that answers come while the GPU works. Where what is asked for "
		    "depends on the step before, only a faster or nearer peer helps.";
	return 1;
}

/* The trainer loads its own batches (num_workers=0), or starts a program for each and waits
 * for it: nothing overlaps. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	int64_t better;
	double io = f->group[PT_GROUP_IO], cpu = f->group[PT_GROUP_CPU];
	bool programs = f->programs >= f->th->slow_share;
	bool beside = f->t->computes_too && f->t->workers.n;
	bool spins = f->t->may_spin && cpu > io;
	bool ready = programs && has_ready(f->t);

	/* somebody who was not followed may keep it waiting */
	if (!programs &&
	    (f->own < f->th->slow_share || f->worker_waits >= f->th->slow_share))
		return 0;
	pt_evidence_starved(f, v);
	pt_evidence(v, "data_wait.cpu_share", cpu, "share");
	pt_evidence(v, "data_wait.io_share", io, "share");
	v->subject_pid = f->t->main->tgid;
	if (!programs && !beside && f->cause[PT_CAUSE_NETWORK] >= f->th->slow_share)
		return judge_asks(an, f, v);
	if (!programs && !beside && polls(f))
		return judge_polls(an, f, v);
	v->title = pt_sentence(an, ready ?
		"The training thread starts a program in each step and waits for it, %.0f "
		"%% of the time, while the GPU waits too. Whether that makes the batch cannot be "
		"seen." : programs ?
		"The training thread starts a program for each batch and waits for it, %.0f "
		"%% of the time, while the GPU waits too." : beside ?
		"The training thread itself computes to obtain its batches (decoding, a sampler, a "
		"collate function), and the GPU waits meanwhile: %.0f %% of the time." : spins ?
		"Before each batch goes to the device the training thread is at one line, %.0f %% "
		"of the time. Whether it makes the batch there, or spins until others have made it, "
		"cannot be seen." :
		"The training thread loads every batch itself, which takes %.0f %% of the "
		"time while the GPU waits.",
		100 * f->wait_share);
	if (ready) {
		pt_at_most(&v->certainty, PT_CONF_LOW);
		v->advice = "Another process has something ready for the loop at each step. If that "
			    "is the batch, these programs do other work: let them run while the "
			    "training goes on, or start them less often. Otherwise start them ahead "
			    "of time, from worker processes or threads.";
		return 1;
	}
	if (programs) {
		v->advice = "Start these programs ahead of time, from worker processes or "
			    "threads (2 to 4, at most one per core), so that they run while "
			    "the GPU works; or do their work without starting a program.";
		return 1;
	}
	if (beside) {
		v->advice = "Make that code cheaper, do its work ahead (a sampler's order once "
			    "an epoch), or move it into the workers. More workers alone do "
			    "not help: this is the training thread's own time.";
		return 1;
	}
	if (spins) {
		v->advice = "If it spins there until a batch comes, whoever makes that is too slow: "
			    "speed that up. If it makes the batch, load in worker processes (2 to 4, "
			    "at most one per core), so that loading overlaps with GPU work.";
		return 1;
	}
	if (f->taken) {
		v->advice = "Another thread has something ready for the loop at each step. If that "
			    "is the batch, what takes the time here is other work of the loop: move "
			    "it to another thread, or do it less often. Otherwise load in worker "
			    "processes, so that loading overlaps with GPU work.";
		return 1;
	}
	better = pt_better_workers(an, f);
	v->advice = better ?
		pt_sentence(an,
			"Load in worker processes (num_workers is 0 today; %lld would do), so that loading overlaps with GPU work.",
			(long long)better) :
		io > cpu ?
		"Load in worker processes (num_workers is 0 today; start with 2 to 4), so that reads overlap with GPU work." :
		"Load in worker processes (num_workers is 0 today; start with 2, at most one "
		"per core), so that loading overlaps with GPU work.";
	if (better)
		pt_replayed_speedup(an, "workers", v);
	return 1;
}

const struct pt_verdict pt_verdict_main_thread_loading = { .asked = { { PT_V_WHERE, judge } },
	.lines = { PT_LINES_LOADING, PT_LINES_ALL,
		   "that" },
};
