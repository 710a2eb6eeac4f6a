/* SPDX-License-Identifier: BSD-2-Clause */
/* Epochs, first batches, outliers: how steady the steps are and why not. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"

#define MAX_OUTLIERS 20

/* ---- epochs ----------------------------------------------------------------- */

/* A change of the GPU's work counts when it lasts for so many steps. Gradient
 * accumulation changes it for one; a loop that alternates, for a few. */
#define REGIME_STEPS 5

/* Has any of the steps [b,e) one of the shapes of the steps [x,y)? */
static bool shapes_meet(const struct pt_trainer *t, size_t b, size_t e,
			size_t x, size_t y)
{
	size_t i, j;

	for (i = b; i < e; i++)
		for (j = x; j < y; j++)
			if (t->steps.v[i].shape == t->steps.v[j].shape)
				return true;
	return false;
}

/* Does step i begin another kind of work than before: a validation, or training
 * again? Both sides have few shapes, or the steps are merely all different. */
static bool regime_begins(const struct pt_trainer *t, size_t i)
{
	const struct pt_step *s = t->steps.v;
	size_t w = REGIME_STEPS, k, same = 0, same_before = 0;

	if (i < w || i + w > t->steps.n || shapes_meet(t, i - w, i, i, i + w))
		return false;
	for (k = 1; k < w; k++) {
		same += s[i + k].shape == s[i + k - 1].shape;
		same_before += s[i - k].shape == s[i - k - 1].shape;
	}
	return same >= w / 2 && same_before >= w / 2;
}

/* Without hand-offs the loader's start cannot be seen; what changes between
 * training and validation is the GPU's work. */
static void find_regimes(const struct pt_an *an, struct pt_trainer *t)
{
	struct pt_step *s = t->steps.v;
	size_t i;

	for (i = 0; i < t->steps.n; i++)
		s[i].first = regime_begins(t, i) ||
			     (!i && !s->partial && t->proc->born > an->t0);
}

void pt_find_epochs(const struct pt_an *an, struct pt_trainer *t)
{
	size_t i, bare = 0;

	if (!t->handoffs) {
		find_regimes(an, t);
		return;
	}
	for (i = 0; i < t->steps.n; i++) {
		struct pt_step *s = &t->steps.v[i];

		/* Towards its end an epoch has nothing left to hand out. */
		s->first = s->started || (s->burst && bare >= t->concurrent) ||
			   (!i && !s->partial && t->proc->born > an->t0);
		bare = s->asks ? 0 : bare + 1;
	}
}

static double period_ms(const struct pt_step *s)
{
	return pt_ms(s->end - s->begin);
}

static int fill_epoch(const struct pt_trainer *t, size_t b, size_t e,
		      struct pt_r_epoch *o)
{
	double *ms = malloc((e - b + 1) * sizeof(*ms));
	size_t i, n = 0;

	if (!ms)
		return -ENOMEM;
	o->batches = 0;
	o->total = 0;
	o->first_ms = NAN;
	for (i = b; i < e; i++) {
		const struct pt_step *s = &t->steps.v[i];

		o->batches += s->batches;
		o->total += period_ms(s) / 1000;
		if (s->partial)
			continue;
		if (s->first)
			o->first_ms = period_ms(s);
		else
			ms[n++] = period_ms(s);
	}
	pt_dist_of(ms, n, &o->period_ms);
	o->per_second = o->total > 0 ? (double)o->batches / o->total : NAN;
	free(ms);
	return 0;
}

/* A table only where a start of the loader was seen; the part of an epoch
 * before the first one is in it. */
static int fill_epochs(struct pt_an *an, struct pt_trainer *t)
{
	struct pt_r_steps *r = &an->r->steps;
	struct pt_r_epoch *o;
	size_t i, b = 0, n = 0, k = 0;
	int err = 0;

	for (i = 0; i < t->steps.n; i++)
		n += t->steps.v[i].first;
	if (!n) {
		if (t->steps.n)
			pt_report_limit(an->r, "steps.epochs", t->handoffs ?
				"The loader did not start during the capture, so no epoch and "
				"no first batch were seen." :
				"Where the trainer loads the data itself, the beginning of an "
				"epoch shows only if a validation comes in between.");
		return 0;
	}
	o = pt_arena_calloc(an->a, n + 1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	for (i = 1; i <= t->steps.n && !err; i++) {
		if (i < t->steps.n && !t->steps.v[i].first)
			continue;
		o[k].index = (int64_t)k;
		err = fill_epoch(t, b, i, &o[k]);
		if (!err && t->steps.v[b].first && isnan(r->first_ms))
			r->first_ms = o[k].first_ms;
		k++;
		b = i;
	}
	r->epochs = o;
	r->n_epochs = err ? 0 : k;
	return err;
}

/* ---- outliers ---------------------------------------------------------------- */

struct usual { /* medians, ms; first batches left out */
	double period, wait, gpu, host;
};

static double wait_ms(const struct pt_step *s)
{
	return pt_ms(s->wait_ns);
}

static double gpu_ms(const struct pt_step *s)
{
	return pt_ms(s->gpu_wait_ns);
}

static double host_ms(const struct pt_step *s)
{
	return period_ms(s) - wait_ms(s) - gpu_ms(s);
}

static bool counts(const struct pt_step *s)
{
	return !s->partial && !s->first && s->end > s->begin;
}

static double median_of(const struct pt_trainer *t, double *buf,
			double (*fn)(const struct pt_step *))
{
	size_t i, n = 0;

	for (i = 0; i < t->steps.n; i++)
		if (counts(&t->steps.v[i]))
			buf[n++] = fn(&t->steps.v[i]);
	return pt_median(buf, n);
}

static int find_usual(const struct pt_trainer *t, struct usual *u)
{
	double *buf = malloc((t->steps.n + 1) * sizeof(*buf));

	if (!buf)
		return -ENOMEM;
	u->wait = median_of(t, buf, wait_ms);
	u->gpu = median_of(t, buf, gpu_ms);
	u->host = median_of(t, buf, host_ms);
	u->period = median_of(t, buf, period_ms); /* last: buf is sorted */
	free(buf);
	return 0;
}

static double written_ms(const struct pt_trainer *t, const struct pt_step *s)
{
	return pt_ms(pt_spans_in(&t->writing, s->begin, s->end));
}

/* What most of a long step's excess was. Data by the charge of its wait; the
 * device's own work has no cause of the enumeration. */
static enum pt_cause cause_of(const struct pt_trainer *t,
			      const struct pt_step *s, const struct usual *u,
			      bool *device)
{
	double wait = wait_ms(s) - u->wait, gpu = gpu_ms(s) - u->gpu;
	double host = host_ms(s) - u->host, over = period_ms(s) - u->period;

	*device = false;
	if (written_ms(t, s) * 2 > over)
		return PT_CAUSE_CHECKPOINT;
	if (wait >= gpu && wait >= host)
		return s->cause;
	if (host >= gpu)
		return PT_CAUSE_OTHER_HOST;
	*device = true;
	return PT_CAUSE_UNKNOWN;
}

PT_ORDER(by_ms, struct pt_r_outlier, pt_cmp(y->ms, x->ms))

void pt_put_outliers(struct pt_r_steps *r, struct pt_r_outlier *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_ms);
	r->outliers = v;
	r->n_outliers = n < MAX_OUTLIERS ? n : MAX_OUTLIERS;
}

static int fill_outliers(struct pt_an *an, const struct pt_trainer *t)
{
	struct pt_r_steps *r = &an->r->steps;
	struct pt_r_outlier *o = pt_arena_calloc(an->a, t->steps.n + 1,
						 sizeof(*o));
	double lo = INFINITY, hi = 0;
	struct usual u;
	size_t i, n = 0;
	bool device;

	if (!o || find_usual(t, &u))
		return -ENOMEM;
	for (i = 0; i < t->steps.n; i++) {
		const struct pt_step *s = &t->steps.v[i];

		if (!counts(s))
			continue;
		lo = fmin(lo, period_ms(s));
		hi = fmax(hi, period_ms(s));
		if (period_ms(s) <= an->th->unstable_ratio * u.period)
			continue;
		o[n].index = (int64_t)(an->step0 + i);
		o[n].ms = period_ms(s);
		o[n++].cause = cause_of(t, s, &u, &device);
	}
	r->max_over_min = lo > 0 && hi > 0 ? hi / lo : NAN;
	pt_put_outliers(r, o, n);
	return 0;
}

int pt_fill_step_health(struct pt_an *an, struct pt_trainer *t)
{
	int err = fill_epochs(an, t);

	return err ? err : fill_outliers(an, t);
}

/* What the calls in each step do: the last of it that is of single calls. */
void pt_mark_calls(struct pt_trainer *t)
{
	const struct pt_proc *p = t->proc;

	pt_each(struct pt_step, s, &t->steps) {
		s->copied = 0;
		s->synced = false;
		pt_each_call(c, p, s->begin, s->end) {
			s->synced |= pt_call_is_sync(c);
			if (!pt_call_is_copy(c))
				continue;
			s->synced |= c->v[2] == PT_COPY_D2H;
			if (c->v[2] == PT_COPY_H2D)
				s->copied += c->v[1];
		}
	}
}

/* ---- facts for the judges ------------------------------------------------------ */

/* Does a step take longer the more it copies to the device? */
static int size_effect(const struct pt_trainer *t, struct pt_steady *out)
{
	double *v = malloc((2 * t->steps.n + 1) * sizeof(*v));
	size_t i, n = 0;
	int err;

	if (!v)
		return -ENOMEM;
	for (i = 0; i < t->steps.n; i++) {
		if (!counts(&t->steps.v[i]))
			continue;
		v[n] = period_ms(&t->steps.v[i]);
		v[t->steps.n + n++] = (double)t->steps.v[i].copied;
	}
	err = pt_spearman(v, v + t->steps.n, n, &out->size_rho);
	free(v);
	return err;
}

static void sum_outliers(const struct pt_trainer *t, const struct usual *u,
			 double ratio, double wall_ms, struct pt_steady *out)
{
	double by[PT_CAUSE_NR] = { 0 }, on_device = 0, most = 0, lost = 0;
	bool device;
	size_t i;

	pt_each(const struct pt_step, s, &t->steps) {
		double over = period_ms(s) - u->period;
		enum pt_cause c;

		if (!counts(s) || period_ms(s) <= ratio * u->period)
			continue;
		out->outliers++;
		lost += over;
		c = cause_of(t, s, u, &device);
		*(device ? &on_device : &by[c]) += over;
	}
	out->cause = PT_CAUSE_UNKNOWN;
	for (i = 0; i < PT_CAUSE_NR; i++) {
		if (by[i] <= most)
			continue;
		most = by[i];
		out->cause = (enum pt_cause)i;
	}
	out->device = on_device > most;
	out->lost_share = wall_ms > 0 ? lost / wall_ms : 0;
}

static void sum_firsts(const struct pt_trainer *t, const struct usual *u,
		       double wall_ms, double *buf, struct pt_steady *out)
{
	double over = 0;

	pt_each(const struct pt_step, s, &t->steps) {
		if (!s->first || s->partial)
			continue;
		buf[out->firsts++] = period_ms(s);
		over += fmax(0, period_ms(s) - u->period);
	}
	out->first_ms = pt_median(buf, out->firsts);
	out->first_ratio = u->period > 0 ? out->first_ms / u->period : NAN;
	out->first_share = wall_ms > 0 ? over / wall_ms : 0;
}

/* Does nearly every step end with the device? Where the loop runs ahead of
 * it, one step's time on the host is not what the step takes. */
static bool in_step(const struct pt_trainer *t)
{
	size_t i, n = 0, synced = 0;

	for (i = 0; i < t->steps.n; i++) {
		if (!counts(&t->steps.v[i]))
			continue;
		n++;
		synced += t->steps.v[i].synced;
	}
	return synced * 10 >= n * 9;
}

/* Fill `buf` with the steps' times; out->n of them. A step that is short for
 * it waited less for the device than others is the host running ahead. */
static void collect_periods(const struct pt_trainer *t, const struct usual *u,
			    double *buf, struct pt_steady *out)
{
	pt_each(const struct pt_step, s, &t->steps) {
		double more = gpu_ms(s) - u->gpu;

		if (counts(s))
			buf[out->n++] = period_ms(s) -
					(out->ahead ? more : fmin(more, 0));
	}
}

int pt_measure_steady(struct pt_an *an, const struct pt_trainer *t,
		      struct pt_steady *out)
{
	double *buf = malloc((t->steps.n + 1) * sizeof(*buf));
	double wall_ms = pt_ms(an->t1 - an->t0);
	struct pt_dist d;
	struct usual u;
	int err = buf ? find_usual(t, &u) : -ENOMEM;

	*out = (struct pt_steady){ .size_rho = NAN, .first_ms = NAN,
				   .max_over_min = NAN, .p99_over_p50 = NAN };
	if (err)
		goto out;
	out->ahead = !in_step(t);
	collect_periods(t, &u, buf, out);
	pt_dist_of(buf, out->n, &d);
	if (out->n && d.min > 0) {
		/* a short step is the host running ahead, not a fast one */
		out->max_over_min = d.max / (out->ahead ? d.p50 : d.min);
		out->p99_over_p50 = d.p99 / d.p50;
	}
	sum_firsts(t, &u, wall_ms, buf, out);
	sum_outliers(t, &u, an->th->unstable_ratio, wall_ms, out);
	err = size_effect(t, out);
out:
	free(buf);
	return err;
}
