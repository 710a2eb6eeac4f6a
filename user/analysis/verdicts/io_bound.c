/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* The largest file that was waited for, by charged time. */
static const struct pt_charge *worst_file(const struct pt_trainer *t)
{
	const struct pt_charge *best = NULL;
	size_t i;

	for (i = 0; i < t->charges.n; i++) {
		const struct pt_charge *c = &t->charges.v[i];

		if (c->inode && (!best || c->ns > best->ns))
			best = c;
	}
	return best;
}

/* Workers wait for storage, and the trainer for them. */
int pt_judge_io_bound(struct pt_an *an, const struct pt_facts *f,
		      struct pt_r_verdict *v)
{
	const struct pt_charge *c;
	const struct pt_file *file;
	int64_t better;

	if (f->largest != PT_GROUP_IO || f->group[PT_GROUP_IO] < f->th->root_share)
		return 0;
	if (pt_evidence_starved(an, f, v, 3))
		return -ENOMEM;
	pt_evidence_add(v, "data_wait.disk_share", f->cause[PT_CAUSE_DISK],
			"share", f->th->root_share, PT_MEASURED);
	pt_evidence_add(v, "data_wait.page_fault_share",
			f->cause[PT_CAUSE_PAGE_FAULT], "share", f->th->root_share,
			PT_MEASURED);
	if (f->item.median_ms >= f->th->item_ms)
		pt_evidence_add(v, "item_ms.p50", f->item.median_ms, "ms",
				f->th->item_ms, PT_MEASURED);
	v->title = pt_arena_printf(an->a,
		"The GPU waits for storage: %.0f %% of the waiting for data is workers blocked in file reads.",
		100 * f->group[PT_GROUP_IO]);
	c = worst_file(f->t);
	file = c ? pt_model_file(an->m, c->dev, c->inode) : NULL;
	if (file && file->path)
		v->subject_file = pt_arena_strdup(an->a, file->path);
	better = pt_better_workers(an, f);
	v->advice = better ?
		pt_arena_printf(an->a,
			"Raise num_workers from %zu to %lld, pack small files into larger ones, or move the data to a faster disk or into memory.",
			f->t->concurrent, (long long)better) :
		pt_arena_printf(an->a,
			"Move the data to a faster disk or into memory, pack small files into larger ones, or read ahead with more workers (num_workers is %zu today).",
			f->t->concurrent);
	pt_expected_speedup(an, f, better ? "workers" : "no_disk_wait",
			    &v->expected_speedup);
	return v->title && v->advice ? 1 : -ENOMEM;
}
