/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who comes late to the meetings of ranks.
 *
 * Meeting k is open from the moment at which all had come to meeting k-1: what a
 * rank does until it comes to k is its own. The last one holds the others up for
 * the time between the last but one and itself; several collectives in a row (the
 * buckets of a backward pass) so count a delay once. By calls that is a loss only
 * as far as the late rank's device had nothing else to do meanwhile, or its host
 * waited for it: calls may run far ahead of the devices. By kernels it is the loss
 * itself, for the others' kernels spin.
 *
 * Somebody is last where he is so by more than the scheduler's noise (PT_LATE_NS).
 */
#include <errno.h>

#include "analysis/gpu/passes.h"
#include "analysis/health.h"
#include "analysis/ranks/meets.h"

#define RANKS_MAX 64

struct rank_view { /* of one trainer */
	struct pt_trainer *t;
	pt_meets_list list;
	size_t first;		/* its entry of the first common meeting */
	pt_spans part[PT_LATE_NR]; /* HOST: what is left, so empty */
	pt_spans idle;		/* its device has nothing to do, likely */
	bool idle_known;
	pt_doubles late_ms;
};

const char *pt_late_part_name(enum pt_late_part p)
{
	static const char *const names[PT_LATE_NR] = {
		[PT_LATE_DATA] = "data_wait", [PT_LATE_GPU] = "gpu",
		[PT_LATE_WRITE] = "checkpoint", [PT_LATE_HOST] = "host",
	};

	return names[p];
}

enum pt_late_part pt_late_reason(const struct pt_meet_rank *r)
{
	int best = PT_LATE_HOST;

	for (int i = 0; i < PT_LATE_NR; i++)
		if (r->part_ns[i] > r->part_ns[best])
			best = i;
	return (enum pt_late_part)best;
}

/* ---- what a rank does ----------------------------------------------------- */

/* The main thread is blocked for its device. */
static int device_waits(const struct pt_an *an, struct rank_view *v)
{
	int err = 0;

	pt_each_call(c, v->t->proc, an->t0, an->t1) {
		if (c->tid == v->t->main->tid && c->end > c->begin &&
		    (pt_call_is_sync(c) || pt_call_is_copy(c)))
			err = err ?: pt_vec_push(&v->part[PT_LATE_GPU],
					  ((struct pt_span){ c->begin, c->end }));
	}
	pt_spans_tidy(&v->part[PT_LATE_GPU], an->t0, an->t1);
	return err;
}

/* Disjoint: what the device does comes first where it was measured, else what
 * the host waits for. */
static int view_parts(const struct pt_an *an, struct rank_view *v, bool measured)
{
	pt_spans *part = v->part;
	int err = pt_wait_spans(an, v->t, &part[PT_LATE_DATA]);

	err = err ?: pt_spans_append(&part[PT_LATE_WRITE], &v->t->writing);
	pt_spans_tidy(&part[PT_LATE_WRITE], an->t0, an->t1);
	v->idle_known = v->t->gpu_known && v->t->devs.n;
	if (!err && v->idle_known)
		err = pt_spans_append(&v->idle, &v->t->devs.v[0].idle_likely);
	if (!err && measured) {
		err = pt_spans_invert(&v->idle, an->t0, an->t1,
				      &part[PT_LATE_GPU]);
		err = err ?: pt_spans_remove(&part[PT_LATE_DATA], &part[PT_LATE_GPU]);
	} else if (!err) {
		err = device_waits(an, v);
		err = err ?: pt_spans_remove(&part[PT_LATE_GPU], &part[PT_LATE_DATA]);
	}
	err = err ?: pt_spans_remove(&part[PT_LATE_WRITE], &part[PT_LATE_DATA]);
	err = err ?: pt_spans_remove(&part[PT_LATE_WRITE], &part[PT_LATE_GPU]);
	return err;
}

static void view_free(struct rank_view *v)
{
	pt_vec_free(&v->list);
	pt_vec_free(&v->idle);
	pt_vec_free(&v->late_ms);
	for (int i = 0; i < PT_LATE_NR; i++)
		pt_vec_free(&v->part[i]);
}

/* ---- meeting by meeting ------------------------------------------------------ */

/* Add what `v` did in [b,e) to `part`, `times` times. */
static uint64_t add_parts(struct rank_view *v, uint64_t b, uint64_t e,
			  double times, double *part)
{
	uint64_t rest = e - b, gpu = 0;

	for (int i = 0; i < PT_LATE_HOST; i++) {
		uint64_t ns = pt_spans_in(&v->part[i], b, e);

		if (i == PT_LATE_GPU)
			gpu = ns;
		ns = pt_min64(ns, rest);
		rest -= ns;
		part[i] += times * (double)ns;
	}
	part[PT_LATE_HOST] += times * (double)rest;
	return gpu;
}

struct meeting { /* all of one */
	uint64_t open;	/* all had come to the one before */
	uint64_t first, second, last; /* second: the last but one */
	size_t who;	/* came last */
};

static void come(const struct rank_view *v, size_t n, size_t k, struct meeting *m)
{
	m->first = UINT64_MAX;
	m->last = m->second = 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t at = v[i].list.v[v[i].first + k].at;

		m->first = pt_min64(m->first, at);
		if (at >= m->last) {
			m->second = m->last;
			m->last = at;
			m->who = i;
		} else if (at > m->second) {
			m->second = at;
		}
	}
}

static int judge_meeting(struct pt_meets *out, struct rank_view *v, size_t n,
			 size_t k, const struct meeting *m)
{
	struct rank_view *l = &v[m->who];
	struct pt_meet_rank *r = &out->rank[m->who];
	double part[PT_LATE_NR] = { 0 };
	uint64_t from = pt_max64(m->second, m->open), held, spent, idle;
	bool clear = m->last >= from + PT_LATE_NS;
	size_t i;

	for (i = 0; i < n; i++) {
		uint64_t at = v[i].list.v[v[i].first + k].at;

		if (clear && pt_vec_push(&v[i].late_ms, pt_ms(at - m->first)))
			return -ENOMEM;
		out->rank[i].waits_ns += m->last - pt_min64(m->last,
						pt_max64(at, m->open));
		if (i != m->who && at > m->open)
			add_parts(&v[i], m->open, at, -1.0 / (double)(n - 1), part);
	}
	r->last += clear;
	out->clear += clear;
	if (m->last <= m->open)
		return 0;
	held = m->last - from;
	spent = add_parts(l, m->open, m->last, 1, part);
	idle = pt_spans_in(&l->idle, m->open, m->last);
	r->held_ns += held;
	r->cost_ns += out->measured || !l->idle_known ? held :
						pt_min64(held, idle + spent);
	for (i = 0; i < PT_LATE_NR; i++)
		r->part_ns[i] += (int64_t)part[i];
	return 0;
}

static int judge_all(struct pt_meets *out, struct rank_view *v, size_t n)
{
	struct meeting m = { 0 };
	size_t k, i;
	int err = 0;

	for (k = 0; k < out->n && !err; k++) {
		uint64_t open = m.last;

		come(v, n, k, &m);
		m.open = open;
		if (k) /* nothing is known of the one before the first */
			err = judge_meeting(out, v, n, k, &m);
		m.last = pt_max64(m.last, open);
	}
	for (i = 0; i < n && !err; i++)
		pt_dist_of(v[i].late_ms.v, v[i].late_ms.n, &out->rank[i].late_ms);
	return err;
}

/* ---- which meetings there are ---------------------------------------------------- */

/* The common part of all lists. False: there is none worth the name. */
static bool join_all(struct pt_meets *out, struct rank_view *v, size_t n)
{
	int64_t from = 0, to = (int64_t)v[0].list.n, shift[RANKS_MAX];
	size_t i;

	out->sure = true;
	shift[0] = 0;
	for (i = 1; i < n; i++) {
		bool sure;

		if (!pt_meets_join(&v[0].list, &v[i].list, &shift[i], &sure))
			return false;
		out->sure = out->sure && sure;
		from = -shift[i] > from ? -shift[i] : from;
		if ((int64_t)v[i].list.n - shift[i] < to)
			to = (int64_t)v[i].list.n - shift[i];
	}
	if (to - from < PT_MEETS_MIN)
		return false;
	for (i = 0; i < n; i++)
		v[i].first = (size_t)(from + shift[i]);
	out->n = (uint64_t)(to - from);
	return true;
}

/* Records are missing: a call that was not seen shifts all behind it. */
static bool has_gaps(const struct pt_proc *p)
{
	for (size_t i = 0; i < p->threads.n; i++)
		if (p->threads.v[i]->lost)
			return true;
	return false;
}

/* Fill the lists by kernels where every rank has them, else by calls. */
static int list_all(const struct pt_an *an, struct rank_view *v, size_t n,
		    struct pt_meets *out)
{
	bool gaps = false, several;
	size_t i, without = 0, with = 0;
	int err = 0;

	out->measured = true;
	for (i = 0; i < n && !err; i++) {
		err = pt_meets_kernels(an, v[i].t->proc, &v[i].list);
		out->measured = out->measured && v[i].list.n >= PT_MEETS_MIN;
	}
	for (i = 0; i < n && !err && !out->measured; i++) {
		v[i].list.n = 0;
		err = pt_meets_calls(an, v[i].t->proc, &v[i].list, &several);
		out->several = out->several || several;
		gaps = gaps || has_gaps(v[i].t->proc);
	}
	for (i = 0; i < n && !err; i++) {
		with += v[i].list.n > 0;
		without += v[i].list.n < PT_MEETS_MIN;
	}
	if (gaps && with)
		out->why = "records were lost, so that calls cannot be counted through";
	else if (without && with)
		out->why = "not every rank calls enough of them";
	else if (with)
		out->known = true;
	return err;
}

static int find(struct pt_an *an, struct rank_view *v, size_t n,
		struct pt_meets *out)
{
	size_t i;
	int err = 0;

	for (i = 0; i < n; i++)
		v[i].t = &an->trainers.v[i];
	err = list_all(an, v, n, out);
	if (err || !out->known)
		return err;
	out->known = join_all(out, v, n);
	if (!out->known) {
		out->why = "the ranks' calls do not match";
		return 0;
	}
	for (i = 0; i < n && !err; i++)
		err = view_parts(an, &v[i], out->measured);
	err = err ?: judge_all(out, v, n);
	return err;
}

int pt_find_meets(struct pt_an *an)
{
	struct pt_meets *out = an->meets;
	size_t i, n = an->trainers.n;
	struct rank_view *v;
	int err = -ENOMEM;

	if (!out || n < 2)
		return 0;
	if (n > RANKS_MAX) {
		out->why = "there are too many";
		return 0;
	}
	v = calloc(n, sizeof(*v));
	out->rank = calloc(n, sizeof(*out->rank));
	if (v && out->rank)
		err = find(an, v, n, out);
	for (i = 0; v && i < n; i++)
		view_free(&v[i]);
	free(v);
	return err;
}

void pt_meets_free(struct pt_meets *m)
{
	free(m->rank);
	*m = (struct pt_meets){ 0 };
}

int pt_meets_worst(const struct pt_an *an, uint64_t *excess_ns)
{
	const struct pt_meets *m = an->meets;
	uint64_t next = 0;
	size_t i, best = 0;

	*excess_ns = 0;
	if (!m || !m->known)
		return -1;
	for (i = 1; i < an->trainers.n; i++)
		if (m->rank[i].cost_ns > m->rank[best].cost_ns)
			best = i;
	for (i = 0; i < an->trainers.n; i++)
		if (i != best)
			next = pt_max64(next, m->rank[i].cost_ns);
	*excess_ns = m->rank[best].cost_ns - next;
	return (int)best;
}
