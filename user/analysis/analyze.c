/* SPDX-License-Identifier: BSD-2-Clause */
/* What is asked of a model: its parts are made, and finished into a report. */
#include "analysis/analysis.h"

#include <errno.h>
#include <math.h>

#include "analysis/parts/part.h"

int pt_analyze(struct pt_model *m, const struct pt_analysis_opts *o,
	       struct pt_report *r)
{
	return pt_analyze_parts(m, o, NULL, r);
}

int pt_analyze_parts(struct pt_model *m, const struct pt_analysis_opts *o,
		     struct pt_join *j, struct pt_report *r)
{
	struct pt_part_ask ask = { .before = j ? pt_join_head(j) : NULL,
				   .tables = true, .whatif = true, .row = j };
	struct pt_part *last = NULL;
	int err = 0;

	/* else nothing is left */
	if (!j || m->end > pt_part_end(ask.before)) {
		err = pt_part_make(m, o, &ask, r->arena, &last);
		if (!err && j)
			err = pt_join_add(j, last);
	}
	if (err == -ERANGE) {
		r->capture.duration = pt_sec(m->end - m->begin + m->trimmed_ns);
		r->steps.count = last->r->steps.count;
	}
	err = err ?: pt_finish(m, o, j ? NULL : last, j, r);
	pt_part_drop(last);
	return err;
}

int pt_analyze_part(struct pt_model *m, const struct pt_analysis_opts *o,
		    uint64_t t0, uint64_t t1, struct pt_r_window *out)
{
	struct pt_part_ask ask = { .from = t0, .until = t1, .tables = true,
				   .row = true };
	struct pt_arena *a = pt_arena_new();
	struct pt_part *p = NULL;
	int err = a ? pt_part_make(m, o, &ask, a, &p) : -ENOMEM;

	if (!err)
		*out = p->row;
	pt_part_drop(p);
	pt_arena_free(a);
	return err;
}

static void count_steps(const struct pt_trainer *t, struct pt_provisional *out)
{
	size_t i;

	out->steps = (int64_t)t->steps.n;
	for (i = 0; i + 1 < t->steps.n; i++) {
		if (t->steps.v[i].begin <= out->since_ns)
			continue;
		out->steps_since++;
		out->newest_ns = t->steps.v[i].begin;
	}
}

void pt_analyze_live(struct pt_model *m, const struct pt_analysis_opts *o,
		     uint64_t now_ns, uint64_t window_ns,
		     struct pt_provisional *out)
{
	struct pt_part_ask ask = { .as_it_is = true, .row = true };
	struct pt_arena *a = pt_arena_new();
	struct pt_part *p = NULL;
	const struct pt_trainer *top;

	out->steps = -1;
	out->steps_since = 0;
	out->newest_ns = 0;
	out->data_wait_share = NAN;
	out->verdict = NULL;
	ask.until = pt_min64(now_ns, m->last_ts);
	ask.from = ask.until > window_ns ? ask.until - window_ns : 0;
	ask.from = pt_max64(ask.from, m->begin ? m->begin : m->first_ts);
	if (a && ask.until > ask.from && !pt_part_make(m, o, &ask, a, &p) &&
	    p->n) {
		top = pt_top_of(p->t, p->n);
		count_steps(top, out);
		out->data_wait_share = (double)top->data_wait_ns /
				       (double)pt_part_ns(p);
		out->verdict = p->row.n_verdicts ? p->row.verdicts[0] : NULL;
	}
	pt_part_drop(p);
	pt_arena_free(a);
}
