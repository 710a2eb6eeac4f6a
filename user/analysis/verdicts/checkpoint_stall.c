/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>

#include "analysis/io/disks.h"
#include "analysis/verdicts/verdict.h"

static double seconds(const struct pt_r_write *w)
{
	return isnan(w->write_s) ? w->blocked_s :
				   fmax(w->write_s + w->fsync_s, w->blocked_s);
}

/* Which file, how much and how long, where that was seen. */
static double add_file(struct pt_an *an, const struct pt_r_write *w,
		       struct pt_r_verdict *v)
{
	enum pt_certainty sure = isnan(w->write_s) ? PT_ESTIMATED : PT_MEASURED;
	double s = seconds(w), flush = s > 0 ? fmin(1, w->fsync_s / s) : 0;

	pt_evidence_add(v, "writes.seconds", s, "s", NAN, sure);
	pt_evidence_add(v, "writes.bytes", (double)w->bytes, "bytes", NAN, sure);
	pt_evidence_add(v, "writes.fsync_share", flush, "share", NAN, sure);
	if (w->path)
		v->subject_file = pt_arena_strdup(an->a, w->path);
	return flush;
}

/* The trainer writes files while the device has nothing to do. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_r_write *w;
	double lost = f->checkpoint, flush = NAN;

	if (lost < f->th->starved_info)
		return 0;
	pt_evidence_add(v, "gpu.idle_checkpoint_share", lost, "share", f->th->starved_info,
			f->t->gpu_known ? PT_ESTIMATED : PT_BOUNDED);
	pt_evidence(v, "breakdown.checkpoint.share", f->writing, "share");
	w = pt_worst_write(an, f->t->main->tgid);
	if (w)
		flush = add_file(an, w, v);
	pt_verdict_costs(f, v, lost);
	v->certainty = f->t->gpu_known ? PT_CONF_HIGH : PT_CONF_LOW;
	v->subject_pid = f->t->main->tgid;
	v->title = pt_sentence(an,
		"The training thread spends %.0f %% of the time writing files%s, while the "
		"GPU sits idle.",
		100 * f->writing,
		flush >= PT_FLUSH_SHARE ? ", mostly flushing them (fsync)" : "");
	v->advice = flush >= PT_FLUSH_SHARE ?
		"Do not flush (fsync) on the training thread: write checkpoints from another thread or process, less often, or to a faster disk." :
		"Write checkpoints less often, to a faster disk or into memory first, from another thread or process that the loop does not wait for; do not flush (fsync) on the training thread.";
	return 1;
}

const struct pt_verdict pt_verdict_checkpoint_stall = { .asked = { { PT_V_IDLE, judge } } };
