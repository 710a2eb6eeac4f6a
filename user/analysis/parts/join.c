/* SPDX-License-Identifier: BSD-2-Clause */
/* The trainers of several parts, as those of one; see part.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/gpu/passes.h"
#include "analysis/health.h"
#include "analysis/parts/part.h"

/* A device, or a trainer, while it is put together. */
struct seen {
	uint64_t ns;	   /* of the parts that it was in */
	uint64_t known_ns; /* ... in which the model had footing */
	uint64_t bytes;	   /* copied, where it is known from what memory */
	double pageable;   /* ... bytes of those */
};

struct merge {
	struct pt_an *an;
	struct pt_trainer *to;
	struct seen self, dev[PT_NODES_MAX];
};

const struct pt_measured *pt_part_got(const struct pt_an *an,
				      const struct pt_parts_of *all, size_t i)
{
	size_t k;

	return pt_part_trainer(all->v[i], an->top->proc, &k) ? &all->v[i]->got[k] :
							       NULL;
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

#define WORKER(X, T)                                                           \
	X(T, FIRST, proc) X(T, OWN, main) X(T, OWN, feeder) X(T, LAST, role)    \
	X(T, OWN, done) X(T, OWN, earlier) X(T, OWN, rests)                     \
	X(T, SUM, delivered) X(T, SUM, charged_ns) X(T, SUM, making_ns)         \
	X(T, OWN, service_ms) X(T, OWN, unsorted_ms)                            \
	X(T, OWN, median_ms) X(T, OWN, slowdown) X(T, OWN, slow_chance)         \
	X(T, OWN, slot) X(T, OWN, respawn) X(T, OWN, slow) X(T, LAST, hung)
PT_JOIN_LIST(worker, struct pt_worker, WORKER, 7 + 6);

/* Each part has the last batch before it, too. */
static int add_worker(struct pt_worker *to, const struct pt_worker *w)
{
	bool first = !to->main;
	size_t i;
	int err = 0;

	to->main = w->main;
	if (!to->feeder || w->feeder != w->main)
		to->feeder = w->feeder;
	PT_JOIN(worker, to, w, NULL);
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
		     const struct pt_part *p, const int *map)
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

#define HOST_PLACE(X, T)                                                       \
	X(T, FIRST, prev) X(T, FIRST, next) X(T, SUM, n) X(T, SUM, ns)          \
	X(T, SUM, idle_ns)
PT_JOIN_LIST(host_place, struct pt_host_place, HOST_PLACE, 0);

static int add_place(struct pt_trainer *to, const struct pt_host_place *p)
{
	pt_each(struct pt_host_place, x, &to->host_places) {
		if (x->prev != p->prev || x->next != p->next)
			continue;
		PT_JOIN(host_place, x, p, NULL);
		return 0;
	}
	return pt_vec_push(&to->host_places, *p);
}

static bool has_relay(const struct pt_trainer *t, const struct pt_thread *th)
{
	size_t i;

	for (i = 0; i < t->relays.n; i++)
		if (t->relays.v[i] == th)
			return true;
	return false;
}

static int add_lists(struct pt_trainer *to, const struct pt_trainer *t)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->relays.n && !err; i++)
		if (!has_relay(to, t->relays.v[i]))
			err = pt_vec_push(&to->relays, t->relays.v[i]);
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

#define DEV(X, T)                                                              \
	X(T, FIRST, ordinal) X(T, LAST, node) X(T, ANY, has_node)               \
	X(T, OWN, known) X(T, OWN, by_driver) X(T, ALL, measured)               \
	X(T, ANY, shared) X(T, SUM, counts) X(T, OWN, idle_hard)                \
	X(T, OWN, busy_hard) X(T, OWN, idle_likely) X(T, SUM, idle_hard_ns)     \
	X(T, SUM, busy_hard_ns) X(T, SUM, idle_likely_ns) X(T, SUM, busy_lo_ns) \
	X(T, SUM, busy_hi_ns) X(T, SUM, starved_lo_ns)                          \
	X(T, SUM, starved_likely_ns) X(T, SPLIT, compute_ns)                    \
	X(T, SPLIT, copy_ns) X(T, SPLIT, collective_ns) X(T, SUM, covered_ns)   \
	X(T, MAX, act_lost) X(T, OWN, pageable_share)
PT_JOIN_LIST(dev, struct pt_dev, DEV, 5);

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

static int add_dev(struct merge *k, struct pt_dev *d, uint64_t ns)
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
	/* only the last part has any */
	to->idle_hard = d->idle_hard;
	to->idle_likely = d->idle_likely;
	memset(&d->idle_hard, 0, sizeof(d->idle_hard));
	memset(&d->idle_likely, 0, sizeof(d->idle_likely));
	PT_JOIN(dev, to, d, NULL);
	return 0;
}

/* In parts without it, it had nothing new to do: likely it was idle. */
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

#define TRAINER(X, T)                                                          \
	X(T, FIRST, proc) X(T, OWN, main) X(T, OWN, relays) X(T, OWN, workers)  \
	X(T, OWN, index) X(T, OWN, steps) X(T, OWN, waits) X(T, OWN, charges)   \
	X(T, OWN, quotas) X(T, OWN, optimizer_steps) X(T, OWN, micro_shape)     \
	X(T, OWN, update_shape) X(T, MAX, concurrent) X(T, ANY, handoffs)       \
	X(T, ANY, thread_loader) X(T, ANY, respawned) X(T, ANY, fd_sharing)     \
	X(T, ANY, evident) X(T, OWN, gpu_known)                                 \
	X(T, OWN, top_cause) X(T, OWN, look) X(T, OWN, devs)                    \
	X(T, SUM, busy_hard_ns) X(T, SUM, cause_ns) X(T, SUM, lock_asked_ns)    \
	X(T, SUM, handover_queue_ns) X(T, SUM, unadopted_ns)                    \
	X(T, SUM, starved_lo_ns) X(T, SUM, starved_likely_ns)                   \
	X(T, SUM, starved_hi_ns) X(T, SUM, idle_hard_ns)                        \
	X(T, SUM, idle_likely_ns) X(T, SUM, counts) X(T, SUM, collective_ns)    \
	X(T, SUM, host_ns) X(T, SUM, host_idle_ns) X(T, SUM, host_hidden_ns)    \
	X(T, OWN, host_places) X(T, SUM, data_wait_ns) X(T, SUM, blocked_ns)    \
	X(T, SUM, own_read_ns) X(T, SUM, own_cpu_ns) X(T, SUM, handover_ns)     \
	X(T, SUM, gpu_wait_ns) X(T, SUM, transfer_ns)                           \
	X(T, SUM, sync_ns) X(T, OWN, writing) X(T, SUM, checkpoint_ns)          \
	X(T, SUM, checkpoint_wait_ns) X(T, SUM, checkpoint_idle_ns)             \
	X(T, SUM, launch_ns) X(T, SUM, lack_ns) X(T, SUM, host_bound_ns)        \
	X(T, SUM, host_bound_launches)
PT_JOIN_LIST(trainer, struct pt_trainer, TRAINER, 1);

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
	PT_JOIN(trainer, to, t, NULL);
}

static int add_part(struct merge *k, const struct pt_part *p)
{
	uint64_t ns = pt_part_ns(p);
	const struct pt_trainer *t;
	size_t i, at;
	int err, *map;

	t = pt_part_trainer(p, k->to->proc, &at);
	if (!t)
		return 0;
	map = calloc(t->workers.n + 1, sizeof(*map));
	if (!map)
		return -ENOMEM;
	add_facts(k->to, t);
	k->self.ns += ns;
	k->self.known_ns += t->gpu_known ? ns : 0;
	err = add_workers(k->to, t, map);
	err = err ?: add_steps(k->to, t, p, map);
	err = err ?: add_lists(k->to, t);
	for (i = 0; i < t->devs.n && !err; i++)
		err = add_dev(k, &t->devs.v[i], ns);
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
	for (i = 0; i < PT_CAUSE_NR; i++) {
		if (t->cause_ns[i] <= most)
			continue;
		most = t->cause_ns[i];
		t->top_cause = (uint8_t)i;
	}
	if (t->steps.n && t->steps.v[t->steps.n - 1].end < k->an->t1)
		t->steps.v[t->steps.n - 1].end = k->an->t1;
	pt_each(struct pt_worker, w, &t->workers) {
		w->median_ms = pt_median(w->service_ms.v, w->service_ms.n);
	}
	err = err ?: pt_compare_workers(k->an, t);
	if (!err)
		pt_find_epochs(k->an, t);
	return err;
}

static int join_one(struct pt_an *an, const struct pt_parts_of *all,
		    struct pt_proc *proc)
{
	struct merge *k = calloc(1, sizeof(*k));
	struct pt_trainer t = { .proc = proc };
	size_t i;
	int err = k ? 0 : -ENOMEM;

	if (err)
		return err;
	k->an = an;
	k->to = &t;
	for (i = 0; i < all->n && !err; i++)
		err = add_part(k, all->v[i]);
	err = err ?: finish(k);
	free(k);
	if (!err && pt_vec_push(&an->trainers, t))
		err = -ENOMEM;
	if (err)
		pt_trainer_free(&t);
	return err;
}

/* Where it is in an->trainers; n: it is not. */
static size_t place_of(const struct pt_an *an, const struct pt_proc *proc)
{
	size_t i;

	for (i = 0; i < an->trainers.n; i++)
		if (an->trainers.v[i].proc == proc)
			break;
	return i;
}

static int join_trainers(struct pt_an *an, const struct pt_parts_of *all)
{
	size_t i, k;
	int err = 0;

	for (i = 0; i < all->n; i++)
		for (k = 0; k < all->v[i]->n && !err; k++)
			if (place_of(an, all->v[i]->t[k].proc) == an->trainers.n)
				err = join_one(an, all, all->v[i]->t[k].proc);
	return err;
}

/* ---- meetings ------------------------------------------------------------------- */

#define MEET_RANK(X, T)                                                        \
	X(T, SUM, last) X(T, SUM, held_ns) X(T, SUM, cost_ns) X(T, SUM, waits_ns) \
	X(T, SUM, part_ns) X(T, DIST, late_ms)
PT_JOIN_LIST(meet_rank, struct pt_meet_rank, MEET_RANK, 0);

#define MEETS(X, T)                                                            \
	X(T, ANY, known) X(T, OWN, why) X(T, ALL, measured) X(T, ALL, sure)     \
	X(T, ANY, several) X(T, SUM, n) X(T, SUM, clear) X(T, OWN, rank)
PT_JOIN_LIST(meets, struct pt_meets, MEETS, 7 + 5);

static int join_meets(const struct pt_an *an, const struct pt_parts_of *all,
		      struct pt_meets *to)
{
	size_t i, k;

	to->measured = to->sure = true;
	to->rank = calloc(an->trainers.n + 1, sizeof(*to->rank));
	if (!to->rank)
		return -ENOMEM;
	for (i = 0; i < all->n; i++) {
		const struct pt_part *p = all->v[i];

		if (!p->meets.known) {
			to->why = p->meets.why ? p->meets.why : to->why;
			continue;
		}
		PT_JOIN(meets, to, &p->meets, NULL);
		for (k = 0; k < p->n; k++)
			PT_JOIN(meet_rank, &to->rank[place_of(an, p->t[k].proc)],
				&p->meets.rank[k], NULL);
	}
	if (to->known)
		to->why = NULL;
	return 0;
}

/* ---- all of it ------------------------------------------------------------------- */

static int join_all(struct pt_an *an, const struct pt_parts_of *all,
		    struct pt_part *to)
{
	struct pt_report *shown = an->r;
	size_t i, top;
	int err;

	to->t0 = an->t0 = all->v[0]->t0;
	to->t1 = an->t1 = all->v[all->n - 1]->t1;
	to->hung = all->v[all->n - 1]->hung;
	for (i = 0; i < all->n; i++) {
		to->reads.bound += all->v[i]->reads.bound;
		to->reads.all += all->v[i]->reads.all;
	}
	err = join_trainers(an, all);
	to->t = an->trainers.v;
	to->n = an->trainers.n;
	err = err ?: join_meets(an, all, &to->meets);
	to->got = pt_arena_calloc(an->a, to->n + 1, sizeof(*to->got));
	to->r = pt_report_new_in(an->a);
	if (!to->got || !to->r)
		return -ENOMEM;
	an->top = pt_top_of(to->t, to->n);
	if (!err && an->top) {
		top = (size_t)(an->top - to->t);
		err = pt_join_rank(an, all, &to->got[top]);
		pt_join_facts(an, all, &to->got[top]);
	}
	an->r = to->r;
	err = err ?: pt_join_host(an, all);
	an->r = shown;
	return err;
}

int pt_join_parts(struct pt_an *an, const struct pt_parts_of *all,
		  struct pt_part *to)
{
	int err = 0;

	if (all->n == 1)
		*to = *all->v[0];
	else
		err = join_all(an, all, to);
	an->t0 = to->t0;
	an->t1 = to->t1;
	an->step0 = to->step0;
	an->part = to->window;
	an->asked = to->asked;
	an->trainers.v = to->t;
	an->trainers.n = to->n;
	an->meets = &to->meets;
	an->top = pt_top_of(to->t, to->n);
	return err;
}

void pt_join_free(const struct pt_parts_of *all, struct pt_part *joined)
{
	if (all->n > 1)
		pt_part_drop(joined);
}
