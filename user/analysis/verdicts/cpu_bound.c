/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

/* Workers compute all the time and still do not keep up. */
int pt_judge_cpu_bound(struct pt_an *an, const struct pt_facts *f,
		       struct pt_r_verdict *v)
{
	int64_t better;
	int need;

	if (f->largest != PT_GROUP_CPU || f->group[PT_GROUP_CPU] < f->th->root_share)
		return 0;
	if (pt_evidence_starved(an, f, v))
		return -ENOMEM;
	pt_evidence_add(v, "data_wait.cpu_share", f->cause[PT_CAUSE_CPU],
			"share", f->th->root_share, PT_MEASURED);
	pt_evidence_add(v, "loader.workers", (double)f->t->concurrent, "count",
			NAN, PT_MEASURED);
	v->title = pt_arena_printf(an->a,
		"Loading is CPU-bound: %.0f %% of the waiting for data is workers computing, %.0f %% workers waiting for a core.",
		100 * f->cause[PT_CAUSE_CPU],
		100 * f->queue);
	better = pt_better_workers(an, f);
	need = pt_workers_needed(f);
	v->advice = !f->t->concurrent ?
		"Make what is computed for a batch cheaper, or share it out among more processes." :
		better ?
		pt_arena_printf(an->a,
			"Raise num_workers from %zu to %lld, or make __getitem__ cheaper.",
			f->t->concurrent, (long long)better) :
		f->cores && need <= f->cores ?
		pt_arena_printf(an->a,
			"Raise num_workers from %zu to about %d (%lld cores are there), or make __getitem__ cheaper.",
			f->t->concurrent, need, (long long)f->cores) :
		pt_arena_printf(an->a,
			"Make __getitem__ cheaper or move decoding to the GPU: to keep up it would take about %d workers like these (num_workers is %zu today), more than this host has cores for.",
			need, f->t->concurrent);
	if (better)
		pt_expected_speedup(an, f, "workers", &v->expected_speedup);
	else
		pt_speedup_bound(f, &v->expected_speedup);
	return v->title && v->advice ? 1 : -ENOMEM;
}
