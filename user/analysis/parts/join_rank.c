/* SPDX-License-Identifier: BSD-2-Clause */
/* The report's parts that are of one trainer, from those of the parts; part.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/gpu/passes.h"
#include "analysis/gpu/operations.h"
#include "analysis/lines/lines.h"
#include "analysis/parts/part.h"
#include "report/fields.h"

/* ---- gpu ---------------------------------------------------------------------- */

static bool same_what(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

PT_ORDER(by_seconds, struct pt_r_charge,
	 pt_cmp(y->seconds, x->seconds) ?: (int)x->cause - (int)y->cause)

static void add_idle(struct pt_r_charge *o, size_t *n, size_t max,
		     const struct pt_r_gpu *g)
{
	size_t k;

	pt_each_of(const struct pt_r_charge, c, g->idle_causes, g->n_idle_causes) {
		for (k = 0; k < *n; k++)
			if (o[k].cause == c->cause &&
			    same_what(o[k].what, c->what))
				break;
		if (k == max)
			continue;
		if (k == *n) {
			o[(*n)++] = *c;
			o[k].seconds = 0;
		}
		o[k].seconds += c->seconds;
	}
}

static int add_failures(struct pt_an *an, struct pt_r_gpu *to,
			const struct pt_r_gpu *g)
{
	const struct pt_row *row = pt_row_find("alloc_failure");
	struct pt_r_alloc_failure *r;
	size_t k;

	pt_each_of(const struct pt_r_alloc_failure, f, g->alloc_failures, g->n_alloc_failures) {
		for (k = 0; k < to->n_alloc_failures; k++)
			if (to->alloc_failures[k].code == f->code)
				break;
		if (k == to->n_alloc_failures) {
			r = pt_arena_calloc(an->a, k + 1, sizeof(*r));
			if (!r)
				return -ENOMEM;
			if (k)
				memcpy(r, to->alloc_failures, k * sizeof(*r));
			r[k] = *f;
			/* what was held from before the piece is not known */
			r[k].held_bytes = PT_NULL;
			to->alloc_failures = r;
			to->n_alloc_failures++;
			continue;
		}
		pt_join_row(row, &to->alloc_failures[k], f, NULL);
		to->alloc_failures[k].last_ns = f->last_ns;
	}
	return 0;
}

static int join_gpu(struct pt_an *an, const struct pt_parts_of *all,
		    struct pt_r_gpu *o)
{
	double wall = (double)(an->t1 - an->t0) / NS_PER_S;
	size_t max = 2 * PT_CAUSE_NR, i, k, n = 0;
	struct pt_r_charge *idle = pt_arena_calloc(an->a, max, sizeof(*idle));
	int err = idle ? 0 : -ENOMEM;

	o->failed_allocations = 0;
	for (i = 0; i < all->n && !err; i++) {
		const struct pt_measured *r = pt_part_got(an, all, i);

		for (k = 0; r && k < r->rows->n_gpu && !err; k++) {
			const struct pt_r_gpu *g = &r->rows->gpu[k];

			if (g->index != o->index)
				continue;
			o->failed_allocations += g->failed_allocations;
			add_idle(idle, &n, max, g);
			err = add_failures(an, o, g);
		}
	}
	if (err)
		return err;
	for (i = 0; i < n; i++)
		idle[i].share = idle[i].seconds / wall;
	qsort(idle, n, sizeof(*idle), by_seconds);
	o->idle_causes = idle;
	o->n_idle_causes = n;
	return 0;
}

static int join_gpus(struct pt_an *an, const struct pt_parts_of *all,
		     struct pt_report *to)
{
	const struct pt_trainer *t = an->top;
	struct pt_r_gpu *g = pt_arena_calloc(an->a, t->devs.n + 1, sizeof(*g));
	size_t i;
	int err = g ? 0 : -ENOMEM;

	for (i = 0; i < t->devs.n && !err; i++) {
		g[i].index = pt_dev_index(&t->devs.v[i]);
		err = join_gpu(an, all, &g[i]);
	}
	to->gpu = g;
	to->n_gpu = err ? 0 : t->devs.n;
	return err;
}

/* ---- workers ------------------------------------------------------------------ */

/* A process' row is its latest main thread's. */
static struct pt_r_worker *row_of(struct pt_r_worker *o, size_t n, int64_t pid,
				  int64_t tid, bool pool)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (o[i].pid == pid && (!pool || o[i].tid == tid))
			return &o[i];
	return NULL;
}

static int join_workers(struct pt_an *an, const struct pt_parts_of *all,
			struct pt_report *to_r)
{
	const struct pt_trainer *t = an->top;
	const struct pt_row *row = pt_row_find("worker");
	size_t max = t->workers.n, i, k, n = 0;
	struct pt_r_worker *o = pt_arena_calloc(an->a, max + 1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	for (i = 0; i < all->n; i++) {
		const struct pt_measured *r = pt_part_got(an, all, i);

		for (k = 0; r && k < r->rows->n_workers; k++) {
			const struct pt_r_worker *w = &r->rows->workers[k];
			struct pt_r_worker *to = row_of(o, n, w->pid, w->tid,
							w->pid == t->proc->tgid);

			if (to)
				pt_join_row(row, to, w, NULL);
			else if (n < max)
				o[n++] = *w;
		}
	}
	pt_each(struct pt_worker, w, &t->workers) {
		struct pt_r_worker *to = row_of(o, n, w->proc->tgid, 0, false);

		if (!to)
			continue;
		pt_dist_of(w->service_ms.v, w->service_ms.n, &to->batch_ms);
		to->slowdown = w->slowdown;
		to->state = w->main->exited ? PT_WORKER_EXITED :
			    w->hung ? PT_WORKER_HUNG :
			    w->slow ? PT_WORKER_SLOW : PT_WORKER_OK;
	}
	to_r->workers = o;
	to_r->n_workers = n;
	return 0;
}

/* ---- operations ---------------------------------------------------------------- */

static double calls_of(const struct pt_r_operation *o)
{
	return o->calls > 0 ? (double)o->calls : 0;
}

struct op_row {
	const char *key; /* kind and name */
	size_t at;
	UT_hash_handle hh;
};

static int take_operation(struct pt_an *an, const struct pt_row *how,
			  struct op_row **all, struct pt_r_operation *o,
			  size_t *n, size_t max, const struct pt_r_operation *p)
{
	char *key = pt_arena_printf(an->a, "%s %s", p->kind, p->name);
	struct pt_join_weights w;
	struct op_row *row;

	if (!key)
		return -ENOMEM;
	HASH_FIND_STR(*all, key, row);
	if (row) {
		o += row->at;
		w = (struct pt_join_weights){ { calls_of(o) }, { calls_of(p) } };
		pt_join_row(how, o, p, &w);
		return 0;
	}
	if (*n == max)
		return 0;
	row = pt_arena_alloc(an->a, sizeof(*row));
	if (!row)
		return -ENOMEM;
	row->key = key;
	row->at = *n;
	HASH_ADD_KEYPTR(hh, *all, row->key, strlen(row->key), row);
	if (!PT_HASHED(row))
		return -ENOMEM;
	o[(*n)++] = *p;
	return 0;
}

static int join_operations(struct pt_an *an, const struct pt_parts_of *all,
			   struct pt_report *to)
{
	double wall = (double)(an->t1 - an->t0) / NS_PER_S;
	size_t i, k, n = 0, max = PT_OPS_MAX + PT_CAUSE_NR;
	const struct pt_row *row = pt_row_find("operation");
	struct pt_r_operation *o = pt_arena_calloc(an->a, max, sizeof(*o));
	struct op_row *names = NULL;
	int err = o ? 0 : -ENOMEM;

	for (i = 0; i < all->n; i++) {
		const struct pt_measured *r = pt_part_got(an, all, i);

		for (k = 0; r && k < r->rows->n_operations && !err; k++)
			err = take_operation(an, row, &names, o, &n, max,
					     &r->rows->operations[k]);
	}
	HASH_CLEAR(hh, names);
	if (err)
		return err;
	for (i = 0; i < n; i++)
		o[i].share = isfinite(o[i].total_s) ?
				     fmin(1, o[i].total_s / wall) : NAN;
	to->operations = o;
	to->n_operations = n;
	err = pt_report_sort_operations(to, PT_SORT_TOTAL);
	return err ? err : pt_report_limit(to, "operations.quantiles", "The capture was "
								       "analysed in %zu "
								       "pieces: p50 and p99 "
								       "of single calls, and "
								       "of requests to disks "
								       "and peers, are "
								       "averaged over them.",
					   all->n);
}

/* ---- what-if -------------------------------------------------------------------- */

#define MAX_ROWS 64
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

static int join_whatif(struct pt_an *an, const struct pt_parts_of *all,
		       struct pt_report *to)
{
	struct pt_r_whatif *o = pt_arena_calloc(an->a, MAX_ROWS, sizeof(*o));
	size_t i, n = 0, asked = 0, times[MAX_ROWS] = { 0 };

	if (!o)
		return -ENOMEM;
	for (i = 0; i < all->n; i++) {
		const struct pt_measured *r = pt_part_got(an, all, i);

		if (!r || !r->asked || !r->asked->n_whatif)
			continue;
		if (!asked++)
			to->best_workers = r->asked->best_workers;
		else if (to->best_workers != r->asked->best_workers)
			to->best_workers = PT_NULL;
		pt_each_of(const struct pt_r_whatif, w, r->asked->whatif, r->asked->n_whatif) {
			struct pt_r_whatif *have = whatif_row(o, n, w);

			if (!have && n == MAX_ROWS)
				continue;
			if (have)
				add_whatif(have, w, (double)times[have - o]++);
			else
				times[n] = 1, o[n++] = *w;
		}
	}
	for (i = 0; i < n; i++) {
		bool wide = o[i].speedup.high > WIDEST * o[i].speedup.low;

		if (times[i] == asked && !wide)
			continue;
		o[i].step_ms = NAN;
		o[i].speedup = (struct pt_range){ NAN, NAN, NAN };
		if (!o[i].note)
			o[i].note = "pieces of the capture differ too much";
	}
	to->whatif = o;
	to->n_whatif = n;
	return pt_report_limit(to, "whatif.sample", "Changes were replayed in %zu of %zu "
						    "pieces of the capture; a range covers "
						    "all of them.",
			       asked, all->n);
}

/* ---- all of them ----------------------------------------------------------------- */

static bool said(const struct pt_report *r, const char *what)
{
	size_t i;

	for (i = 0; i < r->capture.n_limits; i++)
		if (!strcmp(r->capture.limits[i].what, what))
			return true;
	return false;
}

int pt_join_limits(struct pt_report *to, const struct pt_report *from)
{
	size_t i;
	int err = 0;

	for (i = 0; i < from->capture.n_limits && !err; i++) {
		const struct pt_r_limit *l = &from->capture.limits[i];

		if (!said(to, l->what))
			err = pt_report_limit(to, l->what, "%s", l->reason);
	}
	return err;
}

int pt_join_rank(struct pt_an *an, const struct pt_parts_of *all,
		 struct pt_measured *to)
{
	struct pt_report *rows = pt_report_new_in(an->a);
	struct pt_report *asked = pt_report_new_in(an->a);
	size_t i;
	int err = rows && asked ? 0 : -ENOMEM;

	to->rows = rows;
	to->asked = asked;
	err = err ?: join_gpus(an, all, rows);
	err = err ?: join_workers(an, all, rows);
	err = err ?: join_operations(an, all, rows);
	err = err ?: pt_join_lines(an, all, rows);
	err = err ?: join_whatif(an, all, asked);
	for (i = all->n; i-- > 0 && !err;) {
		const struct pt_measured *r = pt_part_got(an, all, i);

		if (r)
			err = pt_join_limits(rows, r->rows);
		if (r && !err && r->asked)
			err = pt_join_limits(asked, r->asked);
	}
	return err;
}
