/* SPDX-License-Identifier: BSD-2-Clause */
/* The report of a capture's parts. */
#include <errno.h>
#include <math.h>

#include "analysis/health.h"
#include "analysis/lines/lines.h"
#include "analysis/parts/part.h"

/* Of longer tables the report has the first rows. */
#define FILES_MAX 50

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

int pt_fill_capture(const struct pt_an *an, struct pt_report *r)
{
	const struct pt_model *m = an->m;
	struct pt_r_capture *c = &r->capture;
	struct pt_r_loss *l = pt_arena_calloc(an->a, PT_LOSS_NR + 1, sizeof(*l));
	int64_t uncounted = pt_uncounted_losses(m);
	size_t i;

	if (!l)
		return -ENOMEM;
	c->begin_ns = (int64_t)an->t0;
	c->end_ns = (int64_t)an->t1;
	c->duration = pt_sec(an->t1 - an->t0);
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

struct pt_trainer *pt_top_of(struct pt_trainer *t, size_t n)
{
	struct pt_trainer *top = NULL;
	size_t i;

	for (i = 0; i < n; i++)
		if (!top || t[i].starved_likely_ns > top->starved_likely_ns ||
		    (!top->steps.n && t[i].steps.n))
			top = &t[i];
	return top;
}

void pt_release_trainers(struct pt_an *an)
{
	size_t i;

	for (i = 0; i < an->trainers.n; i++)
		pt_trainer_free(&an->trainers.v[i]);
	pt_vec_free(&an->trainers);
}

const struct pt_thresholds *pt_thresholds_of(const struct pt_analysis_opts *o)
{
	return o->thresholds ? o->thresholds : &pt_thresholds_default;
}

static int fill_thresholds(struct pt_an *an)
{
	struct pt_r_threshold *list =
		pt_arena_calloc(an->a, pt_threshold_count, sizeof(*list));
	size_t n = 0;

	if (!list)
		return -ENOMEM;
	pt_each_of(const struct pt_threshold_def, d, pt_threshold_defs, pt_threshold_count) {
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

/* The rows of a table are of the part's report. */
static void take_host(struct pt_report *r, const struct pt_report *from)
{
	r->files = from->files;
	r->n_files = from->n_files < FILES_MAX ? from->n_files : FILES_MAX;
	r->disks = from->disks;
	r->n_disks = from->n_disks;
	r->writes = from->writes;
	r->n_writes = from->n_writes;
	r->peers = from->peers;
	r->n_peers = from->n_peers;
	r->memory = from->memory;
}

static int take_limits(struct pt_report *r, const struct pt_report *from)
{
	size_t i;
	int err = 0;

	for (i = 0; i < from->capture.n_limits && !err; i++)
		err = pt_report_limit(r, from->capture.limits[i].what, "%s",
				      from->capture.limits[i].reason);
	return err;
}

static int take_tables(struct pt_an *an, const struct pt_part *all,
		       const struct pt_measured *k)
{
	struct pt_report *r = an->r;
	int err = 0;

	if (an->top) {
		r->workers = k->rows->workers;
		r->n_workers = k->rows->n_workers;
		r->operations = k->rows->operations;
		r->n_operations = k->rows->n_operations;
		err = take_limits(r, k->rows) ?: pt_finish_lines(an, k->rows);
	}
	take_host(r, all->r);
	pt_finish_working_set(r);
	err = err ?: take_limits(r, all->r);
	err = err ?: pt_fill_samples(an);
	if (err || !an->top || !k->asked)
		return err;
	r->whatif = k->asked->whatif;
	r->n_whatif = k->asked->n_whatif;
	r->best_workers = k->asked->best_workers;
	return take_limits(r, k->asked);
}

/* All that the report says of `all`, the one part. */
static int conclude(struct pt_an *an, const struct pt_part *all,
		    const struct pt_measured *k)
{
	int err = fill_thresholds(an);

	err = err ?: pt_fill_capture(an, an->r);
	err = err ?: pt_limit_window(an);
	err = err ?: pt_fill_report(an, k, &all->reads);
	err = err ?: pt_fill_overhead(an);
	err = err ?: pt_mark_steps(an);
	err = err ?: take_tables(an, all, k);
	err = err ?: pt_issue_verdicts(an, k);
	return err ? err : pt_judge_damage(an);
}

static int finish(struct pt_an *an, struct pt_part *p, struct pt_join *j,
		  struct pt_lanes *lanes)
{
	struct pt_part joined = { 0 };
	int err = 0;

	an->a = an->r->arena;
	an->th = pt_thresholds_of(an->o);
	if (j) {
		err = pt_join_end(an, j, &joined);
		p = &joined;
	}
	an->t0 = p->t0;
	an->t1 = p->t1;
	an->step0 = p->step0;
	an->part = p->window;
	an->asked = p->asked;
	an->trainers.v = p->t;
	an->trainers.n = p->n;
	an->meets = &p->meets;
	an->top = pt_top_of(p->t, p->n);
	if (!err)
		err = conclude(an, p, an->top ? &p->got[an->top - p->t] :
				   &(struct pt_measured){ .hung = p->hung });
	if (!err && lanes)
		err = pt_fill_lanes(an, j, lanes);
	an->meets = NULL; /* it may be of `joined` */
	return err;
}

int pt_finish(const struct pt_model *m, const struct pt_analysis_opts *o,
	      struct pt_part *p, struct pt_join *j, struct pt_report *r)
{
	struct pt_an an = { .m = m, .o = o, .r = r };
	int err = finish(&an, p, j, o->lanes);

	pt_show_real_ids(r);
	return err;
}

/* ---- one line ------------------------------------------------------------------ */

static void sum_row(const struct pt_an *an, struct pt_r_window *out)
{
	const struct pt_report *r = an->r;
	uint64_t begin = an->m->begin - pt_min64(an->m->trimmed_ns, an->m->begin);
	size_t i;

	*out = (struct pt_r_window){
		.at = pt_sec(an->t0 - pt_min64(begin, an->t0)),
		.duration = pt_sec(an->t1 - an->t0),
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

int pt_finish_row(const struct pt_model *m, const struct pt_analysis_opts *o,
		  struct pt_part *p)
{
	struct pt_report *r = pt_report_new();
	struct pt_an an = { .m = m, .o = o, .r = r };
	int err = r ? finish(&an, p, NULL, NULL) : -ENOMEM;

	if (!err)
		sum_row(&an, &p->row);
	pt_report_free(r);
	return err;
}
