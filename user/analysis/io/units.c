/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waits for storage, one unit for each call. Seen from the scheduler alone, so
 * that it holds behind every door to reads: while a call lasts the thread's
 * count of bytes read (task I/O accounting) stands still, and what it has gained
 * by the thread's next wait, but for a core or a lock, is what the call, and those
 * from memory behind it, returned: what was fetched while it waited.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/io/units.h"

/* open stat lstat access open.. newfstatat getdents getdents64 statx readlink:
 * calls that need a file's name or its inode (x86-64). */
static bool opens(int16_t nr)
{
	switch (nr) {
	case 2: case 4: case 5: case 6: case 21: case 78: case 89: case 217:
	case 257: case 262: case 332: case 437:
		return true;
	}
	return false;
}

struct edge { /* a maker begins to wait (+1), or has waited (-1) */
	uint64_t ts;
	int step;
};
typedef PT_VEC(struct edge) edges;

static bool is_disk(const struct pt_an *an, const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_DISK && iv->begin >= an->t0 &&
	       iv->ready <= an->t1 && iv->ready > iv->begin;
}

static bool makes(const struct pt_trainer *t, const struct pt_thread *th)
{
	pt_each(const struct pt_worker, w, &t->workers)
		if (w->main == th || (w->proc == th->proc && w->proc != t->proc))
			return true;
	return !t->workers.n && th == t->main;
}

/* One ends before the next begins. */
PT_ORDER(by_ts, struct edge, pt_cmp(x->ts, y->ts) ?: x->step - y->step)

static int add_edges(const struct pt_an *an, const struct pt_thread *th,
		     edges *v)
{
	pt_each_iv(iv, th, an->t0, an->t1) {
		struct edge b = { iv->begin, 1 }, e = { iv->ready, -1 };

		if (is_disk(an, iv) &&
		    (pt_vec_push(v, b) || pt_vec_push(v, e)))
			return -ENOMEM;
	}
	return 0;
}

/* How long makers waited until `ts`, summed over them, and how long any did:
 * running sums at each edge, looked up by bisection. */
struct sums {
	const edges *v;
	double *all;	/* until the edge */
	int *waiting;	/* behind the edge */
	double any;
};

static int sum_up(const edges *v, struct sums *s)
{
	int n = 0;
	size_t i;

	s->v = v;
	s->all = calloc(v->n + 1, sizeof(*s->all));
	s->waiting = calloc(v->n + 1, sizeof(*s->waiting));
	if (!s->all || !s->waiting)
		return -ENOMEM;
	for (i = 0; i < v->n; i++) {
		if (i) {
			double dt = (double)(v->v[i].ts - v->v[i - 1].ts);

			s->all[i] = s->all[i - 1] + dt * n;
			s->any += n ? dt : 0;
		}
		n += v->v[i].step;
		s->waiting[i] = n;
	}
	return 0;
}

static double all_until(const struct sums *s, uint64_t ts)
{
	size_t lo = pt_bisect(s->v->n, i, s->v->v[i].ts <= ts);

	if (!lo)
		return 0;
	lo--;
	return s->all[lo] + (double)(ts - s->v->v[lo].ts) * s->waiting[lo];
}

/* Where it shows what the call that waited until `k` was for: the thread's next
 * wait, but for a core or a lock. False: not known. */
static bool shows_at(const struct pt_thread *th, size_t *k)
{
	for (; *k < th->iv.n; ++*k) {
		const struct pt_iv *iv = &th->iv.v[*k];

		if (iv->gap_before)
			return false;
		if (iv->wait != PT_WAIT_RUNQ && iv->wait != PT_WAIT_FUTEX)
			return true;
	}
	return false;
}

/* Units of one thread. A call's waits follow each other. */
static int units_of(const struct pt_an *an, const struct pt_thread *th,
		    const struct sums *s, pt_io_units *out)
{
	size_t i, k, at;

	for (i = pt_iv_after(th, an->t0); i < th->iv.n; i = k) {
		const struct pt_iv *iv = &th->iv.v[i];
		struct pt_io_unit u = { .inode = iv->obj_kind == PT_OBJ_FILE ?
						 iv->object : 0,
					.dev = iv->dev,
					.opening = opens(iv->syscall) };
		double shared = 0, got;

		k = i + 1;
		if (iv->begin >= an->t1)
			break;
		if (!is_disk(an, iv))
			continue;
		for (k = i; k < th->iv.n; k++) {
			const struct pt_iv *o = &th->iv.v[k];

			if (o->rchar != iv->rchar || o->syscall != iv->syscall ||
			    (o->wait != PT_WAIT_RUNQ &&
			     (o->wait != PT_WAIT_DISK ||
			      o->object != iv->object)))
				break;
			if (!is_disk(an, o))
				continue;
			u.ns += o->ready - o->begin;
			u.end = o->ready;
			shared += all_until(s, o->ready) - all_until(s, o->begin);
		}
		at = k;
		if (!shows_at(th, &at))
			continue;
		got = u.opening ? 0 : (double)(th->iv.v[at].rchar - iv->rchar);
		u.begin = iv->begin;
		u.t = pt_ms(u.ns);
		u.c = shared / (double)u.ns;
		u.n = got;
		u.x = got * u.c;
		if (pt_vec_push(out, u))
			return -ENOMEM;
	}
	return 0;
}

struct done { /* a wait is over */
	uint64_t ts;
	double bytes; /* of it and of all before */
};
typedef PT_VEC(struct done) dones;

PT_ORDER(by_end, struct done, pt_cmp(x->ts, y->ts))

/* How many waits were over by `ts`. */
static size_t over_until(const dones *v, uint64_t ts)
{
	return pt_bisect(v->n, i, v->v[i].ts <= ts);
}

/* w and k of all units. */
static int add_meanwhile(pt_io_units *out)
{
	dones v = { 0 };
	int err = 0;
	size_t i;

	for (i = 0; i < out->n && !err; i++) {
		struct done d = { out->v[i].end, out->v[i].n };

		err = pt_vec_push(&v, d);
	}
	pt_vec_sort(&v, by_end);
	for (i = 1; i < v.n; i++)
		v.v[i].bytes += v.v[i - 1].bytes;
	pt_each_ok(struct pt_io_unit, u, out, err) {
		size_t a = over_until(&v, u->begin), b = over_until(&v, u->end);

		u->k = (double)(b - a);
		u->w = v.v[b - 1].bytes - (a ? v.v[a - 1].bytes : 0);
	}
	pt_vec_free(&v);
	return err;
}

/* What the makers read in all, and fetched. */
static void add_totals(const struct pt_an *an, const struct pt_thread *th,
		       double *read, double *fetched)
{
	size_t i = pt_iv_after(th, an->t0), k = th->iv.n;

	while (k > i && th->iv.v[k - 1].begin >= an->t1)
		k--;
	if (k <= i + 1)
		return;
	*read += (double)(th->iv.v[k - 1].rchar - th->iv.v[i].rchar);
	*fetched += (double)(th->iv.v[k - 1].read_bytes - th->iv.v[i].read_bytes);
}

int pt_io_collect(struct pt_an *an, struct pt_trainer *t, pt_io_units *out,
		  struct pt_io *o)
{
	double read = 0, fetched = 0, wall = pt_sec(an->t1 - an->t0);
	struct sums s = { 0 };
	edges v = { 0 };
	int err = 0;
	size_t i;

	for (i = 0; i < an->m->all_threads.n && !err; i++) {
		const struct pt_thread *th = an->m->all_threads.v[i];

		if (!makes(t, th))
			continue;
		err = add_edges(an, th, &v);
		add_totals(an, th, &read, &fetched);
	}
	/* libaio's and io_uring's reads, and page faults, are not among those of read calls */
	read = fmax(read, fetched);
	pt_vec_sort(&v, by_ts);
	err = err ?: sum_up(&v, &s);
	for (i = 0; i < an->m->all_threads.n && !err && v.n; i++)
		if (makes(t, an->m->all_threads.v[i]))
			err = units_of(an, an->m->all_threads.v[i], &s, out);
	err = err ?: add_meanwhile(out);
	o->waits = out->n;
	o->bytes_per_s = read / wall;
	o->fetched_per_s = fetched > 0 ? fetched / wall : NAN;
	if (!err && v.n && s.any > 0) {
		double all = s.all[v.n - 1];

		o->depth = all / s.any;
		o->wait_ms = out->n ? all / NS_PER_MS / (double)out->n : NAN;
		o->busy_per_s = read / (s.any / NS_PER_S);
	}
	free(s.all);
	free(s.waiting);
	pt_vec_free(&v);
	return err;
}
