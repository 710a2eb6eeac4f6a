/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranks, their collectives, and what steps are spent on. */
#include "report/json_int.h"

/* Median and 95th percentile, ms; null where there is nothing. */
static json_t *quantiles(struct pt_jb *b, const struct pt_dist *d)
{
	json_t *o;

	if (!d->n)
		return json_null();
	o = json_object();
	pt_j_put(b, o, "p50", pt_j_num(d->p50, PT_J_FINE));
	pt_j_put(b, o, "p95", pt_j_num(d->p95, PT_J_FINE));
	return o;
}

json_t *pt_j_step_parts(struct pt_jb *b, const struct pt_r_step_parts *p)
{
	json_t *o = json_object();

	pt_j_put(b, o, "own", quantiles(b, &p->own));
	pt_j_put(b, o, "data_wait", quantiles(b, &p->data_wait));
	pt_j_put(b, o, "gpu_wait", quantiles(b, &p->gpu_wait));
	pt_j_put(b, o, "collective", quantiles(b, &p->collective));
	pt_j_put(b, o, "collective_gpu", quantiles(b, &p->collective_gpu));
	return o;
}

static json_t *meetings(struct pt_jb *b, const struct pt_r_meetings *m)
{
	json_t *o;

	if (m->count <= 0)
		return json_null();
	o = json_object();
	pt_j_put(b, o, "count", pt_j_int(m->count));
	pt_j_put(b, o, "source", pt_j_name(m->measured ? "device" : "calls"));
	pt_j_put(b, o, "certainty",
		 pt_j_name(pt_confidence_name(m->certainty)));
	pt_j_put(b, o, "late_count", pt_j_int(m->late_count));
	pt_j_put(b, o, "last_share", pt_j_num(m->last_share, PT_J_STD));
	pt_j_put(b, o, "late_ms", quantiles(b, &m->late_ms));
	pt_j_put(b, o, "waits_for_others_s",
		 pt_j_num(m->waits_for_others, PT_J_STD));
	pt_j_put(b, o, "held_others_s", pt_j_num(m->held_others, PT_J_STD));
	pt_j_put(b, o, "lost_s", pt_j_num(m->lost, PT_J_STD));
	pt_j_text(b, o, "reason", m->reason);
	pt_j_put(b, o, "reason_s", pt_j_num(m->reason_s, PT_J_STD));
	return o;
}

json_t *pt_j_ranks(struct pt_jb *b, const struct pt_report *r)
{
	json_t *a = json_array();

	for (size_t i = 0; i < r->n_ranks; i++) {
		const struct pt_r_rank *k = &r->ranks[i];
		json_t *o = json_object(), *g = json_object();
		json_t *busy = json_object();

		pt_j_put(b, o, "pid", pt_j_int(k->pid));
		pt_j_put(b, o, "rank", pt_j_int(k->rank));
		pt_j_put(b, o, "steps", pt_j_int(k->steps));
		pt_j_put(b, o, "breakdown", pt_j_breakdown(b, &k->breakdown));
		pt_j_put(b, o, "data_wait", pt_j_data_wait(b, &k->data_wait));
		pt_j_put(b, busy, "share",
			 pt_j_num(k->gpu_busy_share, PT_J_STD));
		pt_j_put(b, g, "busy", busy);
		pt_j_put(b, o, "gpu", g);
		pt_j_put(b, o, "parts_ms", pt_j_step_parts(b, &k->parts));
		pt_j_put(b, o, "collectives", meetings(b, &k->meetings));
		pt_j_add(b, a, o);
	}
	return a;
}
