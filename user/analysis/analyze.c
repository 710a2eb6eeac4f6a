/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/analysis.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "analysis/health.h"
#include "analysis/internal.h"
#include "analysis/ranks/meets.h"
#include "analysis/parts/piece.h"
#include "analysis/io/places.h"
#include "analysis/verdicts/thresholds.h"
#include "analysis/waits/look.h"
#include "analysis/whatif/whatif.h"

static const char *const loss_names[PT_LOSS_NR] = {
	[PT_LOSS_RING_FULL] = "ring_full",
	[PT_LOSS_NO_STORAGE] = "no_storage",
	[PT_LOSS_TARGETS_FULL] = "targets_full",
	[PT_LOSS_CLOCK] = "clock",
	[PT_LOSS_FILES_FULL] = "files_full",
	[PT_LOSS_MALFORMED] = "malformed",
	[PT_LOSS_MEMORY] = "memory",
	[PT_LOSS_ACTIVITY] = "gpu_activity",
	[PT_LOSS_RETURN] = "read_return",
};

static int fill_capture(struct pt_an *an)
{
	const struct pt_model *m = an->m;
	struct pt_r_capture *c = &an->r->capture;
	struct pt_r_loss *l = pt_arena_calloc(an->a, PT_LOSS_NR + 1, sizeof(*l));
	int64_t uncounted = pt_uncounted_losses(m);
	size_t i;

	if (!l)
		return -ENOMEM;
	c->begin_ns = (int64_t)an->t0;
	c->end_ns = (int64_t)an->t1;
	c->duration = (double)(an->t1 - an->t0) / NS_PER_S;
	if (m->begin_unix_ns)
		c->begin_unix_ns = (int64_t)(m->begin_unix_ns +
					     (an->t0 - m->begin));
	c->events = (int64_t)m->records;
	c->complete = m->complete;
	c->lost_total = 0;
	for (i = 0; i < PT_LOSS_NR; i++) {
		int64_t n = (int64_t)m->lost[i];

		if (i == PT_LOSS_MALFORMED)
			n += (int64_t)m->malformed;
		if (i == PT_LOSS_MEMORY)
			n += (int64_t)m->no_memory;
		c->lost_total += n;
		if (n && loss_names[i]) {
			l[c->n_lost].cause = loss_names[i];
			l[c->n_lost++].count = n;
		}
	}
	if (uncounted) {
		l[c->n_lost].cause = "uncounted";
		l[c->n_lost++].count = uncounted;
		c->lost_total += uncounted;
	}
	c->lost = l;
	return 0;
}

static int run_trainer(struct pt_an *an, struct pt_trainer *t)
{
	int err = pt_shape_steps(an, t);

	if (!err)
		err = pt_charge_waits(an, t, &t->look->actor, t->look->paths);
	if (!err)
		err = pt_model_gpu(an, t);
	if (!err)
		err = pt_measure_workers(an, t);
	if (!err)
		err = pt_sum_asked(an, t);
	if (!err)
		err = pt_sum_breakdown(an, t);
	if (!err)
		err = pt_split_idle(an, t);
	if (!err)
		err = pt_sum_host(an, t);
	if (!err)
		pt_find_epochs(an, t);
	return err;
}

/* With several ranks the top level is the worst. */
void pt_choose_top(struct pt_an *an)
{
	size_t i;

	for (i = 0; i < an->trainers.n; i++) {
		struct pt_trainer *t = &an->trainers.v[i];

		if (!an->top || t->starved_likely_ns > an->top->starved_likely_ns ||
		    (!an->top->steps.n && t->steps.n))
			an->top = t;
	}
}

int pt_find_all_steps(struct pt_an *an)
{
	size_t i;
	int err = pt_find_trainers(an);

	for (i = 0; i < an->trainers.n && !err; i++)
		err = pt_look_at(an, &an->trainers.v[i]);
	return err ? err : pt_narrow_to_steps(an);
}

int pt_explain_steps(struct pt_an *an)
{
	size_t i;
	int err = 0;

	for (i = 0; i < an->trainers.n && !err; i++)
		err = run_trainer(an, &an->trainers.v[i]);
	if (!err)
		err = pt_find_meets(an);
	pt_choose_top(an);
	return err;
}

int pt_run_passes(struct pt_an *an)
{
	int err = pt_find_all_steps(an);

	return err ? err : pt_explain_steps(an);
}

void pt_release_trainers(struct pt_an *an)
{
	size_t i;

	for (i = 0; i < an->trainers.n; i++)
		pt_trainer_free(&an->trainers.v[i]);
	pt_vec_free(&an->trainers);
	pt_meets_free(an->meets);
}

const struct pt_thresholds *pt_thresholds_of(const struct pt_analysis_opts *o)
{
	return o->thresholds ? o->thresholds : &pt_thresholds_default;
}

static int fill_thresholds(struct pt_an *an)
{
	struct pt_r_threshold *list =
		pt_arena_calloc(an->a, pt_threshold_count, sizeof(*list));
	size_t i, n = 0;

	if (!list)
		return -ENOMEM;
	for (i = 0; i < pt_threshold_count; i++) {
		const struct pt_threshold_def *d = &pt_threshold_defs[i];
		double v = pt_threshold_get(an->th, d);

		if (v != d->value)
			list[n++] = (struct pt_r_threshold){
				.name = d->name, .unit = d->unit, .value = v,
				.usual = d->value };
	}
	an->r->thresholds = list;
	an->r->n_thresholds = n;
	return 0;
}

/* Behind the passes: the report, whole. */
int pt_report_all(struct pt_an *an)
{
	int err = fill_thresholds(an);

	if (!err)
		err = fill_capture(an);
	if (!err)
		err = pt_limit_window(an);
	if (!err)
		err = pt_fill_report(an);
	if (!err)
		err = pt_mark_steps(an);
	if (!err)
		err = pt_fill_tables(an);
	if (!err)
		err = an->merge ? pt_merge_whatif(an) : pt_whatif(an);
	if (!err)
		err = pt_issue_verdicts(an);
	return err ? err : pt_judge_damage(an);
}

int pt_analyze(const struct pt_model *m, const struct pt_analysis_opts *o,
	       struct pt_report *r)
{
	struct pt_meets meets = { 0 };
	struct pt_places places = { 0 };
	struct pt_an an = { .m = m, .o = o, .r = r, .a = r->arena,
			    .meets = &meets, .places = &places,
			    .t0 = pt_exact_begin(m), .t1 = m->end,
			    .th = pt_thresholds_of(o) };
	int err = pt_set_window(&an);

	if (!err)
		err = pt_run_passes(&an);
	if (err == -ERANGE)
		r->capture.duration = (double)(m->end - m->begin +
					       m->trimmed_ns) / NS_PER_S;
	if (!err)
		err = pt_report_all(&an);
	if (!err && o->lanes)
		err = pt_fill_lanes(&an, o->lanes);
	pt_show_real_ids(r);
	pt_free_places(&places);
	pt_release_trainers(&an);
	return err;
}

void pt_sum_row(const struct pt_an *an, struct pt_r_window *out)
{
	const struct pt_report *r = an->r;
	uint64_t begin = an->m->begin - pt_min64(an->m->trimmed_ns, an->m->begin);
	size_t i;

	*out = (struct pt_r_window){
		.at = (double)(an->t0 - pt_min64(begin, an->t0)) / NS_PER_S,
		.duration = (double)(an->t1 - an->t0) / NS_PER_S,
		.begin_ns = (int64_t)an->t0, .end_ns = (int64_t)an->t1,
		.steps = an->top ? r->steps.count : PT_NULL,
		.step_ms = NAN, .step_p95_ms = NAN, .data_wait_share = NAN,
		.starved_share = NAN, .gpu_busy_share = NAN };
	if (an->top && r->steps.period_ms.n) {
		out->step_ms = r->steps.period_ms.mean;
		out->step_p95_ms = r->steps.period_ms.p95;
	}
	if (r->breakdown.known)
		out->data_wait_share = r->breakdown.data_wait.share;
	if (r->n_gpu) {
		out->starved_share = r->gpu[0].starved_share[1];
		out->gpu_busy_share = r->gpu[0].busy_share;
	}
	for (i = 0; i < r->n_verdicts && i < PT_R_WINDOW_VERDICTS; i++)
		out->verdicts[out->n_verdicts++] = r->verdicts[i].id;
}

int pt_analyze_part(struct pt_model *m, const struct pt_analysis_opts *o,
		    uint64_t t0, uint64_t t1, struct pt_r_window *out)
{
	struct pt_report *r = pt_report_new();
	struct pt_meets meets = { 0 };
	struct pt_places places = { 0 };
	struct pt_an an = { .m = m, .o = o, .r = r, .meets = &meets,
			    .places = &places,
			    .th = pt_thresholds_of(o), .part = true,
			    .t0 = t0, .t1 = t1 };
	int err = r ? pt_model_settle(m) : -ENOMEM;

	if (err)
		goto out;
	err = pt_model_lend_open(m);
	if (err)
		goto back;
	an.a = r->arena;
	err = pt_run_passes(&an);
	if (!err)
		err = pt_fill_report(&an);
	if (!err)
		err = pt_mark_steps(&an);
	if (!err)
		err = pt_fill_tables(&an);
	if (!err)
		err = pt_issue_verdicts(&an);
	if (!err)
		pt_sum_row(&an, out);
back:
	pt_model_take_back(m);
	pt_free_places(&places);
out:
	pt_release_trainers(&an);
	pt_report_free(r);
	return err;
}

void pt_analyze_live(struct pt_model *m, const struct pt_analysis_opts *o,
		     uint64_t now_ns, uint64_t window_ns,
		     struct pt_provisional *out)
{
	struct pt_report *r = pt_report_new();
	struct pt_meets meets = { 0 };
	struct pt_an an = { .m = m, .o = o, .r = r, .meets = &meets,
			    .th = pt_thresholds_of(o) };
	size_t i;

	out->steps = -1;
	out->steps_since = 0;
	out->newest_ns = 0;
	out->data_wait_share = NAN;
	out->verdict = NULL;
	if (!r || pt_model_settle(m))
		goto out;
	an.a = r->arena;
	an.t1 = pt_min64(now_ns, m->last_ts);
	an.t0 = an.t1 > window_ns ? an.t1 - window_ns : 0;
	an.t0 = pt_max64(an.t0, m->begin ? m->begin : m->first_ts);
	if (an.t1 <= an.t0 || pt_run_passes(&an) || !an.top)
		goto out;
	out->steps = (int64_t)an.top->steps.n;
	for (i = 0; i + 1 < an.top->steps.n; i++) {
		if (an.top->steps.v[i].begin <= out->since_ns)
			continue;
		out->steps_since++;
		out->newest_ns = an.top->steps.v[i].begin;
	}
	out->data_wait_share = (double)an.top->data_wait_ns /
			       (double)(an.t1 - an.t0);
	if (!pt_fill_report(&an) && !pt_issue_verdicts(&an) && r->n_verdicts)
		out->verdict = r->verdicts[0].id;
out:
	pt_release_trainers(&an);
	pt_report_free(r);
}
