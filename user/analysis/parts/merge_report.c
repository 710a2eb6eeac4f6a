/* SPDX-License-Identifier: BSD-2-Clause */
/* The report's parts that are of one trainer, from the pieces' own; piece.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/gpu/passes.h"
#include "analysis/gpu/operations.h"
#include "analysis/parts/piece.h"

static const struct pt_piece_rank *rank_at(const struct pt_an *an, size_t i)
{
	return pt_piece_rank_of(an->merge->v[i], an->top->proc);
}

void pt_dist_join(struct pt_dist *to, const struct pt_dist *d)
{
	double a, b, mean, sq;

	if (!d->n)
		return;
	if (!to->n) {
		*to = *d;
		return;
	}
	a = (double)to->n / (double)(to->n + d->n);
	b = 1 - a;
	mean = a * to->mean + b * d->mean;
	sq = a * (to->std * to->std + (to->mean - mean) * (to->mean - mean)) +
	     b * (d->std * d->std + (d->mean - mean) * (d->mean - mean));
	to->std = sqrt(sq);
	to->mean = mean;
	to->p50 = a * to->p50 + b * d->p50;
	to->p95 = a * to->p95 + b * d->p95;
	to->p99 = a * to->p99 + b * d->p99;
	to->min = fmin(to->min, d->min);
	to->max = fmax(to->max, d->max);
	to->n += d->n;
}

/* ---- phases ------------------------------------------------------------------- */

#define MAX_PHASES 16

int pt_merge_phases(struct pt_an *an)
{
	struct pt_r_phase *o = pt_arena_calloc(an->a, MAX_PHASES, sizeof(*o));
	double sum = 0;
	size_t i, k, j, n = 0;

	if (!o)
		return -ENOMEM;
	for (i = 0; i < an->merge->n; i++) {
		const struct pt_piece_rank *r = rank_at(an, i);

		for (k = 0; r && k < r->r->n_phases; k++) {
			const struct pt_r_phase *p = &r->r->phases[k];

			for (j = 0; j < n && strcmp(o[j].name, p->name); j++)
				;
			if (j == MAX_PHASES)
				continue;
			if (j == n) {
				o[n] = *p;
				o[n++].seconds = 0;
			}
			o[j].seconds += p->seconds;
			sum += p->seconds;
		}
	}
	for (i = 0; i < n; i++)
		o[i].share = sum > 0 ? o[i].seconds / sum : 0;
	an->r->phases = o;
	an->r->n_phases = n;
	return 0;
}

/* ---- gpu ---------------------------------------------------------------------- */

static bool same_what(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static int by_seconds(const void *a, const void *b)
{
	const struct pt_r_charge *x = a, *y = b;

	if (x->seconds != y->seconds)
		return x->seconds > y->seconds ? -1 : 1;
	return (int)x->cause - (int)y->cause;
}

static void add_idle(struct pt_r_charge *o, size_t *n, size_t max,
		     const struct pt_r_gpu *g)
{
	size_t i, k;

	for (i = 0; i < g->n_idle_causes; i++) {
		const struct pt_r_charge *c = &g->idle_causes[i];

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
	struct pt_r_alloc_failure *r;
	size_t i, k;

	for (i = 0; i < g->n_alloc_failures; i++) {
		const struct pt_r_alloc_failure *f = &g->alloc_failures[i];

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
		r = &to->alloc_failures[k];
		r->count += f->count;
		r->retried += f->retried;
		r->recovered += f->recovered;
		if (f->largest_bytes > r->largest_bytes)
			r->largest_bytes = f->largest_bytes;
		if (f->smallest_bytes < r->smallest_bytes)
			r->smallest_bytes = f->smallest_bytes;
		r->last_ns = f->last_ns;
	}
	return 0;
}

static int merge_one_gpu(struct pt_an *an, struct pt_r_gpu *o)
{
	double wall = (double)(an->t1 - an->t0) / NS_PER_S;
	size_t max = 2 * PT_CAUSE_NR, i, k, n = 0;
	struct pt_r_charge *idle = pt_arena_calloc(an->a, max, sizeof(*idle));
	int err = idle ? 0 : -ENOMEM;

	o->failed_allocations = 0;
	for (i = 0; i < an->merge->n && !err; i++) {
		const struct pt_piece_rank *r = rank_at(an, i);

		for (k = 0; r && k < r->r->n_gpu && !err; k++) {
			const struct pt_r_gpu *g = &r->r->gpu[k];

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

int pt_merge_gpu(struct pt_an *an, const struct pt_trainer *t,
		 struct pt_r_gpu *g)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->devs.n && !err; i++)
		err = merge_one_gpu(an, &g[i]);
	return err;
}

/* ---- workers ------------------------------------------------------------------ */

static void sum_count(int64_t *to, int64_t n)
{
	*to = *to == PT_NULL || n == PT_NULL ? PT_NULL : *to + n;
}

static void sum_time(double *to, double s)
{
	if (isfinite(s))
		*to = isfinite(*to) ? *to + s : s;
}

static void add_worker(struct pt_r_worker *o, const struct pt_r_worker *w)
{
	sum_time(&o->cpu, w->cpu);
	sum_time(&o->run_queue, w->run_queue);
	sum_time(&o->throttle, w->throttle);
	sum_time(&o->disk, w->disk);
	sum_time(&o->page_fault, w->page_fault);
	sum_time(&o->network, w->network);
	sum_time(&o->lock, w->lock);
	sum_time(&o->ipc, w->ipc);
	sum_time(&o->worker_idle, w->worker_idle);
	sum_time(&o->prefetch_full, w->prefetch_full);
	sum_time(&o->other, w->other);
	sum_time(&o->window, w->window);
	sum_count(&o->batches, w->batches);
	sum_count(&o->read_bytes, w->read_bytes);
	/* none seen in a piece are none */
	if (w->reads != PT_NULL)
		o->reads = o->reads == PT_NULL ? w->reads : o->reads + w->reads;
	o->state = w->state;
}

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

int pt_merge_workers(struct pt_an *an)
{
	const struct pt_trainer *t = an->top;
	size_t max = t->workers.n, i, k, n = 0;
	struct pt_r_worker *o = pt_arena_calloc(an->a, max + 1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	for (i = 0; i < an->merge->n; i++) {
		const struct pt_piece_rank *r = rank_at(an, i);

		for (k = 0; r && k < r->r->n_workers; k++) {
			const struct pt_r_worker *w = &r->r->workers[k];
			struct pt_r_worker *to = row_of(o, n, w->pid, w->tid,
							w->pid == t->proc->tgid);

			if (to)
				add_worker(to, w);
			else if (n < max)
				o[n++] = *w;
		}
	}
	for (i = 0; i < t->workers.n; i++) {
		struct pt_worker *w = &t->workers.v[i];
		struct pt_r_worker *to = row_of(o, n, w->proc->tgid, 0, false);

		if (!to)
			continue;
		pt_dist_of(w->service_ms.v, w->service_ms.n, &to->batch_ms);
		to->slowdown = w->slowdown;
		to->state = w->main->exited ? PT_WORKER_EXITED :
			    w->hung ? PT_WORKER_HUNG :
			    w->slow ? PT_WORKER_SLOW : PT_WORKER_OK;
	}
	an->r->workers = o;
	an->r->n_workers = n;
	return 0;
}

/* ---- operations ---------------------------------------------------------------- */

static double mean_by(double a, double na, double b, double nb)
{
	if (!isfinite(a) || !(na > 0))
		return b;
	return isfinite(b) && nb > 0 ? (a * na + b * nb) / (na + nb) : a;
}

static double calls_of(const struct pt_r_operation *o)
{
	return o->calls > 0 ? (double)o->calls : 0;
}

static void add_operation(struct pt_r_operation *o,
			  const struct pt_r_operation *p)
{
	double a = calls_of(o), b = calls_of(p);

	o->mean_us = mean_by(o->mean_us, a, p->mean_us, b);
	o->p50_us = mean_by(o->p50_us, a, p->p50_us, b);
	o->p99_us = mean_by(o->p99_us, a, p->p99_us, b);
	o->min_us = fmin(o->min_us, p->min_us); /* that of numbers */
	o->max_us = fmax(o->max_us, p->max_us);
	sum_time(&o->total_s, p->total_s);
	sum_time(&o->cpu_s, p->cpu_s);
	sum_time(&o->gpu_s, p->gpu_s);
	sum_count(&o->calls, p->calls);
	sum_count(&o->bytes, p->bytes);
	if (p->certainty > o->certainty)
		o->certainty = p->certainty;
}

struct op_row {
	const char *key; /* kind and name */
	size_t at;
	UT_hash_handle hh;
};

static int take_operation(struct pt_an *an, struct op_row **all,
			  struct pt_r_operation *o, size_t *n, size_t max,
			  const struct pt_r_operation *p)
{
	char *key = pt_arena_printf(an->a, "%s %s", p->kind, p->name);
	struct op_row *row;

	if (!key)
		return -ENOMEM;
	HASH_FIND_STR(*all, key, row);
	if (row) {
		add_operation(&o[row->at], p);
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

int pt_merge_operations(struct pt_an *an)
{
	double wall = (double)(an->t1 - an->t0) / NS_PER_S;
	size_t i, k, n = 0, max = PT_OPS_MAX + PT_CAUSE_NR;
	struct pt_r_operation *o = pt_arena_calloc(an->a, max, sizeof(*o));
	struct op_row *all = NULL;
	int err = o ? 0 : -ENOMEM;

	for (i = 0; i < an->merge->n; i++) {
		const struct pt_piece_rank *r = rank_at(an, i);

		for (k = 0; r && k < r->r->n_operations && !err; k++)
			err = take_operation(an, &all, o, &n, max,
					     &r->r->operations[k]);
	}
	HASH_CLEAR(hh, all);
	if (err)
		return err;
	for (i = 0; i < n; i++)
		o[i].share = isfinite(o[i].total_s) ?
				     fmin(1, o[i].total_s / wall) : NAN;
	an->r->operations = o;
	an->r->n_operations = n;
	err = pt_report_sort_operations(an->r, PT_SORT_TOTAL);
	return err ? err : pt_report_limit(an->r, "operations.quantiles", "The capture was looked at in %zu pieces: p50 and p99 of single calls, and of requests to disks and peers, are means of theirs.",
					   an->merge->n);
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

int pt_merge_whatif(struct pt_an *an)
{
	struct pt_r_whatif *o = pt_arena_calloc(an->a, MAX_ROWS, sizeof(*o));
	size_t i, k, n = 0, asked = 0, times[MAX_ROWS] = { 0 };

	if (!o)
		return -ENOMEM;
	if (!an->top)
		return 0;
	for (i = 0; i < an->merge->n; i++) {
		const struct pt_piece_rank *r = rank_at(an, i);

		if (!r || !r->whatif || !r->r->n_whatif)
			continue;
		if (!asked++)
			an->r->best_workers = r->r->best_workers;
		else if (an->r->best_workers != r->r->best_workers)
			an->r->best_workers = PT_NULL;
		for (k = 0; k < r->r->n_whatif; k++) {
			const struct pt_r_whatif *w = &r->r->whatif[k];
			struct pt_r_whatif *to = whatif_row(o, n, w);

			if (!to && n == MAX_ROWS)
				continue;
			if (to)
				add_whatif(to, w, (double)times[to - o]++);
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
	an->r->whatif = o;
	an->r->n_whatif = n;
	return pt_report_limit(an->r, "whatif.sample", "What a change would win was replayed in %zu of %zu pieces of the capture; the range is over theirs.",
			       asked, an->merge->n);
}

/* ---- limits --------------------------------------------------------------------- */

static bool said(const struct pt_report *r, const char *what)
{
	size_t i;

	for (i = 0; i < r->capture.n_limits; i++)
		if (!strcmp(r->capture.limits[i].what, what))
			return true;
	return false;
}

static int take_limits(struct pt_report *r, const struct pt_report *from)
{
	size_t i, n = from->capture.n_limits;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		const struct pt_r_limit *l = &from->capture.limits[i];

		if (!said(r, l->what))
			err = pt_report_limit(r, l->what, "%s", l->reason);
	}
	return err;
}

/* What a piece could not show, the whole does not; one reason each, the latest. */
int pt_merge_limits(struct pt_an *an)
{
	size_t i;
	int err = 0;

	for (i = an->merge->n; i-- > 0 && !err;) {
		const struct pt_piece_rank *r = an->top ? rank_at(an, i) : NULL;

		err = take_limits(an->r, an->merge->v[i]->r);
		if (!err && r)
			err = take_limits(an->r, r->r);
	}
	return err;
}
