/* SPDX-License-Identifier: BSD-2-Clause */
/* The report's rows of lines, from those of the parts. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/lines/lines.h"
#include "analysis/parts/join.h"
#include "report/fields.h"

#define SHARE_MIN 0.01 /* of what is alike; less is no row */
#define ROWS_MAX 4096
#define WORKER_MAX 5 /* lines in a worker's own row */

/* Rows of one thread, or of all workers (PT_NULL, before every thread), that are alike stand
 * together. */
static int by_group(const struct pt_r_line *x, const struct pt_r_line *y)
{
	return strcmp(x->who, y->who) ?: pt_cmp(x->pid, y->pid) ?: pt_cmp(x->tid, y->tid) ?:
	       pt_cmp(x->cause, y->cause) ?: pt_cmp(x->data_wait, y->data_wait);
}

PT_ORDER(by_line, struct pt_r_line,
	 by_group(x, y) ?: strcmp(x->file, y->file) ?: pt_cmp(x->line, y->line) ?:
	 strcmp(x->function, y->function))

PT_ORDER(by_seconds, struct pt_r_line,
	 by_group(x, y) ?: pt_cmp(y->seconds, x->seconds) ?: by_line(x, y))

/* One of the names that most of a line's time was in. Before the seconds are summed up. Of two
 * that differ the one with more; true: of `l`. */
static bool join_most(const struct pt_r_line *to, const struct pt_r_line *l, bool same,
		      const char *name, double *share, const char *other, double its)
{
	double sum = to->seconds + l->seconds, a = name ? to->seconds * *share : 0;
	double b = other ? l->seconds * its : 0;

	same &= name && other && !strcmp(name, other);
	*share = (name || other) && sum > 0 ? (same ? a + b : fmax(a, b)) / sum : NAN;
	return b > a;
}

/* A function is named of the library that is. */
static void join_native(struct pt_r_line *to, const struct pt_r_line *l)
{
	bool same = to->native && l->native && !strcmp(to->native, l->native), its;

	its = join_most(to, l, true, to->native, &to->native_share, l->native, l->native_share);
	if (join_most(to, l, same, same || !its ? to->native_symbol : NULL,
		      &to->native_symbol_share, same || its ? l->native_symbol : NULL,
		      l->native_symbol_share))
		to->native_symbol = l->native_symbol;
	else if (its && !same)
		to->native_symbol = NULL;
	if (its)
		to->native = l->native;
}

/* Sorts, and joins those of the same line. How many are left. */
static size_t join_alike(struct pt_r_line *v, size_t n)
{
	size_t i, k = 0;

	qsort(v, n, sizeof(*v), by_line);
	for (i = 0; i < n; i++) {
		if (!k || by_line(&v[k - 1], &v[i])) {
			v[k++] = v[i];
			continue;
		}
		join_native(&v[k - 1], &v[i]);
		v[k - 1].seconds += v[i].seconds;
		v[k - 1].low += v[i].low;
		v[k - 1].high += v[i].high;
		if (v[k - 1].looks != PT_NULL)
			v[k - 1].looks = v[i].looks == PT_NULL ? PT_NULL :
								 v[k - 1].looks + v[i].looks;
	}
	return k;
}

int pt_join_lines(struct pt_join *j, struct pt_join_rank *r, const struct pt_report *rows)
{
	const struct pt_row *row = pt_row_find("line");
	size_t i;
	int err = 0;

	for (i = 0; i < rows->n_lines && !err; i++) {
		struct pt_r_line x = rows->lines[i];

		pt_join_own(j, row, &x);
		err = pt_arena_failed(j->a) ? -ENOMEM : pt_vec_push(&r->lines, x);
	}
	if (!err && rows->n_lines)
		r->lines.n = join_alike(r->lines.v, r->lines.n);
	return err;
}

/* Beside the job's own workers, a server outside waits for their requests: that is none of
 * what they wait for. */
static bool serves(const struct pt_report *r, const struct pt_r_line *l)
{
	bool outside = false, inside = false;
	size_t i;

	for (i = 0; i < r->n_workers && l->cause == PT_CAUSE_NETWORK; i++) {
		bool out = r->workers[i].role && !strcmp(r->workers[i].role, "outside");

		outside |= out && r->workers[i].pid == l->pid;
		inside |= !out;
	}
	return outside && inside;
}

/* Those of the workers once more, as of all of them. */
static size_t add_sums(const struct pt_report *r, struct pt_r_line *o, size_t n)
{
	size_t i, k = n;

	for (i = 0; i < n; i++) {
		if (strcmp(o[i].who, "worker") || serves(r, &o[i]))
			continue;
		o[k] = o[i];
		o[k].pid = o[k].tid = PT_NULL;
		k++;
	}
	return k;
}

/* Shares of each group; *n: of those that are worth a row. */
static void share_out(struct pt_r_line *o, size_t *n)
{
	size_t b, e, i, k = 0;
	double sum;

	for (b = 0; b < *n; b = e) {
		sum = 0;
		for (e = b; e < *n && !by_group(&o[b], &o[e]); e++)
			sum += o[e].seconds;
		for (i = b; i < e; i++) {
			o[i].share = sum > 0 ? fmin(1, o[i].seconds / sum) : NAN;
			if (o[i].share >= SHARE_MIN && k < ROWS_MAX)
				o[k++] = o[i];
		}
	}
	*n = k;
}

PT_ORDER(by_worker_line, struct pt_r_worker_line,
	 pt_cmp(y->share, x->share) ?: strcmp(x->file, y->file) ?: pt_cmp(x->line, y->line))

/* What it did where, of its time; not where it had nothing to do. */
static int fill_worker(struct pt_an *an, struct pt_r_worker *w)
{
	struct pt_r_worker_line *v;
	size_t i, k, n = 0;

	v = pt_arena_calloc(an->a, an->r->n_lines + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (i = 0; i < an->r->n_lines && w->window > 0; i++) {
		const struct pt_r_line *l = &an->r->lines[i];

		if (l->pid != w->pid || l->tid != w->tid || strcmp(l->who, "worker") ||
		    l->cause == PT_CAUSE_WORKER_IDLE)
			continue;
		for (k = 0; k < n; k++)
			if (v[k].line == l->line && !strcmp(v[k].file, l->file) &&
			    !strcmp(v[k].function, l->function))
				break;
		if (k == n)
			v[n++] = (struct pt_r_worker_line){ l->file, l->line, l->function, 0 };
		v[k].share = fmin(1, v[k].share + l->seconds / w->window);
	}
	qsort(v, n, sizeof(*v), by_worker_line);
	w->lines = v;
	w->n_lines = n < WORKER_MAX ? n : WORKER_MAX;
	return 0;
}

int pt_finish_lines(struct pt_an *an, const struct pt_report *rows)
{
	struct pt_r_worker *w = (struct pt_r_worker *)an->r->workers;
	size_t n = rows->n_lines, i;
	struct pt_r_line *o = pt_arena_calloc(an->a, 2 * n + 1, sizeof(*o));
	int err = o ? 0 : -ENOMEM;

	if (err || !n)
		return err;
	memcpy(o, rows->lines, n * sizeof(*o));
	n = join_alike(o, add_sums(an->r, o, n));
	qsort(o, n, sizeof(*o), by_seconds);
	share_out(o, &n);
	an->r->lines = o;
	an->r->n_lines = n;
	for (i = 0; i < an->r->n_workers && !err; i++)
		err = fill_worker(an, &w[i]);
	return err;
}
