/* SPDX-License-Identifier: BSD-2-Clause */
/* Batches that take many times as long to make as the others, and how much of the
 * waiting passes meanwhile. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/gpu/passes.h"
#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"
#include "analysis/waits/look.h"

static double batches_made(const struct pt_trainer *t)
{
	double n = 0;

	pt_each(const struct pt_worker, w, &t->workers)
		n += w->role == PT_ROLE_HELPER ? 0 : (double)w->done.n;
	return n;
}

static double batches_taken(const struct pt_trainer *t)
{
	double n = 0;

	pt_each(const struct pt_step, s, &t->steps)
		n += s->batches;
	return n;
}

/* There are workers, and few of their batches are noticed: a service outside of the job
 * whose sends wake nobody. */
static bool few_noticed(const struct pt_trainer *t)
{
	return t->workers.n && batches_made(t) < PT_TAIL_FEW * batches_taken(t);
}

/* When the worker made the batch that unsorted_ms[i] is of; where it rested, it did so before. */
static struct pt_span made_in(const struct pt_worker *k, size_t i)
{
	uint64_t done = k->done.v[i + 1], ns = (uint64_t)(k->unsorted_ms.v[i] * NS_PER_MS);

	return (struct pt_span){ done - pt_min64(done, ns), done };
}

/* Was it made for most of the wait? It is seen to be done where its worker rests or begins with the
 * next, which may be a little later: it was handed over before. */
static bool made_meanwhile(const struct pt_fetch *w, const struct pt_span *made)
{
	return 2 * pt_overlap(made->begin, made->end, w->begin, w->end) > w->end - w->begin;
}

/* Of a worker that was there before the capture, since when it makes its first batch, as far as is
 * seen: of a long capture the last part alone is still there. How long a new one takes to begin is
 * no item's. */
static struct pt_span first_made(const struct pt_an *an, const struct pt_worker *k)
{
	struct pt_span x = { an->t0, k->done.n ? k->done.v[0] : 0 };

	if (k->main->parent || !k->main->iv.n || k->main->iv.v[0].begin >= x.end)
		return (struct pt_span){ 0 };
	x.begin = pt_max64(x.begin, k->main->iv.v[0].begin);
	pt_each(const struct pt_iv, iv, &k->main->iv) {
		if (iv->begin >= x.end)
			break;
		if (pt_rests(k, iv))
			x.begin = pt_max64(x.begin, pt_min64(iv->end, x.end));
	}
	return x;
}

/* The one that the worker was seen to be done with as its i-th, counted from 0. */
static struct pt_span made_as(const struct pt_an *an, const struct pt_worker *k, size_t i)
{
	if (i > k->unsorted_ms.n)
		return (struct pt_span){ 0 };
	return i ? made_in(k, i - 1) : first_made(an, k);
}

/* How long the batch took that ended this wait; NAN not seen. `waited`: few_noticed(). Where others
 * work on it behind its maker, that is done with the next ones before the wait ends. */
static double made_ms(const struct pt_an *an, const struct pt_trainer *t, const struct pt_fetch *w,
		      bool waited)
{
	const struct pt_worker *k;
	size_t at, i;

	if (!w->supplied || waited) /* it was made in the wait itself, or seems so */
		return pt_ms(w->end - w->begin);
	if (w->worker < 0 || t->workers.v[w->worker].role == PT_ROLE_HELPER)
		return NAN;
	k = &t->workers.v[w->worker];
	at = pt_times_until(&k->done, w->end);
	for (i = pt_min64(at + 1, k->done.n); i-- > 0 && k->done.v[i] > w->begin;) {
		struct pt_span made = made_as(an, k, i);

		if (made_meanwhile(w, &made))
			return pt_ms(made.end - made.begin);
	}
	return at >= 2 && at - 2 < k->unsorted_ms.n ? k->unsorted_ms.v[at - 2] : NAN;
}

static bool all_noticed(const struct pt_trainer *t)
{
	double taken = batches_taken(t);

	return fabs(batches_made(t) - taken) <= PT_TAIL_NOTICED * taken;
}

/* Nobody knows what it waits for when the capture ends, nor whether that ever comes. */
static bool is_at_rest(const struct pt_an *an, const struct pt_worker *w, const struct pt_iv *iv)
{
	return pt_is_idle(an, w, iv) || pt_sleep_cause(an, iv) == PT_CAUSE_IPC;
}

/* Since when the worker makes a batch that is not done when the capture ends; the end: it
 * rests by then, or waits its turn. */
static uint64_t unfinished(const struct pt_an *an, const struct pt_worker *w)
{
	size_t i = w->main->iv.n;
	uint64_t since;

	if (!w->done.n || w->role == PT_ROLE_HELPER || w->main->exited ||
	    an->t1 < an->m->last_ts)
		return an->t1;
	since = w->done.v[w->done.n - 1];
	while (i-- > 0 && w->main->iv.v[i].end > since) {
		const struct pt_iv *iv = &w->main->iv.v[i];

		if (iv->ready >= an->t1 ? is_at_rest(an, w, iv) : pt_rests(w, iv))
			since = iv->end;
	}
	return pt_min64(since, an->t1);
}

static double unfinished_ms(const struct pt_an *an, const struct pt_worker *w)
{
	return pt_ms(an->t1 - unfinished(an, w));
}

/* When a worker made batches that take longer than `limit`. */
static int slow_of(const struct pt_an *an, const struct pt_worker *w, double limit,
		   pt_spans *out)
{
	struct pt_span last = { unfinished(an, w), an->t1 };
	size_t i;
	int err = 0;

	if (unfinished_ms(an, w) > limit)
		err = pt_vec_push(out, last);
	for (i = 0; i < w->done.n && !err; i++) {
		struct pt_span x = made_as(an, w, i);

		if (pt_ms(x.end - x.begin) > limit)
			err = pt_vec_push(out, x);
	}
	return err;
}

/* When batches were made that take longer than `limit`: meanwhile the others make what is
 * waited for; in by[], of each worker. Where not all are noticed, the waits that such a batch ends;
 * tidy. */
static int slow_times(const struct pt_an *an, const struct pt_trainer *t, double limit,
		      bool waited, pt_spans *out, pt_spans *by)
{
	bool noticed = t->workers.n && all_noticed(t);
	size_t i;
	int err = 0;

	for (i = 0; i < t->workers.n && noticed && !err; i++) {
		if (t->workers.v[i].role == PT_ROLE_HELPER)
			continue;
		err = slow_of(an, &t->workers.v[i], limit, &by[i]);
		pt_spans_tidy(&by[i], an->t0, an->t1);
		err = err ?: pt_spans_append(out, &by[i]);
	}
	pt_each_ok(const struct pt_fetch, w, &t->waits, err) {
		struct pt_span x = { w->begin, w->end };

		if (made_ms(an, t, w, waited) > limit)
			err = pt_vec_push(out, x);
	}
	pt_spans_tidy(out, an->t0, an->t1);
	return err;
}

/* How long batches take to make; where nobody is seen to make them, the waits for them. */
static int usual(const struct pt_trainer *t, bool waited, pt_doubles *v)
{
	size_t i;
	int err = 0;

	pt_each_ok(const struct pt_worker, w, &t->workers, err) {
		if (w->role != PT_ROLE_HELPER && !waited)
			err = pt_doubles_append(v, &w->service_ms);
	}
	for (i = 0; i < t->waits.n && (waited || !t->workers.n) && !err; i++)
		err = pt_vec_push(v, pt_ms(t->waits.v[i].end - t->waits.v[i].begin));
	return err;
}

/* How much passes while slow batches are made, ns. */
struct slow {
	uint64_t own;	 /* of the wait for one of them, or for its maker */
	uint64_t beside; /* of other waits: what the trainer slept for. That its worker is at
			  * such a batch has nothing to do with handing over what is there */
};

static struct slow slow_part(const struct pt_an *an, const struct pt_trainer *t,
			     const struct pt_fetch *w, double limit, bool waited,
			     const pt_spans *made, const pt_spans *by)
{
	struct slow s = { pt_spans_in(made, w->begin, w->end), 0 };
	uint64_t ns = s.own, own = 0;

	if (!w->supplied || waited || made_ms(an, t, w, waited) > limit)
		return s;
	if (w->worker >= 0)
		own = pt_spans_in(&by[w->worker], w->begin, w->end);
	s.own = own;
	s.beside = pt_min64(ns, pt_max64(w->blocked_ns, own)) - own;
	return s;
}

/* Of the waits beside slow batches, what there is more of than while none is made: else the
 * worker that is at one is not missed. Not told, where next to no time is left without. */
static uint64_t excess(const struct pt_an *an, const struct pt_trainer *t, const pt_spans *made,
		       uint64_t beside)
{
	uint64_t in = pt_spans_sum(made), rest = an->t1 - an->t0 - in, waits = 0;
	double usual;

	pt_each(const struct pt_fetch, w, &t->waits)
		waits += w->end - w->begin - pt_spans_in(made, w->begin, w->end);
	if ((double)rest < PT_TAIL_REST * (double)(an->t1 - an->t0))
		return 0;
	usual = (double)in * (double)waits / (double)rest;
	return beside - pt_min64(beside, (uint64_t)usual);
}

/* Median of the steps, ms: what a batch takes whoever makes it, where that is not seen. */
static int step_ms(const struct pt_trainer *t, double *ms)
{
	pt_doubles v = { 0 };
	size_t i;
	int err = 0;

	for (i = 0; i < t->steps.n && !err; i++)
		err = pt_vec_push(&v, pt_ms(t->steps.v[i].end - t->steps.v[i].begin));
	*ms = pt_median(v.v, v.n);
	pt_vec_free(&v);
	return err;
}

/* Do they come evenly? Of what comes by chance the distances vary as much as they are long. */
static bool is_even(double n, double sum, double squares)
{
	double mean;

	if (n < PT_TAIL_APART)
		return true;
	mean = sum / n;
	return squares / n - mean * mean < PT_TAIL_EVEN * PT_TAIL_EVEN * mean * mean;
}

/* The waits that are longer than `limit`, as of a service that makes so many batches at once. */
static bool come_evenly(const struct pt_trainer *t, double limit)
{
	double sum = 0, squares = 0, n = 0;
	uint64_t last = 0;

	pt_each(const struct pt_fetch, w, &t->waits) {
		double ms = pt_ms(w->begin - last);

		if (pt_ms(w->end - w->begin) <= limit)
			continue;
		if (last) {
			sum += ms;
			squares += ms * ms;
			n++;
		}
		last = w->begin;
	}
	return is_even(n, sum, squares);
}

/* Each so many batches of a worker one that takes all the time, while the others take next to
 * none: it makes so many at once (it sorts them by length), and then hands them out. */
static bool come_in_bursts(const struct pt_trainer *t, double limit, double usual, double slow)
{
	double sum = 0, squares = 0, n = 0;
	size_t i, last;

	if (usual > PT_TAIL_NOTHING * slow)
		return false;
	pt_each(const struct pt_worker, w, &t->workers) {
		last = SIZE_MAX;
		for (i = 0; i < w->unsorted_ms.n && w->role != PT_ROLE_HELPER; i++) {
			double apart = (double)(i - last);

			if (w->unsorted_ms.v[i] <= limit)
				continue;
			if (last != SIZE_MAX) {
				sum += apart;
				squares += apart * apart;
				n++;
			}
			last = i;
		}
	}
	return n >= PT_TAIL_APART && is_even(n, sum, squares);
}

/* The part of their time that the makers work. */
static double makers_work(const struct pt_an *an, const struct pt_trainer *t)
{
	uint64_t all = 0, rests = 0;

	pt_each(const struct pt_worker, w, &t->workers) {
		uint64_t b = pt_max64(an->t0, w->main->first);
		uint64_t e = pt_min64(an->t1, pt_thread_end(an, w->main));

		if (w->role == PT_ROLE_HELPER || e <= b)
			continue;
		all += e - b;
		rests += pt_rest_ns(w, b, e);
	}
	return all ? 1 - (double)rests / (double)all : 0;
}

/* Batches come no faster than makers that never rest make them: how much sooner all would be made
 * if slow batches took what is usual, ns. */
static uint64_t sooner(const struct pt_an *an, const struct pt_trainer *t, const pt_doubles *slow_ms,
		       double usual_ms)
{
	double n = 0, ms = 0;

	pt_each(const struct pt_worker, w, &t->workers)
		n += w->role != PT_ROLE_HELPER;
	pt_each(const double, x, slow_ms)
		ms += *x - usual_ms;
	if (!n || !all_noticed(t) || makers_work(an, t) <= 1 - PT_TAIL_REST)
		return 0;
	return (uint64_t)(ms / n * NS_PER_MS);
}

static bool is_behind_slow(const struct pt_worker *w, size_t i, double limit)
{
	return i && w->unsorted_ms.v[i - 1] > limit;
}

/*
 * Behind a slow one a maker may have several to make, and rest nowhere between: they are noticed as
 * one. How long that may take, where those that are not noticed are all behind slow ones, ms.
 */
static double catching_up_ms(const struct pt_trainer *t, double limit, double usual)
{
	double lack = batches_taken(t) - batches_made(t), n = 0;
	size_t i;

	pt_each(const struct pt_worker, w, &t->workers)
		for (i = 0; i < w->unsorted_ms.n && w->role != PT_ROLE_HELPER; i++)
			n += w->unsorted_ms.v[i] > limit && !is_behind_slow(w, i, limit);
	return n && lack > 0 ? (1 + PT_TAIL_CATCHING * lack / n) * usual : 0;
}

/* What a batch takes that is neither slow nor right behind a slow one. */
static int usual_apart(const struct pt_trainer *t, double limit, double *usual)
{
	pt_doubles v = { 0 };
	size_t i;
	int err = 0;

	pt_each_ok(const struct pt_worker, w, &t->workers, err)
		for (i = 0; i < w->unsorted_ms.n && w->role != PT_ROLE_HELPER && !err; i++)
			if (w->unsorted_ms.v[i] <= limit && !is_behind_slow(w, i, limit))
				err = pt_vec_push(&v, w->unsorted_ms.v[i]);
	if (v.n)
		*usual = pt_median(v.v, v.n);
	pt_vec_free(&v);
	return err;
}

struct catching_up {
	double ms;     /* what that may take */
	size_t n;      /* times behind slow ones that are no longer than that ... */
	double sum_ms;
	size_t slow;   /* ... and would be slow batches else */
};

static int slow_made(const struct pt_an *an, const struct pt_worker *w, double limit,
		     struct catching_up *k, pt_doubles *slow)
{
	const double *ms = w->unsorted_ms.v;
	size_t i;
	int err = 0;

	for (i = 0; i < w->unsorted_ms.n && !err; i++) {
		bool behind = is_behind_slow(w, i, limit) && ms[i] <= k->ms;

		if (ms[i] > limit && !behind)
			err = pt_vec_push(slow, ms[i]);
		k->n += behind;
		k->sum_ms += behind ? ms[i] : 0;
		k->slow += behind && ms[i] > limit;
	}
	if (!err && unfinished_ms(an, w) > limit)
		err = pt_vec_push(slow, unfinished_ms(an, w));
	return err;
}

/* The slow ones, of which each took longer than *least, and whether there may be such at all. */
static int list_slow(const struct pt_an *an, const struct pt_trainer *t, const pt_doubles *all,
		     struct pt_tail *out, double *least, pt_doubles *slow)
{
	double limit = PT_TAIL_FACTOR * out->usual_ms, usual = out->usual_ms;
	struct catching_up k = { .ms = catching_up_ms(t, limit, out->usual_ms) };
	int err = usual_apart(t, limit, &usual);

	pt_each_ok(const struct pt_worker, w, &t->workers, err) {
		if (!out->waited && w->role != PT_ROLE_HELPER)
			err = slow_made(an, w, limit, &k, slow);
	}
	/* where nobody is seen to make them, the waits */
	pt_each_ok(const double, ms, all, err) {
		if ((out->waited || !t->workers.n) && *ms > limit)
			err = pt_vec_push(slow, *ms);
	}
	out->ms = pt_median(slow->v, slow->n);
	/* behind each slow one there is one such at most, or the others are as slow */
	*least = k.slow > slow->n ? k.ms : limit;
	/* those that are not noticed are of the usual ones, where they account for these times */
	out->caught_up = k.n && batches_taken(t) > (double)out->all &&
			 k.sum_ms - (double)k.n * usual >=
				 PT_TAIL_CAUGHT * (batches_taken(t) - batches_made(t)) * usual;
	if (out->caught_up)
		out->all = (uint64_t)batches_taken(t);
	if (err || out->all < PT_TAIL_BATCHES || !slow->n ||
	    (double)slow->n > PT_TAIL_PART * (double)out->all)
		return err;
	out->bursts = out->waited ? come_evenly(t, limit) :
				    come_in_bursts(t, limit, out->usual_ms, out->ms);
	/* Where the makers work for most of the time, slow batches that come evenly are how they
	 * work, and their time in all is what lacks; else they rest meanwhile, and one holds up
	 * the line. */
	if (!out->bursts || makers_work(an, t) <= PT_TAIL_WORK)
		out->n = slow->n;
	return 0;
}

/* What of the waiting they are to blame for. */
static int share_of_slow(const struct pt_an *an, const struct pt_trainer *t,
			 const pt_doubles *slow_ms, double limit, struct pt_tail *out)
{
	uint64_t by[PT_CAUSE_NR] = { 0 }, slow = 0, all = 0, most = 0, beside = 0;
	pt_spans *of = calloc(t->workers.n + 1, sizeof(*of)), made = { 0 };
	size_t i;
	int err = of ? slow_times(an, t, limit, out->waited, &made, of) : -ENOMEM;

	pt_each_ok(const struct pt_fetch, w, &t->waits, err) {
		struct slow s = slow_part(an, t, w, limit, out->waited, &made, of);

		all += w->end - w->begin;
		slow += s.own;
		beside += s.beside;
		by[w->cause] += s.own + s.beside;
		if (!(s.own + s.beside) || !(w->inode || w->peer) || w->on_ns <= most)
			continue;
		most = w->on_ns;
		out->inode = w->inode;
		out->dev = w->dev;
		out->peer = w->peer;
	}
	slow += err ? 0 : excess(an, t, &made, beside);
	if (!err && !out->waited)
		slow = pt_max64(slow, pt_min64(all, sooner(an, t, slow_ms, out->usual_ms)));
	out->share = all ? (double)slow / (double)all : 0;
	out->cause = pt_largest_cause(by);
	pt_vec_free(&made);
	for (i = 0; of && i < t->workers.n; i++)
		pt_vec_free(&of[i]);
	free(of);
	return err;
}

int pt_measure_tail(const struct pt_an *an, const struct pt_trainer *t,
		    struct pt_tail *out)
{
	bool waited = few_noticed(t);
	pt_doubles v = { 0 }, slow = { 0 };
	double least;
	int err = usual(t, waited, &v);

	*out = (struct pt_tail){ .usual_ms = pt_median(v.v, v.n), .ms = NAN, .waited = waited };
	if (waited && !err)
		err = step_ms(t, &out->usual_ms);
	out->all = waited && t->steps.n > v.n ? t->steps.n : v.n;
	err = err ?: list_slow(an, t, &v, out, &least, &slow);
	if (!err && out->n)
		err = share_of_slow(an, t, &slow, least, out);
	pt_vec_free(&v);
	pt_vec_free(&slow);
	return err;
}
