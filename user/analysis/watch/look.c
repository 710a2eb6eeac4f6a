// SPDX-License-Identifier: BSD-2-Clause
/* A stretch of a running capture: the first passes of a part, those that find steps and
 * waits, and of the others only what is asked for. */
#include "analysis/watch/watch.h"

#include <errno.h>

#include "analysis/health.h"
#include "analysis/parts/part.h"
#include "analysis/waits/callers.h"
#include "analysis/waits/look.h"
#include "model/model.h"

static int copy_steps(const struct pt_an *an, struct pt_seen *out)
{
	struct pt_seen_trainer *to = pt_arena_calloc(an->a, an->trainers.n + 1, sizeof(*to));
	struct pt_seen_step *s;
	size_t i, k;

	if (!to)
		return -ENOMEM;
	for (i = 0; i < an->trainers.n; i++) {
		const struct pt_trainer *t = &an->trainers.v[i];

		s = pt_arena_calloc(an->a, t->steps.n + 1, sizeof(*s));
		if (!s)
			return -ENOMEM;
		for (k = 0; k < t->steps.n; k++)
			s[k] = (struct pt_seen_step){
				.begin = t->steps.v[k].begin, .end = t->steps.v[k].end,
				.wait_ns = t->steps.v[k].wait_ns,
				.partial = t->steps.v[k].partial };
		to[i] = (struct pt_seen_trainer){ t->proc->tgid, s, t->steps.n };
	}
	out->t = to;
	out->n = an->trainers.n;
	return 0;
}

static int list_gone(const struct pt_an *an, struct pt_seen *out)
{
	const struct pt_model *m = an->m;
	uint32_t *v = pt_arena_calloc(an->a, m->all_procs.n + 1, sizeof(*v));
	size_t i;

	if (!v)
		return -ENOMEM;
	for (i = 0; i < m->all_procs.n; i++)
		if (m->all_procs.v[i]->died)
			v[out->n_gone++] = m->all_procs.v[i]->tgid;
	out->gone = v;
	return 0;
}

/* The one that has delivered nothing for longest. */
static int find_silent(struct pt_an *an, struct pt_seen *out)
{
	struct pt_hung h;
	size_t i;
	int err = 0;

	for (i = 0; i < an->trainers.n && !err; i++) {
		err = pt_measure_workers(an, &an->trainers.v[i]);
		pt_find_hung(an, &an->trainers.v[i], &h);
		if (!h.proc || h.seconds * NS_PER_S <= (double)out->worker_ns)
			continue;
		out->worker = h.proc->tgid;
		out->worker_ns = (uint64_t)(h.seconds * NS_PER_S);
	}
	return err;
}

static int find_late(struct pt_an *an, struct pt_seen *out)
{
	const struct pt_meets *m = an->meets;
	size_t i;
	int err = pt_find_meets(an);

	for (i = 0; !err && m->known && i < an->trainers.n; i++) {
		double ns = m->rank[i].late_ms.max * NS_PER_MS;

		if (!m->rank[i].last || ns <= (double)out->late_ns)
			continue;
		out->rank = an->trainers.v[i].proc->tgid;
		out->late_ns = (uint64_t)ns;
	}
	return err;
}

int pt_watch_look(struct pt_model *m, uint64_t from, uint64_t until, unsigned ask,
		  uint64_t worker_ns, struct pt_arena *a, struct pt_seen *out)
{
	struct pt_thresholds th = pt_thresholds_default;
	struct pt_analysis_opts o = { .thresholds = &th };
	struct pt_meets meets = { 0 };
	struct pt_an an = { .m = m, .o = &o, .a = a, .th = &th, .t0 = from, .t1 = until,
			    .part = true, .meets = &meets };
	size_t i;
	int err = pt_model_settle(m);

	*out = (struct pt_seen){ .from = from, .until = until };
	th.hung_s = th.stopped_s = pt_sec(worker_ns);
	an.r = pt_report_new_in(a);
	if (!an.r)
		return -ENOMEM;
	/* what has not ended counts until now */
	err = err ?: pt_model_lend_open(m);
	err = err ?: pt_find_trainers(&an);
	err = err ?: pt_find_callers(&an, &an.callers);
	for (i = 0; i < an.trainers.n && !err; i++)
		err = pt_look_at(&an, &an.trainers.v[i]);
	err = err ?: copy_steps(&an, out);
	err = err ?: list_gone(&an, out);
	if (!err && (ask & 1u << PT_WHEN_WORKER))
		err = find_silent(&an, out);
	if (!err && (ask & 1u << PT_WHEN_RANK))
		err = find_late(&an, out);
	pt_model_take_back(m);
	pt_release_trainers(&an);
	pt_vec_free(&an.callers);
	pt_meets_free(&meets);
	return err;
}
