// SPDX-License-Identifier: BSD-2-Clause
/* What is seen of steps, waits, workers and ranks, against the conditions and against
 * what was usual before. */
#include "analysis/watch/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "base/vec.h"

#define SECOND 1000000000ull
/* The usual step is the median of the last so many: a new phase of the job is usual
 * after half of them. */
#define KEPT 256
/* Of what follows a step so much must have been seen before it is believed: the end of
 * a stretch may cut what is one step. */
#define SETTLE_NS SECOND
/* Of these steps no more than one in so many takes longer than `most`. */
#define LONG_PART 20
/* A stretch begins so many usual steps before what is new in it, or so many long ones,
 * and so long. */
#define STEPS_BEFORE 8
#define LONG_BEFORE 4
#define LEAST_NS (5 * SECOND)
#define MOST_NS (300 * SECOND)
/* A stretch of fewer steps has no usual step of its own. */
#define OWN_STEPS 8
/* So many times as much as what was told last is told within the cool-down, too: a hiccup
 * must not hide a stall. */
#define OUTWEIGHS 4

struct trainer {
	uint32_t pid;
	uint64_t step[KEPT]; /* how long the last ones took, ns */
	uint64_t n;	  /* steps seen */
	uint64_t done;	  /* the last of them ended */
	uint64_t running; /* the one behind it began; 0 unknown */
	bool waits;	  /* its share of data waits is above the limit */
};

struct pt_trigger {
	struct pt_trigger_opts o;
	PT_VEC(struct trainer) t;
	uint64_t old;  /* what began before then was told of */
	uint64_t cool; /* nothing is told until then, but what outweighs the last */
	uint64_t hushed; /* of what began before then it was counted that it is not told */
	uint64_t untold;
	struct pt_event last; /* that was told; at 0: none */
};

struct pt_trigger *pt_trigger_new(const struct pt_trigger_opts *o)
{
	struct pt_trigger *g = calloc(1, sizeof(*g));

	if (g)
		g->o = *o;
	return g;
}

void pt_trigger_free(struct pt_trigger *g)
{
	if (!g)
		return;
	pt_vec_free(&g->t);
	free(g);
}

static struct trainer *find(struct pt_trigger *g, uint32_t pid)
{
	size_t i;

	for (i = 0; i < g->t.n; i++)
		if (g->t.v[i].pid == pid)
			return &g->t.v[i];
	if (pt_vec_push(&g->t, (struct trainer){ .pid = pid }))
		return NULL;
	return &g->t.v[g->t.n - 1];
}

PT_ORDER(by_ns, uint64_t, pt_cmp(*x, *y))

/* How long steps take. Of a job that waits for its loader every eighth step does: what
 * is usual is more than the median. */
struct usual {
	uint64_t median, most; /* 0: too few were seen */
};

static struct usual usual(const struct pt_trigger *g, const struct trainer *t)
{
	uint64_t v[KEPT];
	size_t n = t->n < KEPT ? (size_t)t->n : KEPT;

	if (!t->n || t->n < g->o.warmup)
		return (struct usual){ 0 };
	memcpy(v, t->step, n * sizeof(*v));
	qsort(v, n, sizeof(*v), by_ns);
	return (struct usual){ v[n / 2], v[n - 1 - n / LONG_PART] };
}

/* In the stretch itself. Where its steps are found otherwise than before (two in
 * one), all of them are longer. */
static uint64_t usual_here(const struct pt_seen_trainer *s)
{
	uint64_t v[KEPT];
	size_t i, n = 0;

	for (i = s->n > KEPT ? s->n - KEPT : 0; i + 1 < s->n; i++)
		if (!s->step[i].partial)
			v[n++] = s->step[i].end - s->step[i].begin;
	qsort(v, n, sizeof(*v), by_ns);
	return n >= OWN_STEPS ? v[n / 2] : 0;
}

/* ---- one condition ---------------------------------------------------------------- */

struct judged {
	struct pt_trigger *g;
	const struct pt_seen *s;
	struct usual usual; /* of the trainer */
	uint64_t here;	    /* ... in this stretch; 0 unknown */
	struct pt_event *out;
	double weight; /* of what is in *out, in limits; 0: nothing is */
};

/* What was told while it ran goes on, or has ended. */
static void follow_up(struct pt_event *last, const struct pt_when *w, uint32_t pid,
		      uint64_t begin, double value, bool running)
{
	if (last->when != w || last->pid != pid || !last->running || begin >= last->at ||
	    value < last->value)
		return;
	last->value = value;
	last->running = running;
}

/* More than the limit? The one that is so by most is told: the others are likely to lie
 * in its window. */
static void tell(struct judged *k, const struct pt_when *w, double limit, uint32_t pid,
		 uint64_t begin, double value, bool running)
{
	if (!(value > limit))
		return;
	if (begin < k->g->old)
		follow_up(&k->g->last, w, pid, begin, value, running);
	if (begin < k->g->old || value / limit <= k->weight)
		return;
	*k->out = (struct pt_event){ .when = w, .pid = pid, .begin = begin,
				     .at = k->s->until, .value = value,
				     .usual_ns = k->usual.median, .running = running };
	k->weight = value / limit;
}

static double limit_of(const struct judged *k, const struct pt_when *w)
{
	uint64_t limit, least = pt_max64(PT_WATCH_LEAST_NS, PT_WATCH_MOST * k->usual.most);

	if (w->unit != PT_WHEN_MEDIANS)
		return w->limit;
	limit = (uint64_t)(w->limit * (double)pt_max64(k->usual.median, k->here));
	return (double)pt_max64(limit, least);
}

/* A step, and what it waited; of one that runs its age. */
static void judge_step(struct judged *k, uint32_t pid, const struct pt_seen_step *s,
		       bool running)
{
	double ns = (double)(s->end - s->begin), wait = (double)s->wait_ns;

	pt_each_of(const struct pt_when, w, k->g->o.when, k->g->o.n) {
		double limit = limit_of(k, w);

		/* where it began is known but for one step: the last one may
		 * only look like it */
		if (running)
			limit += (double)k->usual.median;
		if (w->of == PT_WHEN_STEP)
			tell(k, w, limit, pid, s->begin, ns, running);
		if (w->of == PT_WHEN_WAIT && w->unit == PT_WHEN_NS)
			tell(k, w, w->limit, pid, s->begin, wait, running);
	}
}

/* Told when it rises above the limit, not while it stays there. */
static void judge_share(struct judged *k, struct trainer *t,
			const struct pt_seen_trainer *s)
{
	uint64_t from = k->s->until - pt_min64(k->s->until, PT_WATCH_SHARE_NS), wait = 0;
	double share;
	size_t i;

	if (k->s->from > from)
		return; /* not so much of it was seen yet */
	for (i = 0; i < s->n; i++)
		if (s->step[i].begin >= from)
			wait += s->step[i].wait_ns;
	share = (double)wait / (double)(k->s->until - from);
	pt_each_of(const struct pt_when, w, k->g->o.when, k->g->o.n) {
		if (w->of != PT_WHEN_WAIT || w->unit != PT_WHEN_SHARE)
			continue;
		if (!t->waits)
			tell(k, w, w->limit, t->pid, pt_max64(from, k->g->old), share, true);
		t->waits = share > w->limit;
	}
}

/* ---- a trainer ---------------------------------------------------------------------- */

static bool is_new(const struct trainer *t, const struct pt_seen_step *s)
{
	/* seen again, with other evidence, one may begin a little earlier or later */
	return s->begin / 2 + s->end / 2 > t->done;
}

static void take(struct trainer *t, const struct pt_seen_step *s)
{
	t->step[t->n++ % KEPT] = s->end - s->begin;
	t->done = s->end;
}

/* The steps that have ended, then the one that runs. */
static void judge_trainer(struct judged *k, struct trainer *t,
			  const struct pt_seen_trainer *s)
{
	uint64_t settled = k->s->until - pt_min64(k->s->until, SETTLE_NS);
	size_t i;

	k->here = usual_here(s);
	for (i = 0; i + 1 < s->n && s->step[i].end <= settled; i++) {
		if (s->step[i].partial || !is_new(t, &s->step[i]))
			continue;
		k->usual = usual(k->g, t);
		if (k->usual.median)
			judge_step(k, t->pid, &s->step[i], false);
		take(t, &s->step[i]);
	}
	k->usual = usual(k->g, t);
	t->running = s->step[s->n - 1].begin;
	if (!k->usual.median)
		return;
	judge_step(k, t->pid, &s->step[s->n - 1], true);
	judge_share(k, t, s);
}

/* No begin of a step is in the stretch: the last one runs still. */
static void judge_absent(struct judged *k, const struct trainer *t)
{
	struct pt_seen_step s = { .begin = t->running, .end = k->s->until };

	k->here = 0;
	k->usual = usual(k->g, t);
	if (k->usual.median && t->running && s.end > s.begin)
		judge_step(k, t->pid, &s, true);
}

static void forget_gone(struct pt_trigger *g, const struct pt_seen *s)
{
	size_t i, k, n = 0;

	for (i = 0; i < g->t.n; i++) {
		for (k = 0; k < s->n_gone && s->gone[k] != g->t.v[i].pid; k++)
			;
		if (k == s->n_gone)
			g->t.v[n++] = g->t.v[i];
	}
	g->t.n = n;
}

/* NULL: no step begins in the stretch (the first one is cut where that begins). */
static const struct pt_seen_trainer *seen_of(const struct pt_seen *s, uint32_t pid)
{
	size_t i;

	for (i = 0; i < s->n; i++)
		if (s->t[i].pid == pid && s->t[i].n > 1)
			return &s->t[i];
	return NULL;
}

/* ---- all of it ------------------------------------------------------------------------- */

/* When it came late is not told: in its longest step of the stretch. */
static uint64_t late_since(const struct pt_seen *s)
{
	uint64_t most = 0, at = s->from;
	size_t k;

	pt_each_of(const struct pt_seen_trainer, t, s->t, s->n) {
		for (k = 0; k < t->n && t->pid == s->rank; k++) {
			if (t->step[k].end - t->step[k].begin <= most)
				continue;
			most = t->step[k].end - t->step[k].begin;
			at = t->step[k].begin;
		}
	}
	return at;
}

static void judge_others(struct judged *k)
{
	const struct pt_seen *s = k->s;

	pt_each_of(const struct pt_when, w, k->g->o.when, k->g->o.n) {
		if (w->of == PT_WHEN_WORKER && s->worker)
			tell(k, w, w->limit, s->worker,
			     s->until - pt_min64(s->worker_ns, s->until),
			     (double)s->worker_ns, true);
		if (w->of == PT_WHEN_RANK && s->rank)
			tell(k, w, w->limit, s->rank, late_since(s), (double)s->late_ns, false);
	}
}

static bool outweighs(const struct pt_event *e, const struct pt_event *last)
{
	return e->when == last->when && e->value >= OUTWEIGHS * last->value;
}

int pt_trigger_see(struct pt_trigger *g, const struct pt_seen *s, struct pt_event *out)
{
	struct judged k = { .g = g, .s = s, .out = out };
	struct pt_trigger_state now;
	size_t i;

	for (i = 0; i < s->n; i++)
		if (s->t[i].n > 1 && !find(g, s->t[i].pid))
			return -ENOMEM;
	forget_gone(g, s);
	for (i = 0; i < g->t.n; i++) {
		const struct pt_seen_trainer *t = seen_of(s, g->t.v[i].pid);

		if (t)
			judge_trainer(&k, &g->t.v[i], t);
		else
			judge_absent(&k, &g->t.v[i]);
	}
	pt_trigger_state(g, &now);
	k.usual.median = now.usual_ns;
	judge_others(&k);
	if (!(k.weight > 0))
		return 0;
	if (s->until < g->cool && !outweighs(out, &g->last)) {
		g->untold += out->begin >= g->hushed;
		g->hushed = s->until;
		return 0;
	}
	/* what stands still now does so together */
	g->old = out->running ? s->until : out->begin + 1;
	g->cool = s->until + g->o.cooldown_ns;
	g->last = *out;
	return 1;
}

uint64_t pt_trigger_from(const struct pt_trigger *g, uint64_t until)
{
	uint64_t before = LEAST_NS, done = until, least;
	size_t i;

	pt_each_of(const struct pt_when, w, g->o.when, g->o.n) {
		if (w->of == PT_WHEN_WORKER)
			before = pt_max64(before, (uint64_t)w->limit * 3 / 2);
		if (w->unit == PT_WHEN_SHARE)
			before = pt_max64(before, PT_WATCH_SHARE_NS);
	}
	for (i = 0; i < g->t.n; i++) {
		struct usual u = usual(g, &g->t.v[i]);

		before = pt_max64(before, pt_max64(STEPS_BEFORE * u.median,
						   LONG_BEFORE * u.most));
		/* of one that has stood for longer the state says since when */
		if (g->t.v[i].done && g->t.v[i].done + MOST_NS > until)
			done = pt_min64(done, g->t.v[i].done);
	}
	if (!g->t.n || !g->t.v[0].n) /* nothing is known of how long steps are */
		before = 2 * pt_max64(before, PT_WATCH_SHARE_NS);
	before += until - done;
	least = pt_min64(before, MOST_NS);
	return until > least ? until - least : 0;
}

const struct pt_event *pt_trigger_last(const struct pt_trigger *g)
{
	return &g->last;
}

void pt_trigger_state(const struct pt_trigger *g, struct pt_trigger_state *out)
{
	size_t i;

	*out = (struct pt_trigger_state){ .untold = g->untold };
	for (i = 0; i < g->t.n; i++) {
		if (g->t.v[i].n <= out->steps)
			continue;
		out->steps = g->t.v[i].n;
		out->usual_ns = usual(g, &g->t.v[i]).median;
	}
}
