/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What-if: CPU quotas (CFS bandwidth control) as the scheduler's records show
 * them. A thread whose quota is used up waits on the run queue until the next
 * period begins, so its long waits all end at the same point of the period.
 * What a process computed in the periods in which that happened is its quota.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/whatif.h"

/* The kernel's default period of a CPU quota (and that of container
 * runtimes). */
#define PERIOD_NS (100 * NS_PER_MS)
#define BINS 20
#define BIN_NS (PERIOD_NS / BINS)
/* Shorter queueing is the scheduler's, not a quota's. */
#define MIN_NS (5 * NS_PER_MS)
/* Run-queue time above this share of the CPU time, and so much of it that
 * ends on a period, is a quota's. */
#define RUNQ_SHARE 0.10
#define ON_PERIOD 0.5
/* ... or where the control group says that it was throttled for more than this
 * share of the time, and at least half of it shows on a period. */
#define THROTTLED_SHARE 0.005
/* Fewer periods cut short say little of the quota. */
#define MIN_PERIODS 5
/* Two quotas whose periods begin so far apart are two. */
#define APART_MS 8.0

struct marks {
	uint64_t bin[BINS];
	uint64_t all, on;
	size_t at; /* the first of the two bins with most */
};

static bool is_long(const struct pt_iv *iv)
{
	return iv->end - iv->ready >= MIN_NS;
}

/* The long waits of one thread; its whole queueing time to m->all. */
static void take_marks(const struct pt_an *an, const struct pt_thread *th,
		       struct marks *m)
{
	size_t i;

	for (i = pt_iv_after(th, an->t0); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];

		if (iv->begin >= an->t1)
			break;
		m->all += iv->end - iv->ready;
		if (is_long(iv) && !iv->open)
			m->bin[iv->end % PERIOD_NS / BIN_NS] +=
				iv->end - iv->ready;
	}
	for (i = 0; i < BINS; i++) { /* the point may lie on a border */
		uint64_t on = m->bin[i] + m->bin[(i + 1) % BINS];

		if (on <= m->on)
			continue;
		m->on = on;
		m->at = i;
	}
}

/* Did this wait end where the marks say that a period begins? */
static bool ends_on(const struct marks *m, const struct pt_iv *iv)
{
	size_t bin = iv->end % PERIOD_NS / BIN_NS;

	return is_long(iv) && !iv->open &&
	       (bin == m->at || bin == (m->at + 1) % BINS);
}

/* The earliest end on the mark, seen from the mark's first bin: the kernel
 * lets the first thread run at once, the others behind it. */
static uint64_t phase_of(const struct pt_an *an, const struct pt_thread *th,
			 const struct marks *m)
{
	uint64_t base = m->at * BIN_NS, least = UINT64_MAX;
	size_t i;

	for (i = pt_iv_after(th, an->t0); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];

		if (iv->begin >= an->t1)
			break;
		if (ends_on(m, iv))
			least = pt_min64(least, (iv->end + PERIOD_NS - base) %
						PERIOD_NS);
	}
	return (base + (least == UINT64_MAX ? 0 : least)) % PERIOD_NS;
}

struct usage { /* CPU time by period */
	double *ms;
	size_t n;
	uint64_t begin; /* of period 0 */
};

#define PERIODS_MAX (1u << 20) /* more than a day of them */

static int add_usage(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		     bool queued)
{
	struct usage *u = ctx;

	(void)queued;
	if (iv)
		return 0;
	while (b < e) {
		size_t k = (size_t)((b - u->begin) / PERIOD_NS);
		uint64_t end = pt_min64(e, u->begin + (k + 1) * PERIOD_NS);

		if (k < u->n)
			u->ms[k] += (double)(end - b) / NS_PER_MS;
		b = end;
	}
	return 0;
}

/* What the process computed in each period that a long wait ended: appended
 * to `out`. */
static int periods_cut(const struct pt_an *an, const struct pt_worker *w,
		       const struct marks *m, uint64_t phase, pt_doubles *out)
{
	uint64_t t0 = an->t0;
	struct usage u = { 0 };
	size_t i, j;
	int err = 0;

	u.begin = t0 - (t0 + PERIOD_NS - phase) % PERIOD_NS;
	u.n = (size_t)((an->t1 - u.begin) / PERIOD_NS) + 1;
	if (u.n > PERIODS_MAX) /* no trace, but a clock that somebody made up */
		return 0;
	u.ms = calloc(u.n, sizeof(*u.ms));
	if (!u.ms)
		return -ENOMEM;
	for (i = 0; i < w->proc->threads.n; i++) {
		const struct pt_thread *th = w->proc->threads.v[i];
		uint64_t b = pt_max64(t0, th->first);
		uint64_t e = pt_min64(an->t1, pt_thread_end(an, th));

		if (e > b)
			pt_walk(th, b, e, add_usage, &u);
	}
	for (j = pt_iv_after(w->main, t0); j < w->main->iv.n && !err; j++) {
		const struct pt_iv *iv = &w->main->iv.v[j];
		size_t k;

		if (iv->begin >= an->t1)
			break;
		if (!ends_on(m, iv))
			continue;
		/* the period before the one that it ended in; the first is cut
		 * by the capture's begin */
		k = (size_t)((iv->end + BIN_NS / 2 - u.begin) / PERIOD_NS);
		if (k >= 2 && k - 1 < u.n)
			err = pt_vec_push(out, u.ms[k - 1]);
	}
	free(u.ms);
	return err;
}

/* Growth of the throttled time that the process's control group reports over
 * the capture, in ns; UINT64_MAX unknown. Processes of one group have one. */
static uint64_t group_throttled(const struct pt_proc *p)
{
	size_t n = p->samples.n;
	uint64_t a, b;

	if (n < 2)
		return UINT64_MAX;
	a = p->samples.v[0].throttled_ns;
	b = p->samples.v[n - 1].throttled_ns;
	return a == UINT64_MAX || b == UINT64_MAX || b < a ? UINT64_MAX : b - a;
}

/* Do two processes that are throttled have a quota each? */
static bool are_apart(const struct pt_proc *p, double phase,
		      const struct pt_proc *q, double other)
{
	double period = (double)PERIOD_NS / NS_PER_MS;
	double d = fabs(phase - other);
	uint64_t a = group_throttled(p), b = group_throttled(q);

	if (fmin(d, period - d) > APART_MS)
		return true;
	if (a == UINT64_MAX || b == UINT64_MAX)
		return false;
	/* the two are read one after the other */
	return pt_max64(a, b) - pt_min64(a, b) > pt_max64(a, b) / 20;
}

/* One quota for all, or one for each? A lone worker's is its own where the
 * trainer does not share it. What the trainer has, too, is a limit on the cores
 * of them all and no quota of the workers'. */
static enum pt_wi_quota_of whose(const struct pt_an *an,
				 const struct pt_trainer *t,
				 const struct pt_wi_obs *o)
{
	uint64_t theirs = group_throttled(t->workers.v[0].proc);
	uint64_t ours = group_throttled(t->proc);
	size_t i;

	for (i = 1; i < t->workers.n; i++)
		if (are_apart(t->workers.v[0].proc, o->pools.v[0].phase,
			      t->workers.v[i].proc, o->pools.v[i].phase))
			return PT_WI_QUOTA_EACH;
	if (t->workers.n > 1)
		return an->m->host_known && an->m->host.quota_mcores ?
			PT_WI_QUOTA_NONE : PT_WI_QUOTA_ALL;
	return theirs != UINT64_MAX && ours < theirs / 2 ? PT_WI_QUOTA_EACH :
							   PT_WI_QUOTA_NONE;
}

/* Its control group was throttled, and its waits show when. */
static bool says_throttled(const struct pt_an *an, const struct pt_worker *w,
			   const struct marks *m)
{
	uint64_t ns = group_throttled(w->proc);

	return ns != UINT64_MAX && m->on >= ns / 2 &&
	       (double)ns > THROTTLED_SHARE * (double)(an->t1 - an->t0);
}

/* CPU time of the worker's other threads, per batch. */
static double others_cpu(const struct pt_an *an, const struct pt_worker *w)
{
	double all = 0;
	size_t i;

	if (!w->done.n)
		return 0;
	for (i = 0; i < w->proc->threads.n; i++) {
		const struct pt_thread *th = w->proc->threads.v[i];

		if (th != w->main)
			all += (double)pt_run_ns(an, th) / NS_PER_MS;
	}
	return all / (double)w->done.n;
}

int pt_wi_observe_quota(const struct pt_an *an, const struct pt_trainer *t,
			struct pt_wi_obs *o)
{
	uint64_t on = 0, all = 0, cpu = 0;
	pt_doubles cut = { 0 };
	bool said = false, shows;
	size_t i;
	int err = 0;

	for (i = 0; i < t->workers.n && !err; i++) {
		const struct pt_worker *w = &t->workers.v[i];
		struct marks m = { .all = 0 };
		uint64_t phase;

		take_marks(an, w->main, &m);
		on += m.on;
		all += m.all;
		cpu += pt_run_ns(an, w->main);
		if (t->respawned || i >= o->pools.n)
			continue;
		o->pools.v[i].aux = others_cpu(an, w);
		phase = phase_of(an, w->main, &m);
		o->pools.v[i].phase = (double)phase / NS_PER_MS;
		said |= says_throttled(an, w, &m);
		o->quota_hidden |= group_throttled(w->proc) != UINT64_MAX &&
				   group_throttled(w->proc) > 0;
		if (m.on > ON_PERIOD * (double)m.all ||
		    says_throttled(an, w, &m))
			err = periods_cut(an, w, &m, phase, &cut);
	}
	if (!t->workers.n) {
		struct marks m = { .all = 0 };

		take_marks(an, t->main, &m);
		on = m.on;
		all = m.all;
	}
	o->throttled = all ? (double)on / (double)all : 0;
	shows = o->throttled > ON_PERIOD &&
		(double)all > RUNQ_SHARE * (double)cpu;
	if (!err && cut.n >= MIN_PERIODS && (shows || said) && !t->respawned &&
	    t->workers.n == o->pools.n) {
		o->quota.of = whose(an, t, o);
		o->quota_hidden = false;
		o->quota.period = (double)PERIOD_NS / NS_PER_MS;
		o->quota.budget = pt_median(cut.v, cut.n);
		if (o->quota.of == PT_WI_QUOTA_ALL) /* seen of one at a time */
			o->quota.budget *= (double)t->workers.n;
	}
	pt_vec_free(&cut);
	return err;
}
