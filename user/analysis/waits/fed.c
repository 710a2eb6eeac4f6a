/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stages that work side by side. A maker that waits again and again for what another thread
 * hands it, while that one never waits for it, makes no batch later by computing longer:
 * batches come as fast as the giver goes. The way back from a wait leads on to the giver at
 * once, past what the maker did meanwhile.
 *
 * Who is asked for each piece waits to be asked: there the maker's part and the answer follow
 * each other, and both count.
 */
#include "analysis/waits/fed.h"

#include <errno.h>

#include "analysis/waits/look.h"

/* In each of so many stretches of the time, but this many, ... */
#define STRETCHES 8
#define STRETCHES_OFF 1
/* ... the maker waits for the giver for so much of it, ... */
#define STARVED_PART 0.03
/* ... and the giver for those whom it feeds for at most this part of that, and for room for what
 * it gives for this part of all that the maker waits for givers. */
#define GIVER_WAITS 0.2
#define ROOM_WAITS 0.5
/* Givers of one maker that are looked at, and givers of givers. */
#define GIVERS_MAX 16
#define DEPTH_MAX 4

struct given_by {
	const struct pt_thread *th;
	uint64_t ns, in[STRETCHES];
	uint64_t all_ns; /* by it and others */
};

struct looked {
	const struct pt_an *an;
	const struct pt_trainer *t;
	const struct pt_actor *a;
	struct pt_paths *paths;
	uint64_t begin, end;
};

/* It takes batches, and makes none. */
static bool takes(const struct looked *k, const struct pt_thread *th)
{
	return pt_is_actor(k->a, th) || pt_is_relay(k->t, th);
}

static bool is_downstream(const struct looked *k, const struct pt_thread *maker,
			  const struct pt_thread *giver, const struct pt_thread *x)
{
	int w;

	return x == maker || takes(k, x) || (pt_worker_index(k->t, x, &w) && x->proc != giver->proc) ||
	       (x->proc != giver->proc && (x->proc == maker->proc || x->proc == k->t->proc));
}

/* Who ended the sleep with what was slept for; NULL: nobody, or it was for a lock, or an
 * answer; a store outside of the job sends one piece by piece. */
static const struct pt_thread *giver_of(const struct looked *k, const struct pt_thread *th,
					const struct pt_iv *iv)
{
	const struct pt_thread *by;

	if (!iv->valid_wake || iv->wake == PT_WAKE_SIGNAL || iv->wait == PT_WAIT_PIPE_OUT ||
	    iv->wait == PT_WAIT_CHILD || iv->waker_tid == th->tid ||
	    (iv->sock & PT_IV_SOCK_AWAITED))
		return NULL;
	by = pt_model_thread(k->an->m, iv->waker_tid);
	if (!by || (by->proc->outside && by->proc != th->proc))
		return NULL;
	return !pt_is_lock(k->paths, th, iv) ? by : NULL;
}

static void tally(const struct looked *k, const struct pt_iv *iv, struct given_by *x)
{
	uint64_t len = (k->end - k->begin) / STRETCHES + 1;
	size_t i = iv->begin > k->begin ? (size_t)((iv->begin - k->begin) / len) : 0;

	for (; i < STRETCHES && k->begin + i * len < iv->ready; i++)
		x->in[i] += pt_overlap(iv->begin, iv->ready, k->begin + i * len,
				       k->begin + (i + 1) * len);
	x->ns += pt_overlap(iv->begin, iv->ready, k->begin, k->end);
}

/* Whom `th` waits for most. */
static struct given_by most_of(const struct looked *k, const struct pt_thread *th)
{
	struct given_by v[GIVERS_MAX] = { 0 }, none = { 0 };
	size_t i, g, n = 0, best = 0;
	uint64_t all = 0;

	for (i = pt_iv_after(th, k->begin); i < th->iv.n && th->iv.v[i].begin < k->end; i++) {
		const struct pt_thread *by = giver_of(k, th, &th->iv.v[i]);

		for (g = 0; by && g < n && v[g].th != by; g++)
			;
		if (!by || g == GIVERS_MAX)
			continue;
		v[g].th = by;
		n = g == n ? n + 1 : n;
		tally(k, &th->iv.v[i], &v[g]);
	}
	for (i = 0; i < n; i++) {
		all += v[i].ns;
		best = v[i].ns > v[best].ns ? i : best;
	}
	v[best].all_ns = all;
	return n ? v[best] : none;
}

/* In the consumer's process, beside the giver, there may be one who takes what the maker or its like
 * made, and who tells the giver that there is to be more (an executor's manager). */
struct beside {
	size_t n;
	struct {
		const struct pt_thread *th;
		bool takes;
	} v[GIVERS_MAX];
};

static bool takes_from(const struct looked *k, const struct pt_thread *maker,
		       const struct pt_thread *th, struct beside *b)
{
	const struct pt_thread *of;
	size_t i;

	for (i = 0; i < b->n; i++)
		if (b->v[i].th == th)
			return b->v[i].takes;
	if (i == GIVERS_MAX)
		return false;
	of = most_of(k, th).th;
	b->v[i].th = th;
	b->v[i].takes = of == maker;
	b->n++;
	return b->v[i].takes;
}

/* Does the giver hardly wait for whom it feeds? */
static bool goes_on(const struct looked *k, const struct pt_thread *maker,
		    const struct given_by *x)
{
	const struct pt_thread *giver = x->th;
	uint64_t room = 0, asked = 0, ns;
	struct beside beside = { 0 };
	size_t i;

	for (i = pt_iv_after(giver, k->begin);
	     i < giver->iv.n && giver->iv.v[i].begin < k->end; i++) {
		const struct pt_iv *iv = &giver->iv.v[i];
		const struct pt_thread *by = iv->valid_wake ?
			pt_model_thread(k->an->m, iv->waker_tid) : NULL;

		ns = pt_overlap(iv->begin, iv->ready, k->begin, k->end);
		if (pt_is_for_room(iv))
			room += ns;
		else if (by && (is_downstream(k, maker, giver, by) ||
				(by->proc == k->t->proc && by->proc == giver->proc &&
				 takes_from(k, maker, by, &beside))) &&
			 !pt_is_lock(k->paths, giver, iv))
			asked += ns;
	}
	return (double)asked <= GIVER_WAITS * (double)x->ns &&
	       (double)room <= ROOM_WAITS * (double)x->all_ns;
}

/* False: by nobody. */
static bool find_giver(const struct looked *all, const struct pt_thread *th, struct pt_fed *out)
{
	struct looked k = *all;
	struct given_by x;
	size_t i, n = 0;

	k.begin = pt_max64(k.begin, th->first);
	k.end = pt_min64(k.end, pt_thread_end(k.an, th));
	if (k.end <= k.begin)
		return false;
	x = most_of(&k, th);
	if (!x.th || takes(&k, x.th))
		return false;
	for (i = 0; i < STRETCHES; i++)
		n += (double)x.in[i] * STRETCHES >= STARVED_PART * (double)(k.end - k.begin);
	*out = (struct pt_fed){ th, x.th, x.all_ns };
	return n + STRETCHES_OFF >= STRETCHES && goes_on(&k, th, &x);
}

/* Would it be a circle? */
static bool comes_back(const pt_feds *f, const struct pt_fed *x)
{
	const struct pt_thread *th = x->by;

	while (th && th != x->th)
		th = pt_fed_by(f, th);
	return th;
}

/* And who feeds that one, and so on. */
static int find_chain(const struct looked *k, struct pt_worker *w, pt_feds *out)
{
	const struct pt_thread *th = w->main;
	struct pt_fed x;
	int depth;

	for (depth = 0; depth < DEPTH_MAX && !pt_fed_by(out, th); depth++) {
		if (!find_giver(k, th, &x) || comes_back(out, &x))
			break;
		if (pt_vec_push(out, x))
			return -ENOMEM;
		if (th == w->main) {
			w->giver = x.by->tid;
			w->starved_ns = x.ns;
		}
		th = x.by;
	}
	return 0;
}

int pt_find_fed(const struct pt_an *an, struct pt_trainer *t, const struct pt_actor *a,
		struct pt_paths *paths, pt_feds *out)
{
	struct looked k = { an, t, a, paths, an->t0, an->t1 };
	int err = 0;

	pt_each_ok(struct pt_worker, w, &t->workers, err)
		if (w->role != PT_ROLE_HELPER) /* who is asked waits for that */
			err = find_chain(&k, w, out);
	return err;
}

const struct pt_thread *pt_fed_by(const pt_feds *f, const struct pt_thread *th)
{
	pt_each(const struct pt_fed, x, f)
		if (x->th == th)
			return x->by;
	return NULL;
}
