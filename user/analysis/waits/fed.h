/* SPDX-License-Identifier: BSD-2-Clause */
/* Makers that are fed by another stage, which decides how fast batches come. */
#ifndef PT_WAITS_FED_H
#define PT_WAITS_FED_H

#include "analysis/internal.h"
#include "analysis/waits/path.h"

struct pt_fed {
	const struct pt_thread *th, *by;
	uint64_t ns; /* that `th` waited for it, and for others like it */
};
typedef PT_VEC(struct pt_fed) pt_feds;

/* Of the trainer's workers, which say so, and of those that feed them in turn; appended. 0 or
 * -ENOMEM. */
int pt_find_fed(const struct pt_an *an, struct pt_trainer *t, const struct pt_actor *a,
		struct pt_paths *paths, pt_feds *out);
/* Who feeds `th`; NULL: nobody. There are no circles. */
const struct pt_thread *pt_fed_by(const pt_feds *f, const struct pt_thread *th);
/* Is it the giver that most of the waits for `w` are for? */
static inline bool pt_is_fed(const struct pt_worker *w)
{
	return 2 * w->fed_ns > w->charged_ns;
}

#endif
