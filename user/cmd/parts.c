// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/parts.h"

#include <errno.h>
#include <string.h>

#include "model/timeline.h"

int pt_parts_see(struct pt_parts *p, struct pt_model *m,
		 const struct pt_analysis_opts *o, const void *rec)
{
	struct pt_analysis_opts a = { .batch_size = o->batch_size,
				      .thresholds = o->thresholds };
	const struct pt_window *w;
	struct pt_r_window row;
	struct pt_rec_window r;
	struct pt_hdr h;
	uint64_t t0;
	int err;

	memcpy(&h, rec, sizeof(h));
	if (h.kind != PT_REC_WINDOW || h.size < sizeof(r) || p->whole)
		return 0;
	memcpy(&r, rec, sizeof(r));
	if (!r.ended || !m->windows.n)
		return 0;
	w = &m->windows.v[m->windows.n - 1];
	/* the model has not taken a record that makes no sense */
	t0 = w->begin > m->begin ? w->begin : m->begin;
	if (w->end != h.ts || w->end <= t0)
		return 0;
	err = pt_analyze_part(m, &a, t0, w->end, &row);
	err = err ?: pt_vec_push(&p->rows, row);
	/* the part before it is not needed any more, and this one still is */
	return err ? err : pt_model_cut(m, t0);
}

/* ---- at the end ------------------------------------------------------------------ */

/* The report is of the last one, unless the user has asked for a part. */
static void choose(struct pt_parts *p, const struct pt_model *m,
		   struct pt_analysis_opts *o)
{
	uint64_t base = m->begin > m->trimmed_ns ? m->begin - m->trimmed_ns : 0;
	struct pt_r_window *last;

	if (p->whole || !p->rows.n || o->by_steps || o->from_ns || o->until_ns)
		return;
	last = &p->rows.v[p->rows.n - 1];
	o->from_ns = (uint64_t)last->begin_ns - base;
	o->until_ns = (uint64_t)last->end_ns - base;
	last->reported = true;
}

/* The lines go into the report. */
static int fill(const struct pt_parts *p, struct pt_report *r)
{
	size_t n = p->rows.n;

	if (!n)
		return 0;
	r->windows = pt_arena_calloc(r->arena, n, sizeof(*r->windows));
	if (!r->windows)
		return -ENOMEM;
	memcpy(r->windows, p->rows.v, n * sizeof(*r->windows));
	r->n_windows = n;
	return pt_report_limit(r, "capture.schedule", "The report is of the last of %zu active parts of a schedule; windows has a line for each.",
			       n);
}

int pt_parts_report(struct pt_parts *p, struct pt_long *l, struct pt_model *m,
		    struct pt_analysis_opts *o, struct pt_report *r)
{
	int err = pt_model_finish(m), more;

	choose(p, m, o);
	more = pt_long_report(l, m, o, r);
	if (more == -ERANGE)
		return more;
	err = err ? err : more;
	more = fill(p, r);
	return err ? err : more;
}

void pt_parts_free(struct pt_parts *p)
{
	pt_vec_free(&p->rows);
}
