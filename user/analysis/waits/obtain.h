/* SPDX-License-Identifier: BSD-2-Clause */
/* When data was being obtained, and so where steps begin. */
#ifndef PT_WAITS_OBTAIN_H
#define PT_WAITS_OBTAIN_H

#include "analysis/steps/period.h"

/* Fills t->steps and t->waits. 0 or -ENOMEM. */
int pt_find_obtaining(const struct pt_an *an, struct pt_trainer *t,
		      const struct pt_host *h, const struct pt_period *p);

#endif
