// SPDX-License-Identifier: BSD-2-Clause
#include "python/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/vec.h"
#include "base/wilson.h"

#define PLACES_MAX 65536
#define LONG_NS 1000000000ull	/* the scheduler's count of so long is a share */

struct place_key {
	pid_t pid, tid;
	uint32_t line; /* pt_py_line_of() */
	uint32_t running;
};

struct place {
	struct place_key key;
	uint64_t seen;
	uint64_t ns; /* charged to it */
	UT_hash_handle hh;
};

struct id {
	pid_t pid, tid;
};

struct thread {
	struct id id;
	uint64_t n, running;  /* looks; of these it was on a core or ready for one */
	uint64_t begin, end;  /* of what the scheduler has counted, ns; 0: nothing */
	struct pt_py_ran first, last;
	uint64_t gap[2];      /* since the last look: ns asleep, running */
	uint64_t charged[2];  /* of all gaps, to a place */
	struct place *at;     /* at the last look; NULL: it was none */
	UT_hash_handle hh;
};

struct pt_py_sampler {
	struct pt_py_looks *looks;
	struct place *places;
	struct thread *threads;
	PT_VEC(struct pt_py_share) shares;
};

struct pt_py_sampler *pt_py_sampler_new(void)
{
	struct pt_py_sampler *s = calloc(1, sizeof(*s));

	if (s && !(s->looks = pt_py_looks_new())) {
		free(s);
		return NULL;
	}
	return s;
}

void pt_py_sampler_free(struct pt_py_sampler *s)
{
	if (!s)
		return;
	pt_hash_free(s->places);
	pt_hash_free(s->threads);
	pt_py_looks_free(s->looks);
	free(s->shares.v);
	free(s);
}

struct pt_py_looks *pt_py_sampler_looks(struct pt_py_sampler *s)
{
	return s->looks;
}

/* ---- one look ------------------------------------------------------------------ */

/* What it did since the last look. */
static void count_gap(struct thread *t, const struct pt_py_look *l)
{
	uint64_t wall = l->begin_ns - t->end, busy;

	t->gap[0] = t->gap[1] = 0;
	if (!l->counts) {
		t->at = NULL;
		return;
	}
	if (t->begin) {
		busy = l->ran.run + l->ran.ready - t->last.run - t->last.ready;
		t->gap[1] = busy < wall ? busy : wall;
		t->gap[0] = wall - t->gap[1];
	} else {
		t->begin = l->begin_ns;
		t->first = l->ran;
	}
	t->end = l->begin_ns;
	t->last = l->ran;
}

static void charge_gap(struct thread *t, struct place *p, uint64_t ns)
{
	p->ns += ns;
	t->charged[p->key.running] += ns;
}

/* It is at `p` now. What it slept since the last look it did where it sleeps now and where
 * it slept then, to equal parts, and so for running; what is neither stays uncharged. */
static void charge(struct thread *t, struct place *p)
{
	bool now = p->key.running;
	uint64_t half = t->gap[now] / 2;

	p->seen++;
	t->n++;
	t->running += now;
	if (t->at && t->at->key.running == now) {
		charge_gap(t, p, half);
		charge_gap(t, t->at, t->gap[now] - half);
	} else {
		charge_gap(t, p, t->gap[now]);
		if (t->at)
			charge_gap(t, t->at, t->gap[!now]);
	}
	t->at = p;
}

static struct place *place_of(struct pt_py_sampler *s, const struct pt_py_look *l)
{
	const struct place_key key = { l->pid, l->tid, pt_py_telling(s->looks, l->stack),
				       l->running };
	struct place *p;

	if (HASH_COUNT(s->places) < PLACES_MAX)
		return pt_hash_make(s->places, key, &key);
	HASH_FIND(hh, s->places, &key, sizeof(key), p);
	return p;
}

static void on_look(void *ctx, const struct pt_py_look *l)
{
	struct pt_py_sampler *s = ctx;
	const struct id id = { l->pid, l->tid };
	struct thread *t = pt_hash_make(s->threads, id, &id);
	struct place *p = t ? place_of(s, l) : NULL;

	if (t)
		count_gap(t, l);
	if (p)
		charge(t, p);
	else if (t)
		t->at = NULL;
}

int pt_py_sampler_look(struct pt_py_sampler *s)
{
	return pt_py_looks_at(s->looks, on_look, s);
}

/* ---- what was seen --------------------------------------------------------------- */

static int by_thread(const void *a, const void *b)
{
	const struct pt_py_share *x = a, *y = b;

	if (x->place.pid != y->place.pid)
		return x->place.pid < y->place.pid ? -1 : 1;
	if (x->place.tid != y->place.tid)
		return x->place.tid < y->place.tid ? -1 : 1;
	if (x->share != y->share)
		return x->share > y->share ? -1 : 1;
	if (x->place.running != y->place.running)
		return x->place.running ? -1 : 1;
	return strcmp(x->place.at.file, y->place.at.file) ?: x->place.at.line - y->place.at.line;
}

static void judge(struct pt_py_share *r, const struct place *p, const struct thread *t)
{
	bool now = p->key.running;
	double n = (double)t->n, of = 1, share = (double)p->seen / n;

	if (t->end - t->begin >= LONG_NS && t->running && t->running < t->n) {
		of = fmin(1, (double)(t->last.run + t->last.ready - t->first.run -
				      t->first.ready) / (double)(t->end - t->begin));
		of = now ? of : 1 - of;
		n = (double)(now ? t->running : t->n - t->running);
		share = t->charged[now] ? (double)p->ns / (double)t->charged[now] :
					  (double)p->seen / n;
	}
	pt_wilson(share, n, &r->low, &r->high);
	r->low *= of;
	r->high *= of;
	r->share = of * share;
	r->looks = t->n;
	r->seconds = r->share * (double)(t->end - t->begin) / 1e9;
}

const struct pt_py_share *pt_py_sampler_shares(struct pt_py_sampler *s, size_t *n)
{
	struct place *p, *next;

	s->shares.n = 0;
	HASH_ITER(hh, s->places, p, next) {
		struct id id = { p->key.pid, p->key.tid };
		struct pt_py_share row;
		struct thread *t;

		HASH_FIND(hh, s->threads, &id, sizeof(id), t);
		row.place = (struct pt_py_place){ p->key.pid, p->key.tid, p->key.running,
						  *pt_py_line_of(s->looks, p->key.line) };
		row.seen = p->seen;
		if (!t)
			continue;
		judge(&row, p, t);
		if (pt_vec_push(&s->shares, row))
			break;
	}
	if (s->shares.n)
		qsort(s->shares.v, s->shares.n, sizeof(*s->shares.v), by_thread);
	*n = s->shares.n;
	return s->shares.v;
}
