// SPDX-License-Identifier: BSD-2-Clause
/* Copies of what the passes found, for those who draw it. */
#include "analysis/lanes.h"

#include <errno.h>
#include <string.h>

#include "analysis/gpu_int.h"
#include "analysis/internal.h"

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

static void copy_step(const struct pt_trainer *t, const struct pt_step *s,
		      struct pt_lane_step *o)
{
	struct pt_span wait[2];
	int i, n = pt_step_spans(s, wait);

	o->begin = s->begin;
	o->end = s->end;
	for (i = 0; i < n; i++) {
		o->wait[i].begin = wait[i].begin;
		o->wait[i].end = wait[i].end;
	}
	o->n_wait = (unsigned)n;
	o->worker = s->worker;
	o->made = s->worker < 0 ? UINT64_MAX :
				  pt_made_at(t, &t->workers.v[s->worker], s);
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
	size_t i, k;
	int err = 0;

	for (i = 0; i < t->devs.n && !err; i++) {
		const struct pt_dev *d = &t->devs.v[i];

		if (i) {
			err = pt_spans_meet(hard, &d->idle_hard);
			if (!err)
				err = pt_spans_meet(likely, &d->idle_likely);
			continue;
		}
		for (k = 0; k < d->idle_hard.n && !err; k++)
			err = pt_vec_push(hard, d->idle_hard.v[k]);
		for (k = 0; k < d->idle_likely.n && !err; k++)
			err = pt_vec_push(likely, d->idle_likely.v[k]);
	}
	return err;
}

static int copy_trainer(struct pt_an *an, const struct pt_trainer *t,
			struct pt_lane_trainer *o)
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
	o->device_known = t->gpu_known;
	err = all_idle(t, &hard, &likely);
	if (!err)
		err = copy_spans(an, &hard, &o->idle_hard, &o->n_idle_hard);
	if (!err && t->gpu_known)
		err = copy_spans(an, &likely, &o->idle_likely,
				 &o->n_idle_likely);
	pt_vec_free(&hard);
	pt_vec_free(&likely);
	return err;
}

int pt_fill_lanes(struct pt_an *an, struct pt_lanes *out)
{
	struct pt_lane_trainer *t =
		pt_arena_calloc(an->a, an->trainers.n + 1, sizeof(*t));
	size_t i;
	int err = 0;

	memset(out, 0, sizeof(*out));
	if (!t)
		return -ENOMEM;
	for (i = 0; i < an->trainers.n && !err; i++)
		err = copy_trainer(an, &an->trainers.v[i], &t[i]);
	if (!err) {
		out->trainers = t;
		out->n_trainers = an->trainers.n;
	}
	return err;
}
