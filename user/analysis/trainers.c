/* SPDX-License-Identifier: BSD-2-Clause */
/* Which processes train: those that feed a device, but for loaders that use one for
 * their work (they descend from a trainer and hand over what they make). */
#include <errno.h>
#include <string.h>

#include "analysis/waits/look.h"

int pt_find_trainers(struct pt_an *an)
{
	size_t i;

	for (i = 0; i < an->m->all_procs.n; i++) {
		struct pt_trainer t = { .proc = an->m->all_procs.v[i] };

		if (pt_feeds_device(an, t.proc) && pt_vec_push(&an->trainers, t))
			return -ENOMEM;
	}
	return 0;
}

void pt_trainer_free(struct pt_trainer *t)
{
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		pt_vec_free(&t->workers.v[i].done);
		pt_vec_free(&t->workers.v[i].rests);
		pt_vec_free(&t->workers.v[i].service_ms);
		pt_vec_free(&t->workers.v[i].unsorted_ms);
	}
	pt_vec_free(&t->workers);
	pt_vec_free(&t->index);
	pt_vec_free(&t->relays);
	pt_vec_free(&t->steps);
	pt_vec_free(&t->waits);
	pt_vec_free(&t->host_places);
	pt_vec_free(&t->charges);
	pt_vec_free(&t->quotas);
	for (i = 0; i < t->devs.n; i++)
		pt_dev_free(&t->devs.v[i]);
	pt_vec_free(&t->devs);
	pt_vec_free(&t->writing);
	pt_look_free(t->look);
	t->look = NULL;
}
