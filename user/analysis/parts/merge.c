/* SPDX-License-Identifier: BSD-2-Clause */
/* The trainers of a capture that was looked at in pieces; see piece.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/gpu/passes.h"
#include "analysis/health.h"
#include "analysis/parts/piece.h"

/* A device, or a trainer, while it is put together. */
struct seen {
	uint64_t ns;	   /* of the pieces that it was in */
	uint64_t known_ns; /* ... in which the model had footing */
	uint64_t bytes;	   /* copied, where it is known from what memory */
	double pageable;   /* ... bytes of those */
};

struct merge {
	struct pt_an *an;
	struct pt_trainer *to;
	struct seen self, dev[PT_NODES_MAX];
};

const struct pt_piece_rank *pt_piece_rank_of(const struct pt_piece *p,
					     const struct pt_proc *proc)
{
	size_t i;

	for (i = 0; i < p->n; i++)
		if (p->rank[i].t.proc == proc)
			return &p->rank[i];
	return NULL;
}

/* ---- workers ------------------------------------------------------------------ */

static struct pt_worker *worker_of(struct pt_trainer *t, struct pt_proc *proc,
				   const struct pt_thread *th)
{
	struct pt_worker w = { .proc = proc };
	size_t i;

	for (i = t->workers.n; i-- > 0;)
		if (t->workers.v[i].proc == proc &&
		    (proc != t->proc || t->workers.v[i].main == th))
			return &t->workers.v[i];
	return pt_vec_push(&t->workers, w) ? NULL :
					     &t->workers.v[t->workers.n - 1];
}

/* Each piece has the last batch before it, too. */
static int add_worker(struct pt_worker *to, const struct pt_worker *w)
{
	bool first = !to->main;
	size_t i;
	int err = 0;

	to->main = w->main;
	if (!to->feeder || w->feeder != w->main)
		to->feeder = w->feeder;
	to->role = w->role;
	to->delivered += w->delivered;
	to->charged_ns += w->charged_ns;
	to->making_ns += w->making_ns;
	to->hung = w->hung; /* in the last piece */
	if (first)
		to->earlier = w->earlier;
	for (i = first ? 0 : w->earlier; i < w->done.n && !err; i++)
		err = pt_vec_push(&to->done, w->done.v[i]);
	for (i = 0; i < w->service_ms.n && !err; i++)
		err = pt_vec_push(&to->service_ms, w->service_ms.v[i]);
	for (i = 0; i < w->unsorted_ms.n && !err; i++)
		err = pt_vec_push(&to->unsorted_ms, w->unsorted_ms.v[i]);
	return err;
}

/* Where the piece's workers are among all: `map`. */
static int add_workers(struct pt_trainer *to, const struct pt_trainer *t,
		       int *map)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->workers.n && !err; i++) {
		struct pt_worker *w = worker_of(to, t->workers.v[i].proc,
						t->workers.v[i].main);

		if (!w)
			return -ENOMEM;
		map[i] = (int)(w - to->workers.v);
		err = add_worker(w, &t->workers.v[i]);
	}
	return err;
}

/* ---- steps -------------------------------------------------------------------- */

static int add_steps(struct pt_trainer *to, const struct pt_trainer *t,
		     const struct pt_piece *p, const int *map)
{
	size_t i;

	for (i = 0; i < t->waits.n; i++) {
		struct pt_fetch w = t->waits.v[i];

		if (w.worker >= 0)
			w.worker = map[w.worker];
		if (pt_vec_push(&to->waits, w))
			return -ENOMEM;
	}
	for (i = 0; i < t->steps.n; i++) {
		struct pt_step s = t->steps.v[i];
		struct pt_step *last = to->steps.n ?
			&to->steps.v[to->steps.n - 1] : NULL;

		if (s.worker >= 0)
			s.worker = map[s.worker];
		s.wait0 += to->waits.n - t->waits.n;
		/* a rank out of step with the one that the cut is by */
		if (last && last->end == p->t0 && s.begin >= last->end) {
			last->partial &= !last->clipped;
			last->clipped = false;
			last->end = s.begin;
		}
		if (pt_vec_push(&to->steps, s))
			return -ENOMEM;
	}
	return 0;
}

static int add_place(struct pt_trainer *to, const struct pt_host_place *p)
{
	size_t i, k;

	for (i = 0; i < to->host_places.n; i++) {
		struct pt_host_place *x = &to->host_places.v[i];

		if (x->prev != p->prev || x->next != p->next)
			continue;
		x->n += p->n;
		x->idle_ns += p->idle_ns;
		for (k = 0; k < PT_HOST_NR; k++)
			x->ns[k] += p->ns[k];
		return 0;
	}
	return pt_vec_push(&to->host_places, *p);
}

static int add_lists(struct pt_trainer *to, const struct pt_trainer *t)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->charges.n && !err; i++)
		err = pt_add_charge(&to->charges, &t->charges.v[i]);
	for (i = 0; i < t->writing.n && !err; i++)
		err = pt_vec_push(&to->writing, t->writing.v[i]);
	for (i = 0; i < t->host_places.n && !err; i++)
		err = add_place(to, &t->host_places.v[i]);
	for (i = 0; i < t->quotas.n && !err && !to->quotas.n; i++)
		err = pt_vec_push(&to->quotas, t->quotas.v[i]);
	return err;
}

/* ---- devices ------------------------------------------------------------------ */

static void add_counts(struct pt_dev_counts *to, const struct pt_dev_counts *c)
{
	uint64_t *a = (uint64_t *)to;
	const uint64_t *b = (const uint64_t *)c;
	size_t i;

	_Static_assert(sizeof(*to) % sizeof(*a) == 0, "only counters");
	for (i = 0; i < sizeof(*to) / sizeof(*a); i++)
		a[i] += b[i];
}

static void add_split(uint64_t *to, uint64_t ns)
{
	*to = *to == UINT64_MAX || ns == UINT64_MAX ? UINT64_MAX : *to + ns;
}

static struct pt_dev *dev_of(struct merge *k, const struct pt_dev *d)
{
	struct pt_dev x = { .ordinal = d->ordinal, .node = d->node,
			    .measured = true, .pageable_share = NAN };
	struct pt_trainer *t = k->to;
	size_t i;

	for (i = 0; i < t->devs.n; i++)
		if (t->devs.v[i].ordinal == d->ordinal)
			return &t->devs.v[i];
	if (t->devs.n == PT_NODES_MAX || pt_vec_push(&t->devs, x))
		return NULL;
	return &t->devs.v[t->devs.n - 1];
}

static int add_dev(struct merge *k, const struct pt_dev *d, uint64_t ns)
{
	struct pt_dev *to = dev_of(k, d);
	struct seen *s;

	if (!to)
		return -ENOMEM;
	s = &k->dev[to - k->to->devs.v];
	s->ns += ns;
	s->known_ns += d->known ? ns : 0;
	if (isfinite(d->pageable_share)) {
		s->bytes += d->counts.copy_bytes;
		s->pageable += d->pageable_share * (double)d->counts.copy_bytes;
	}
	to->node = d->node;
	to->has_node |= d->has_node;
	add_counts(&to->counts, &d->counts);
	to->idle_hard_ns += d->idle_hard_ns;
	to->busy_hard_ns += d->busy_hard_ns;
	to->idle_likely_ns += d->idle_likely_ns;
	to->busy_lo_ns += d->busy_lo_ns;
	to->busy_hi_ns += d->busy_hi_ns;
	to->starved_lo_ns += d->starved_lo_ns;
	to->starved_likely_ns += d->starved_likely_ns;
	to->measured &= d->measured;
	to->shared |= d->shared;
	add_split(&to->compute_ns, d->compute_ns);
	add_split(&to->copy_ns, d->copy_ns);
	add_split(&to->collective_ns, d->collective_ns);
	to->covered_ns += d->covered_ns;
	to->act_lost = pt_max64(to->act_lost, d->act_lost);
	return 0;
}

/* In pieces without it, it had nothing new to do: likely it was idle. */
static void finish_devs(struct merge *k, uint64_t wall)
{
	size_t i;

	for (i = 0; i < k->to->devs.n; i++) {
		struct pt_dev *d = &k->to->devs.v[i];
		const struct seen *s = &k->dev[i];
		uint64_t away = wall - pt_min64(wall, s->ns);

		d->idle_likely_ns += away;
		d->busy_hi_ns += away;
		d->known = s->known_ns * 2 > s->ns;
		if (away)
			d->measured = false;
		if (s->bytes)
			d->pageable_share = s->pageable / (double)s->bytes;
	}
}

/* ---- trainers ------------------------------------------------------------------ */

static void add_sums(struct pt_trainer *to, const struct pt_trainer *t)
{
	static const size_t sums[] = {
#define S(f) offsetof(struct pt_trainer, f)
		S(busy_hard_ns), S(starved_lo_ns), S(starved_likely_ns),
		S(starved_hi_ns), S(idle_hard_ns), S(idle_likely_ns),
		S(collective_ns), S(data_wait_ns), S(blocked_ns),
		S(own_read_ns), S(own_cpu_ns), S(handover_ns), S(handover_queue_ns), S(unadopted_ns), S(lock_asked_ns), S(lead_ns),
		S(gpu_wait_ns), S(transfer_ns), S(sync_ns), S(checkpoint_ns),
		S(checkpoint_wait_ns), S(checkpoint_idle_ns), S(launch_ns),
		S(lack_ns), S(host_bound_ns), S(host_bound_launches),
		S(host_idle_ns), S(host_hidden_ns),
#undef S
	};
	size_t i;

	for (i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
		*(uint64_t *)((char *)to + sums[i]) +=
			*(const uint64_t *)((const char *)t + sums[i]);
	for (i = 0; i < PT_CAUSE_NR; i++)
		to->cause_ns[i] += t->cause_ns[i];
	for (i = 0; i < PT_HOST_NR; i++)
		to->host_ns[i] += t->host_ns[i];
	add_counts(&to->counts, &t->counts);
}

static void add_facts(struct pt_trainer *to, const struct pt_trainer *t)
{
	/* who calls most, and what a step looks like, by the latest steps */
	if (t->steps.n || !to->main) {
		to->main = t->main;
		to->micro_shape = t->micro_shape;
		to->update_shape = t->update_shape;
	}
	if (t->optimizer_steps == PT_NULL && t->steps.n)
		to->optimizer_steps = PT_NULL;
	else if (to->optimizer_steps != PT_NULL && t->steps.n)
		to->optimizer_steps += t->optimizer_steps;
	to->handoffs |= t->handoffs;
	to->thread_loader |= t->thread_loader;
	to->fd_sharing |= t->fd_sharing;
	to->evident |= t->evident;
	to->respawned |= t->respawned;
	if (t->concurrent > to->concurrent)
		to->concurrent = t->concurrent;
}

static int add_piece(struct merge *k, const struct pt_piece *p)
{
	const struct pt_piece_rank *r = pt_piece_rank_of(p, k->to->proc);
	uint64_t ns = pt_piece_ns(p);
	size_t i;
	int err, *map;

	if (!r)
		return 0;
	map = calloc(r->t.workers.n + 1, sizeof(*map));
	if (!map)
		return -ENOMEM;
	add_facts(k->to, &r->t);
	add_sums(k->to, &r->t);
	k->self.ns += ns;
	k->self.known_ns += r->t.gpu_known ? ns : 0;
	err = add_workers(k->to, &r->t, map);
	if (!err)
		err = add_steps(k->to, &r->t, p, map);
	if (!err)
		err = add_lists(k->to, &r->t);
	for (i = 0; i < r->t.devs.n && !err; i++)
		err = add_dev(k, &r->t.devs.v[i], ns);
	free(map);
	return err;
}

static int finish(struct merge *k)
{
	struct pt_trainer *t = k->to;
	uint64_t most = 0;
	size_t i;
	int err = pt_index_workers(t);

	finish_devs(k, k->an->t1 - k->an->t0);
	t->gpu_known = k->self.known_ns * 2 > k->self.ns;
	t->never_drained = !t->gpu_known;
	for (i = 0; i < PT_CAUSE_NR; i++) {
		if (t->cause_ns[i] <= most)
			continue;
		most = t->cause_ns[i];
		t->top_cause = (uint8_t)i;
	}
	if (t->steps.n && t->steps.v[t->steps.n - 1].end < k->an->t1)
		t->steps.v[t->steps.n - 1].end = k->an->t1;
	for (i = 0; i < t->workers.n; i++) {
		struct pt_worker *w = &t->workers.v[i];

		w->median_ms = pt_median(w->service_ms.v, w->service_ms.n);
	}
	if (!err)
		err = pt_compare_workers(k->an, t);
	if (!err)
		pt_find_epochs(k->an, t);
	return err;
}

static int merge_one(struct pt_an *an, struct pt_proc *proc)
{
	struct merge *k = calloc(1, sizeof(*k));
	struct pt_trainer t = { .proc = proc };
	size_t i;
	int err = k ? 0 : -ENOMEM;

	if (err)
		return err;
	k->an = an;
	k->to = &t;
	for (i = 0; i < an->merge->n && !err; i++)
		err = add_piece(k, an->merge->v[i]);
	if (!err)
		err = finish(k);
	free(k);
	if (!err && pt_vec_push(&an->trainers, t))
		err = -ENOMEM;
	if (err)
		pt_trainer_free(&t);
	return err;
}

static bool has(const struct pt_an *an, const struct pt_proc *proc)
{
	size_t i;

	for (i = 0; i < an->trainers.n; i++)
		if (an->trainers.v[i].proc == proc)
			return true;
	return false;
}

int pt_merge_trainers(struct pt_an *an)
{
	const struct pt_pieces *all = an->merge;
	size_t i, k;
	int err = 0;

	for (i = 0; i < all->n; i++)
		for (k = 0; k < all->v[i]->n && !err; k++)
			if (!has(an, all->v[i]->rank[k].t.proc))
				err = merge_one(an, all->v[i]->rank[k].t.proc);
	if (!err)
		err = pt_merge_meets(an);
	if (!err)
		pt_choose_top(an);
	return err;
}

/* ---- meetings ------------------------------------------------------------------- */

static void add_meets(struct pt_meet_rank *to, const struct pt_meet_rank *r)
{
	size_t i;

	to->last += r->last;
	to->held_ns += r->held_ns;
	to->cost_ns += r->cost_ns;
	to->waits_ns += r->waits_ns;
	for (i = 0; i < PT_LATE_NR; i++)
		to->part_ns[i] += r->part_ns[i];
	pt_dist_join(&to->late_ms, &r->late_ms);
}

int pt_merge_meets(struct pt_an *an)
{
	struct pt_meets *to = an->meets;
	size_t i, k, j;

	to->measured = to->sure = true;
	to->rank = calloc(an->trainers.n + 1, sizeof(*to->rank));
	if (!to->rank)
		return -ENOMEM;
	for (i = 0; i < an->merge->n; i++) {
		const struct pt_piece *p = an->merge->v[i];

		if (!p->meets.known) {
			to->why = p->meets.why ? p->meets.why : to->why;
			continue;
		}
		to->known = true;
		to->measured &= p->meets.measured;
		to->sure &= p->meets.sure;
		to->several |= p->meets.several;
		to->n += p->meets.n;
		to->clear += p->meets.clear;
		for (k = 0; k < p->n; k++)
			for (j = 0; j < an->trainers.n; j++)
				if (an->trainers.v[j].proc == p->rank[k].t.proc)
					add_meets(&to->rank[j],
						  &p->meets.rank[k]);
	}
	if (to->known)
		to->why = NULL;
	return 0;
}

void pt_merge_collectives(const struct pt_an *an, const struct pt_trainer *t,
			  struct pt_dist *out)
{
	size_t i;

	for (i = 0; i < an->merge->n; i++) {
		const struct pt_piece_rank *k = pt_piece_rank_of(
			an->merge->v[i], t->proc);

		if (k)
			pt_dist_join(out, &k->r->steps.parts.collective_gpu);
	}
}
