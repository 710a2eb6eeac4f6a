/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/tally.h"

#include <math.h>

const double pt_tally_bucket[PT_TALLY_BUCKETS] = {
	0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60,
};

static void add(double *to, double x)
{
	if (!isnan(x))
		*to += x;
}

static void add_steps(struct pt_tally *t, const struct pt_sample *s, double scale)
{
	double each;
	size_t i, k;

	if (!s->n_step_s)
		return;
	/* the list may be cut: those that are there stand for all */
	each = scale * (isnan(s->steps) ? 1 : s->steps / (double)s->n_step_s);
	for (i = 0; i < s->n_step_s; i++) {
		for (k = 0; k < PT_TALLY_BUCKETS; k++)
			if (s->step_s[i] <= pt_tally_bucket[k])
				break;
		t->step_bucket[k] += each;
		t->step_sum_s += each * (double)s->step_s[i];
	}
}

void pt_tally_add(struct pt_tally *t, const struct pt_sample *s, double born,
		  double end, double most)
{
	double since = t->last_end > 0 ? t->last_end : born;
	double stands = fmax(s->duration, fmin(end - since, most)), scale;
	int i;

	t->last = *s;
	t->has_last = true;
	t->last_end = end;
	t->samples++;
	add(&t->lost_events, s->lost);
	add(&t->tracer_cpu_s, s->tracer_cpu_s);
	if (!(s->duration > 0))
		return;
	scale = stands / s->duration;
	t->covered_s += stands;
	t->observed_s += s->duration;
	t->gpu_s += s->gpus * stands;
	add(&t->busy_low_s, s->busy_likely_s[0] * scale);
	add(&t->busy_high_s, s->busy_likely_s[1] * scale);
	for (i = 0; i < PT_CAUSE_NR; i++)
		add(&t->lost_s[i], s->idle_s[i] * scale);
	add(&t->steps, s->steps * scale);
	add(&t->read_bytes, s->read_bytes * scale);
	add(&t->read_s, s->read_s * scale);
	add_steps(t, s, scale);
}

void pt_tally_failed(struct pt_tally *t)
{
	t->failed++;
}
