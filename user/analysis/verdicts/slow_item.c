/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/verdicts/verdict.h"

static const char *title(struct pt_an *an, const struct pt_tail *t)
{
	if (t->waited)
		return pt_sentence(an,
			"A few slow items hold up the rest: the trainer waited for %zu of %zu "
			"batches for %.0f ms where a step takes %.1f ms, and that is %.0f %% of the "
			"data wait (mostly %s).",
			t->n, t->all, t->ms, t->usual_ms, 100 * t->share,
			pt_cause_words(t->cause));
	return pt_sentence(an,
		t->bursts ?
		"A few slow items hold up the rest, or several are made at once: %zu of %zu batches, "
		"evenly spread, took %.0f ms to make where the others take %.1f ms, and %.0f %% of "
		"the data wait passes meanwhile (mostly %s)." :
		"A few slow items hold up the rest: %zu of %zu batches took %.0f ms to make "
		"where the others take %.1f ms, and %.0f %% of the data wait passes meanwhile "
		"(mostly %s).",
		t->n, t->all, t->ms, t->usual_ms, 100 * t->share, pt_cause_words(t->cause));
}

/* Is it somebody outside of the job who sleeps most? He may give what he has by his own clock. */
static bool sleeps_outside(const struct pt_an *an, const struct pt_trainer *t)
{
	const struct pt_charge *most = NULL;
	const struct pt_proc *p;

	pt_each(const struct pt_charge, c, &t->charges)
		if (c->cause == PT_CAUSE_SLEEP && (!most || c->ns > most->ns))
			most = c;
	p = most ? pt_model_proc(an->m, most->pid) : NULL;
	return p && p->outside;
}

/* A few batches take many times as long to make as the others, and most of the
 * waiting passes meanwhile. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_tail *t = &f->tail;
	const struct pt_file *file;

	if (!t->n || t->share < f->th->slow_share)
		return 0;
	/* which item has to wait for a core, for its way here, or for a limited disk, is chance */
	if (t->cause == PT_CAUSE_RUN_QUEUE || t->cause == PT_CAUSE_IPC)
		return 0;
	if (t->cause == PT_CAUSE_DISK && f->largest == PT_GROUP_IO && f->io.held >= PT_IO_HELD)
		return 0;
	pt_evidence_starved(f, v);
	/* of more they are no few */
	pt_evidence_against(v, "batches.slow", (double)t->n, "count",
			    floor(PT_TAIL_PART * (double)t->all));
	pt_evidence(v, "batches.slow_ms.p50", t->ms, "ms");
	pt_evidence(v, "batches.usual_ms.p50", t->usual_ms, "ms");
	pt_evidence_against(v, "data_wait.slow_batches_share", t->share, "share",
			    f->th->slow_share);
	file = t->inode ? pt_model_file(an->m, t->dev, t->inode) : NULL;
	if (file && file->path)
		v->subject_file = pt_arena_strdup(an->a, file->path);
	if (t->peer)
		v->subject_peer = pt_peer_name(an, t->peer - 1);
	if (t->waited || t->caught_up)
		pt_at_most(&v->certainty, PT_CONF_MEDIUM);
	if (t->cause == PT_CAUSE_SLEEP && sleeps_outside(an, f->t))
		pt_at_most(&v->certainty, PT_CONF_MEDIUM);
	/* an item that sleeps may try again and again for something that is not its own */
	if (t->waited && t->cause == PT_CAUSE_SLEEP)
		pt_at_most(&v->certainty, PT_CONF_LOW);
	/* several may be made at once, and then handed out: no item is to blame */
	if (t->bursts)
		pt_at_most(&v->certainty, PT_CONF_LOW);
	v->title = title(an, t);
	v->advice = t->bursts ?
		"If several batches are made at once (a list that is made whole, a shard that is "
		"unpacked), hand each over as soon as it is made, or let another worker or more "
		"prefetching bridge the time. Otherwise, find what the slow items have in common, "
		"and make them cheaper." :
		t->cause == PT_CAUSE_SLEEP ?
		"Find out what these items sleep for. If they try again until something is there "
		"(a database or file that is locked, a rate limit), that is to blame. Otherwise "
		"keep one slow item from holding up the others: more prefetching, or "
		"out-of-order delivery where the loader offers it." :
		"Find what these items have in common (their size, their source, a retry) and "
		"make them cheaper, or keep one slow item from holding up the others: smaller "
		"batches, more prefetching, or out-of-order delivery where the loader offers it.";
	pt_speedup_share(t->share * f->starved_hi, &v->expected_speedup);
	return 1;
}

const struct pt_verdict pt_verdict_slow_item = { .asked = { { PT_V_WHERE, judge } } };
