/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks that those who make batches share: for how much of the waiting for data one
 * of them waits for a lock while another has it and works. Where that is nearly
 * always, what is under the lock is done in turn, and no other worker helps: the lock
 * is the root, whatever its holder does.
 */

#include <errno.h>
#include <stdlib.h>

#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"
#include "analysis/waits/givers.h"
#include "analysis/waits/look.h"

static bool makes(const struct pt_trainer *t, const struct pt_thread *th, int *w)
{
	return pt_worker_index(t, th, w) && t->workers.v[*w].main == th &&
	       t->workers.v[*w].role != PT_ROLE_HELPER;
}

/* Did who ended the sleep work for most of it? Makers that wait for work in turn share
 * a lock, too. Another rank's maker had the lock, in any case. A futex has nobody who ended the
 * sleep if that was in vain, or the capture ends before the lock is given up: then it is whoever
 * computes meanwhile. */
static bool holder_works(const struct pt_trainer *t, const struct pt_worker *of,
			 const struct pt_thread *who, const struct pt_iv *iv)
{
	int w;

	if (!who)
		return iv->wait != PT_WAIT_FUTEX ||
		       (iv->open && pt_other_computes(t, of, iv->begin, iv->ready));
	if (!makes(t, who, &w))
		return who->proc != t->proc && who->proc != of->main->proc;
	return 2 * pt_rest_ns(&t->workers.v[w], iv->begin, iv->ready) <
	       iv->ready - iv->begin;
}

/* Does its Python sleep for others in the job's own functions (with lock:), not in what hands over
 * (a queue's get(), a condition)? A lock that its holder takes again at once, many times before
 * somebody else has it, looks like a hand-over from outside. */
static bool sleeps_in_own_code(const struct pt_an *an, const struct pt_thread *th)
{
	size_t n = 0, own = 0;

	pt_each(const struct pt_code_look, l, &th->looks) {
		size_t i = pt_iv_after(th, l->begin);
		const struct pt_iv *iv = i < th->iv.n ? &th->iv.v[i] : NULL;
		const struct pt_code_stack *s = pt_model_stack(an->m, l->stack);
		const struct pt_code_line *line = s ? pt_model_line(an->m, s->line) : NULL;

		if (l->running || !line || !iv || iv->begin > l->begin ||
		    (iv->wait != PT_WAIT_FUTEX && iv->wait != PT_WAIT_SEM))
			continue;
		n++;
		own += !line->library && !line->native;
	}
	return pt_looks_tell(own, n);
}

static bool is_for_lock(const struct pt_trainer *t, const struct pt_thread *th,
			const struct pt_thread *who, const struct pt_iv *iv, bool own)
{
	int w;

	return pt_is_lock(t->look->paths, th, iv) ||
	       (own && who && who->proc == th->proc && makes(t, who, &w));
}

static int take_sleeps(const struct pt_an *an, const struct pt_trainer *t,
		       const struct pt_worker *w, pt_spans *out)
{
	const struct pt_thread *th = w->main, *who;
	bool own = sleeps_in_own_code(an, th);
	int err = 0;

	pt_each_iv(iv, th, an->t0, an->t1) {
		struct pt_span s = { iv->begin, iv->ready };

		who = iv->valid_wake ? pt_model_thread(an->m, iv->waker_tid) : NULL;
		if (iv->wait == PT_WAIT_RUNQ || pt_rests(w, iv) ||
		    !is_for_lock(t, th, who, iv, own) || !holder_works(t, w, who, iv))
			continue;
		err = err ?: pt_vec_push(out, s);
	}
	return err;
}

/* ---- turns ------------------------------------------------------------------------ */

/* Who is told that its turn has not come goes to sleep again at once. */
#define SPURIOUS_NS 300000ull
/* Shorter sleeps are no wait for a turn. */
#define TURN_NS 1000000ull
/* So nearly one of them works at a time, no more and no less; each of two for this part. */
#define ONE_AT_A_TIME 0.1
#define TURN_PART 0.2
/* Of their sleeping, that ends when another one has worked. */
#define TURNS_SHARE 0.8
/* Woken for its turn it works: this part of what it slept, in as much time. */
#define WORKS_PART 0.1
/* Who tries again by a timer (a database that is locked) does so several times for one turn.
 * That is no pause of its own where they work together for no more than this part of what the
 * others work (by chance, for as much of it as the busiest works), who work at all. */
#define TRIES 3
#define TOGETHER_PART 0.3
#define TRIES_PART 0.02

struct turns {
	const struct pt_thread *busiest;
	uint64_t work, most, second; /* of all makers, in data waits, ns */
	uint64_t slept, in_turn;     /* between those */
	uint64_t tried;		     /* ... by a timer */
};

static uint64_t works_in(const struct pt_thread *th, const pt_spans *waits)
{
	uint64_t ns = 0;

	pt_each(const struct pt_span, s, waits)
		ns += pt_cpu_ns(th, s->begin, s->end);
	return ns;
}

/* Sleeps with next to nothing between them: for one turn. */
struct turn {
	struct pt_span s;
	uint64_t until; /* the end of the last one */
	uint32_t waker; /* who ended the last that was long; 0 nobody */
	uint32_t naps;	/* by a timer */
};

/* Its sleeps are for results of tasks: that is no turn. Who is at them works for it. */
static bool awaits_tasks(const struct pt_an *an, const struct pt_thread *th)
{
	size_t n = 0, results = 0;

	pt_each(const struct pt_code_look, l, &th->looks) {
		n += !l->running;
		results += !l->running && pt_awaits_result(an->m, l->stack);
	}
	return pt_looks_tell(results, n);
}

static int take_turn(const struct pt_an *an, const struct pt_trainer *t,
		     const struct pt_thread *th, const struct turn *x, const pt_spans *waits,
		     struct turns *k, pt_spans *out)
{
	uint64_t len = x->s.end - x->s.begin, ns = pt_spans_in(waits, x->s.begin, x->s.end);
	const struct pt_thread *who = pt_model_thread(an->m, x->waker);
	int w;

	if (len < TURN_NS)
		return 0;
	k->slept += ns;
	if (x->naps >= TRIES) {
		k->tried += ns;
		return pt_vec_push(out, x->s);
	}
	if (!who || who == th || !makes(t, who, &w) ||
	    (double)pt_cpu_ns(th, x->until, x->until + len) < WORKS_PART * (double)len)
		return 0;
	k->in_turn += ns;
	return pt_vec_push(out, x->s);
}

static int take_turns_of(const struct pt_an *an, const struct pt_trainer *t,
			 const struct pt_thread *th, const pt_spans *waits, struct turns *k,
			 pt_spans *out)
{
	uint64_t ran = works_in(th, waits);
	struct turn x = { 0 };
	int err = 0;

	k->work += ran;
	k->second = pt_max64(k->second, pt_min64(ran, k->most));
	if (ran > k->most)
		k->busiest = th;
	k->most = pt_max64(k->most, ran);
	pt_each_iv(iv, th, an->t0, an->t1) {
		if (iv->wait == PT_WAIT_RUNQ || iv->ready <= iv->begin)
			continue;
		if (!x.until || pt_cpu_ns(th, x.until, iv->begin) >= SPURIOUS_NS) {
			err = err ?: take_turn(an, t, th, &x, waits, k, out);
			x = (struct turn){ .s.begin = iv->begin };
		}
		x.s.end = iv->ready;
		x.until = iv->end;
		x.naps += iv->wait == PT_WAIT_SLEEP;
		if (iv->ready - iv->begin >= TURN_NS)
			x.waker = iv->valid_wake ? iv->waker_tid : 0;
	}
	return err ?: take_turn(an, t, th, &x, waits, k, out);
}

/* How long both run, between what `th` sleeps. */
static uint64_t run_together(const struct pt_an *an, const struct pt_thread *th,
			     const struct pt_thread *other)
{
	uint64_t since = an->t0, ns = 0;

	pt_each_iv(iv, th, an->t0, an->t1) {
		if (iv->begin > since)
			ns += pt_cpu_ns(other, since, iv->begin);
		since = pt_max64(since, iv->end);
	}
	return ns;
}

/* One works at a time, and who sleeps tries again and again. */
static bool exclude_each_other(const struct pt_an *an, const struct pt_trainer *t,
			       const struct turns *k, double wall)
{
	uint64_t together = 0;
	int w;

	if (!k->busiest || (double)k->tried < TURNS_SHARE * (double)k->slept ||
	    (double)k->second < TRIES_PART * wall)
		return false;
	pt_each(const struct pt_worker, x, &t->workers)
		if (x->main != k->busiest && makes(t, x->main, &w))
			together += run_together(an, x->main, k->busiest);
	return (double)together <= TOGETHER_PART * (double)(k->work - k->most);
}

/*
 * Who makes batches in turn by other means than a lock (a condition, a ticket, an event for
 * each): one works, all others sleep until it has, and then another one does. Sleeps for
 * one's turn go to `asked`, if it is so.
 */
static int take_turns(const struct pt_an *an, const struct pt_trainer *t, const pt_spans *waits,
		      pt_spans *asked)
{
	double wall = (double)pt_spans_sum(waits);
	pt_spans found = { 0 };
	struct turns k = { 0 };
	size_t i;
	int err = 0, w;

	for (i = 0; i < t->workers.n && !err; i++)
		if (makes(t, t->workers.v[i].main, &w) && !awaits_tasks(an, t->workers.v[i].main))
			err = take_turns_of(an, t, t->workers.v[i].main, waits, &k, &found);
	if (!err && (double)k.work >= (1 - ONE_AT_A_TIME) * wall &&
	    (double)k.work <= (1 + ONE_AT_A_TIME) * wall &&
	    (exclude_each_other(an, t, &k, wall) ||
	     ((double)k.second >= TURN_PART * wall &&
	      (double)k.in_turn >= TURNS_SHARE * (double)k.slept)))
		for (i = 0; i < found.n && !err; i++)
			err = pt_vec_push(asked, found.v[i]);
	pt_vec_free(&found);
	return err;
}

/* ---- no turn at all ---------------------------------------------------------------- */

/* It wakes up with nothing to do: nearly all of its time it sleeps like that. Chosen. */
#define NO_TURN 0.95

/* Sleeps of `x` that a maker ends, which gives the consumer what it makes and takes again at once what
 * both need (the only connection of a pool): it never has its turn. */
static int take_starving(const struct pt_an *an, const struct pt_trainer *t,
			 const struct pt_worker *x, bool *starves, pt_spans *out)
{
	uint64_t starved = 0;
	int err = 0, w;

	pt_each_iv(iv, x->main, an->t0, an->t1) {
		const struct pt_thread *who = iv->valid_wake ?
						      pt_model_thread(an->m, iv->waker_tid) : NULL;
		struct pt_span s = { iv->begin, iv->ready };

		if (err || iv->wait == PT_WAIT_RUNQ || !who || who == x->main ||
		    !makes(t, who, &w) || !t->workers.v[w].delivered)
			continue;
		starved += s.end - s.begin;
		err = pt_vec_push(out, s);
	}
	*starves = !x->delivered && (double)starved >= NO_TURN * (double)(an->t1 - an->t0);
	return err;
}

/* One maker works, and all others sleep for what only it ever has. */
static int take_monopoly(const struct pt_an *an, const struct pt_trainer *t, pt_spans *asked)
{
	pt_spans found = { 0 };
	size_t i, starving = 0, others = 0;
	bool starves;
	int err = 0, w;

	for (i = 0; i < t->workers.n && others <= 1 && !err; i++) {
		if (!makes(t, t->workers.v[i].main, &w))
			continue;
		err = take_starving(an, t, &t->workers.v[i], &starves, &found);
		starving += starves;
		others += !starves;
	}
	for (i = 0; starving && others == 1 && i < found.n && !err; i++)
		err = pt_vec_push(asked, found.v[i]);
	pt_vec_free(&found);
	return err;
}

/* ---- behind others ----------------------------------------------------------------- */

/* Workers beyond are not asked. */
#define OTHERS_MAX 64

struct behind {
	struct pt_span s;
	int who, by; /* workers, by their numbers; by: -1 whoever has a lock */
};
struct behinds {
	const struct pt_an *an;
	const struct pt_trainer *t;
	int who; /* whose sleep is walked */
	PT_VEC(struct behind) v;
	uint64_t ns[OTHERS_MAX][OTHERS_MAX]; /* in data waits */
};

/* The walk has come upon the consumer: that sleep is for work, or for room. */
#define FOR_CONSUMER 1

/* A sleep of a worker goes back to a lock of a process that serves the workers (a manager's), or to
 * what another one does. */
static int behind_leg(void *ctx, const struct pt_leg *l)
{
	struct behinds *k = ctx;
	struct behind x = { { l->begin, l->end }, k->who, -1 };
	const struct pt_proc *p = l->th->proc;
	bool works = l->kind == PT_LEG_RUN || l->kind == PT_LEG_QUEUE;
	bool lock = l->kind == PT_LEG_LOCK && p != k->t->workers.v[k->who].proc && !p->outside &&
		    !pt_is_interpreter_lock(k->t->look->paths, l->th, l->iv);

	if (p == k->t->proc)
		return FOR_CONSUMER;
	if (!lock && (!works || !makes(k->t, l->th, &x.by) || x.by == k->who ||
		      x.by >= OTHERS_MAX))
		return 0;
	return pt_vec_push(&k->v, x);
}

static int walk_sleeps(struct behinds *k, const struct pt_worker *w, const pt_spans *waits)
{
	const struct pt_an *an = k->an;
	int err = 0;

	pt_each_iv(iv, w->main, an->t0, an->t1) {
		size_t had = k->v.n;

		if (err || iv->wait == PT_WAIT_RUNQ || !iv->valid_wake ||
		    iv->waker_tgid == k->t->proc->tgid || pt_rests(w, iv) ||
		    !pt_spans_in(waits, iv->begin, iv->ready))
			continue;
		err = pt_walk_cause(an, k->t->look->paths, w->main, iv->begin, iv->ready,
				    behind_leg, k);
		if (err == FOR_CONSUMER) {
			k->v.n = had;
			err = 0;
		}
		for (; had < k->v.n; had++)
			if (k->v.v[had].by >= 0)
				k->ns[k->who][k->v.v[had].by] += pt_spans_in(
					waits, k->v.v[had].s.begin, k->v.v[had].s.end);
	}
	return err;
}

/* Who only gives to another waits for it by no means as long as that one does. */
static bool is_mutual(const struct behinds *k, const struct behind *x)
{
	uint64_t there = k->ns[x->who][x->by], back = k->ns[x->by][x->who];

	return (double)pt_min64(there, back) >= PT_LOCK_MUTUAL * (double)pt_max64(there, back);
}

/*
 * Workers that wait for each other through somebody else: a manager that has their lock, a server
 * of leases.
 */
static int take_behind(const struct pt_an *an, const struct pt_trainer *t, const pt_spans *waits,
		       pt_spans *asked)
{
	struct behinds *k = calloc(1, sizeof(*k));
	size_t i, n = pt_min64(t->workers.n, OTHERS_MAX);
	int err = k ? 0 : -ENOMEM, w;

	for (i = 0; i < n && !err; i++) {
		k->an = an;
		k->t = t;
		k->who = (int)i;
		if (t->workers.v[i].proc != t->proc && makes(t, t->workers.v[i].main, &w))
			err = walk_sleeps(k, &t->workers.v[i], waits);
	}
	for (i = 0; !err && i < k->v.n; i++)
		if (k->v.v[i].by < 0 || is_mutual(k, &k->v.v[i]))
			err = pt_vec_push(asked, k->v.v[i].s);
	if (k)
		pt_vec_free(&k->v);
	free(k);
	return err;
}

int pt_sum_asked(const struct pt_an *an, struct pt_trainer *t)
{
	pt_spans asked = { 0 }, waits = { 0 };
	size_t i;
	int err = pt_wait_spans(an, t, &waits);

	for (i = 0; i < t->workers.n && !err; i++)
		if (t->workers.v[i].role != PT_ROLE_HELPER)
			err = take_sleeps(an, t, &t->workers.v[i], &asked);
	err = err ?: take_turns(an, t, &waits, &asked);
	err = err ?: take_monopoly(an, t, &asked);
	err = err ?: take_behind(an, t, &waits, &asked);
	pt_spans_tidy(&asked, 0, UINT64_MAX);
	if (!err)
		t->lock_asked_ns = pt_spans_overlap(&asked, &waits);
	pt_vec_free(&asked);
	pt_vec_free(&waits);
	return err;
}
