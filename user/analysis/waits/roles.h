/* SPDX-License-Identifier: BSD-2-Clause */
/* Whoever ends the consumer's sleeps: what its sums say that it is. */
#ifndef PT_WAITS_ROLES_H
#define PT_WAITS_ROLES_H

#include "analysis/waits/givers.h"

/* May one in another process be no supplier for what it had begun before it was waited
 * for? Then that is worth summing before pt_find_roles(). */
bool pt_ahead_tells(const struct pt_givers *g);
/* Who else writes just what goes up: g->whole_writers, by its feed. */
void pt_find_writers(struct pt_givers *g);
/* Of each; alone, then with those of its kind. 0 or -ENOMEM. */
int pt_find_roles(struct pt_givers *g);

#endif
