/* SPDX-License-Identifier: BSD-2-Clause */
/* What-if: the workers' batches, cut out of what they did; and whether several can be
 * where they were. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/whatif/timeline.h"

/* A place that takes less of the workers' time does not matter. */
#define PLACE_WORTH 0.02
/* A lock that is held for so much of the time explains what never happens together. */
#define EXPLAINED 0.3
/* Shorter queueing at any time is the scheduler's. */
#define PREEMPTED_MS 1.0
/* A batch of so many phases is detailed enough. */
#define PHASES_MAX 64
/* It hardly matters when in its batch a phase is that takes less than this part of it ... */
#define PHASE_SHORT 0.005
/* ... moved to the last of its kind, no more than so many phases before. */
#define PHASES_NEAR 4
/* Batches counted at the worker are those that were taken, give or take. */
#define COUNT_OFF 0.05
#define COUNT_OFF_MIN 2

/* ---- places ------------------------------------------------------------------------ */

struct at {
	struct pt_wi_visit v;
	struct pt_wi_piece *p;
};

PT_ORDER(cmp_at, struct at, pt_cmp(x->v.begin, y->v.begin) ?: pt_cmp(x->v.worker, y->v.worker))

static int works_of(const struct pt_wi_look *k, pt_wi_works *out)
{
	size_t i;

	for (i = 0; i < k->t->workers.n; i++)
		pt_each(const struct pt_wi_piece, p, &k->v[i]) {
			struct pt_wi_work *l = out->n ? &out->v[out->n - 1] : NULL;
			struct pt_wi_work x = { p->begin, p->end, (uint32_t)i };

			if (p->what == PT_WI_IDLE)
				continue;
			if (l && l->worker == i && l->end == p->begin)
				l->end = p->end;
			else if (pt_vec_push(out, x))
				return -ENOMEM;
		}
	return 0;
}

/* Of one place. */
static int judge(struct pt_wi_look *k, uint8_t place, const pt_wi_works *works)
{
	struct pt_wi_place *p = &k->o->place[place];
	PT_VEC(struct at) all = { 0 };
	pt_wi_visits v = { 0 };
	size_t i;
	int err = 0;

	for (i = 0; i < k->t->workers.n && !err; i++)
		pt_each_ok(struct pt_wi_piece, q, &k->v[i], err) {
			struct at x = { { q->begin, q->end, (uint32_t)i, 0 }, q };

			if (q->place == place && q->what != PT_WI_LOCKED &&
			    q->what != PT_WI_IDLE)
				err = pt_vec_push(&all, x);
		}
	pt_vec_sort(&all, cmp_at);
	for (i = 0; i < all.n && !err; i++)
		err = pt_vec_push(&v, all.v[i].v);
	err = err ?: pt_wi_judge_place(v.v, v.n, works->v, works->n,
				       p->cause == PT_CAUSE_SLEEP ||
				       place == PT_WI_CORES, &p->v);
	p->ms = 0;
	for (i = 0; i < v.n && !err; i++) {
		all.v[i].p->own = v.v[i].own;
		p->ms += v.v[i].end - v.v[i].begin;
	}
	pt_vec_free(&all);
	pt_vec_free(&v);
	return err ? -ENOMEM : 0;
}

static double waited_ms(const struct pt_wi_look *k, uint8_t lock)
{
	double sum = 0;
	size_t i, j;

	for (i = 0; i < k->t->workers.n; i++)
		for (j = 0; j < k->v[i].n; j++)
			if (k->v[i].v[j].what == PT_WI_LOCKED && k->v[i].v[j].place == lock)
				sum += k->v[i].v[j].end - k->v[i].v[j].begin;
	return sum;
}

/* Threads of one process may hold each other up on the CPU: an interpreter's. */
static bool one_process(const struct pt_wi_look *k)
{
	return k->t->workers.n > 1 && k->t->thread_loader;
}

static int judge_places(struct pt_wi_look *k)
{
	struct pt_wi_job *o = k->o;
	pt_wi_works works = { 0 };
	bool explained = false;
	size_t i;
	int err = works_of(k, &works);

	for (i = 0; i < o->n_places; i++) /* who comes out of a lock one by one is
					   * seldom anywhere together */
		explained |= o->place[i].held_ms >
			     EXPLAINED * (double)(k->an->t1 - k->an->t0) / NS_PER_MS;
	for (i = 0; i < works.n; i++)
		o->work_ms += works.v[i].end - works.v[i].begin;
	for (i = one_process(k) ? PT_WI_CORES : PT_WI_CORES + 1;
	     i < o->n_places && !err; i++) {
		struct pt_wi_place *p = &o->place[i];

		if (p->is_lock) {
			p->ms = waited_ms(k, (uint8_t)i);
			continue;
		}
		if (p->is_giver)
			continue;
		err = judge(k, (uint8_t)i, &works);
		if (p->ms < PLACE_WORTH * o->work_ms ||
		    (p->v.what == PT_WI_UNKNOWN && explained))
			p->v.what = PT_WI_INDEPENDENT;
	}
	pt_vec_free(&works);
	return err ? -ENOMEM : 0;
}

/* ---- batches ------------------------------------------------------------------------ */

static bool same(const struct pt_wi_phase *a, const struct pt_wi_phase *b)
{
	return a->cpu == b->cpu && a->place == b->place && a->lock == b->lock;
}

static int add_phase(struct pt_wi_pool *to, struct pt_wi_item *it,
		     const struct pt_wi_phase *x)
{
	size_t i = to->phases.n;

	it->ms += x->ms;
	if (it->n && (same(&to->phases.v[i - 1], x) || it->n >= PHASES_MAX)) {
		if (it->n >= PHASES_MAX) /* with its like, as far as there is one */
			while (i - 1 > it->first && !same(&to->phases.v[i - 1], x))
				i--;
		to->phases.v[i - 1].ms += x->ms;
		to->phases.v[i - 1].own += x->own;
		return 0;
	}
	it->n++;
	return pt_vec_push(&to->phases, *x) ? -ENOMEM : 0;
}

static int add_piece(const struct pt_wi_job *o, struct pt_wi_pool *to,
		     struct pt_wi_item *it, const struct pt_wi_piece *p, double begin,
		     double end)
{
	double part = end - begin, whole = p->end - p->begin;
	struct pt_wi_phase x = { .place = p->place, .lock = p->lock, .ms = part,
				 .cpu = p->what == PT_WI_CPU,
				 .own = whole > 0 ? p->own * part / whole : 0 };

	if (p->what == PT_WI_IDLE || !(part > 0))
		return 0;
	if (p->what == PT_WI_QUEUE) {
		it->runq += part;
		if (whole > PREEMPTED_MS)
			return 0;
		x.place = PT_WI_NOWHERE;
		it->runq -= part;
		x.own = part;
	}
	if (p->what == PT_WI_LOCKED && o->place[p->place].held_ms > 0)
		return 0; /* comes of who holds it */
	return add_phase(to, it, &x);
}

/* Short phases join their like before them: fewer to run, which take as long in all. */
static void fold_short(struct pt_wi_pool *to, struct pt_wi_item *it)
{
	struct pt_wi_phase *v = to->phases.v + it->first;
	size_t n = 0, i, k;

	for (i = 0; i < it->n; i++) {
		size_t most = v[i].ms < PHASE_SHORT * it->ms ? PHASES_NEAR : 1;

		for (k = 1; k <= most && k <= n && !same(&v[n - k], &v[i]); k++)
			;
		if (k > most || k > n) {
			v[n++] = v[i];
			continue;
		}
		v[n - k].ms += v[i].ms;
		v[n - k].own += v[i].own;
	}
	to->phases.n = it->first + n;
	it->n = n;
}

static int add_item(const struct pt_wi_job *o, struct pt_wi_pool *to,
		    const pt_wi_pieces *v, size_t *at, double begin, double end)
{
	struct pt_wi_item it = { .first = to->phases.n };
	int err = 0;

	while (*at < v->n && v->v[*at].end <= begin)
		++*at;
	while (*at < v->n && v->v[*at].begin < end && !err) {
		const struct pt_wi_piece *p = &v->v[*at];

		err = add_piece(o, to, &it, p, fmax(begin, p->begin),
				fmin(end, p->end));
		if (p->end > end)
			break;
		++*at;
	}
	fold_short(to, &it);
	return err || pt_vec_push(&to->items, it) ? -ENOMEM : 0;
}

/* Between two batches made lies the work on the second. */
static int cut_at_marks(const struct pt_wi_look *k, const pt_times *done,
			const pt_wi_pieces *v, struct pt_wi_pool *to)
{
	size_t i, at = 0;
	int err = 0;

	for (i = 1; i < done->n && !err; i++)
		err = add_item(k->o, to, v, &at, pt_wi_ms_of(k, done->v[i - 1]),
			       pt_wi_ms_of(k, done->v[i]));
	return err;
}

/* How many it made is known, not when: as much work each. */
static int cut_evenly(const struct pt_wi_look *k, const pt_wi_pieces *v, size_t n,
		      struct pt_wi_pool *to)
{
	double all = 0, each, done = 0, begin;
	size_t i, at = 0;
	int err = 0;

	for (i = 0; i < v->n; i++)
		all += v->v[i].what == PT_WI_IDLE ? 0 : v->v[i].end - v->v[i].begin;
	each = all / (double)n;
	begin = v->n ? v->v[0].begin : 0;
	pt_each_ok(const struct pt_wi_piece, p, v, err) {
		double from = p->begin;

		while (p->what != PT_WI_IDLE && done + p->end - from >= each && !err) {
			from += each - done;
			err = add_item(k->o, to, v, &at, begin, from);
			begin = from;
			done = 0;
		}
		done += p->what == PT_WI_IDLE ? 0 : p->end - from;
	}
	return err;
}

static bool as_many(size_t marks, double batches)
{
	return fabs((double)marks - batches) <=
	       fmax(COUNT_OFF_MIN, COUNT_OFF * batches);
}

/* A worker that sends by itself has written so much more since it slept last: each
 * time a batch, where that makes as many as were taken. */
static int marks_by_writes(const struct pt_wi_look *k, const struct pt_worker *w,
			   double each, pt_times *out)
{
	const struct pt_thread *th = w->main;
	double least = k->o->batch_bytes / 2;
	uint64_t last;
	size_t i = pt_iv_after(th, k->an->t0);

	if (!(least > 0) || i >= th->iv.n)
		return 0;
	last = th->iv.v[i].wchar;
	for (i++; i < th->iv.n && th->iv.v[i].begin < k->an->t1; i++) {
		const struct pt_iv *iv = &th->iv.v[i];

		if ((double)(iv->wchar - last) < least)
			continue;
		last = iv->wchar;
		if (pt_vec_push(out, iv->begin))
			return -ENOMEM;
	}
	if (!as_many(out->n, each))
		out->n = 0;
	return 0;
}

static double batches_each(const struct pt_trainer *t)
{
	double sum = 0, workers = 0;
	size_t i;

	for (i = 0; i < t->steps.n; i++)
		sum += t->steps.v[i].batches ? t->steps.v[i].batches : 1;
	for (i = 0; i < t->workers.n; i++)
		workers += pt_makes_batches(t, &t->workers.v[i]);
	return workers > 0 ? sum / workers : 0;
}

static int cut_worker(struct pt_wi_look *k, size_t i, double each, struct pt_wi_pool *to)
{
	const struct pt_worker *w = &k->t->workers.v[i];
	pt_times marks = { 0 };
	int err = 0;

	if (w->feeder == w->main)
		err = marks_by_writes(k, w, each, &marks);
	if (!err && marks.n)
		err = cut_at_marks(k, &marks, &k->v[i], to);
	else if (!err && (k->t->respawned || as_many(w->done.n, each)))
		err = cut_at_marks(k, &w->done, &k->v[i], to);
	else if (!err && each >= PT_WI_MIN_SAMPLES)
		err = cut_evenly(k, &k->v[i], (size_t)(each + 0.5), to);
	pt_vec_free(&marks);
	return err;
}

static int cut_batches(struct pt_wi_look *k)
{
	double n = batches_each(k->t);
	struct pt_wi_job *o = k->o;
	size_t i;
	int err = 0;

	for (i = 0; i < k->t->workers.n && !err; i++) {
		const struct pt_worker *w = &k->t->workers.v[i];
		struct pt_wi_pool empty = { .slow = w->slow };
		struct pt_wi_pool *to;

		if (!pt_makes_batches(k->t, w))
			continue;
		/* those of an earlier epoch and their successors share one */
		if ((!k->t->respawned || !o->pools.n) &&
		    pt_vec_push(&o->pools, empty))
			return -ENOMEM;
		to = &o->pools.v[o->pools.n - 1];
		err = cut_worker(k, i, n, to);
	}
	return err;
}

static int own_items(struct pt_wi_look *k)
{
	const struct pt_trainer *t = k->t;
	struct pt_wi_pool empty = { 0 }, *to;
	pt_wi_pieces v = { 0 };
	size_t i, at = 0;
	int err;

	if (pt_vec_push(&k->o->pools, empty))
		return -ENOMEM;
	to = &k->o->pools.v[0];
	err = pt_wi_take_own(k, &v);
	for (i = 0; i < t->steps.n && !err; i++)
		if (!t->steps.v[i].partial)
			err = add_item(k->o, to, &v, &at,
				       pt_wi_ms_of(k, t->steps.v[i].wait_begin),
				       pt_wi_ms_of(k, t->steps.v[i].wait_end));
	pt_vec_free(&v);
	return err;
}

int pt_wi_observe_workers(const struct pt_an *an, const struct pt_trainer *t,
			  struct pt_wi_job *o)
{
	struct pt_wi_look k = { .an = an, .t = t, .o = o };
	size_t i;
	int err;

	o->n_places = PT_WI_CORES + 1;
	o->place[PT_WI_CORES].cause = PT_CAUSE_CPU;
	if (o->own_loading)
		return own_items(&k);
	k.v = calloc(t->workers.n + 1, sizeof(*k.v));
	if (!k.v)
		return -ENOMEM;
	err = pt_wi_take_pieces(&k);
	err = err ?: judge_places(&k);
	err = err ?: cut_batches(&k);
	for (i = 0; i < t->workers.n; i++)
		pt_vec_free(&k.v[i]);
	free(k.v);
	return err;
}
