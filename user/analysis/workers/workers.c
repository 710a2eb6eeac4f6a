/* SPDX-License-Identifier: BSD-2-Clause */
/* When each worker's batches were made, and how long they took. */
#include <errno.h>
#include <math.h>

#include "analysis/health.h"
#include "analysis/internal.h"
#include "analysis/verdicts/thresholds.h"
#include "analysis/waits/look.h"

/* ---- when batches were made ------------------------------------------------------ */

/* What is slept on, as one number. */
static uint64_t rest_key(const struct pt_iv *iv)
{
	return (uint64_t)iv->wait << 56 ^
	       (iv->wait == PT_WAIT_FUTEX ? iv->arg0 >> 3 : iv->object);
}

static bool has(const pt_times *v, uint64_t key)
{
	size_t i;

	for (i = 0; i < v->n; i++)
		if (v->v[i] == key)
			return true;
	return false;
}

/* Is `th` on the side that asks: the consumer, or who hands on its wishes; for a
 * helper whoever it works for, which no service outside is? */
static bool asks(const struct pt_trainer *t, const struct pt_worker *w,
		 const struct pt_thread *th)
{
	int i;

	/* its own sender takes what it has made: it is ahead */
	if (th == w->feeder && th != w->main)
		return true;
	if (pt_worker_index(t, th, &i))
		return w->role == PT_ROLE_HELPER &&
		       t->workers.v[i].role != PT_ROLE_HELPER &&
		       t->workers.v[i].role != PT_ROLE_OUTSIDE;
	return th->tgid == t->proc->tgid;
}

static bool may_rest(const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_PIPE_IN || iv->wait == PT_WAIT_SOCK ||
	       iv->wait == PT_WAIT_FUTEX || iv->wait == PT_WAIT_POLL ||
	       iv->wait == PT_WAIT_MSGQ || iv->wait == PT_WAIT_SEM ||
	       iv->wait == PT_WAIT_EVENT || iv->wait == PT_WAIT_URING ||
	       iv->wait == PT_WAIT_OTHER;
}

/* More places to rest than these are something else. */
#define RESTS_MAX 64

/* A worker rests where it sleeps until somebody asks it for something; not for a
 * lock of the interpreter, that others sleep on too. */
static int find_rests(const struct pt_an *an, const struct pt_trainer *t,
		      struct pt_paths *paths, struct pt_worker *w)
{
	const struct pt_thread *th = w->main;

	pt_each_iv(iv, th, an->t0, an->t1) {
		const struct pt_thread *who;

		if (!iv->valid_wake || !may_rest(iv) ||
		    has(&w->rests, rest_key(iv)))
			continue;
		who = pt_model_thread(an->m, iv->waker_tid);
		if (!who || !asks(t, w, who) || pt_is_lock(paths, th, iv))
			continue;
		if (w->rests.n < RESTS_MAX && pt_vec_push(&w->rests, rest_key(iv)))
			return -ENOMEM;
	}
	return 0;
}

bool pt_rests(const struct pt_worker *w, const struct pt_iv *iv)
{
	/* what it has made is not taken: it is ahead */
	if (w && iv->wait == PT_WAIT_PIPE_OUT && w->feeder == w->main)
		return true;
	return w && iv->wait != PT_WAIT_RUNQ && w->rests.n &&
	       has(&w->rests, rest_key(iv));
}

/* The head of a message and what follows it wake its reader several times, with nothing
 * made in between: in so little time, or so small a part of what a batch takes. */
#define PARTS_NS 300000ull
#define PARTS_MOST_NS (2 * NS_PER_MS)
#define PARTS_PART 50

/* A batch that came while nobody slept for it woke nobody: the worker has written
 * something, and rests. One that never writes (shared memory) has made something from
 * one rest to the next. */
static int collect_unnoticed(const struct pt_an *an, struct pt_worker *w)
{
	const struct pt_thread *th = w->main;
	size_t i, first = pt_iv_after(th, an->t0), end = pt_iv_after(th, an->t1);
	size_t known = w->done.n, k = 0;
	uint64_t written = first < end ? th->iv.v[first].wchar : 0, rested = 0;
	bool writes = first < end && th->iv.v[end - 1].wchar > written;

	for (i = first + 1; i < end; i++) {
		const struct pt_iv *iv = &th->iv.v[i];
		uint64_t since = rested;

		if (!pt_rests(w, iv))
			continue;
		rested = iv->ready;
		if (writes && iv->wchar <= written)
			continue;
		written = iv->wchar;
		if (!writes && (!since || iv->begin < since + PARTS_NS))
			continue;
		while (k < known && w->done.v[k] <= since)
			k++;
		if (k < known && w->done.v[k] <= iv->begin)
			continue; /* the one whose wake-up was seen */
		if (pt_vec_push(&w->done, iv->begin))
			return -ENOMEM;
	}
	if (w->done.n > known)
		pt_sort_times(&w->done);
	return 0;
}

/* Wake-ups of `th` by workers that send by themselves. */
static int collect_direct(const struct pt_an *an, struct pt_trainer *t,
			  struct pt_paths *paths, const struct pt_thread *th)
{
	const struct pt_thread *who;
	int w;

	pt_each_iv(iv, th, an->t0, an->t1) {
		who = iv->valid_wake ? pt_model_thread(an->m, iv->waker_tid) : NULL;
		if (who && pt_worker_index(t, who, &w) &&
		    t->workers.v[w].feeder == t->workers.v[w].main &&
		    t->workers.v[w].main == who && !pt_is_lock(paths, th, iv) &&
		    pt_vec_push(&t->workers.v[w].done, iv->ready))
			return -ENOMEM;
	}
	return 0;
}

/* From one wake-up to the next: half of the time passes in gaps of this length or longer,
 * however many parts a message has. 0 or -ENOMEM. */
static int usual_gap(const struct pt_worker *w, uint64_t *out)
{
	pt_times gaps = { 0 };
	uint64_t sum = 0, all;
	size_t i;
	int err = 0;

	*out = 0;
	for (i = 1; i < w->done.n && !err; i++)
		err = pt_vec_push(&gaps, w->done.v[i] - w->done.v[i - 1]);
	if (gaps.n && !err) {
		pt_sort_times(&gaps);
		all = w->done.v[w->done.n - 1] - w->done.v[0];
		for (i = gaps.n; i-- > 0 && sum * 2 < all; sum += gaps.v[i])
			*out = gaps.v[i];
	}
	pt_vec_free(&gaps);
	return err;
}

static int made_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv, bool queued)
{
	if (!queued && !(iv && (iv->wait == PT_WAIT_RUNQ || pt_is_for_room(iv))))
		*(uint64_t *)ctx += e - b;
	return 0;
}

/* Time in which something can have been made: a message longer than a pipe is written piece by
 * piece, with waits for room and for a core between them. */
static uint64_t made_ns(const struct pt_worker *w, uint64_t b, uint64_t e)
{
	uint64_t ns = 0;

	pt_walk(w->main, b, e, made_piece, &ns);
	return ns;
}

static int join_parts(struct pt_worker *w)
{
	uint64_t least;
	size_t i, n = 0;
	int err = usual_gap(w, &least);

	least = pt_max64(PARTS_NS, pt_min64(PARTS_MOST_NS, least / PARTS_PART));
	for (i = 0; i < w->done.n; i++) {
		uint64_t at = w->done.v[i], since = i ? w->done.v[i - 1] : 0;

		if (!i || made_ns(w, since, at) >= least)
			n++;
		w->done.v[n - 1] = at;
	}
	w->done.n = n;
	return err;
}

/* Its sender never waits for it: what it has made waits for the sender, and it rests behind
 * each item. By chance, it does so now and then. */
static int collect_ahead(const struct pt_an *an, struct pt_worker *w)
{
	pt_times made = { 0 };
	int err = 0;

	pt_each_iv(iv, w->main, an->t0, an->t1) {
		if (!err && iv->valid_wake && iv->waker_tid == w->feeder->tid &&
		    pt_rests(w, iv))
			err = pt_vec_push(&made, iv->begin);
	}
	if (err || made.n < PT_SLOW_BATCHES) {
		pt_vec_free(&made);
		return err;
	}
	pt_vec_free(&w->done);
	w->done = made;
	return join_parts(w);
}

struct tally {
	const struct pt_worker *w;
	uint64_t idle_ns, last; /* last: when it rested */
	size_t rests;		/* with work between them */
};

static int idle_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		      bool queued)
{
	struct tally *k = ctx;

	if (iv && !queued && pt_rests(k->w, iv)) {
		k->idle_ns += e - b;
		k->rests += !k->last || b >= k->last + PARTS_NS;
		k->last = e;
	}
	return 0;
}

static struct tally tally_rests(const struct pt_worker *w, uint64_t b, uint64_t e)
{
	struct tally k = { .w = w };

	pt_walk(w->main, b, e, idle_piece, &k);
	return k;
}

/* Its sender is seldom woken, since it stands before a full pipe: the maker rests behind
 * most of what it makes until there is room. */
static bool sender_is_late(const struct pt_an *an, const struct pt_worker *w)
{
	double rests = (double)tally_rests(w, an->t0, an->t1).rests;

	return (double)w->done.n < (1 - PT_TAIL_NOTICED) * rests;
}

int pt_find_made(const struct pt_an *an, struct pt_trainer *t)
{
	struct pt_paths *paths = t->look->paths;
	const struct pt_actor *a = &t->look->actor;
	size_t i;
	int err = 0;

	pt_each_ok(struct pt_worker, w, &t->workers, err) {
		uint64_t wakes = 0;

		err = find_rests(an, t, paths, w);
		if (!err && w->feeder != w->main)
			err = pt_rest_wakes(an, paths, w->feeder, w->main,
					    &w->done, &wakes);
		/* by shared memory: no bytes tell one item from the next */
		if (!err && w->feeder != w->main && w->done.n <= 1 && wakes > 1)
			err = pt_word_wakes(an, paths, w->feeder, w->main,
					    &w->done);
		if (!err && w->feeder != w->main && w->done.n <= 1)
			err = collect_ahead(an, w);
	}
	for (i = 0; i < a->threads.n && !err; i++)
		err = collect_direct(an, t, paths, a->threads.v[i]);
	for (i = 0; i < t->relays.n && !err; i++)
		err = collect_direct(an, t, paths, t->relays.v[i]);
	pt_each_ok(struct pt_worker, w, &t->workers, err) {
		pt_sort_times(&w->done);
		if (w->feeder != w->main && !sender_is_late(an, w))
			continue;
		err = collect_unnoticed(an, w);
		err = err ?: join_parts(w);
	}
	return err;
}

/* ---- how long they took ----------------------------------------------------------- */

uint64_t pt_rest_ns(const struct pt_worker *w, uint64_t b, uint64_t e)
{
	return tally_rests(w, b, e).idle_ns;
}

/* Busy time between two batches made: what the second one took. */
static int service_times(struct pt_worker *w)
{
	size_t i;

	for (i = 1; i < w->done.n; i++) {
		uint64_t b = w->done.v[i - 1], e = w->done.v[i];
		double ms = pt_ms(e - b - pt_rest_ns(w, b, e));

		if (pt_vec_push(&w->service_ms, ms) ||
		    pt_vec_push(&w->unsorted_ms, ms))
			return -ENOMEM;
	}
	w->median_ms = pt_median(w->service_ms.v, w->service_ms.n);
	return 0;
}

/* A worker that was born makes its first batch as fast as those behind it: what that took
 * more, it did once. Of what is waited for meanwhile, the same part was for that. */
static int sum_setup(const struct pt_an *an, struct pt_trainer *t)
{
	pt_doubles ms = { 0 };
	double usual;
	int err = 0;

	pt_each_ok(const struct pt_worker, w, &t->workers, err) {
		t->n_born += w->role == PT_ROLE_LOADER && w->proc->born >= an->t0 &&
			     w->proc->born < an->t1;
		if (w->role == PT_ROLE_LOADER)
			err = pt_doubles_append(&ms, &w->service_ms);
	}
	usual = err ? NAN : pt_median(ms.v, ms.n);
	pt_each(const struct pt_worker, w, &t->workers) {
		uint64_t b = w->proc->born, e = w->done.n ? w->done.v[0] : 0;
		double first = b && e > b ? pt_ms(e - b - pt_rest_ns(w, b, e)) : 0;

		if (w->role == PT_ROLE_LOADER && first > usual)
			t->setup_ns += (uint64_t)((double)w->setup_ns * (1 - usual / first));
	}
	pt_vec_free(&ms);
	return err;
}

int pt_measure_workers(struct pt_an *an, struct pt_trainer *t)
{
	int err = 0;

	pt_each_ok(struct pt_worker, w, &t->workers, err)
		err = service_times(w);
	err = err ?: sum_setup(an, t);
	err = err ?: pt_compare_workers(an, t);
	return err ?: pt_compare_siblings(an, t);
}
