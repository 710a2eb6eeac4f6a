/* SPDX-License-Identifier: BSD-2-Clause */
/* A part of the capture, when only that is asked for: by time, or by steps. */
#include <errno.h>

#include "analysis/internal.h"
#include "analysis/parts/part.h"

int pt_set_window(struct pt_an *an)
{
	const struct pt_analysis_opts *o = an->o;
	/* offsets count from the capture's begin, dropped or not */
	uint64_t begin = an->m->begin - pt_min64(an->m->trimmed_ns,
						 an->m->begin);
	uint64_t room = UINT64_MAX - begin;

	if (!o->from_ns && !o->until_ns)
		return 0;
	an->part = an->asked = true;
	an->t0 = pt_max64(an->t0, begin + pt_min64(o->from_ns, room));
	if (o->until_ns)
		an->t1 = pt_min64(an->t1, begin + pt_min64(o->until_ns, room));
	return an->t1 > an->t0 ? 0 : -ERANGE;
}

/* ---- steps ------------------------------------------------------------------ */

/* Steps that the user's marker begins: they count, where it was called. */
static bool by_marker(const struct pt_an *an, const struct pt_trainer *t,
		      uint64_t *begin, uint64_t *end)
{
	const uint64_t *at = t->proc->markers.v;
	size_t i, n = t->proc->markers.n, k = 0, first, last;

	first = (size_t)an->o->first_step;
	last = (size_t)an->o->last_step;
	for (i = 0; i < n; i++) {
		if (at[i] < an->t0 || at[i] >= an->t1)
			continue;
		if (k == first)
			*begin = at[i];
		if (k++ == last + 1) {
			*end = at[i];
			break;
		}
	}
	return k > first;
}

static bool by_count(const struct pt_an *an, const struct pt_trainer *t,
		     uint64_t *begin, uint64_t *end)
{
	size_t first = (size_t)an->o->first_step;
	size_t last = (size_t)an->o->last_step;

	if (first >= t->steps.n)
		return false;
	*begin = t->steps.v[first].begin;
	if (last < t->steps.n)
		*end = t->steps.v[last].end;
	return true;
}

/* Of a capture of which the model holds a part. */
static bool by_time(const struct pt_an *an, uint64_t *begin, uint64_t *end)
{
	*begin = pt_max64(an->t0, an->o->steps_from);
	if (an->o->steps_until)
		*end = pt_min64(an->t1, an->o->steps_until);
	return *begin < *end;
}

/* Of the steps that are left those waits, or parts of them, that are in it. */
static void keep_waits(struct pt_trainer *t, uint64_t begin, uint64_t end)
{
	size_t k, n = 0;

	pt_each(struct pt_step, s, &t->steps) {
		size_t first = n, last = s->wait0 + s->n_waits;

		s->wait_begin = s->wait_end = s->begin;
		s->wait_ns = 0;
		for (k = s->wait0; k < last; k++) {
			struct pt_fetch w = t->waits.v[k];

			w.begin = pt_max64(w.begin, begin);
			w.end = pt_min64(w.end, end);
			if (w.end <= w.begin)
				continue;
			if (n == first)
				s->wait_begin = w.begin;
			s->wait_end = w.end;
			s->wait_ns += w.end - w.begin;
			t->waits.v[n++] = w;
		}
		s->wait0 = first;
		s->n_waits = n - first;
	}
	t->waits.n = n;
}

static void keep_steps(struct pt_trainer *t, uint64_t begin, uint64_t end)
{
	size_t i, n = 0;

	pt_spans_tidy(&t->writing, begin, end);

	for (i = 0; i < t->steps.n; i++)
		if (t->steps.v[i].begin >= begin && t->steps.v[i].begin < end)
			t->steps.v[n++] = t->steps.v[i];
	t->steps.n = n;
	if (n && t->steps.v[n - 1].end > end) { /* of a rank out of step */
		t->steps.v[n - 1].end = end;
		t->steps.v[n - 1].clipped = !t->steps.v[n - 1].partial;
		t->steps.v[n - 1].partial = true;
	}
	keep_waits(t, begin, end);
}

/* `before`: with the one before the first, which began where that was done. */
static void keep_done(struct pt_trainer *t, uint64_t begin, uint64_t end, bool before)
{
	pt_each(struct pt_worker, w, &t->workers) {
		const uint64_t *at = w->done.v;
		size_t i, n = 0;

		w->earlier = 0;
		for (i = 0; i < w->done.n && at[i] < end; i++) {
			if (at[i] < begin &&
			    (!before || (i + 1 < w->done.n && at[i + 1] < begin)))
				continue;
			w->earlier += at[i] < begin;
			w->done.v[n++] = at[i];
		}
		w->done.n = n;
	}
}

/*
 * Seen from the piece before, a step begins at `from`; seen from here, with other
 * evidence, it may begin a little earlier. What lies mostly in here is here.
 */
static void meet_begin(struct pt_trainer *t, uint64_t from)
{
	size_t i;

	for (i = 0; i < t->steps.n && t->steps.v[i].end <= from; i++)
		;
	if (i == t->steps.n || t->steps.v[i].begin >= from ||
	    from - t->steps.v[i].begin > t->steps.v[i].end - from)
		return;
	t->steps.v[i].begin = from;
}

/* ... and what lies mostly behind the piece is in the next one. */
static void meet_end(struct pt_trainer *t, uint64_t end)
{
	size_t i;

	for (i = 0; i < t->steps.n && t->steps.v[i].end <= end; i++)
		;
	if (i < t->steps.n && t->steps.v[i].begin < end &&
	    end - t->steps.v[i].begin <= t->steps.v[i].end - end)
		t->steps.n = i;
}

/* The steps of the job are those of the rank that has most of them. NULL: there is none. */
static const struct pt_trainer *lead_of(const struct pt_an *an)
{
	const struct pt_trainer *lead = NULL;

	pt_each(const struct pt_trainer, t, &an->trainers)
		if (!lead || t->steps.n > lead->steps.n)
			lead = t;
	return lead;
}

/* A part with another one beside it ends where a step of the job does. */
static void narrow_to_part(struct pt_an *an, const struct pt_part_ask *ask,
			   bool *met)
{
	uint64_t before = ask->before ? pt_part_end(ask->before) : 0;
	uint64_t from = pt_max64(before, an->t0), end = an->t1;
	const struct pt_trainer *lead = lead_of(an);
	size_t k;

	if (ask->cut > from)
		end = pt_min64(end, ask->cut);
	for (k = 0; lead && ask->cut > from && k < lead->steps.n; k++) {
		if (lead->steps.v[k].begin < ask->cut)
			continue;
		end = lead->steps.v[k].begin;
		*met = true;
		break;
	}
	an->t0 = from;
	an->t1 = end;
	pt_each(struct pt_trainer, t, &an->trainers) {
		keep_done(t, from, end, true);
		if (ask->before)
			meet_begin(t, from);
		if (ask->cut)
			meet_end(t, end);
		keep_steps(t, from, end);
	}
}

int pt_narrow_to_steps(struct pt_an *an, const struct pt_part_ask *ask, bool *met)
{
	const struct pt_trainer *lead;
	uint64_t begin = an->t0, end = an->t1;
	size_t i, before = 0;

	*met = false;
	if (ask->before || ask->cut)
		narrow_to_part(an, ask, met);
	if (!an->o->by_steps)
		return 0;
	lead = lead_of(an);
	an->r->steps.count = lead ? (int64_t)lead->steps.n : 0;
	if (!lead || !(an->o->steps_known ? by_time(an, &begin, &end) :
		       lead->proc->markers.n ?
			       by_marker(an, lead, &begin, &end) :
			       by_count(an, lead, &begin, &end)))
		return -ERANGE;
	for (i = 0; i < lead->steps.n && lead->steps.v[i].begin < begin; i++)
		before++;
	an->step0 = lead->proc->markers.n || an->o->steps_known ?
			    (size_t)an->o->first_step : before;
	an->part = an->asked = true;
	an->t0 = begin;
	an->t1 = end;
	pt_each(struct pt_trainer, t, &an->trainers) {
		keep_done(t, begin, end, false);
		keep_steps(t, begin, end);
	}
	return 0;
}

int pt_limit_window(struct pt_an *an)
{
	const struct pt_model *m = an->m;
	uint64_t begin = m->begin - pt_min64(m->trimmed_ns, m->begin);

	if (!an->asked)
		return 0;
	return pt_report_limit(an->r, "capture.window", "Only the part from %.3f s to %.3f s of the capture is reported, as asked.",
			       pt_sec(an->t0 - begin), pt_sec(an->t1 - begin));
}

/* ---- what a thread did in it -------------------------------------------------- */

uint64_t pt_run_ns(const struct pt_an *an, const struct pt_thread *th)
{
	uint64_t b = pt_max64(an->t0, th->first), e = pt_min64(an->t1, pt_thread_end(an, th));

	if (!an->part)
		return th->totals_known && th->t1.run_ns > th->t0.run_ns ?
			       th->t1.run_ns - th->t0.run_ns : 0;
	return pt_cpu_ns(th, b, e);
}

/* Bytes that the thread had read when its last interval before `ts` ended. */
static uint64_t read_until(const struct pt_thread *th, uint64_t ts)
{
	size_t i = pt_iv_after(th, ts);

	return i ? pt_max64(th->iv.v[i - 1].rchar, th->t0.rchar) : th->t0.rchar;
}

int64_t pt_bytes_read(const struct pt_an *an, const struct pt_thread *th)
{
	uint64_t from, until;

	if (!th->totals_known)
		return PT_NULL;
	if (!an->part)
		return (int64_t)(th->t1.rchar - th->t0.rchar);
	/* at its ends the same as of the whole capture */
	from = an->t0 <= an->m->begin && !an->m->trimmed_ns ?
		       th->t0.rchar : read_until(th, an->t0);
	until = an->t1 >= an->m->end && an->m->finished ? th->t1.rchar :
							  read_until(th, an->t1);
	return until > from ? (int64_t)(until - from) : 0;
}

size_t pt_reads_of(const struct pt_an *an, const struct pt_thread *th)
{
	size_t i, n = 0;

	if (!an->part)
		return th->reads.n;
	for (i = 0; i < th->reads.n; i++)
		n += th->reads.v[i].end >= an->t0 && th->reads.v[i].end <= an->t1;
	return n;
}
