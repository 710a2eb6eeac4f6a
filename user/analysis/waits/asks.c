/* SPDX-License-Identifier: BSD-2-Clause */
/* When the consumer asked for more, and whom. */
#include <errno.h>
#include <stdlib.h>

#include "analysis/waits/loader.h"
#include "base/hash.h"

PT_ORDER(cmp_ask, struct pt_ask, pt_cmp(x->ts, y->ts))

/* Whoever ends sleeps of a worker passes the consumer's wishes on. */
struct feeder {
	uint32_t tid;
	UT_hash_handle hh;
};

static int find_feeders(const struct pt_an *an, const struct pt_trainer *t,
			struct feeder **out)
{
	size_t w;

	for (w = 0; w < t->workers.n; w++) {
		const struct pt_thread *x = t->workers.v[w].main;

		if (t->workers.v[w].proc == t->proc)
			continue;
		pt_each_iv(iv, x, an->t0, an->t1) {
			if (iv->valid_wake && !pt_hash_make(*out, tid, &iv->waker_tid))
				return -ENOMEM;
		}
	}
	return 0;
}

/* The end of the consumer's last call before `ts`. */
static uint64_t call_before(const struct pt_actor *a, uint64_t ts)
{
	size_t lo = pt_bisect(a->calls.n, i, a->calls.v[i].begin < ts);

	return lo ? pt_min64(a->calls.v[lo - 1].end, ts) : 0;
}

/* Of fewer hand-offs it cannot be told who feeds whom. */
#define FED_MIN 4

/*
 * Workers that always have work never sleep for it, and show no one who hands it to
 * them. Is `th` given something each time behind the message of one and the same
 * worker, and as often as that makes a batch? *wrong: out of memory.
 */
static bool follows_worker(const struct pt_an *an, const struct pt_trainer *t,
			   const struct pt_actor *a, struct pt_paths *paths,
			   const pt_times *at, bool *wrong)
{
	uint32_t *votes = calloc(t->workers.n + 1, sizeof(*votes));
	const struct pt_worker *x;
	pt_times made = { 0 };
	uint64_t wakes = 0;
	size_t i, best = 0;
	bool fits;

	*wrong = !votes;
	for (i = 0; i < at->n && votes; i++) {
		int w = pt_last_deliverer(t, an->m, a->lead, call_before(a, at->v[i]),
					  at->v[i], true);

		if (w >= 0)
			votes[w]++;
	}
	for (i = 1; i < t->workers.n && votes; i++)
		best = votes[i] > votes[best] ? i : best;
	fits = votes && votes[best] >= FED_MIN;
	free(votes);
	if (!fits)
		return false;
	x = &t->workers.v[best];
	*wrong = pt_rest_wakes(an, paths, x->feeder, x->main, &made, &wakes);
	fits = made.n <= at->n + at->n / 10 + FED_MIN &&
	       at->n <= made.n + made.n / 10 + FED_MIN;
	pt_vec_free(&made);
	return fits && !*wrong;
}

static int take_feeder(const struct pt_an *an, const struct pt_trainer *t,
		       struct feeder *feeders, const struct pt_thread *th,
		       const struct pt_actor *a, struct pt_paths *paths,
		       uint32_t source, pt_asks *out)
{
	const struct feeder *known;
	pt_times at = { 0 };
	bool wrong = false;
	uint64_t wakes = 0;
	size_t i;
	int err = pt_rest_wakes(an, paths, th, a->lead, &at, &wakes);

	HASH_FIND(hh, feeders, &th->tid, sizeof(th->tid), known);
	if (!err && at.n && !known &&
	    !follows_worker(an, t, a, paths, &at, &wrong))
		at.n = 0;
	if (wrong)
		err = -ENOMEM;
	for (i = 0; i < at.n && !err; i++) {
		struct pt_ask x = { at.v[i], source, -1, false, true, false };

		err = pt_vec_push(out, x);
	}
	pt_vec_free(&at);
	return err;
}

/* ... woken by a thread of the actor itself. */
static int take_direct(const struct pt_an *an, const struct pt_thread *th,
		       const struct pt_actor *a, struct pt_paths *paths,
		       uint32_t source, int worker, bool item, pt_asks *out)
{
	pt_each_iv(iv, th, an->t0, an->t1) {
		bool room = pt_is_for_room(iv);
		struct pt_ask x = { iv->ready, source, worker,
				    th->proc == a->proc, item && !room, room };
		const struct pt_thread *who;

		if (iv->ready > an->t1)
			break;
		if (!iv->valid_wake || iv->waker_tgid != a->proc->tgid)
			continue;
		who = pt_model_thread(an->m, iv->waker_tid);
		if (who && pt_is_actor(a, who) &&
		    !pt_inside_call(a->proc, iv->waker_tid, iv->ready) &&
		    !pt_is_lock(paths, th, iv) && pt_vec_push(out, x))
			return -ENOMEM;
	}
	return 0;
}

static int take_worker(const struct pt_an *an, const struct pt_worker *w,
		       const struct pt_actor *a, struct pt_paths *paths,
		       uint32_t source, int worker, pt_asks *out)
{
	size_t i;
	int err = 0;

	if (w->proc == a->proc)
		return take_direct(an, w->main, a, paths, source, worker, true,
				   out);
	for (i = 0; i < w->proc->threads.n && !err; i++)
		err = take_direct(an, w->proc->threads.v[i], a, paths, source,
				  worker, w->proc->threads.v[i] == w->main, out);
	return err;
}

int pt_find_asks(const struct pt_an *an, const struct pt_trainer *t,
		 const struct pt_actor *a, struct pt_paths *paths, pt_asks *out)
{
	struct feeder *feeders = NULL;
	uint32_t source = 0;
	size_t i;
	int w, err = find_feeders(an, t, &feeders);

	for (i = 0; i < t->proc->threads.n && !err; i++) {
		const struct pt_thread *th = t->proc->threads.v[i];

		if (!pt_is_actor(a, th) && !pt_worker_index(t, th, &w))
			err = take_feeder(an, t, feeders, th, a, paths, source, out);
		source++;
	}
	/* who manages memory for the loader is asked when a batch is given back, too */
	for (i = 0; i < t->workers.n && !err; i++, source++)
		if (t->workers.v[i].role != PT_ROLE_HELPER)
			err = take_worker(an, &t->workers.v[i], a, paths, source,
					  (int)i, out);
	pt_hash_free(feeders);
	if (!err && out->n)
		pt_vec_sort(out, cmp_ask);
	return err;
}
