/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/look.h"

#include <errno.h>
#include <stdlib.h>

void pt_look_free(struct pt_look *l)
{
	if (!l)
		return;
	pt_vec_free(&l->asks);
	pt_period_free(&l->period);
	pt_host_free(&l->host);
	pt_givers_free(&l->givers);
	pt_loop_free(&l->loop);
	pt_actor_free(&l->actor);
	pt_paths_free(l->paths);
	free(l);
}

/* In one kind of gap a worker is asked nearly always, and so often at least. */
#define ASKED_MIN 8
#define ASKED_SHARE 0.9

/* Where in its loop the consumer asks each worker: those that it asks elsewhere make something
 * else. A majority vote, which is counted then. 0 or -ENOMEM. */
static int find_where_asked(struct pt_trainer *t, struct pt_look *l)
{
	struct asked {
		size_t all, votes, n;
	} *v = calloc(t->workers.n + 1, sizeof(*v));
	size_t i;
	int pass;

	if (!v)
		return -ENOMEM;
	for (pass = 0; pass < 2; pass++)
		pt_each(const struct pt_ask, x, &l->asks) {
			uint64_t kind = x->worker >= 0 ? pt_gap_kind_at(&l->host, x->ts) : 0;
			struct pt_worker *w;

			if (!kind)
				continue;
			w = &t->workers.v[x->worker];
			if (pass) {
				v[x->worker].all++;
				v[x->worker].n += kind == w->asked_at;
			} else if (!v[x->worker].votes) {
				w->asked_at = kind;
				v[x->worker].votes = 1;
			} else {
				v[x->worker].votes += kind == w->asked_at ? 1 : -1;
			}
		}
	for (i = 0; i < t->workers.n; i++)
		if (v[i].n < ASKED_MIN || (double)v[i].n < ASKED_SHARE * (double)v[i].all)
			t->workers.v[i].asked_at = 0;
	free(v);
	return 0;
}

static int find_asks(struct pt_an *an, struct pt_trainer *t, struct pt_look *l)
{
	size_t i, handed = 0;
	int err = pt_find_asks(an, t, &l->actor, l->paths, &l->asks);

	for (i = 0; i < l->asks.n; i++)
		handed += !l->asks.v[i].item && !l->asks.v[i].room;
	t->fd_sharing = t->handoffs && handed >= 3;
	if (err)
		return err;
	pt_host_take_asks(&l->host, t, &l->asks);
	return find_where_asked(t, l);
}

/* A worker of the loader supplies, though it may have ended one sleep only: in a loop
 * that hardly ever waits that one is what counts. */
static void adopt_givers(const struct pt_trainer *t, struct pt_givers *g)
{
	struct pt_giver *x;
	int w;

	for (x = g->all; x; x = x->hh.next)
		if (x->role == PT_GIVER_UNKNOWN && x->th &&
		    x->tgid != t->proc->tgid &&
		    pt_worker_index(t, x->th, &w) &&
		    t->workers.v[w].role != PT_ROLE_HELPER)
			x->role = PT_GIVER_SUPPLIER;
}

/* Of the gaps behind this call nearly all are where batches come from others. */
#define ALWAYS 0.8

static bool waits_behind(const struct pt_period *p, uint64_t prev)
{
	const struct pt_place_at *best = p->best, *x;
	uint64_t n = 0;

	if (!best || !best->data || best->prev != prev || 2 * best->reads > best->evident)
		return false;
	for (x = p->places; x; x = x->hh.next)
		n += x->prev == prev ? x->n : 0;
	return (double)best->evident >= ALWAYS * (double)n;
}

/* A look in the sleep `x` found the thread in that line of its loop in which, of all looks at
 * sleeps there, most were at one until somebody supplied. */
static bool is_where_supplied(const struct pt_host *h, const struct pt_host_piece *x)
{
	const struct pt_host_look *last = h->looks.n ? &h->looks.v[h->looks.n - 1] : NULL;
	size_t n = 0, all = 0;

	if (!last || last->begin < x->begin || !last->at.line)
		return false;
	pt_each(const struct pt_host_look, l, &h->looks) {
		if (l->begin >= x->begin || l->running || !pt_same_loop_place(&l->at, &last->at))
			continue;
		all++;
		n += l->supplied;
	}
	return pt_looks_tell(n, all);
}

/* The capture ends while the consumer sleeps where it waits for a batch each time: nobody is
 * seen to end that sleep, but it is for the same. */
static void take_last_sleep(struct pt_host *h, const struct pt_period *p)
{
	struct pt_host_gap *g = h->gaps.n ? &h->gaps.v[h->gaps.n - 1] : NULL;
	struct pt_host_piece *x = g && g->n ? &h->pieces.v[g->first + g->n - 1] : NULL;

	if (!x || g->g.next || g->g.th->exited ||
	    (x->what != PT_HOST_LOCK && x->what != PT_HOST_OTHER) ||
	    !(waits_behind(p, g->g.prev) || is_where_supplied(h, x)))
		return;
	x->what = PT_HOST_SUPPLIED;
	g->supplied_ns += x->end - x->begin;
	g->begins = g->begins ? g->begins : x->begin;
	g->ends = x->end;
}

int pt_look_at(struct pt_an *an, struct pt_trainer *t)
{
	struct pt_look *l = calloc(1, sizeof(*l));
	int err;

	t->look = l;
	if (!l)
		return -ENOMEM;
	l->paths = pt_paths_new(an->m, t->proc);
	if (!l->paths)
		return -ENOMEM;
	err = pt_find_actor(an->m, t->proc, an->t0, an->t1, &l->actor);
	if (err || !l->actor.lead)
		return err;
	t->main = (struct pt_thread *)l->actor.lead;
	err = pt_find_writing(an, t, &l->actor, l->paths);
	err = err ?: pt_loop_learn(an, l->actor.lead, &l->loop);
	err = err ?: pt_find_givers(an, l->paths, &l->actor, &l->loop, &l->givers);
	err = err ?: pt_find_loader(an, t, &l->givers);
	if (!err) {
		adopt_givers(t, &l->givers);
		pt_count_taken(an, t, &l->actor, l->paths);
	}
	err = err ?: pt_find_host(an, &l->actor, &l->givers, &t->writing, &l->host);
	err = err ?: find_asks(an, t, l);
	err = err ?: pt_find_named(an, &l->loop, &l->host);
	t->may_spin = !err && pt_may_spin(an, &l->host);
	t->asks_above = pt_looks_tell(l->host.others_above, l->host.others);
	err = err ?: pt_find_period(&l->host, &l->period);
	if (!err)
		take_last_sleep(&l->host, &l->period);
	err = err ?: pt_find_made(an, t);
	err = err ?: pt_find_obtaining(an, t, &l->host, &l->period);
	if (!err) {
		pt_find_computing(an, t);
		pt_find_receiving(an, t);
	}
	return err;
}

/* ---- trainers ------------------------------------------------------------------ */

enum { LAUNCHES, UPLOADS, RESULTS, OTHERS, KINDS };
struct caller {
	size_t calls; /* that make steps */
	size_t kind[KINDS]; /* of these */
	bool meets;   /* other ranks, by collectives */
};
/* Ranks make the same calls: but for those of a turn at each end. */
#define ALIKE_PART 0.1
#define ALIKE_MIN 50

static struct caller caller_of(const struct pt_an *an, const struct pt_proc *p)
{
	struct caller k = { 0 };

	pt_each_call(c, p, an->t0, an->t1) {
		k.meets |= c->cls == PT_API_COLLECTIVE;
		if (!pt_call_is_step(c))
			continue;
		k.calls++;
		k.kind[pt_call_is_launch(c) ? LAUNCHES :
		       pt_brings_results(c) ? RESULTS :
		       pt_call_is_copy(c) && c->v[2] == PT_COPY_H2D ? UPLOADS : OTHERS]++;
	}
	return k;
}

/* A loader that uses a device does something else there than who trains. */
static bool are_alike(const struct caller *x, const struct caller *y)
{
	double most = (double)(x->calls > y->calls ? x->calls : y->calls), apart = 0;
	int i;

	for (i = 0; i < KINDS; i++) {
		double d = (double)x->kind[i] - (double)y->kind[i];

		if (!x->kind[i] != !y->kind[i])
			return false;
		apart += d < 0 ? -d : d;
	}
	return most >= ALIKE_MIN && apart <= ALIKE_PART * most;
}

/* A loader, or an actor that plays, may use a device for its work: no rank, and started by one
 * that calls it as often. */
static bool works_for_another(const struct pt_an *an, const struct caller *v, size_t i)
{
	const struct pt_proc *p = an->trainers.v[i].proc;
	size_t j;

	if (v[i].meets || p->facts.rank != PT_PROC_UNKNOWN)
		return false;
	for (j = 0; j < an->trainers.n; j++)
		if (j != i && v[j].calls >= v[i].calls && !are_alike(&v[i], &v[j]) &&
		    pt_descends_from(an->m, p, an->trainers.v[j].proc->tgid))
			return true;
	return false;
}

/* Which processes train: those that feed a device, but for what uses one for another of
 * them. */
int pt_find_trainers(struct pt_an *an)
{
	PT_VEC(struct caller) callers = { 0 };
	bool *drop;
	size_t i, n = 0;
	int err = 0;

	for (i = 0; i < an->m->all_procs.n && !err; i++) {
		struct pt_trainer t = { .proc = an->m->all_procs.v[i] };
		struct caller k = caller_of(an, t.proc);

		if (k.calls)
			err = pt_vec_push(&callers, k) ?: pt_vec_push(&an->trainers, t);
	}
	drop = err ? NULL : calloc(an->trainers.n + 1, sizeof(*drop));
	for (i = 0; drop && i < an->trainers.n; i++)
		drop[i] = works_for_another(an, callers.v, i);
	for (i = 0; drop && i < callers.n; i++)
		if (!drop[i])
			an->trainers.v[n++] = an->trainers.v[i];
	if (drop)
		an->trainers.n = n;
	err = drop ? err : -ENOMEM;
	free(drop);
	pt_vec_free(&callers);
	return err;
}

void pt_trainer_free(struct pt_trainer *t)
{
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		pt_vec_free(&t->workers.v[i].done);
		pt_vec_free(&t->workers.v[i].rests);
		pt_vec_free(&t->workers.v[i].service_ms);
		pt_vec_free(&t->workers.v[i].unsorted_ms);
	}
	pt_vec_free(&t->workers);
	pt_vec_free(&t->index);
	pt_vec_free(&t->relays);
	pt_vec_free(&t->steps);
	pt_vec_free(&t->waits);
	pt_vec_free(&t->host_places);
	pt_vec_free(&t->charges);
	pt_vec_free(&t->quotas);
	for (i = 0; i < t->devs.n; i++)
		pt_dev_free(&t->devs.v[i]);
	pt_vec_free(&t->devs);
	pt_vec_free(&t->writing);
	pt_look_free(t->look);
	t->look = NULL;
}
