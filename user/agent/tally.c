/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/tally.h"

#include <math.h>
#include <string.h>

const double pt_tally_bucket[PT_TALLY_BUCKETS] = {
	0.01, 0.05, 0.1, 0.25, 1, 5, 30,
};

static void add_known(double *to, double x)
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

static void add_mounts(struct pt_tally *t, const struct pt_sample *s, double scale)
{
	struct pt_sample_mount *m;
	size_t i;

	for (i = 0; i < s->n_mounts; i++) {
		m = pt_sample_mount_of(t->mount, &t->n_mounts, PT_TALLY_MOUNTS,
				       s->mount[i].name);
		add_known(&m->read_s, s->mount[i].read_s * scale);
		add_known(&m->bytes, s->mount[i].bytes * scale);
	}
}

static void add_causes(struct pt_tally *t, const struct pt_sample *s, double scale)
{
	size_t k;
	int i;

	for (i = 0; i < PT_CAUSE_NR; i++) {
		if (!(s->idle_s[i] > 0))
			continue;
		add_known(&t->lost_s[i], s->idle_s[i] * scale);
		for (k = 0; k < t->n_causes && t->cause[k] != i; k++)
			;
		if (k == t->n_causes && k < PT_TALLY_CAUSES &&
		    i != PT_CAUSE_NO_DEMAND)
			t->cause[t->n_causes++] = (uint8_t)i;
	}
}

/* `stands` seconds that are like those of the sample. */
static void charge(struct pt_tally *t, const struct pt_sample *s, double stands)
{
	double scale = stands / s->duration;
	int i;

	t->gpu_s += s->gpus * stands;
	add_known(&t->busy_low_s, s->busy_likely_s[0] * scale);
	add_known(&t->busy_high_s, s->busy_likely_s[1] * scale);
	add_known(&t->starved_low_s, s->starved_s[0] * scale);
	add_known(&t->starved_high_s, s->starved_s[1] * scale);
	add_causes(t, s, scale);
	add_known(&t->steps, s->steps * scale);
	for (i = 0; i < PT_PHASE_NR && s->steps > 0; i++)
		add_known(&t->phase_s[i], s->phase_s[i] * scale);
	add_known(&t->read_bytes, s->read_bytes * scale);
	add_known(&t->read_s, s->read_s * scale);
	add_known(&t->reads, s->reads * scale);
	add_steps(t, s, scale);
	add_mounts(t, s, scale);
}

void pt_tally_add(struct pt_tally *t, const struct pt_sample *s, double born,
		  double end, double most)
{
	double since = t->last_end > 0 ? t->last_end : born;
	double stands = fmax(s->duration, fmin(end - since, most));
	bool two = t->has_last && t->last.duration > 0 && end - since <= most;

	t->samples++;
	add_known(&t->events, s->events);
	add_known(&t->lost_events, s->lost);
	add_known(&t->tracer_cpu_s, s->tracer_cpu_s);
	if (s->duration > 0) {
		t->covered_s += stands;
		t->observed_s += s->duration;
		/* one that is long ago says little of the time before this one */
		charge(t, s, two ? stands / 2 : stands);
		if (two)
			charge(t, &t->last, stands / 2);
	}
	t->last = *s;
	t->has_last = true;
	t->last_end = end;
}

void pt_tally_failed(struct pt_tally *t)
{
	t->failed++;
}

double pt_tally_other_s(const struct pt_tally *t)
{
	double sum = 0;
	size_t k;
	int i;

	for (i = 0; i < PT_CAUSE_NR; i++) {
		for (k = 0; k < t->n_causes && t->cause[k] != i; k++)
			;
		if (k == t->n_causes && i != PT_CAUSE_NO_DEMAND)
			sum += t->lost_s[i];
	}
	return sum;
}

size_t pt_tally_top_mounts(const struct pt_tally *t, size_t *top, size_t n)
{
	size_t i, k, count = 0;

	for (i = 0; i < t->n_mounts; i++) {
		const struct pt_sample_mount *m = &t->mount[i];

		for (k = count; k > 0; k--) {
			const struct pt_sample_mount *x = &t->mount[top[k - 1]];

			if (x->read_s > m->read_s ||
			    (x->read_s == m->read_s && x->bytes >= m->bytes))
				break;
			if (k < n)
				top[k] = top[k - 1];
		}
		if (k < n) {
			top[k] = i;
			count += count < n;
		}
	}
	return count;
}
