/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* One file that takes a second and more. */
int pt_judge_slow_file(struct pt_an *an, const struct pt_facts *f,
		       struct pt_r_verdict *v)
{
	const struct pt_item *i = &f->item;
	const struct pt_file *file;
	double lost = i->slow_share * f->wait_share;

	if (!i->thread || i->ms < f->th->slow_item_ms)
		return 0;
	if (pt_evidence_start(an, v, 3))
		return -ENOMEM;
	pt_evidence_add(v, "item_ms.max", i->ms, "ms", f->th->slow_item_ms,
			PT_MEASURED);
	pt_evidence_add(v, "item_ms.p50", i->median_ms, "ms", f->th->item_ms,
			PT_MEASURED);
	pt_evidence_add(v, "data_wait.slow_files_share", i->slow_share, "share",
			f->th->slow_share, PT_MEASURED);
	*f->lost = lost;
	v->severity = lost >= f->th->starved_info ? PT_WARNING : PT_INFO;
	if (f->is_starved && i->slow_share >= f->th->slow_share)
		v->severity = f->severity;
	v->certainty = PT_CONF_HIGH;
	v->subject_pid = i->thread->tgid;
	file = pt_model_file(an->m, i->dev, i->inode);
	if (file && file->path)
		v->subject_file = pt_arena_strdup(an->a, file->path);
	v->title = pt_arena_printf(an->a,
		"One file took %.1f s to read%s; files like it hold up %.0f %% of the waiting for data.",
		i->ms / 1000,
		isnan(i->median_ms) ? "" :
		pt_arena_printf(an->a, " (a usual one %.1f ms)", i->median_ms),
		100 * i->slow_share);
	v->advice = "Look at this file: its size, its place (another disk, a network mount, a damaged sector), and who else reads it.";
	pt_speedup_share(lost, &v->expected_speedup);
	return v->title ? 1 : -ENOMEM;
}
