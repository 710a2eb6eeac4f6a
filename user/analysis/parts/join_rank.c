/* SPDX-License-Identifier: BSD-2-Clause */
/* The report's parts that are of one trainer, from those of the parts; part.h. */
#include "analysis/parts/join.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/gpu/operations.h"
#include "analysis/lines/lines.h"
#include "report/fields.h"

/* ---- gpu ---------------------------------------------------------------------- */

PT_ORDER(by_seconds, struct pt_r_charge,
	 pt_cmp(y->seconds, x->seconds) ?: (int)x->cause - (int)y->cause)

static void add_idle(struct pt_join *j, struct pt_join_gpu *o, const struct pt_r_charge *c)
{
	size_t k;

	for (k = 0; k < o->n_idle; k++)
		if (o->idle[k].cause == c->cause && pt_same_text(o->idle[k].what, c->what))
			break;
	if (k == sizeof(o->idle) / sizeof(*o->idle))
		return;
	if (k == o->n_idle) {
		o->idle[o->n_idle++] = *c;
		pt_join_own(j, pt_row_find("charge"), &o->idle[k]);
		o->idle[k].seconds = 0;
	}
	o->idle[k].seconds += c->seconds;
}

static int add_failure(struct pt_join *j, struct pt_join_gpu *o,
		       const struct pt_r_alloc_failure *f)
{
	const struct pt_row *row = pt_row_find("alloc_failure");
	struct pt_r_alloc_failure x = *f;

	pt_each(struct pt_r_alloc_failure, have, &o->failures) {
		if (have->code != f->code)
			continue;
		pt_join_row(row, have, f, NULL);
		have->last_ns = f->last_ns;
		return 0;
	}
	/* what was held from before the piece is not known */
	x.held_bytes = PT_NULL;
	pt_join_own(j, row, &x);
	return pt_vec_push(&o->failures, x);
}

static struct pt_join_gpu *gpu_of(struct pt_join_rank *r, int64_t index)
{
	struct pt_join_gpu x = { .index = index };

	pt_each(struct pt_join_gpu, o, &r->gpus) {
		if (o->index == index)
			return o;
	}
	return pt_vec_push(&r->gpus, x) ? NULL : &r->gpus.v[r->gpus.n - 1];
}

static int add_gpu(struct pt_join *j, struct pt_join_rank *r, const struct pt_r_gpu *g)
{
	struct pt_join_gpu *o = gpu_of(r, g->index);
	size_t i;
	int err = o ? 0 : -ENOMEM;

	if (err)
		return err;
	o->failed_allocations += g->failed_allocations;
	for (i = 0; i < g->n_idle_causes; i++)
		add_idle(j, o, &g->idle_causes[i]);
	for (i = 0; i < g->n_alloc_failures && !err; i++)
		err = add_failure(j, o, &g->alloc_failures[i]);
	return err;
}

static int end_gpus(struct pt_an *an, struct pt_join_rank *r, const struct pt_trainer *t,
		    struct pt_report *to)
{
	double wall = pt_sec(an->t1 - an->t0);
	struct pt_r_gpu *g = pt_arena_calloc(an->a, t->devs.n + 1, sizeof(*g));
	struct pt_join_gpu *o;
	size_t i, k;

	if (!g)
		return -ENOMEM;
	for (i = 0; i < t->devs.n; i++) {
		g[i].index = pt_dev_index(&t->devs.v[i]);
		o = gpu_of(r, g[i].index);
		if (!o)
			return -ENOMEM;
		for (k = 0; k < o->n_idle; k++)
			o->idle[k].share = o->idle[k].seconds / wall;
		qsort(o->idle, o->n_idle, sizeof(*o->idle), by_seconds);
	}
	for (i = 0; i < t->devs.n; i++) { /* they stay where they are now */
		o = gpu_of(r, g[i].index);
		if (!o)
			return -ENOMEM;
		g[i].failed_allocations = o->failed_allocations;
		g[i].alloc_failures = o->failures.v;
		g[i].n_alloc_failures = o->failures.n;
		g[i].idle_causes = o->idle;
		g[i].n_idle_causes = o->n_idle;
	}
	to->gpu = g;
	to->n_gpu = t->devs.n;
	return 0;
}

/* ---- workers ------------------------------------------------------------------ */

/* A process' row is its latest main thread's. */
static struct pt_r_worker *row_of(struct pt_join_rank *r, int64_t pid, int64_t tid,
				  bool pool)
{
	pt_each(struct pt_r_worker, w, &r->workers) {
		if (w->pid == pid && (!pool || w->tid == tid))
			return w;
	}
	return NULL;
}

static int add_worker(struct pt_join *j, struct pt_join_rank *r,
		      const struct pt_trainer *t, const struct pt_r_worker *w)
{
	const struct pt_row *row = pt_row_find("worker");
	struct pt_r_worker x = *w, *to = row_of(r, w->pid, w->tid, w->pid == t->proc->tgid);

	if (to) {
		pt_join_row(row, to, w, NULL);
		return 0;
	}
	pt_join_own(j, row, &x);
	return pt_vec_push(&r->workers, x);
}

static void end_workers(struct pt_join_rank *r, struct pt_trainer *t, struct pt_report *to_r)
{
	pt_each(struct pt_worker, w, &t->workers) {
		struct pt_r_worker *to = row_of(r, w->proc->tgid, w->main->tid,
						w->proc == t->proc);

		if (to)
			pt_fill_worker_health(w, to);
	}
	to_r->workers = r->workers.v;
	to_r->n_workers = r->workers.n;
}

/* ---- operations ---------------------------------------------------------------- */

static double calls_of(const struct pt_r_operation *o)
{
	return o->calls > 0 ? (double)o->calls : 0;
}

struct pt_join_op {
	const char *key[2]; /* kind and name, as pt_join_text() has them */
	size_t at;
	UT_hash_handle hh;
};

static int add_operation(struct pt_join *j, struct pt_join_rank *r,
			 const struct pt_r_operation *p)
{
	const struct pt_row *row = pt_row_find("operation");
	const char *key[2] = { pt_join_known(j, p->kind), pt_join_known(j, p->name) };
	struct pt_r_operation *o, x = *p;
	struct pt_join_weights w;
	struct pt_join_op *op = NULL;

	if (key[0] && key[1])
		HASH_FIND(hh, r->names, key, sizeof(key), op);
	if (op) {
		o = &r->ops.v[op->at];
		w = (struct pt_join_weights){ { calls_of(o) }, { calls_of(p) } };
		pt_join_row(row, o, p, &w);
		return 0;
	}
	if (r->ops.n == PT_OPS_MAX + PT_CAUSE_NR)
		return 0;
	op = pt_arena_alloc(j->a, sizeof(*op));
	if (!op)
		return -ENOMEM;
	pt_join_own(j, row, &x);
	op->key[0] = x.kind;
	op->key[1] = x.name;
	op->at = r->ops.n;
	HASH_ADD(hh, r->names, key, sizeof(op->key), op);
	if (!PT_HASHED(op))
		return -ENOMEM;
	return pt_vec_push(&r->ops, x);
}

static int end_operations(struct pt_an *an, const struct pt_join *j,
			  struct pt_join_rank *r, struct pt_report *to)
{
	double wall = pt_sec(an->t1 - an->t0);
	int err;

	pt_each(struct pt_r_operation, o, &r->ops) {
		o->share = isfinite(o->total_s) ? fmin(1, o->total_s / wall) : NAN;
	}
	to->operations = r->ops.v;
	to->n_operations = r->ops.n;
	err = pt_report_sort_operations(to, PT_SORT_TOTAL);
	return err ? err : pt_report_limit(to, "operations.quantiles", "The capture was "
								       "analysed in %zu "
								       "pieces: p50 and p99 "
								       "of single calls, and "
								       "of requests to disks "
								       "and peers, are "
								       "averaged over them.",
					   j->n);
}

/* ---- what-if -------------------------------------------------------------------- */

/* As for a range of one simulation (docs/interventions.md): wider is no answer. */
#define WIDEST 1.25

static struct pt_r_whatif *whatif_row(struct pt_r_whatif *o, size_t n,
				      const struct pt_r_whatif *w)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (o[i].value == w->value && !strcmp(o[i].change, w->change))
			return &o[i];
	return NULL;
}

/* In every piece that was asked, or it is no answer. */
static void add_whatif(struct pt_r_whatif *o, const struct pt_r_whatif *w,
		       double n)
{
	o->step_ms = (o->step_ms * n + w->step_ms) / (n + 1);
	o->speedup.value = (o->speedup.value * n + w->speedup.value) / (n + 1);
	o->speedup.low = fmin(o->speedup.low, w->speedup.low);
	o->speedup.high = fmax(o->speedup.high, w->speedup.high);
	if (!isfinite(w->speedup.value)) {
		o->step_ms = NAN;
		o->speedup = (struct pt_range){ NAN, NAN, NAN };
	}
	if (!o->note)
		o->note = w->note;
}

static void add_asked(struct pt_join *j, struct pt_join_rank *r, const struct pt_report *asked)
{
	if (!asked->n_whatif)
		return;
	if (!r->asked++)
		r->best_workers = asked->best_workers;
	else if (r->best_workers != asked->best_workers)
		r->best_workers = PT_NULL;
	pt_each_of(const struct pt_r_whatif, w, asked->whatif, asked->n_whatif) {
		struct pt_r_whatif x = *w, *have = whatif_row(r->whatif, r->n_whatif, w);

		if (!have && r->n_whatif == PT_JOIN_WHATIF)
			continue;
		pt_join_own(j, pt_row_find("whatif"), &x);
		if (have)
			add_whatif(have, &x, (double)r->times[have - r->whatif]++);
		else
			r->times[r->n_whatif] = 1, r->whatif[r->n_whatif++] = x;
	}
}

static int end_asked(const struct pt_join *j, struct pt_join_rank *r, struct pt_report *to)
{
	struct pt_r_whatif *o = r->whatif;
	size_t i;

	for (i = 0; i < r->n_whatif; i++) {
		bool wide = o[i].speedup.high > WIDEST * o[i].speedup.low;

		if (r->times[i] == r->asked && !wide)
			continue;
		o[i].step_ms = NAN;
		o[i].speedup = (struct pt_range){ NAN, NAN, NAN };
		if (!o[i].note)
			o[i].note = "pieces of the capture differ too much";
	}
	if (r->asked)
		to->best_workers = r->best_workers;
	to->whatif = o;
	to->n_whatif = r->n_whatif;
	return pt_report_limit(to, "whatif.sample", "Changes were replayed in %zu of %zu "
						    "pieces of the capture; a range covers "
						    "all of them.",
			       r->asked, j->n);
}

/* ---- all of them ----------------------------------------------------------------- */

int pt_join_rank_add(struct pt_join *j, size_t i, const struct pt_measured *k)
{
	struct pt_join_rank *r = j->rank.v[i];
	const struct pt_report *rows = k->rows;
	size_t n;
	int err = 0;

	for (n = 0; n < rows->n_gpu && !err; n++)
		err = add_gpu(j, r, &rows->gpu[n]);
	for (n = 0; n < rows->n_workers && !err; n++)
		err = add_worker(j, r, &j->t.v[i], &rows->workers[n]);
	for (n = 0; n < rows->n_operations && !err; n++)
		err = add_operation(j, r, &rows->operations[n]);
	err = err ?: pt_join_lines(j, r, rows);
	if (k->asked)
		add_asked(j, r, k->asked);
	err = err ?: pt_join_limits_add(&r->limits, rows);
	return err || !k->asked ? err : pt_join_limits_add(&r->asked_limits, k->asked);
}

int pt_join_rank_end(struct pt_an *an, struct pt_join *j, size_t i, struct pt_measured *to)
{
	struct pt_report *rows = pt_report_new_in(an->a);
	struct pt_report *asked = pt_report_new_in(an->a);
	struct pt_join_rank *r = j->rank.v[i];
	int err = rows && asked ? 0 : -ENOMEM;

	to->rows = rows;
	to->asked = asked;
	err = err ?: end_gpus(an, r, &j->t.v[i], rows);
	if (err)
		return err;
	end_workers(r, &j->t.v[i], rows);
	rows->lines = r->lines.v;
	rows->n_lines = r->lines.n;
	err = end_operations(an, j, r, rows);
	err = err ?: end_asked(j, r, asked);
	err = err ?: pt_join_limits_end(rows, &r->limits);
	return err ?: pt_join_limits_end(asked, &r->asked_limits);
}

void pt_join_rank_free(struct pt_join_rank *r)
{
	pt_each(struct pt_join_gpu, g, &r->gpus) {
		pt_vec_free(&g->failures);
	}
	pt_vec_free(&r->gpus);
	pt_vec_free(&r->workers);
	pt_vec_free(&r->ops);
	pt_vec_free(&r->lines);
	pt_vec_free(&r->past);
	pt_join_limits_free(&r->limits);
	pt_join_limits_free(&r->asked_limits);
	HASH_CLEAR(hh, r->names);
	free(r);
}
