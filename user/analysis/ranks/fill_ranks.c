/* SPDX-License-Identifier: BSD-2-Clause */
/* Steps by what they are spent on, and the ranks' meetings, as figures. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/internal.h"
#include "analysis/ranks/meets.h"
#include "model/acts.h"
#include "model/names.h"

/* Kernels of collectives by the step that they begin in, where all of it was
 * measured. */
int pt_measure_collectives(const struct pt_an *an, struct pt_trainer *t)
{
	const struct pt_proc *p = t->proc;
	double *ms = calloc(t->steps.n + 1, sizeof(*ms));
	struct pt_span in = { 0, 0 };
	bool measured, is = false;
	uint64_t key = 0;
	size_t i, at = 0;

	if (!ms)
		return -ENOMEM;
	measured = pt_meets_measured(p, &in.begin, &in.end);
	for (i = 0; measured && i < p->acts.n; i++) {
		const struct pt_act *a = &p->acts.v[i];

		if (a->what != PT_ACT_KERNEL)
			continue;
		if (a->name != key) {
			key = a->name;
			is = pt_name_is_collective(pt_act_name(an->m, p, key));
		}
		while (at < t->steps.n && t->steps.v[at].end <= a->begin)
			at++;
		if (is && at < t->steps.n && a->begin >= t->steps.v[at].begin)
			ms[at] += pt_ms(a->end - a->begin);
	}
	for (i = 0; i < t->steps.n; i++) {
		struct pt_step *s = &t->steps.v[i];

		s->collective_ms = measured && s->begin >= in.begin &&
				   s->end <= in.end ? ms[i] : NAN;
	}
	free(ms);
	return 0;
}

int pt_fill_step_parts(const struct pt_trainer *t, struct pt_r_step_parts *out)
{
	size_t n = t->steps.n, k = 0, m = 0;
	double *own = n ? calloc(n, 5 * sizeof(*own)) : NULL;
	double *data = own + n, *gpu = own + 2 * n, *coll = own + 3 * n;
	double *dev = own + 4 * n;

	if (!own)
		return n ? -ENOMEM : 0;
	pt_each_of(const struct pt_step, s, t->steps.v, n) {
		double all = pt_ms(s->end - s->begin);

		if (s->partial)
			continue;
		data[k] = pt_ms(s->wait_ns);
		gpu[k] = pt_ms(s->gpu_wait_ns);
		coll[k] = pt_ms(s->collective_ns);
		if (!isnan(s->collective_ms))
			dev[m++] = s->collective_ms;
		own[k] = fmax(0, all - data[k] - gpu[k] - coll[k]);
		k++;
	}
	pt_dist_of(own, k, &out->own);
	pt_dist_of(data, k, &out->data_wait);
	pt_dist_of(gpu, k, &out->gpu_wait);
	pt_dist_of(coll, k, &out->collective);
	pt_dist_of(dev, m, &out->collective_gpu);
	free(own);
	return 0;
}

void pt_fill_meetings(const struct pt_an *an, size_t i, struct pt_r_meetings *out)
{
	const struct pt_meets *m = an->meets;
	const struct pt_meet_rank *r;
	enum pt_late_part reason;

	out->count = PT_NULL;
	if (!m || !m->known)
		return;
	r = &m->rank[i];
	out->count = (int64_t)m->n;
	out->measured = m->measured;
	out->certainty = !m->sure || m->several ? PT_CONF_LOW :
			 m->measured ? PT_CONF_HIGH : PT_CONF_MEDIUM;
	out->late_count = (int64_t)m->clear;
	out->last_share = m->clear ? (double)r->last / (double)m->clear : NAN;
	out->late_ms = r->late_ms;
	out->waits_for_others = pt_sec(r->waits_ns);
	out->held_others = pt_sec(r->held_ns);
	out->lost = pt_sec(r->cost_ns);
	out->reason_s = NAN;
	if (!r->last)
		return;
	reason = pt_late_reason(r);
	out->reason = pt_late_part_name(reason);
	out->reason_s = fmax(0, (double)r->part_ns[reason] / NS_PER_S);
}

/* Ranks of the job that are not traced: by the number in a rank's environment. */
static int64_t not_seen(const struct pt_an *an)
{
	int64_t world = 0;

	for (size_t i = 0; i < an->trainers.n; i++)
		if (an->trainers.v[i].proc->facts.world > world)
			world = an->trainers.v[i].proc->facts.world;
	return world - (int64_t)an->trainers.n;
}

void pt_limit_ranks(struct pt_an *an)
{
	const struct pt_meets *m = an->meets;
	struct pt_report *r = an->r;
	int64_t away = not_seen(an);
	uint64_t collectives = 0;
	size_t i;

	for (i = 0; i < an->trainers.n; i++)
		collectives += an->trainers.v[i].counts.collectives;
	if (!collectives)
		return;
	if (away > 0)
		pt_report_limit(r, "ranks", "%lld of the job's ranks were not seen here: the "
					    "time that the others wait for them in "
					    "collectives counts as GPU work.",
				(long long)away);
	if (!m || an->trainers.n < 2)
		return;
	if (m->why)
		pt_report_limit(r, "ranks.collectives", "Which rank arrives last at the "
							"collectives is not known: %s.",
				m->why);
	if (!m->known)
		return;
	if (!m->measured)
		pt_report_limit(r, "ranks.gpu", "Ranks were compared by when they called collectives. A rank whose GPU is slower calls in time and comes late on its device; that takes exact device times (--cupti).");
	if (!m->sure)
		pt_report_limit(r, "ranks.collectives", "The ranks' collectives can be joined in more than one way; the one nearest in time was taken.");
	if (m->several)
		pt_report_limit(r, "ranks.collectives", "Ranks have several communicators; those with most calls were taken for one and the same.");
}
