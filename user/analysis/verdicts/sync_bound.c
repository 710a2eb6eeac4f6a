/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/lines/lines.h"
#include "analysis/verdicts/verdict.h"

/* Where it waits for the device is healthy; what it does behind that is what costs. */
static const struct pt_line_ask waiting = {
	PT_LINES_LOOP, 1u << PT_CAUSE_SYNC, "the training thread's waiting for the GPU"
};
static const struct pt_line_ask working = {
	PT_LINES_LOOP, PT_LINES_ALL, "its time outside data waits and GPU calls"
};

/* The line that the verdict is about: the work's, if it takes half of the idle time. */
static void name_line(struct pt_an *an, double idle_s, struct pt_r_verdict *v)
{
	struct pt_r_line work;

	if (!pt_top_line(an, &working, PT_NULL, &work) || work.seconds < idle_s / 2) {
		pt_name_line(an, &waiting, v);
		return;
	}
	pt_name_line(an, &working, v);
	v->advice = pt_sentence(an,
		"Do the work of %s every N steps only, before the sync, or while the GPU "
		"computes. Synchronise less often, too (.item(), printing a loss, .cpu()).",
		pt_line_place(an, &work));
}

/* The device runs dry behind syncs because the host is not back with new
 * work. Only that idle time counts, not the syncs and not the time in them. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	double lost = f->sync;
	/* what the host computes there may be loading: nobody saw that it is not */
	bool works = pt_sec(f->t->host_idle_ns) >= lost * f->wall_s / 2;

	if (lost < f->th->starved_info)
		return 0;
	pt_evidence_add(v, "gpu.idle_after_sync_share", lost, "share", f->th->starved_info,
			PT_BOUNDED);
	/* a blocking copy is one, too, and is counted with the copies */
	if (f->t->counts.syncs)
		pt_evidence(v, "gpu.syncs", (double)f->t->counts.syncs, "count");
	else
		pt_evidence(v, "gpu.copies_back", (double)f->t->counts.d2h, "count");
	pt_verdict_costs(f, v, lost);
	v->certainty = !works ? PT_CONF_HIGH : f->unfed ? PT_CONF_LOW : PT_CONF_MEDIUM;
	v->subject_pid = f->t->main->tgid;
	v->title = pt_sentence(an,
		"After syncs the GPU sits idle %.0f %% of the time until the training thread "
		"launches new work; %s.",
		100 * lost, !works ? "data is not the reason" :
			    f->unfed ? "whether that makes the next batch meanwhile cannot be seen" :
				       "no data loading was seen there");
	v->advice = "Synchronise less often (.item(), printing a loss, .cpu()): every N steps "
		    "rather than every step, and do the host's own work (metrics, logging) "
		    "before the sync or while the GPU computes.";
	name_line(an, lost * f->wall_s, v);
	pt_replayed_speedup(an, "fewer_syncs", v);
	return 1;
}

const struct pt_verdict pt_verdict_sync_bound = { .asked = { { PT_V_IDLE, judge } } };
