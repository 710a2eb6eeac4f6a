/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/lines/lines.h"
#include "analysis/verdicts/verdict.h"

static const char *const ways[] = {
	[PT_HANG_STOPPED] = "has been stopped (by a signal or a debugger)",
	[PT_HANG_UNINTERRUPTIBLE] = "has been blocked in one file operation",
	[PT_HANG_WAITING] = "has been blocked in one wait",
	[PT_HANG_SPINNING] = "has been computing",
};

/* One worker makes no progress; batches come in order, so all wait for it. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_hung *h = &f->hung;
	const struct pt_file *file = NULL;
	uint32_t pid;
	int err;

	if (!h->proc || h->seems)
		return 0;
	pid = pt_real_id(h->proc->tgid);
	pt_evidence_against(v, "worker.no_progress_s", h->seconds, "s",
			    h->how == PT_HANG_STOPPED ? f->th->stopped_s : f->th->hung_s);
	pt_evidence(v, "breakdown.data_wait.share", f->wait_share, "share");
	if (!h->vain)
		*f->lost = 1; /* it ends in a standstill */
	v->subject_pid = pid;
	v->severity = PT_CRITICAL;
	v->certainty = h->how == PT_HANG_STOPPED ? PT_CONF_HIGH : PT_CONF_MEDIUM;
	v->title = pt_sentence(an,
		"Worker %u is hung: for %.0f s it %s without delivering a batch, and %s.",
		pid, h->seconds, ways[h->how],
		h->vain ? "the trainer waits in vain, and goes on when its patience is over" :
			  "batches are delivered in order");
	if (h->inode)
		file = pt_model_file(an->m, h->dev, h->inode);
	if (file && file->path)
		v->subject_file = pt_arena_strdup(an->a, file->path);
	v->advice = pt_sentence(an,
		h->how == PT_HANG_STOPPED ?
		"Find out what stopped it; kill -CONT %u resumes it." :
		h->vain ?
		"Check what it waits for (/proc/%u/stack), and do not wait again for a worker that "
		"did not answer." :
		"Check what it waits for (/proc/%u/stack), give the loader a timeout, and try the "
		"same item with num_workers=0.", pid);
	err = pt_tell_stack(an, h->th, f->t ? f->t->main : NULL, h->seconds, "it is inside", v);
	return err ? err : 1;
}

/* Who was stopped for most of that; *alone: nobody else was. */
static uint32_t most_stopped(const struct pt_trainer *t, bool *alone)
{
	const struct pt_charge *most = NULL;

	*alone = true;
	pt_each(const struct pt_charge, c, &t->charges) {
		if (c->syscall != PT_CHARGE_STOPPED)
			continue;
		*alone &= !most || most->pid == c->pid;
		most = !most || c->ns > most->ns ? c : most;
	}
	return most ? pt_real_id(most->pid) : 0;
}

/* Somebody stops it again and again and lets it go on: it makes batches, and most of the wait
 * for them passes while it is stopped. */
static int judge_stopped(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	uint32_t pid;
	bool alone;

	if (f->stopped < PT_STOPPED_SHARE)
		return 0;
	pid = most_stopped(f->t, &alone);
	pt_evidence_starved(f, v);
	pt_evidence_against(v, "data_wait.stopped_share", f->stopped, "share", PT_STOPPED_SHARE);
	v->subject_pid = pid;
	v->title = pt_sentence(an, "Process %u is stopped, by a signal or a debugger, and resumed "
			       "later: %.0f %% of the data wait passes while %s stopped.",
			       pid, 100 * f->stopped, alone ? "it is" : "it or another is");
	v->advice = "Find out what stops it: job control, a tool that takes snapshots or limits the "
		    "CPU by SIGSTOP and SIGCONT, or a debugger or profiler that attaches. Cheaper "
		    "batches or more workers will not help.";
	pt_speedup_share(f->stopped * f->starved_hi, &v->expected_speedup);
	return 1;
}

/* The step at the end lasts longer by far than any before, as a worker stands still, and most of
 * the data wait is that: it hangs, or one item is very slow. */
static int judge_seems(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_hung *h = &f->hung;
	uint32_t pid;
	int err;

	if (!h->proc || !h->seems || h->seconds < f->th->slow_share * pt_sec(f->t->data_wait_ns))
		return 0;
	pid = pt_real_id(h->proc->tgid);
	pt_evidence_starved(f, v);
	pt_evidence_against(v, "worker.no_progress_s", h->seconds, "s", PT_HUNG_SEEMS_S);
	v->subject_pid = pid;
	pt_at_most(&v->certainty, PT_CONF_LOW);
	v->title = pt_sentence(an,
		"Worker %u may be hung: for %.1f s, until the trace ended, it %s without delivering "
		"a batch, and the trainer waits more than %d times as long as any step took before.",
		pid, h->seconds, ways[h->how], PT_HUNG_SEEMS_STEPS);
	v->advice = pt_sentence(an,
		"Trace again: a worker that hangs still stands at the same place, and one very slow "
		"item does not. Meanwhile check what it waits for (pipetrace stack -p %u).", pid);
	err = pt_tell_stack(an, h->th, f->t ? f->t->main : NULL, h->seconds, "it is inside", v);
	return err ? err : 1;
}

static int judge_where(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	return judge_seems(an, f, v) ?: judge_stopped(an, f, v);
}

const struct pt_verdict pt_verdict_hung_worker = {
	.asked = { { PT_V_HUNG, judge }, { PT_V_WHERE, judge_where } },
};
