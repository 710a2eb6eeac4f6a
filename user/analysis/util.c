/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>
#include <stdlib.h>

#include "analysis/internal.h"

uint64_t pt_spans_overlap(const struct pt_span *a, size_t na,
			  const struct pt_span *b, size_t nb)
{
	uint64_t sum = 0;
	size_t i = 0, j = 0;

	while (i < na && j < nb) {
		sum += pt_overlap(a[i].begin, a[i].end, b[j].begin, b[j].end);
		if (a[i].end < b[j].end)
			i++;
		else
			j++;
	}
	return sum;
}

static int cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Percentile by linear interpolation between closest ranks (type 7 of
 * Hyndman and Fan, 1996: the default of NumPy and R). */
static double percentile(const double *v, size_t n, double p)
{
	double pos = p * (double)(n - 1);
	size_t i = (size_t)pos;

	if (i + 1 >= n)
		return v[n - 1];
	return v[i] + (pos - (double)i) * (v[i + 1] - v[i]);
}

double pt_median(double *v, size_t n)
{
	if (!n)
		return NAN;
	qsort(v, n, sizeof(*v), cmp_double);
	return percentile(v, n, 0.5);
}

void pt_dist_of(double *v, size_t n, struct pt_dist *d)
{
	double sum = 0, sq = 0;
	size_t i;

	*d = (struct pt_dist){ 0 };
	if (!n)
		return;
	qsort(v, n, sizeof(*v), cmp_double);
	for (i = 0; i < n; i++)
		sum += v[i];
	d->n = n;
	d->mean = sum / (double)n;
	for (i = 0; i < n; i++)
		sq += (v[i] - d->mean) * (v[i] - d->mean);
	d->std = n > 1 ? sqrt(sq / (double)(n - 1)) : 0;
	d->min = v[0];
	d->max = v[n - 1];
	d->p50 = percentile(v, n, 0.5);
	d->p95 = percentile(v, n, 0.95);
	d->p99 = percentile(v, n, 0.99);
}

int pt_walk(const struct pt_thread *t, uint64_t b, uint64_t e, pt_piece_fn fn,
	    void *ctx)
{
	uint64_t pos = b, x, y;
	size_t i;
	int err;

	for (i = pt_iv_after(t, b); i < t->iv.n && pos < e; i++) {
		const struct pt_iv *iv = &t->iv.v[i];

		if (iv->begin >= e)
			break;
		if (iv->begin > pos) {
			err = fn(ctx, pos, iv->begin, NULL, false);
			if (err)
				return err;
			pos = iv->begin;
		}
		x = pos;
		y = pt_min64(iv->ready, e);
		if (y > x) {
			err = fn(ctx, x, y, iv, false);
			if (err)
				return err;
			pos = y;
		}
		y = pt_min64(iv->end, e);
		if (y > pos) {
			err = fn(ctx, pos, y, iv, true);
			if (err)
				return err;
			pos = y;
		}
	}
	return pos < e ? fn(ctx, pos, e, NULL, false) : 0;
}

bool pt_is_worker(const struct pt_trainer *t, uint32_t tgid, int *idx)
{
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		if (t->workers.v[i].proc->tgid != tgid)
			continue;
		if (idx)
			*idx = (int)i;
		return true;
	}
	return false;
}

static bool woken_by_pin(const struct pt_trainer *t, const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_FUTEX && iv->valid_wake &&
	       iv->waker_tid == t->pin->tid;
}

/* Still asleep when the capture ended, where the pin thread has woken it
 * before: a batch that is waited for, and perhaps never comes. */
static bool awaits_pin(const struct pt_trainer *t, const struct pt_iv *iv)
{
	size_t i;

	for (i = 0; i < t->main->iv.n; i++)
		if (woken_by_pin(t, &t->main->iv.v[i]) &&
		    t->main->iv.v[i].arg0 == iv->arg0)
			return true;
	return false;
}

bool pt_is_batch_wait(const struct pt_trainer *t, const struct pt_thread *th,
		      const struct pt_iv *iv)
{
	size_t i;

	if (iv->wait == PT_WAIT_FUTEX && th == t->main && t->pin)
		return woken_by_pin(t, iv) || (iv->open && awaits_pin(t, iv));
	if (iv->wait != PT_WAIT_PIPE_IN || th != t->receiver)
		return false;
	for (i = 0; i < t->result_pipes.n; i++)
		if (t->result_pipes.v[i] == iv->object)
			return true;
	return false;
}

#define REST_ADDRS 16
/* Without one address, a sleep this long is a rest, not a lock. */
#define REST_MIN_NS 100000ull

struct pt_rest pt_find_rest(const struct pt_an *an, const struct pt_thread *th)
{
	struct { uint64_t addr, ns; } a[REST_ADDRS] = { 0 };
	uint64_t all = 0;
	struct pt_rest r = { 0 };
	size_t i, j, n = 0, best = 0;

	for (i = pt_iv_after(th, an->t0); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];

		if (iv->begin >= an->t1)
			break;
		if (iv->wait != PT_WAIT_FUTEX)
			continue;
		all += iv->ready - iv->begin;
		for (j = 0; j < n && a[j].addr != iv->arg0; j++)
			;
		if (j == REST_ADDRS)
			continue;
		if (j == n)
			a[n++].addr = iv->arg0;
		a[j].ns += iv->ready - iv->begin;
		if (a[j].ns > a[best].ns)
			best = j;
	}
	if (n && a[best].ns * 10 >= all * 8)
		r.addr = a[best].addr;
	return r;
}

bool pt_ends_rest(struct pt_rest rest, const struct pt_iv *iv,
		  const struct pt_thread *from)
{
	if (iv->wait != PT_WAIT_FUTEX || !iv->valid_wake ||
	    iv->waker_tid != from->tid)
		return false;
	return rest.addr ? iv->arg0 == rest.addr :
			   iv->ready - iv->begin >= REST_MIN_NS;
}
