/* SPDX-License-Identifier: BSD-2-Clause */
/* Between charge.c, which walks waits back to their causes, and holding.c, which asks what those
 * did meanwhile who held a lock. */
#ifndef PT_WAITS_CHARGER_H
#define PT_WAITS_CHARGER_H

#include "analysis/waits/fed.h"
#include "analysis/waits/path.h"

struct pt_charger {
	struct pt_an *an;
	struct pt_trainer *t;
	const struct pt_actor *a;
	struct pt_paths *paths;
	struct pt_fetch *w;
	uint64_t by_cause[PT_CAUSE_NR];
	PT_VEC(uint64_t) by_worker; /* ns of this wait, by its index */
	PT_VEC(struct pt_mover) movers; /* likewise */
	pt_doubles kernel; /* of its computing: what its process does in the kernel */
	pt_doubles fetching; /* ... and pt_fetching_part() */
	const struct pt_thread *holder; /* of a lock, while it is looked at */
	const struct pt_thread *held_up; /* ... who waits for it */
	bool answer; /* the consumer had asked for what it sleeps for */
	const struct pt_iv *door; /* the socket through which the walk left the job */
	const struct pt_thread *at_door; /* who slept on it */
	const struct pt_thread *server; /* of a maker's process, beside it: it answered the consumer */
	pt_feds feds;
	const struct pt_thread *fed; /* the maker past whom the walk went on */
	int deliverer; /* of the batch that the walk is at; -1 not met yet */
	size_t ask;    /* the consumer's ask for more before that */
};

/* It takes batches: the consumer, or a relay of it. */
bool pt_charger_receives(const struct pt_charger *k, const struct pt_thread *th);
/* It sends what another thread of its worker makes. */
bool pt_only_sends(const struct pt_charger *k, const struct pt_thread *th);
/* `who`: whose part of the way back it is. 0 or -ENOMEM. */
int pt_charge(struct pt_charger *k, enum pt_cause cause, const struct pt_leg *l,
	      const struct pt_thread *who);
/* holding.c: a leg in which a lock was waited for. 0 or -ENOMEM. */
int pt_charge_lock(struct pt_charger *k, const struct pt_leg *l);

#endif
