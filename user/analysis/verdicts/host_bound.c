/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "analysis/lines/lines.h"
#include "analysis/verdicts/verdict.h"

static const char *const does[PT_HOST_NR] = {
	[PT_HOST_COMPUTING] = "computes",
	[PT_HOST_QUEUED] = "waits for a core",
	[PT_HOST_SLEEPING] = "sleeps on a timer",
	[PT_HOST_WRITING] = "writes files",
	[PT_HOST_LOCK] = "waits for a lock in its own process",
	[PT_HOST_CHILD] = "waits for a process that it started",
	[PT_HOST_COLLECTIVE] = "waits for another rank",
	[PT_HOST_CLIENT] = "waits for requests",
	[PT_HOST_PEER] = "waits for a thread or process that is not known to supply input",
	[PT_HOST_OTHER] = "waits for something that pipetrace could not see",
};

static const char *advice_of(enum pt_host_kind what, bool often)
{
	switch (what) {
	case PT_HOST_COMPUTING:
		return often ?
			"Find what the training thread computes there: a transform, a metric, "
			"a conversion, or loading from memory. Whether it loads data cannot "
			"be seen from outside. Move it to another thread or process or to the "
			"GPU, or do it less often." :
			"Find what the training thread computes there every so often (metrics, logging, evaluation on the host) and move it to another thread, or do it less often.";
	case PT_HOST_SLEEPING:
		return "Find the sleep in the training loop (a logger's or a client's pause, "
		       "polling): move it to another thread, or remove it.";
	case PT_HOST_CHILD:
		return "The loop waits for a program that it starts: run that program in "
		       "parallel with the training.";
	case PT_HOST_PEER:
		return "Find out what it waits for. It does not seem to supply data for the GPU: it "
		       "may be a logger, a saver, a compiler, a parameter server, or a reader of "
		       "the job's output. Let it run in parallel with the training, or call it "
		       "less often.";
	case PT_HOST_QUEUED:
		return "The training thread is short of a core: check what else runs on this "
		       "host, and which cores the job may use.";
	default:
		return "Look at what the training thread does between these GPU calls, and move it to another thread.";
	}
}

#define LINES                                                                  \
	{ PT_LINES_LOOP, PT_LINES_ALL,                                         \
	  "its time outside data waits and GPU calls" }

/* What runs there is mostly a call that gives the core up: it waits for something, by trying
 * again and again. */
static bool spins(struct pt_an *an, enum pt_host_kind what)
{
	static const struct pt_line_ask lines = LINES;
	struct pt_r_line l;

	return what == PT_HOST_COMPUTING && pt_top_line(an, &lines, PT_NULL, &l) &&
	       l.native_symbol && strstr(l.native_symbol, "sched_yield") &&
	       2 * l.native_symbol_share >= 1;
}

static double naps_in_a_row(const struct pt_host_place *p, enum pt_host_kind what)
{
	double n = (double)p->naps / (double)p->n;

	return what == PT_HOST_SLEEPING && n >= PT_HOST_POLLS ? n : 0;
}

/* What to do, where looks tell in which line it happens. */
static const char *advice_at(struct pt_an *an, enum pt_host_kind what, bool out, bool polls,
			     bool often)
{
	static const struct pt_line_ask lines = LINES;
	const char *until = "";
	struct pt_r_line l;
	bool line;

	if (out)
		return "Whoever takes the loop's output there (a writer, a logger, the reader of a "
		       "queue or a pipe) does not keep up: make it faster, share its work "
		       "among several, or hand it less. A longer queue helps only if it is slow "
		       "now and then.";
	line = pt_top_line(an, &lines, PT_NULL, &l);
	if (polls)
		return pt_sentence(an,
			"Find what the loop polls for%s%s: whoever provides that is too slow, or has "
			"nothing to provide. If it is a batch, speed up whoever makes it.",
			line ? ", at " : "", line ? pt_line_place(an, &l) : "");
	if (!line)
		return advice_of(what, often);
	if (what == PT_HOST_CHILD)
		return pt_sentence(an,
			"Look at %s: let the program that it starts and waits for run in parallel "
			"with the training, or start it less often.", pt_line_place(an, &l));
	if (what == PT_HOST_COMPUTING && l.share >= PT_HOST_ONE_LINE)
		until = "if it spins there until a batch comes, whoever makes that is too slow; ";
	return pt_sentence(an,
		"Look at %s: if it prepares data, do that ahead of time in worker processes; "
		"%sotherwise move it to another thread or to the GPU, or do it less often.",
		pt_line_place(an, &l), until);
}

/* Somebody stops the training thread and lets it go on, in a call of the device's or not. */
static int judge_halted(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	pt_evidence_against(v, "trainer.stopped_share", f->halted, "share", f->th->starved_info);
	pt_verdict_costs(f, v, f->halted);
	/* the device may have been at work for some of it */
	v->certainty = PT_CONF_MEDIUM;
	v->subject_pid = f->t->main->tgid;
	v->title = pt_sentence(an,
		"The training thread is stopped, by a signal or a debugger, and resumed later: "
		"%.0f %% of the time.", 100 * f->halted);
	v->advice = "Find out what stops it: job control, a tool that takes snapshots or limits the "
		    "CPU by SIGSTOP and SIGCONT, or a debugger or profiler that attaches. Nothing "
		    "in the training loop needs to change.";
	return 1;
}

/* The device idles because of what the host does between its calls, and that was
 * not seen to be obtaining data. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_host_place *p = f->host_place;
	enum pt_host_kind what = f->host_what;
	bool out = what == PT_HOST_PEER &&
		   2 * f->t->output_ns > f->t->host_ns[PT_HOST_PEER];
	const char *doing = out ? "waits for others to take what it hands out," : does[what];
	const char *data = "No data loading was seen there.";
	double each, every, naps;
	bool yields;

	if (f->halted >= f->th->starved_info && f->halted > f->host)
		return judge_halted(an, f, v);
	if (f->host < f->th->starved_info || !p || what == PT_HOST_LOCK)
		return 0;
	yields = spins(an, what);
	if (yields)
		doing = "spins until something is there (sched_yield),";
	naps = naps_in_a_row(p, what);
	if (naps > 0)
		doing = pt_sentence(an, "polls (it sleeps %.0f times in a row)", naps);
	each = (double)p->ns[what] / (double)p->n / NS_PER_MS;
	every = (double)f->t->steps.n / (double)p->n;
	pt_evidence_add(v, "gpu.idle_host_share", f->host, "share", f->th->starved_info,
			PT_ESTIMATED);
	pt_evidence(v, "host.place_ms", each, "ms");
	pt_evidence(v, "host.place_steps", every, "count");
	pt_evidence(v, "breakdown.data_wait.share", f->wait_share, "share");
	pt_verdict_costs(f, v, f->host);
	/* if the device was at work meanwhile, as it may have been, nothing is lost */
	v->certainty = f->t->gpu_known && f->host - f->idle_open >= f->th->starved_info ?
			       PT_CONF_HIGH :
		       pt_idle_then(f, f->host) ? PT_CONF_MEDIUM : PT_CONF_LOW;
	/* what it waits for so was not seen */
	if (yields || naps > 0 || f->host_once)
		pt_at_most(&v->certainty, PT_CONF_LOW);
	if (f->unfed && (what == PT_HOST_COMPUTING ||
			 (what == PT_HOST_CHILD && every < 2 * PT_HOST_EVERY))) {
		pt_at_most(&v->certainty,
			   what == PT_HOST_CHILD ? PT_CONF_LOW : PT_CONF_MEDIUM);
		data = "Whether it makes the next batch there cannot be seen.";
	}
	if (what == PT_HOST_COMPUTING && f->t->receives && every < PT_HOST_EVERY) {
		pt_at_most(&v->certainty, PT_CONF_LOW);
		data = "It receives from a socket there, which may be the next batch.";
	}
	if (what == PT_HOST_OTHER)
		pt_at_most(&v->certainty, f->unfed ? PT_CONF_LOW : PT_CONF_MEDIUM);
	if (f->unfed && (what == PT_HOST_OTHER || (what == PT_HOST_PEER && f->t->asks_above))) {
		/* what it waits for at each step may be an environment that makes its input */
		pt_at_most(&v->certainty,
			   what == PT_HOST_PEER && every < PT_HOST_EVERY ? PT_CONF_LOW :
									   PT_CONF_MEDIUM);
		data = "Whether that is for the next batch cannot be seen.";
	}
	v->subject_pid = f->t->main->tgid;
	v->title = every >= PT_HOST_EVERY ?
		pt_sentence(an,
			"Every %.0f steps the training thread %s for %.0f ms between two GPU "
			"calls while the GPU sits idle: %.0f %% of the time. %s",
			every, doing, each, 100 * f->host, data) :
		pt_sentence(an,
			"Between GPU calls the training thread %s for %.1f ms at a time while "
			"the GPU sits idle: %.0f %% of the time. %s",
			doing, each, 100 * f->host, data);
	v->advice = advice_at(an, what, out, naps > 0, every < PT_HOST_EVERY);
	if (!pt_is_hosts(f->t) && !pt_gains_nothing(an, "fewer_syncs")) {
		pt_at_most(&v->certainty, PT_CONF_MEDIUM);
		v->advice = pt_sentence(an,
			"%s Without the sync before it (.item(), printing a loss, .cpu()) the GPU "
			"could work meanwhile.", v->advice);
	}
	return 1;
}

const struct pt_verdict pt_verdict_host_bound = {
	.asked = { { PT_V_IDLE, judge } },
	.lines = LINES,
};
