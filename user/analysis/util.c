/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/internal.h"
#include "analysis/waits/path.h"
#include "model/callclass.h"

uint64_t pt_waits_in(const struct pt_trainer *t, size_t *hint, uint64_t b,
		     uint64_t e)
{
	uint64_t sum = 0;
	size_t i;

	while (*hint < t->waits.n && t->waits.v[*hint].end <= b)
		(*hint)++;
	for (i = *hint; i < t->waits.n && t->waits.v[i].begin < e; i++)
		sum += pt_overlap(b, e, t->waits.v[i].begin, t->waits.v[i].end);
	return sum;
}

enum counter { READ, WRITTEN, FETCHED };

/* At a switch, or at an end of the capture. */
static uint64_t count_at(const struct pt_iv *iv, const struct pt_totals *end, enum counter c)
{
	switch (c) {
	case READ:
		return iv ? iv->rchar : end->rchar;
	case WRITTEN:
		return iv ? iv->wchar : end->wchar;
	default:
		return iv ? iv->read_bytes : end->read_bytes;
	}
}

/* By the accounting of its switches, which is as coarse as they are. */
static uint64_t moved(const struct pt_thread *th, uint64_t b, uint64_t e, enum counter c)
{
	size_t i = pt_iv_after(th, b), k = pt_iv_after(th, e);
	uint64_t before = count_at(i ? &th->iv.v[i - 1] : NULL, &th->t0, c);
	uint64_t after = count_at(k < th->iv.n ? &th->iv.v[k] : NULL, &th->t1, c);

	return after > before ? after - before : 0;
}

uint64_t pt_read_between(const struct pt_thread *th, uint64_t b, uint64_t e)
{
	return moved(th, b, e, READ);
}

uint64_t pt_written_between(const struct pt_thread *th, uint64_t b, uint64_t e)
{
	return moved(th, b, e, WRITTEN);
}

uint64_t pt_fetched_between(const struct pt_thread *th, uint64_t b, uint64_t e)
{
	return moved(th, b, e, FETCHED);
}

static uint64_t moved_by(const struct pt_an *an, const struct pt_proc *p, enum counter c)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < p->threads.n; i++)
		sum += moved(p->threads.v[i], an->t0, an->t1, c);
	return sum;
}

uint64_t pt_read_by(const struct pt_an *an, const struct pt_proc *p)
{
	return moved_by(an, p, READ);
}

uint64_t pt_written_by(const struct pt_an *an, const struct pt_proc *p)
{
	return moved_by(an, p, WRITTEN);
}

int pt_doubles_append(pt_doubles *to, const pt_doubles *from)
{
	int err = 0;

	pt_each_ok(const double, x, from, err)
		err = pt_vec_push(to, *x);
	return err;
}

int pt_by_double(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return pt_cmp(*x, *y);
}

int pt_by_u64(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return pt_cmp(*x, *y);
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

/* From here on a radix sort is faster (measured: 4 times at a thousand, 10
 * times at a million). */
#define RADIX_MIN 512
#define RADIX_BITS 11
#define RADIX (1u << RADIX_BITS)

/* An unsigned number that orders as the double does. */
static uint64_t key_of(uint64_t bits)
{
	return bits >> 63 ? ~bits : bits | 1ull << 63;
}

static uint64_t bits_of(uint64_t key)
{
	return key >> 63 ? key & ~(1ull << 63) : ~key;
}

/* One digit: from `a` to `b`. False: all have the same, nothing was done. */
static bool radix_pass(const uint64_t *a, uint64_t *b, size_t n, int shift)
{
	size_t at[RADIX] = { 0 }, sum = 0, i;

	for (i = 0; i < n; i++)
		at[a[i] >> shift & (RADIX - 1)]++;
	if (at[a[0] >> shift & (RADIX - 1)] == n)
		return false;
	for (i = 0; i < RADIX; i++) {
		size_t k = at[i];

		at[i] = sum;
		sum += k;
	}
	for (i = 0; i < n; i++)
		b[at[a[i] >> shift & (RADIX - 1)]++] = a[i];
	return true;
}

/* With `b` for room of as many. */
static void sort_keys(uint64_t *a, uint64_t *b, size_t n)
{
	uint64_t *from = a, *to = b, *swap;
	int shift;

	for (shift = 0; shift < 64; shift += RADIX_BITS) {
		if (!radix_pass(from, to, n, shift))
			continue;
		swap = from;
		from = to;
		to = swap;
	}
	if (from != a)
		memcpy(a, from, n * sizeof(*a));
}

static void sort_doubles(double *v, size_t n)
{
	uint64_t *buf = n < RADIX_MIN ? NULL : malloc(2 * n * sizeof(*buf));
	size_t i;

	if (!buf) {
		qsort(v, n, sizeof(*v), pt_by_double);
		return;
	}
	memcpy(buf, v, n * sizeof(*buf));
	for (i = 0; i < n; i++)
		buf[i] = key_of(buf[i]);
	sort_keys(buf, buf + n, n);
	for (i = 0; i < n; i++)
		buf[i] = bits_of(buf[i]);
	memcpy(v, buf, n * sizeof(*buf));
	free(buf);
}

void pt_sort_times(pt_times *v)
{
	uint64_t *room;
	size_t i;

	for (i = 1; i < v->n && v->v[i - 1] <= v->v[i]; i++)
		;
	if (i >= v->n)
		return;
	room = v->n < RADIX_MIN ? NULL : malloc(v->n * sizeof(*room));
	if (room)
		sort_keys(v->v, room, v->n);
	else
		qsort(v->v, v->n, sizeof(*v->v), pt_by_u64);
	free(room);
}

double pt_median(double *v, size_t n)
{
	if (!n)
		return NAN;
	sort_doubles(v, n);
	return percentile(v, n, 0.5);
}

void pt_dist_of(double *v, size_t n, struct pt_dist *d)
{
	double sum = 0, sq = 0;
	size_t i;

	*d = (struct pt_dist){ 0 };
	if (!n)
		return;
	sort_doubles(v, n);
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

uint64_t pt_cpu_ns(const struct pt_thread *t, uint64_t b, uint64_t e)
{
	uint64_t off = 0;

	if (e <= b)
		return 0;
	pt_each_iv(iv, t, b, e)
		off += pt_overlap(b, e, iv->begin, iv->end);
	return e - b - pt_min64(off, e - b);
}

/* The piece from *pos on, if it is not empty. */
static inline int walk_to(uint64_t *pos, uint64_t e, const struct pt_iv *iv, bool queued,
			  pt_piece_fn fn, void *ctx)
{
	uint64_t b = *pos;

	if (e <= b)
		return 0;
	*pos = e;
	return fn(ctx, b, e, iv, queued);
}

int pt_walk(const struct pt_thread *t, uint64_t b, uint64_t e, pt_piece_fn fn,
	    void *ctx)
{
	uint64_t pos = b;
	int err;

	pt_each_iv(iv, t, b, e) {
		err = walk_to(&pos, iv->begin, NULL, false, fn, ctx);
		err = err ?: walk_to(&pos, pt_min64(iv->ready, e), iv, false, fn, ctx);
		err = err ?: walk_to(&pos, pt_min64(iv->end, e), iv, true, fn, ctx);
		if (err)
			return err;
	}
	return walk_to(&pos, e, NULL, false, fn, ctx);
}

bool pt_is_for_room(const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_PIPE_OUT ||
	       (iv->wake == PT_WAKE_ROOM && pt_call_class(iv->syscall) & PT_C_PUT);
}

double pt_cores(const struct pt_model *m)
{
	double cores = m->host_known ? m->host.cores : 0;

	return m->host.quota_mcores ? fmin(cores, (double)m->host.quota_mcores / 1000) : cores;
}

PT_ORDER(by_tgid, struct pt_worker_key, pt_cmp(x->tgid, y->tgid) ?: pt_cmp(x->at, y->at))

int pt_index_workers(struct pt_trainer *t)
{
	size_t i;

	t->index.n = 0;
	for (i = 0; i < t->workers.n; i++) {
		struct pt_worker_key k = { t->workers.v[i].proc->tgid,
					   (uint32_t)i };

		if (pt_vec_push(&t->index, k))
			return -ENOMEM;
	}
	pt_vec_sort(&t->index, by_tgid);
	return 0;
}

bool pt_worker_index(const struct pt_trainer *t, const struct pt_thread *th,
		     int *idx)
{
	size_t lo = pt_bisect(t->index.n, i, t->index.v[i].tgid < th->tgid);

	for (; lo < t->index.n && t->index.v[lo].tgid == th->tgid; lo++) {
		const struct pt_worker *w = &t->workers.v[t->index.v[lo].at];

		if (w->proc == t->proc && w->main != th)
			continue;
		if (idx)
			*idx = (int)t->index.v[lo].at;
		return true;
	}
	return false;
}

bool pt_other_computes(const struct pt_trainer *t, const struct pt_worker *w, uint64_t b, uint64_t e)
{
	pt_each(const struct pt_worker, x, &t->workers)
		if (x != w && x->role == w->role && !x->main->exited &&
		    pt_times_until(&x->done, b) == pt_times_until(&x->done, e) &&
		    2 * pt_cpu_ns(x->main, b, e) > e - b)
			return true;
	return false;
}

/* Did `from` end this sleep of `th`, other than for a lock? */
static bool ended_by(struct pt_paths *paths, const struct pt_thread *th,
		     const struct pt_iv *iv, const struct pt_thread *from)
{
	return iv->wait == PT_WAIT_FUTEX && iv->valid_wake &&
	       iv->waker_tid == from->tid && !pt_is_lock(paths, th, iv);
}

/* Words that are told apart; what else a thread sleeps on is seldom. */
#define WORDS_MAX 8

/* The word on which `th` sleeps longest until `from` wakes it; 0: none. */
static uint64_t rest_word(const struct pt_an *an, struct pt_paths *paths,
			  const struct pt_thread *th, const struct pt_thread *from)
{
	struct { uint64_t at, ns; } word[WORDS_MAX] = { { 0 } };
	size_t k, n = 0, best = 0;

	pt_each_iv(iv, th, an->t0, an->t1) {
		if (iv->ready > an->t1)
			break;
		if (!ended_by(paths, th, iv, from))
			continue;
		for (k = 0; k < n && word[k].at != iv->arg0 >> 3; k++)
			;
		if (k == WORDS_MAX)
			continue;
		n = k == n ? n + 1 : n;
		word[k].at = iv->arg0 >> 3;
		word[k].ns += iv->ready - iv->begin;
		best = word[k].ns > word[best].ns ? k : best;
	}
	return word[best].at;
}

int pt_word_wakes(const struct pt_an *an, struct pt_paths *paths,
		  const struct pt_thread *th, const struct pt_thread *from,
		  pt_times *out)
{
	uint64_t word = rest_word(an, paths, th, from);

	out->n = 0;
	pt_each_iv(iv, th, an->t0, an->t1) {
		if (iv->ready > an->t1)
			break;
		if (ended_by(paths, th, iv, from) && iv->arg0 >> 3 == word &&
		    pt_vec_push(out, iv->ready))
			return -ENOMEM;
	}
	return 0;
}

int pt_rest_wakes(const struct pt_an *an, struct pt_paths *paths,
		  const struct pt_thread *th, const struct pt_thread *from,
		  pt_times *out, uint64_t *wakes)
{
	uint64_t longest = 0, written = 0;
	bool any = false;

	pt_each_iv(iv, th, an->t0, an->t1) {
		uint64_t slept = iv->ready - iv->begin;

		if (iv->ready > an->t1)
			break;
		if (!ended_by(paths, th, iv, from))
			continue;
		(*wakes)++;
		/* With nothing written since, it is one item: the longest of
		 * its sleeps was the rest, the others were for locks. */
		if (any && iv->wchar >= written &&
		    iv->wchar - written < PT_ITEM_BYTES) {
			if (slept > longest) {
				longest = slept;
				out->v[out->n - 1] = iv->ready;
			}
			continue;
		}
		any = true;
		written = iv->wchar;
		longest = slept;
		if (pt_vec_push(out, iv->ready))
			return -ENOMEM;
	}
	return 0;
}

int64_t pt_rank_of_proc(const struct pt_proc *p)
{
	return p->facts.rank >= 0 ? p->facts.rank : PT_NULL;
}

size_t pt_times_until(const pt_times *v, uint64_t ts)
{
	return pt_bisect(v->n, i, v->v[i] <= ts);
}

