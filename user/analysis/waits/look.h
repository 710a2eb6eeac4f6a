/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From a trainer's calls and sleeps to its steps and waits, in this order:
 *
 *   gaps     the host's time between its GPU calls
 *   givers   who ends its sleeps in them, and what they are to it
 *   loader   who makes the batches, and when more was asked for
 *   host     what it did in each gap, with evidence of obtaining data
 *   period   which gaps begin a step
 *   obtain   when data was being obtained
 *   charge   what that waited for
 */
#ifndef PT_WAITS_LOOK_H
#define PT_WAITS_LOOK_H

#include "analysis/steps/period.h"
#include "analysis/waits/charge.h"
#include "analysis/waits/host.h"

struct pt_look {
	struct pt_paths *paths;
	struct pt_actor actor;
	struct pt_givers givers;
	struct pt_host host;
	struct pt_period period;
	pt_asks asks;
};

/* All but the charges, into `t`, whose proc is known; t->look keeps the rest. 0 or
 * -ENOMEM. */
int pt_look_at(struct pt_an *an, struct pt_trainer *t);
void pt_look_free(struct pt_look *l);

#endif
