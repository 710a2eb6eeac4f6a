/* SPDX-License-Identifier: BSD-2-Clause */
/* What each data wait was for. */
#ifndef PT_WAITS_CHARGE_H
#define PT_WAITS_CHARGE_H

#include "analysis/waits/givers.h"

/* Fills t->charges, cause_ns, and of the waits, steps and workers what they are
 * charged with. 0 or -ENOMEM. */
int pt_charge_waits(struct pt_an *an, struct pt_trainer *t,
		    const struct pt_actor *a, struct pt_paths *paths);
/* refill.c: t->look's asks that pass through a thread of the trainer get the worker
 * that they are for, where that can be learned. 0 or -ENOMEM. */
int pt_learn_refills(const struct pt_an *an, struct pt_trainer *t);
/* What a sleep is for, by itself. */
enum pt_cause pt_sleep_cause(const struct pt_an *an, const struct pt_iv *iv);

#endif
