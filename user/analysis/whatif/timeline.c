/* SPDX-License-Identifier: BSD-2-Clause */
/* What-if: what each worker did, where, and what it held meanwhile. */
#include <errno.h>
#include <math.h>

#include "analysis/waits/fed.h"
#include "analysis/whatif/timeline.h"

/* Shorter queueing behind a sleep is the wake-up's own, or of those that are woken
 * together. */
#define WAKE_UP_MS 3.0

/* ---- pieces ----------------------------------------------------------------------- */

static uint8_t place_of(struct pt_wi_job *o, uint8_t cause, uint64_t object,
			bool is_lock)
{
	size_t i;

	for (i = PT_WI_CORES + 1; i < o->n_places; i++)
		if (o->place[i].cause == cause && o->place[i].object == object &&
		    o->place[i].is_lock == is_lock)
			return (uint8_t)i;
	if (o->n_places == PT_WI_PLACES)
		return PT_WI_NOWHERE;
	o->place[i] = (struct pt_wi_place){ .cause = cause, .object = object,
					    .is_lock = is_lock };
	return (uint8_t)o->n_places++;
}

static uint64_t lock_object(const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_FUTEX ? iv->arg0 >> 3 :
					   iv->object ^ (uint64_t)iv->dev << 40;
}

/* A lock that workers share, or one of the kernel's; *by: who had it. */
static bool is_shared(const struct pt_wi_look *k, const struct pt_iv *iv, int16_t *by)
{
	const struct pt_thread *who;
	int i;

	*by = -1;
	who = iv->valid_wake ? pt_model_thread(k->an->m, iv->waker_tid) : NULL;
	if (who && pt_worker_index(k->t, who, &i) && i != k->index &&
	    k->t->workers.v[i].main == who)
		*by = (int16_t)i;
	return *by >= 0 || iv->wait == PT_WAIT_FLOCK;
}

static void set_place(const struct pt_wi_look *k, const struct pt_iv *iv,
		      struct pt_wi_piece *p)
{
	enum pt_cause c = pt_piece_cause(k->an, k->t, k->w, iv);
	const struct pt_sock *s;

	if (k->w && pt_is_for_room(iv)) { /* comes of the trainer's pace */
		k->o->full_ms += p->end - p->begin;
		p->what = PT_WI_IDLE;
		return;
	}
	switch (c) {
	case PT_CAUSE_WORKER_IDLE:
		p->what = PT_WI_IDLE;
		return;
	case PT_CAUSE_LOCK:
		if (!k->w || !is_shared(k, iv, &p->by))
			return;
		p->what = PT_WI_LOCKED;
		p->place = place_of(k->o, c, lock_object(iv), true);
		return;
	case PT_CAUSE_CPU:
		p->what = PT_WI_CPU;
		p->place = PT_WI_CORES;
		return;
	case PT_CAUSE_PAGE_FAULT:
	case PT_CAUSE_DISK:
		p->place = place_of(k->o, PT_CAUSE_DISK,
				    pt_model_dev(k->an->m, iv->dev, iv->object),
				    false);
		return;
	case PT_CAUSE_NETWORK:
		s = pt_wait_sock(k->an, iv);
		p->place = place_of(k->o, c, s && s->peer ? s->peer->index + 1 : 0,
				    false);
		return;
	default:
		p->place = place_of(k->o, c, (uint64_t)(int64_t)iv->syscall, false);
	}
}

static int take_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		      bool queued)
{
	struct pt_wi_look *k = ctx;
	struct pt_wi_piece *last = k->now->n ? &k->now->v[k->now->n - 1] : NULL;
	struct pt_wi_piece p = { .begin = pt_wi_ms_of(k, b), .end = pt_wi_ms_of(k, e), .by = -1,
			   .what = !iv ? PT_WI_CPU : queued ? PT_WI_QUEUE : PT_WI_SLEEP };

	/* a sleep's own wake-up goes where it goes */
	if (p.what == PT_WI_QUEUE && iv->ready > iv->begin && p.end - p.begin < WAKE_UP_MS)
		p.what = PT_WI_SLEEP;
	if (p.what == PT_WI_CPU)
		p.place = PT_WI_CORES;
	else if (p.what == PT_WI_SLEEP)
		set_place(k, iv, &p);
	if (queued && p.what == PT_WI_LOCKED)
		p.what = PT_WI_QUEUE; /* it has the lock */
	if (last && p.what == PT_WI_SLEEP && last->what == PT_WI_SLEEP &&
	    last->place == p.place && last->end == p.begin) {
		last->end = p.end;
		last->own = p.end - last->begin;
		return 0;
	}
	p.own = p.end - p.begin;
	return pt_vec_push(k->now, p) ? -ENOMEM : 0;
}

/* ---- who holds what ------------------------------------------------------------------ */

struct hold { /* of a lock, by one worker */
	double begin, end;
	uint8_t lock;
};
typedef PT_VEC(struct hold) holds;

/* The part of a piece that lies in [begin,end). */
static int add_part(pt_wi_pieces *to, const struct pt_wi_piece *p, double begin, double end,
		    uint8_t lock)
{
	struct pt_wi_piece x = *p;

	x.begin = begin;
	x.end = end;
	x.own = end - begin;
	x.lock = p->what == PT_WI_IDLE || p->what == PT_WI_LOCKED ? 0 : lock;
	return end > begin && pt_vec_push(to, x) ? -ENOMEM : 0;
}

/* Cut a worker's pieces where its holds begin and end. */
static int mark(pt_wi_pieces *v, const holds *h)
{
	pt_wi_pieces out = { 0 };
	size_t k = 0;
	int err = 0;

	pt_each_ok(const struct pt_wi_piece, p, v, err) {
		double at = p->begin;

		while (k < h->n && h->v[k].end <= at)
			k++;
		for (; k < h->n && h->v[k].begin < p->end && !err; k++) {
			double from = fmax(at, h->v[k].begin);
			double to = fmin(p->end, h->v[k].end);

			err = add_part(&out, p, at, from, 0);
			err = err ?: add_part(&out, p, from, to, h->v[k].lock);
			at = fmax(at, to);
			if (h->v[k].end > p->end)
				break;
		}
		err = err ?: add_part(&out, p, at, p->end, 0);
	}
	pt_vec_free(v);
	*v = out;
	return err;
}

struct release {
	double at, since; /* since: somebody else waits */
	uint8_t place;
};
typedef PT_VEC(struct release) releases;

PT_ORDER(cmp_release, struct release, pt_cmp(x->at, y->at))

/* Each wait for a lock says until when `who` had it: from the end of its own wait
 * for it on, else not later than somebody else began to wait. */
static int find_holds(struct pt_wi_look *k, const releases *r, const pt_wi_pieces *v, holds *out)
{
	double got[PT_WI_PLACES] = { 0 }, gave[PT_WI_PLACES] = { 0 };
	size_t c = 0;

	pt_each(const struct release, x, r) {
		struct hold h = { fmax(x->since, gave[x->place]), x->at, x->place };

		for (; c < v->n && v->v[c].end <= x->at; c++)
			if (v->v[c].what == PT_WI_LOCKED)
				got[v->v[c].place] = v->v[c].end;
		if (got[x->place] > gave[x->place])
			h.begin = got[x->place];
		gave[x->place] = x->at;
		if (out->n) /* of two locks at once the first */
			h.begin = fmax(h.begin, out->v[out->n - 1].end);
		if (!(h.end > h.begin))
			continue;
		k->o->place[x->place].held_ms += h.end - h.begin;
		if (pt_vec_push(out, h))
			return -ENOMEM;
	}
	return 0;
}

/* A worker that waited for a lock that another one had. */
struct pair {
	int16_t who; /* had it */
	uint32_t waiter;
};
typedef PT_VEC(struct pair) pairs;

PT_ORDER(cmp_pair, struct pair, pt_cmp(x->who, y->who) ?: pt_cmp(x->waiter, y->waiter))

static int find_pairs(const struct pt_wi_look *k, pairs *out)
{
	size_t i;

	for (i = 0; i < k->t->workers.n; i++)
		pt_each(const struct pt_wi_piece, p, &k->v[i]) {
			struct pair x = { p->by, (uint32_t)i };

			if (p->what == PT_WI_LOCKED && pt_vec_push(out, x))
				return -ENOMEM;
		}
	pt_vec_sort(out, cmp_pair);
	return 0;
}

/* The end of each wait of `waiter` for `who`. */
static int add_releases(const pt_wi_pieces *waiter, int16_t who, releases *out)
{
	pt_each(const struct pt_wi_piece, p, waiter) {
		struct release x = { p->end, p->begin, p->place };

		if (p->what == PT_WI_LOCKED && p->by == who && pt_vec_push(out, x))
			return -ENOMEM;
	}
	return 0;
}

static int mark_holds(struct pt_wi_look *k)
{
	releases r = { 0 };
	pairs of = { 0 };
	holds h = { 0 };
	size_t i = 0, j;
	int16_t who;
	int err = find_pairs(k, &of);

	while (i < of.n && of.v[i].who < 0) /* nobody is known to have had it */
		i++;
	for (; i < of.n && !err; i = j) {
		who = of.v[i].who;
		r.n = h.n = 0;
		for (j = i; j < of.n && of.v[j].who == who && !err; j++)
			if (j == i || cmp_pair(&of.v[j - 1], &of.v[j]))
				err = add_releases(&k->v[of.v[j].waiter], who, &r);
		pt_vec_sort(&r, cmp_release);
		err = err ?: find_holds(k, &r, &k->v[who], &h);
		if (!err && h.n)
			err = mark(&k->v[who], &h);
	}
	pt_vec_free(&of);
	pt_vec_free(&r);
	pt_vec_free(&h);
	return err;
}

/* ---- all -------------------------------------------------------------------------------- */

int pt_wi_take_own(struct pt_wi_look *k, pt_wi_pieces *out)
{
	k->now = out;
	k->index = -1;
	return pt_walk(k->t->main, k->an->t0, k->an->t1, take_piece, k);
}

/* Makers that are fed work while the giver is at the next piece: together they are as fast as
 * that one alone, whatever they do. */
static void take_as_given(struct pt_wi_look *k)
{
	uint8_t place;
	size_t fed = 0;

	pt_each(const struct pt_worker, w, &k->t->workers)
		fed += pt_makes_batches(k->t, w) && pt_is_fed(w);
	pt_each(const struct pt_worker, w, &k->t->workers) {
		if (!pt_makes_batches(k->t, w) || !pt_is_fed(w))
			continue;
		place = place_of(k->o, PT_CAUSE_IPC, w->giver, false);
		if (place == PT_WI_NOWHERE)
			return;
		k->o->place[place].is_giver = true;
		k->o->place[place].v.what = PT_WI_IN_TURN;
		k->o->fed = true;
		pt_each(struct pt_wi_piece, p, &k->v[w - k->t->workers.v]) {
			if (p->what == PT_WI_IDLE)
				continue;
			p->what = PT_WI_SLEEP;
			p->place = place;
			p->lock = 0;
			p->own = (p->end - p->begin) / (double)fed;
		}
	}
}

int pt_wi_take_pieces(struct pt_wi_look *k)
{
	size_t i;
	int err = 0;

	for (i = 0; i < k->t->workers.n && !err; i++) {
		const struct pt_worker *w = &k->t->workers.v[i];
		uint64_t b = pt_max64(k->an->t0, w->main->first);
		uint64_t e = pt_min64(k->an->t1, pt_thread_end(k->an, w->main));

		k->w = w;
		k->index = (int)i;
		k->now = &k->v[i];
		if (pt_makes_batches(k->t, w) && e > b)
			err = pt_walk(w->main, b, e, take_piece, k);
	}
	err = err ?: mark_holds(k);
	if (!err)
		take_as_given(k);
	return err;
}
