/* SPDX-License-Identifier: BSD-2-Clause */
/* Which thread of a worker's process hands over what another one of it has made, and which of
 * the trainer's fetches by itself. */
#include "analysis/waits/loader_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Nobody has waited for this worker: its sender is the thread that its maker wakes
 * for each batch, and that writes. */
static int guess_sender(struct pt_an *an, const struct pt_givers *g,
			struct pt_worker *w)
{
	pt_times items = { 0 };
	size_t j, most = 1;
	int err = 0;

	for (j = 0; w->main && j < w->proc->threads.n && !err; j++) {
		struct pt_thread *th = w->proc->threads.v[j];
		uint64_t wakes = 0;

		if (th == w->main)
			continue;
		items.n = 0;
		err = pt_rest_wakes(an, g->paths, th, w->main, &items, &wakes);
		if (err || items.n <= most || items.n * 4 < wakes)
			continue;
		most = items.n;
		w->feeder = th;
	}
	pt_vec_free(&items);
	return err;
}

/* How many threads of its process were met before it: older ones. */
static size_t place_of(const struct pt_proc *p, const struct pt_thread *th)
{
	size_t i;

	for (i = 0; i < p->threads.n && p->threads.v[i] != th; i++)
		;
	return i;
}

/* Nobody has waited for it, and it does not write: who makes and who sends are the threads that
 * have the places of those of a process of the same parent and name. With as many threads its
 * maker is the one at that place, too: another one may have been busier, with programs run. */
static void threads_as_its_kin(const struct pt_trainer *t, struct pt_worker *w)
{
	size_t i, main, feeder, n = w->proc->threads.n;

	for (i = 0; w->main && i < t->workers.n && w->feeder == w->main; i++) {
		const struct pt_worker *o = &t->workers.v[i];

		if (o->role != w->role || o->feeder == o->main || o->proc == w->proc ||
		    o->proc->ppid != w->proc->ppid ||
		    strncmp(o->proc->comm, w->proc->comm, sizeof(o->proc->comm)))
			continue;
		main = place_of(o->proc, o->main);
		feeder = place_of(o->proc, o->feeder);
		if (main >= n || feeder >= n ||
		    (w->proc->threads.v[main] != w->main && o->proc->threads.n != n))
			continue;
		w->main = w->proc->threads.v[main];
		w->feeder = w->proc->threads.v[feeder];
	}
}

/* Does the trainer wake `th`, other than by making room? Then that answers what it is
 * asked for, as the thread of a worker does that hands over descriptors of memory. */
static bool answers(const struct pt_an *an, const struct pt_trainer *t,
		    const struct pt_thread *th)
{
	pt_each_iv(iv, th, an->t0, an->t1) {
		if (iv->valid_wake && iv->waker_tgid == t->proc->tgid &&
		    iv->wake != PT_WAKE_ROOM && iv->wait != PT_WAIT_FUTEX &&
		    iv->wait != PT_WAIT_SEM)
			return true;
	}
	return false;
}

struct asker {
	const struct pt_proc *by;
	bool met;
};

static int answer_leg(void *ctx, const struct pt_leg *l)
{
	struct asker *x = ctx;

	x->met |= l->th->proc == x->by;
	return 0;
}

/* Did whoever ended the sleep begin with the answer only when it was asked, since `from`? 1, 0
 * or -ENOMEM. */
static int began_when_asked(const struct pt_loader_finder *k, const struct pt_thread *th,
			    const struct pt_iv *iv, uint64_t from)
{
	const struct pt_thread *by = pt_model_thread(k->an->m, iv->waker_tid);
	struct asker x = { .by = th->proc };
	int err = by ? pt_walk_cause(k->an, k->g->paths, by, from, iv->ready, answer_leg, &x) : 0;

	return err ? err : x.met;
}

/* A program that was run meanwhile, until it ended: what it does is the work of who ran it. */
static bool is_run(const struct pt_thread *by, const struct pt_proc *p)
{
	return !p->outside && p->born && p->died &&
	       strncmp(p->comm, by->proc->comm, sizeof(p->comm));
}

int pt_fetches(const struct pt_loader_finder *k, const struct pt_thread *th)
{
	const struct pt_an *an = k->an;
	uint64_t slept = 0, asked = 0, answer = an->t0; /* when the last one had come */

	pt_each_iv(iv, th, an->t0, an->t1) {
		const struct pt_proc *p = iv->valid_wake && iv->waker_tgid != th->tgid ?
						  pt_model_proc(an->m, iv->waker_tgid) : NULL;
		uint64_t ns = iv->ready - iv->begin;
		int when;

		slept += p ? ns : 0;
		asked += p && is_run(th, p) ? ns : 0;
		if (!p || !p->outside || !(iv->sock & PT_IV_SOCK_AWAITED))
			continue;
		when = began_when_asked(k, th, iv, answer);
		if (when < 0)
			return when;
		asked += when ? ns : 0;
		answer = iv->end;
	}
	return 2 * asked > slept;
}

/* Of the threads of a worker's process the one that ended most of the time that the
 * trainer's own threads slept for it. */
int pt_find_senders(struct pt_loader_finder *k)
{
	struct pt_trainer *t = k->t;
	uint64_t *most = calloc(t->workers.n + 1, sizeof(*most));
	const struct pt_sender *s;
	size_t i;
	int err = most ? 0 : -ENOMEM;

	for (i = 0; i < t->workers.n; i++)
		t->workers.v[i].feeder = t->workers.v[i].main;
	for (s = k->sent; s && !err; s = s->hh.next) {
		struct pt_worker *w = s->th->proc == t->proc ? NULL :
					      pt_worker_of(k, s->th->proc, NULL);

		if (!w || s->ns <= most[w - t->workers.v] || s->th == w->main ||
		    (!w->proc->outside && answers(k->an, t, s->th)))
			continue;
		most[w - t->workers.v] = s->ns;
		w->feeder = (struct pt_thread *)s->th;
	}
	for (i = 0; i < t->workers.n && !err; i++)
		if (t->workers.v[i].proc != t->proc && !most[i])
			err = guess_sender(k->an, k->g, &t->workers.v[i]);
	for (i = 0; i < t->workers.n && !err; i++)
		if (t->workers.v[i].proc != t->proc && !most[i])
			threads_as_its_kin(t, &t->workers.v[i]);
	free(most);
	return err;
}
