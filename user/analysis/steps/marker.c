/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Steps by a marker: the user named a function whose calls begin them. The
 * waits, their causes and all that follows stay as found; what is told of the
 * steps themselves (count, boundaries, periods) follows the marker.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/internal.h"
#include "analysis/verdicts/thresholds.h"

/* The waits in a step; *hint: those before it are over. What the host waited
 * for the device counts where the wait before it ended. */
static void take_waits(const struct pt_trainer *t, size_t *hint, uint64_t b,
		       uint64_t e, struct pt_r_step *o)
{
	uint64_t wait = 0, gpu = 0, most = 0, part;
	size_t i;

	o->worker = PT_NULL;
	o->cause = PT_CAUSE_UNKNOWN;
	while (*hint < t->steps.n && t->steps.v[*hint].wait_end < b)
		(*hint)++;
	for (i = *hint; i < t->steps.n && t->steps.v[i].wait_begin < e; i++) {
		const struct pt_step *s = &t->steps.v[i];

		part = pt_overlap(s->wait_begin, s->wait_end, b, e);
		wait += part;
		if (s->wait_end >= b && s->wait_end < e)
			gpu += s->gpu_wait_ns;
		if (part <= most)
			continue;
		most = part;
		o->cause = s->cause;
		o->blocked = s->blocked_ns > 0;
		o->worker = s->worker >= 0 ?
				    t->workers.v[s->worker].proc->tgid : PT_NULL;
	}
	o->data_wait_ms = pt_ms(wait);
	o->gpu_wait_ms = pt_ms(pt_min64(gpu, e - b));
}

static int find_outliers(struct pt_an *an, struct pt_r_steps *r)
{
	struct pt_r_outlier *o = pt_arena_calloc(an->a, r->n_list + 1,
						 sizeof(*o));
	size_t i, n = 0;

	if (!o)
		return -ENOMEM;
	for (i = 0; i + 1 < r->n_list; i++) {
		if (r->list[i].period_ms <= an->th->unstable_ratio * r->period_ms.p50)
			continue;
		o[n].index = (int64_t)(an->step0 + i);
		o[n].ms = r->list[i].period_ms;
		o[n++].cause = r->list[i].cause;
	}
	pt_put_outliers(r, o, n);
	return 0;
}

static int fill(struct pt_an *an, const struct pt_trainer *t,
		const uint64_t *at, size_t n)
{
	struct pt_r_steps *r = &an->r->steps;
	struct pt_r_step *list = pt_arena_calloc(an->a, n, sizeof(*list));
	double *period = malloc((n + 1) * sizeof(*period));
	size_t i, hint = 0;

	if (!list || !period) {
		free(period);
		return -ENOMEM;
	}
	for (i = 0; i < n; i++) {
		uint64_t e = i + 1 < n ? at[i + 1] : an->t1;

		list[i].index = (int64_t)(an->step0 + i);
		list[i].begin_ns = (int64_t)at[i];
		list[i].end_ns = (int64_t)e;
		list[i].period_ms = period[i] = pt_ms(e - at[i]);
		take_waits(t, &hint, at[i], e, &list[i]);
	}
	r->list = list;
	r->count = (int64_t)n;
	r->n_list = n;
	r->source = "marker";
	r->certainty = n < 3 ? PT_CONF_LOW : PT_CONF_HIGH;
	pt_dist_of(period, n - 1, &r->period_ms); /* the last is cut */
	free(period);
	r->per_second = r->period_ms.mean > 0 ? 1000 / r->period_ms.mean : NAN;
	r->max_over_min = r->period_ms.min > 0 ?
				  r->period_ms.max / r->period_ms.min : NAN;
	r->samples_per_second = NAN;
	if (an->o->batch_size > 0)
		r->samples_per_second = r->per_second *
			(double)an->o->batch_size * (double)r->batches /
			(double)n;
	return find_outliers(an, r);
}

int pt_mark_steps(struct pt_an *an)
{
	const struct pt_trainer *t = an->top;
	const uint64_t *at;
	size_t from = 0, to;

	if (!t || !t->proc->markers.n)
		return 0;
	at = t->proc->markers.v;
	to = t->proc->markers.n;
	while (from < to && at[from] < an->t0)
		from++;
	while (to > from && at[to - 1] >= an->t1)
		to--;
	if (from == to)
		return pt_report_limit(an->r, "steps", "The step marker was not called during "
						       "the capture: steps were inferred.");
	return fill(an, t, at + from, to - from);
}
