// SPDX-License-Identifier: BSD-2-Clause
/* Copies of what the passes found, for those who draw it. */
#include "report/lanes.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "analysis/gpu/passes.h"
#include "analysis/internal.h"
#include "analysis/parts/part.h"

static int copy_spans(struct pt_an *an, const pt_spans *from,
		      const struct pt_lane_span **to, size_t *n)
{
	struct pt_lane_span *s;
	size_t i;

	if (!from->n)
		return 0;
	s = pt_arena_calloc(an->a, from->n, sizeof(*s));
	if (!s)
		return -ENOMEM;
	for (i = 0; i < from->n; i++)
		s[i] = (struct pt_lane_span){ from->v[i].begin, from->v[i].end };
	*to = s;
	*n = from->n;
	return 0;
}

/* Of more than two waits those between are shown as one with the first. */
static void copy_step(const struct pt_trainer *t, const struct pt_step *s,
		      struct pt_lane_step *o)
{
	const struct pt_fetch *w = s->n_waits ? &t->waits.v[s->wait0] : NULL;
	size_t n = s->n_waits;

	o->begin = s->begin;
	o->end = s->end;
	o->made = UINT64_MAX;
	if (w) {
		o->wait[0] = (struct pt_lane_span){ w[0].begin,
						    w[n > 1 ? n - 2 : 0].end };
		o->wait[1] = (struct pt_lane_span){ w[n - 1].begin,
						    w[n - 1].end };
		o->made = w[n - 1].made;
	}
	o->n_wait = n < 2 ? (unsigned)n : 2;
	o->worker = s->worker;
	o->batches = s->batches;
	o->cause = s->cause;
	o->partial = s->partial;
}

static int copy_workers(struct pt_an *an, const struct pt_trainer *t,
			struct pt_lane_trainer *o)
{
	struct pt_lane_worker *w =
		pt_arena_calloc(an->a, t->workers.n + 1, sizeof(*w));
	uint64_t *made;
	size_t i;

	if (!w)
		return -ENOMEM;
	for (i = 0; i < t->workers.n; i++) {
		const struct pt_worker *from = &t->workers.v[i];

		w[i].tgid = from->proc->tgid;
		w[i].tid = from->main ? from->main->tid : from->proc->tgid;
		/* one that sends by itself is seen only when somebody waits */
		if (!from->done.n || from->feeder == from->main)
			continue;
		made = pt_arena_calloc(an->a, from->done.n, sizeof(*made));
		if (!made)
			return -ENOMEM;
		memcpy(made, from->done.v, from->done.n * sizeof(*made));
		w[i].made = made;
		w[i].n_made = from->done.n;
	}
	o->workers = w;
	o->n_workers = t->workers.n;
	return 0;
}

/* When every device of the trainer is idle. */
static int all_idle(const struct pt_trainer *t, pt_spans *hard, pt_spans *likely)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->devs.n && !err; i++) {
		const struct pt_dev *d = &t->devs.v[i];

		err = i ? pt_spans_meet(hard, &d->idle_hard) :
			  pt_spans_append(hard, &d->idle_hard);
		err = err ?: (i ? pt_spans_meet(likely, &d->idle_likely) :
				  pt_spans_append(likely, &d->idle_likely));
	}
	return err;
}

/* ---- of several parts --------------------------------------------------------- */

static double part(uint64_t ns, uint64_t of)
{
	return of ? (double)pt_min64(ns, of) / (double)of : 0;
}

/* Of the last part the spans are there, of those before it sums. */
static int mix_devices(struct pt_an *an, const struct pt_trainer *t,
		       const struct pt_join *j, struct pt_lane_trainer *o)
{
	const struct pt_stretch *s;
	struct pt_lane_mix *v;
	double idle, starved;
	size_t i, n;

	if (!j) {
		o->device_known = t->gpu_known;
		return 0;
	}
	s = pt_join_past(j, (size_t)(t - an->trainers.v), &n);
	v = pt_arena_calloc(an->a, n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	o->before = v;
	for (i = 0; i < n; i++) {
		if (s[i].t1 == an->t1)
			o->device_known = s[i].known;
		if (s[i].t1 == an->t1 || !s[i].known)
			continue;
		idle = part(s[i].idle_ns, s[i].t1 - s[i].t0);
		starved = part(s[i].starved_ns, s[i].t1 - s[i].t0);
		v[o->n_before++] = (struct pt_lane_mix){
			s[i].t0, s[i].t1, 1 - idle, fmin(starved, idle),
			fmax(idle - starved, 0) };
	}
	return 0;
}

static int copy_trainer(struct pt_an *an, const struct pt_trainer *t,
			const struct pt_join *j, struct pt_lane_trainer *o)
{
	struct pt_lane_step *steps =
		pt_arena_calloc(an->a, t->steps.n + 1, sizeof(*steps));
	pt_spans hard = { 0 }, likely = { 0 };
	size_t i;
	int err = copy_workers(an, t, o);

	if (!steps || err)
		return -ENOMEM;
	o->tgid = t->proc->tgid;
	o->main_tid = t->main ? t->main->tid : t->proc->tgid;
	o->rank = pt_rank_of_proc(t->proc);
	o->top = t == an->top;
	for (i = 0; i < t->steps.n; i++)
		copy_step(t, &t->steps.v[i], &steps[i]);
	o->steps = steps;
	o->n_steps = t->steps.n;
	err = mix_devices(an, t, j, o);
	err = err ?: all_idle(t, &hard, &likely);
	err = err ?: copy_spans(an, &hard, &o->idle_hard, &o->n_idle_hard);
	if (!err && o->device_known)
		err = copy_spans(an, &likely, &o->idle_likely,
				 &o->n_idle_likely);
	pt_vec_free(&hard);
	pt_vec_free(&likely);
	return err;
}

int pt_fill_lanes(struct pt_an *an, const struct pt_join *j, struct pt_lanes *out)
{
	struct pt_lane_trainer *t =
		pt_arena_calloc(an->a, an->trainers.n + 1, sizeof(*t));
	size_t i;
	int err = 0;

	memset(out, 0, sizeof(*out));
	if (!t)
		return -ENOMEM;
	for (i = 0; i < an->trainers.n && !err; i++)
		err = copy_trainer(an, &an->trainers.v[i], j, &t[i]);
	if (!err) {
		out->trainers = t;
		out->n_trainers = an->trainers.n;
	}
	return err;
}
