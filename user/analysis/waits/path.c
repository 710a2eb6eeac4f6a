/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/path.h"

/* Threads that end each other's sleeps at one moment, as clocks of two cores
 * may have it: the walk stays where it is. */
#define HOPS_MAX 64

struct walk {
	struct pt_paths *p;
	const struct pt_walk_opts *o;
	const struct pt_thread *th;
	uint64_t begin, at;
	unsigned hops; /* without a step back in time */
	struct pt_leg lock; /* the last lock that was waited for */
	const struct pt_iv *given; /* by whose end the walk came to its thread */
	const struct pt_iv *iv; /* that was met last, of `of`; NULL: none */
	const struct pt_thread *of;
};

/* From being woken to waking the next one. */
#define PASSED_ON_NS 200000ull

/* It slept where that sleep was, and only then ended it: it passes on what all who sleep
 * there are told (one condition for everybody). What was no lock there is none here. */
static bool passed_on(const struct walk *k, const struct pt_iv *iv)
{
	const struct pt_iv *x = k->given;

	return x && x->wait == iv->wait && x->arg0 >> 3 == iv->arg0 >> 3 &&
	       x->object == iv->object && iv->ready + PASSED_ON_NS >= x->ready;
}

/* The last interval that begins before `ts`, or NULL. */
static const struct pt_iv *iv_before(const struct pt_thread *th, uint64_t ts)
{
	size_t i = pt_iv_after(th, ts);

	if (i < th->iv.n && th->iv.v[i].begin < ts)
		return &th->iv.v[i];
	while (i && th->iv.v[i - 1].begin >= ts)
		i--;
	return i ? &th->iv.v[i - 1] : NULL;
}

/* ... where the walk is; mostly the one before that it met last. */
static const struct pt_iv *next_back(struct walk *k)
{
	bool one = k->iv && k->of == k->th && k->iv > k->th->iv.v &&
		   k->iv->begin >= k->at && k->iv[-1].begin < k->at;

	k->iv = one ? k->iv - 1 : iv_before(k->th, k->at);
	k->of = k->th;
	return k->iv;
}

/* A leg from `lo`, or the walk's begin, to where the walk is. */
static int step_back(struct walk *k, uint64_t lo, enum pt_leg_kind kind,
		     const struct pt_iv *iv, const struct pt_thread *who)
{
	struct pt_leg leg = { .kind = kind, .end = k->at, .th = k->th, .iv = iv,
			      .who = who,
			      .begin = lo > k->begin ? lo : k->begin };

	if (leg.begin >= leg.end)
		return 0;
	k->at = leg.begin;
	k->hops = 0;
	return k->o->leg(k->o->leg_ctx, &leg);
}

/* A thread can have ended it: a disk, a page, a timer end theirs by an interrupt. */
static bool given(const struct pt_iv *iv)
{
	switch (iv->wait) {
	case PT_WAIT_DISK: case PT_WAIT_DISK_WRITE: case PT_WAIT_FAULT:
	case PT_WAIT_SLEEP: case PT_WAIT_STOPPED: case PT_WAIT_RUNQ:
		return false;
	default:
		return iv->valid_wake && iv->wake != PT_WAKE_SIGNAL;
	}
}

/* Asleep before k->at. Who comes upon a sleep in its middle waits for what it was
 * for, too. */
static int sleep_back(struct walk *k, const struct pt_iv *iv)
{
	const struct pt_thread *who = NULL;
	enum pt_link link;

	if (given(iv))
		who = pt_model_thread(pt_paths_model(k->p), iv->waker_tid);
	if (who == k->th)
		who = NULL;
	/* a lock is asked for again and again (the interpreter's, every 5 ms) */
	if (!iv->valid_wake && iv->wait == PT_WAIT_FUTEX && k->lock.th == k->th &&
	    k->lock.iv->wait == PT_WAIT_FUTEX &&
	    k->lock.iv->arg0 >> 3 == iv->arg0 >> 3)
		return step_back(k, iv->begin, PT_LEG_LOCK, iv, k->lock.who);
	link = k->o->link(k->o->link_ctx, k->th, iv, k->at, &who);
	if (link == PT_LINK_LOCK && who && passed_on(k, iv))
		link = PT_LINK_FOLLOW;
	if (link == PT_LINK_LOCK) {
		k->lock = (struct pt_leg){ .th = k->th, .iv = iv, .who = who };
		return step_back(k, iv->begin, PT_LEG_LOCK, iv, who);
	}
	if (link == PT_LINK_FOLLOW && who && k->hops++ < HOPS_MAX) {
		k->th = who;
		k->given = iv;
		return 0;
	}
	return step_back(k, link == PT_LINK_BEGIN ? 0 : iv->begin,
			 given(iv) ? PT_LEG_GIVEN : PT_LEG_BLOCKED, iv, who);
}

/* Nothing of the thread is known before: it was made then, or records of it
 * begin only there. */
static int birth_back(struct walk *k)
{
	const struct pt_thread *parent = k->th->parent;
	int err = step_back(k, k->th->first, PT_LEG_RUN, NULL, NULL);

	if (err || k->at <= k->begin)
		return err;
	if (parent && parent != k->th && k->hops++ < HOPS_MAX) {
		k->th = parent;
		return 0;
	}
	return step_back(k, 0, PT_LEG_UNSEEN, NULL, NULL);
}

int pt_walk_back(struct pt_paths *p, const struct pt_thread *th, uint64_t begin,
		 uint64_t end, const struct pt_walk_opts *o)
{
	struct walk k = { .p = p, .o = o, .th = th, .begin = begin, .at = end };
	int err = 0;

	while (k.at > k.begin && !err) {
		const struct pt_iv *iv = next_back(&k);

		if (!iv || iv->end <= k.th->first) {
			err = birth_back(&k);
			continue;
		}
		if (k.at > iv->end)
			err = step_back(&k, iv->end, PT_LEG_RUN, NULL, NULL);
		if (!err && k.at > iv->ready && k.at > k.begin)
			err = step_back(&k, iv->ready, PT_LEG_QUEUE, iv, NULL);
		if (!err && k.at > k.begin && iv->ready > iv->begin)
			err = sleep_back(&k, iv);
	}
	return err;
}
