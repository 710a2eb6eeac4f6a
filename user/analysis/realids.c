/* SPDX-License-Identifier: BSD-2-Clause */
/* People know processes by the kernel's ids (see timeline.h). */
#include "analysis/internal.h"

static void real(int64_t *id)
{
	if (*id > 0)
		*id = pt_real_id((uint32_t)*id);
}

static void real_in_wait(const struct pt_r_data_wait *d)
{
	struct pt_r_charge *c = (struct pt_r_charge *)d->causes;
	size_t i;

	for (i = 0; i < d->n_causes; i++) {
		real(&c[i].subject_pid);
		real(&c[i].subject_tid);
	}
}

/* The report's parts are const for its readers; it is still being made. */
void pt_show_real_ids(struct pt_report *r)
{
	struct pt_r_step *s = (struct pt_r_step *)r->steps.list;
	struct pt_r_worker *w = (struct pt_r_worker *)r->workers;
	struct pt_r_rank *k = (struct pt_r_rank *)r->ranks;
	struct pt_r_verdict *v = (struct pt_r_verdict *)r->verdicts;
	struct pt_r_write *o = (struct pt_r_write *)r->writes;
	size_t i;

	real_in_wait(&r->data_wait);
	for (i = 0; i < r->steps.n_list; i++)
		real(&s[i].worker);
	for (i = 0; i < r->n_workers; i++) {
		real(&w[i].pid);
		real(&w[i].tid);
	}
	for (i = 0; i < r->n_writes; i++)
		real(&o[i].pid);
	for (i = 0; i < r->n_ranks; i++) {
		real(&k[i].pid);
		real_in_wait(&k[i].data_wait);
	}
	for (i = 0; i < r->n_verdicts; i++)
		real(&v[i].subject_pid);
}
