/* SPDX-License-Identifier: BSD-2-Clause */
/* What the judges share: evidence, severities, bounds on what can be won. */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"
#include "analysis/whatif/whatif.h"

/* What a judge and all that is added to its words have room for. */
#define EVIDENCE_MAX 32

int pt_evidence_start(struct pt_an *an, struct pt_r_verdict *v)
{
	v->evidence = pt_arena_calloc(an->a, EVIDENCE_MAX, sizeof(*v->evidence));
	return v->evidence ? 0 : -ENOMEM;
}

void pt_evidence_add(struct pt_r_verdict *v, const char *metric, double value,
		     const char *unit, double threshold,
		     enum pt_certainty certainty)
{
	struct pt_r_evidence *e =
		(struct pt_r_evidence *)&v->evidence[v->n_evidence];

	assert(v->n_evidence < EVIDENCE_MAX);
	if (v->n_evidence == EVIDENCE_MAX)
		return;
	v->n_evidence++;
	e->metric = metric;
	e->value = value;
	e->unit = unit;
	e->threshold = threshold;
	e->certainty = certainty;
}

int pt_evidence_starved(struct pt_an *an, const struct pt_facts *f,
			struct pt_r_verdict *v)
{
	int err = pt_evidence_start(an, v);

	if (err)
		return err;
	pt_evidence_add(v, "gpu.starved_share", f->starved_shown, "share",
			f->th->starved_info, f->bounded ? PT_BOUNDED : PT_ESTIMATED);
	pt_evidence_add(v, "breakdown.data_wait.share", f->wait_share, "share",
			NAN, PT_MEASURED);
	return 0;
}

void pt_speedup_share(double share, struct pt_range *out)
{
	out->low = 1;
	out->value = NAN;
	out->high = 1 / (1 - fmin(share, 0.999));
}

enum pt_severity pt_severity_of(const struct pt_facts *f, double share)
{
	return share >= f->th->starved_critical ? PT_CRITICAL :
	       share >= f->th->starved_warning  ? PT_WARNING :
					      PT_INFO;
}

void pt_speedup_bound(const struct pt_facts *f, struct pt_range *out)
{
	/* Hidden waiting costs nothing: only starved time can be won, and no
	 * change wins more than all of it. */
	pt_speedup_share(f->starved_hi, out);
}

bool pt_expected_speedup(const struct pt_an *an, const struct pt_facts *f,
			 const char *change, struct pt_range *out)
{
	if (pt_speedup_of(an, change, PT_NULL, out))
		return true;
	pt_speedup_bound(f, out);
	return false;
}

int64_t pt_better_workers(const struct pt_an *an, const struct pt_facts *f)
{
	struct pt_range gain;

	if (!pt_speedup_of(an, "workers", PT_NULL, &gain) || !(gain.low > 1) ||
	    an->r->best_workers <= (int64_t)f->t->concurrent)
		return 0;
	return an->r->best_workers;
}

int pt_workers_needed(const struct pt_facts *f)
{
	double left = 1 - fmin(f->starved, 0.98);

	return (int)ceil((double)f->t->concurrent / left);
}
