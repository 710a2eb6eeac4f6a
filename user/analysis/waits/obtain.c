/* SPDX-License-Identifier: BSD-2-Clause */
/* When data was being obtained: the steps, and the waits in them. */
#include <errno.h>

#include "analysis/waits/bounds.h"

struct obtain {
	struct pt_trainer *t;
	struct pt_bounds b;
};

/* What the consumer did in the gap. */
static int push_wait(struct obtain *o, const struct pt_host_gap *g,
		     struct pt_fetch *x)
{
	size_t i;

	x->supplied = g->supplied_ns || g->asked ||
		      (o->t->workers.n && !g->reads && !g->read_ns &&
		       !g->read_bytes);
	x->blocked_ns = x->own_read_ns = x->own_cpu_ns = x->handover_ns = 0;
	x->restart_ns = pt_overlap(x->begin, x->end, g->g.begin,
				   pt_max64(g->started, g->g.begin));
	for (i = g->first; i < g->first + g->n; i++) {
		const struct pt_host_piece *q = &o->b.h->pieces.v[i];
		uint64_t ns = pt_overlap(x->begin, x->end, q->begin, q->end);

		if (q->what == PT_HOST_SUPPLIED)
			x->blocked_ns += ns;
		else if (q->what == PT_HOST_READING)
			x->own_read_ns += ns;
		else
			*(x->supplied ? &x->handover_ns : &x->own_cpu_ns) += ns;
	}
	return pt_vec_push(&o->t->waits, *x);
}

/* In this piece the consumer did something else; of a wait that its Python tells whatever it did
 * is part, but what other gaps of its kind show does not cover a sleep in one where looks found it
 * elsewhere. */
static bool is_apart(const struct obtain *o, const struct pt_host_gap *g,
		     const struct pt_host_piece *q, bool named)
{
	if (named)
		return q->what == PT_HOST_SLEEPING && g->looks && g->named <= 0;
	return pt_is_else(g, q) || pt_lacks_core(&o->b, g, q);
}

/* The parts of the window in which it did not. */
static int push_waits(struct obtain *o, const struct pt_host_gap *g, const struct pt_span *w,
		      bool named)
{
	struct pt_fetch x = { .begin = w->begin, .worker = -1, .made = UINT64_MAX,
			      .th = g->g.th, .named = named };
	size_t i;
	int err = 0;

	for (i = g->first; i < g->first + g->n && !err; i++) {
		const struct pt_host_piece *q = &o->b.h->pieces.v[i];

		if (q->begin >= w->end)
			break;
		if (q->end <= x.begin || !is_apart(o, g, q, named))
			continue;
		x.end = q->begin;
		if (x.end > x.begin)
			err = push_wait(o, g, &x);
		x.begin = q->end;
	}
	x.end = w->end;
	return err || x.end <= x.begin ? err : push_wait(o, g, &x);
}

/* The waits from `from` on are the step's, too. */
static void add_waits(const struct pt_trainer *t, struct pt_step *s, size_t from)
{
	size_t i;

	for (i = from; i < t->waits.n; i++) {
		if (!s->n_waits++)
			s->wait_begin = t->waits.v[i].begin;
		s->wait_end = t->waits.v[i].end;
		s->wait_ns += s->wait_end - t->waits.v[i].begin;
	}
}

/* A step begins in the gap before call `i`; g: the gap, if it is worth the name. */
static int begin_step(struct obtain *o, const struct pt_host_gap *g, size_t i)
{
	const struct pt_actor *a = o->b.h->a;
	const struct pt_place_at *at = g ?
		pt_place_between(o->b.p, g->g.prev, g->g.next) : NULL;
	struct pt_step s = { .worker = -1, .batches = 1, .wait0 = o->t->waits.n,
			     .cause = PT_CAUSE_UNKNOWN };
	struct pt_span w;
	int err = 0;

	s.begin = i ? a->calls.v[i - 1].end : o->b.an->t0;
	if (g) {
		s.partial = !g->g.prev || !g->g.next;
		s.kind = pt_gap_kind(&g->g);
		if (g->asks_after || (!g->begins && g->asks))
			s.batches = g->begins ? g->asks_after : g->asks;
		s.asks = g->asks;
		s.started = g->started;
		s.burst = g->burst;
		if (pt_bound_named(&o->b, g, &w)) {
			err = push_waits(o, g, &w, true);
			s.begin = w.begin;
		} else if ((at && at->data) || pt_gap_is_evident(g)) {
			pt_bound_gap(&o->b, g, &w);
			err = push_waits(o, g, &w, false);
			s.begin = w.begin;
		}
	}
	s.wait_begin = s.wait_end = s.begin;
	add_waits(o->t, &s, s.wait0);
	return err ? err : pt_vec_push(&o->t->steps, s);
}

/* Data is waited for within a step, too. */
static int wait_within(struct obtain *o, const struct pt_host_gap *g)
{
	struct pt_step *s = o->t->steps.n ? &o->t->steps.v[o->t->steps.n - 1] :
					    NULL;
	size_t from = o->t->waits.n;
	struct pt_span w;
	int err = 0;

	if (!s)
		return 0;
	if (g->supplied_ns) {
		pt_bound_gap(&o->b, g, &w);
		err = push_waits(o, g, &w, false);
	} else if (!g->g.next && !g->g.th->exited && pt_bound_named(&o->b, g, &w)) {
		err = push_waits(o, g, &w, true); /* the capture ends in it */
	}
	if (!err)
		add_waits(o->t, s, from);
	return err;
}

static void end_steps(const struct obtain *o)
{
	struct pt_trainer *t = o->t;
	size_t i;

	for (i = 0; i < t->steps.n; i++)
		t->steps.v[i].end = i + 1 < t->steps.n ?
					    t->steps.v[i + 1].begin : o->b.an->t1;
	if (t->steps.n)
		t->steps.v[t->steps.n - 1].partial = true;
}

int pt_find_obtaining(const struct pt_an *an, struct pt_trainer *t,
		      const struct pt_host *h, const struct pt_period *p)
{
	struct obtain o = { .t = t, .b = { .an = an, .t = t, .h = h, .p = p } };
	size_t i, k = 0;
	int err = pt_learn_bounds(&o.b);

	for (i = 0; i <= h->a->calls.n && !err; i++) {
		const struct pt_host_gap *g = NULL;

		if (k < h->gaps.n && h->gaps.v[k].call == i)
			g = &h->gaps.v[k++];
		if (pt_begins_at(p, h->a, g, i))
			err = begin_step(&o, g, i);
		else if (g)
			err = wait_within(&o, g);
		if (t->steps.n && i < h->a->calls.n)
			t->steps.v[t->steps.n - 1].launches |= h->a->calls.v[i].launches;
	}
	err = err ?: pt_join_steps(t);
	end_steps(&o);
	return err;
}
