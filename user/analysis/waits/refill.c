/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is asked for more has just delivered: a loader with a bounded number of
 * batches in flight hands its next wish to the worker whose batch it took. That
 * names the deliverer also where its message came while the consumer was busy with
 * another one and woke nobody. Learned from the waits that show who delivered, and
 * trusted only where it fits nearly always. It does not where all workers sleep for room in
 * one place (a semaphore, a pool's queue): whoever is woken there is the next in line.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/waits/look.h"

/* What speaks for another worker is chance, not a second rule. */
#define VOTES_MIN 4
#define VOTES_LEAD 3

/* Which worker ended a sleep of `th` in [b,e) last; -1: none did. */
static int last_giver(const struct pt_trainer *t, const struct pt_model *m,
		      const struct pt_thread *th, uint64_t b, uint64_t e, bool helpers)
{
	int w, found = -1;

	pt_each_iv(iv, th, b, e) {
		const struct pt_thread *who;

		if (iv->ready > e)
			break;
		who = iv->valid_wake ? pt_model_thread(m, iv->waker_tid) : NULL;
		if (who && pt_worker_index(t, who, &w) &&
		    (helpers || t->workers.v[w].role != PT_ROLE_HELPER))
			found = w;
	}
	return found;
}

int pt_last_deliverer(const struct pt_trainer *t, const struct pt_model *m,
		      const struct pt_thread *consumer, uint64_t b, uint64_t e, bool helpers)
{
	size_t i;
	int w = -1;

	for (i = 0; i < t->relays.n && w < 0; i++)
		w = last_giver(t, m, t->relays.v[i], b, e, helpers);
	return w < 0 ? last_giver(t, m, consumer, b, e, helpers) : w;
}

/* The only ask for an item in [b,e), or NULL. */
static const struct pt_ask *refill_of(const pt_asks *asks, size_t *hint, uint64_t b,
				      uint64_t e)
{
	const struct pt_ask *x = NULL;
	size_t i;

	while (*hint < asks->n && asks->v[*hint].ts < b)
		(*hint)++;
	for (i = *hint; i < asks->n && asks->v[i].ts < e; i++) {
		if (!asks->v[i].item)
			continue;
		if (x)
			return NULL;
		x = &asks->v[i];
	}
	return x;
}

static int winner(const uint32_t *v, size_t n)
{
	uint32_t best = 0, second = 0;
	int at = -1;
	size_t i;

	for (i = 0; i < n; i++) {
		if (v[i] > best) {
			second = best;
			best = v[i];
			at = (int)i;
		} else if (v[i] > second) {
			second = v[i];
		}
	}
	return best >= VOTES_MIN && best >= VOTES_LEAD * second ? at : -1;
}

int pt_learn_refills(const struct pt_an *an, struct pt_trainer *t)
{
	pt_asks *asks = &t->look->asks;
	size_t nw = t->workers.n, ns = t->proc->threads.n, i, hint = 0;
	size_t own = 0, others = 0; /* of those that are asked directly: who had delivered */
	uint32_t *votes = calloc(ns * nw + 1, sizeof(*votes));

	if (!votes)
		return -ENOMEM;
	pt_each(const struct pt_fetch, f, &t->waits) {
		const struct pt_ask *x = refill_of(asks, &hint, f->begin, f->end);
		int w = x && f->blocked_ns ?
			pt_last_deliverer(t, an->m, f->th, f->begin, f->end, false) : -1;

		if (w >= 0 && x->worker < 0)
			votes[(size_t)x->source * nw + (size_t)w]++;
		else if (w >= 0)
			*(w == x->worker ? &own : &others) += 1;
	}
	for (i = 0; i < asks->n; i++) {
		struct pt_ask *x = &asks->v[i];

		if (x->item && x->worker < 0)
			x->worker = winner(votes + (size_t)x->source * nw, nw);
		else if (others >= VOTES_MIN && own < VOTES_LEAD * others)
			x->worker = -1;
	}
	free(votes);
	return 0;
}
