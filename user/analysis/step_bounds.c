/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where in a gap between two GPU calls the obtaining of a batch begins and
 * ends. Nothing marks either end. What can be seen of the begin: what the main
 * thread did before it (launches of its other threads, a checkpoint, the start
 * of a loader), and the first thing that only obtaining does: a sleep for a
 * batch, or the waking of a worker that is asked for one. From next() to that
 * a loader needs a little time of its own, which the loop's gaps show. Of the
 * end: the refill, which comes just before the loop has its batch.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/steps.h"

/* A loader written in Python computes for 0.1 to 0.5 ms before it first sleeps
 * or wakes somebody (measured; most after a long sleep, with cold caches).
 * Where a loop's gaps have more, it does something else first. */
#define LEAD_IN_NS 500000ull
#define LEAD_IN_MAX_NS 700000ull
/* In a loop that asks at once, so much more than usual is the loop's own work
 * of some steps only (a log line); less may be the loader's bad luck. */
#define LEAD_EXTRA_NS 1000000ull
/* ... unless it reads meanwhile: a batch that comes through the pipe itself
 * is many times the pipe's 64 KiB. */
#define PIPED_BYTES (64 * 1024)
/* From the refill to the loop's having its batch: a queue's locks and a few
 * returns, 0.1 to 0.2 ms in a loader written in Python (measured). */
#define LEAD_OUT_NS 200000ull
#define LEAD_OUT_MIN_NS 100000ull
/* Obtaining a batch that was ready: unpickle and map. Used only where
 * neither its begin nor its hand-over can be seen. */
#define READY_NS 2000000ull
/* From the sender's getting a batch to the trainer's taking it: pickled,
 * written, read, all of them with a core to wait for. */
#define JUST_SENT_NS 5000000ull
/* A loader that starts hands all workers an index, one after another; a batch
 * takes longer to receive. */
#define START_BURST_NS 100000ull

static bool bursts(uint64_t senders, size_t concurrent)
{
	size_t n = 0;

	for (; senders; senders &= senders - 1)
		n++;
	return n >= 2 && n >= concurrent;
}

/* Was every worker asleep for want of an index at `ts`? One that has something
 * to load, or to send, has been at it since before. */
static bool all_idle(const struct pt_an *an, const struct pt_trainer *t,
		     uint64_t ts)
{
	size_t w, i;

	for (w = 0; w < t->workers.n; w++) {
		const struct pt_thread *th = t->workers.v[w].main;

		if (th->first > ts || pt_thread_end(an, th) <= ts)
			continue;
		i = pt_iv_after(th, ts);
		if (i == th->iv.n || th->iv.v[i].begin > ts ||
		    th->iv.v[i].wait != PT_WAIT_PIPE_IN ||
		    th->iv.v[i].object != t->workers.v[w].index_pipe)
			return false;
	}
	return true;
}

static void set_started(struct gap_set *s, uint64_t ts)
{
	long k = pt_gap_at(s, ts);

	if (k >= 0)
		s->gaps.v[k].started = pt_max64(s->gaps.v[k].started, ts);
}

/* Does the trainer sleep for a batch between `ts` and its next GPU call? The
 * first batch after a start cannot be there already. */
static bool waits_behind(const struct pt_trainer *t, const struct gap_set *s,
			 uint64_t ts)
{
	const struct pt_thread *th = t->main;
	long k = pt_gap_at(s, ts);
	size_t i;

	for (i = pt_iv_after(th, ts); k >= 0 && i < th->iv.n; i++) {
		if (th->iv.v[i].begin >= s->gaps.v[k].end)
			break;
		if (th->iv.v[i].begin >= ts &&
		    pt_is_batch_wait(t, th, &th->iv.v[i]))
			return true;
	}
	return false;
}

void pt_find_starts(const struct pt_an *an, const struct pt_trainer *t,
		    struct gap_set *s)
{
	uint64_t senders = 0, last = 0, begin = 0;
	size_t i;

	for (i = 0; i < t->workers.n; i++)
		if (t->workers.v[i].proc->born > an->t0)
			set_started(s, t->workers.v[i].proc->born);
	/* a new worker's sender in the trainer is made for its first index */
	for (i = 0; i < t->feeders.n; i++)
		if (t->feeders.v[i].thread->first > an->t0)
			set_started(s, t->feeders.v[i].thread->first);
	for (i = 0; i < t->marks.n; i++) {
		const struct pt_mark *m = &t->marks.v[i];

		if (m->ts - last > START_BURST_NS) {
			senders = 0;
			begin = m->ts;
		}
		senders |= 1ull << (m->source & 63);
		last = m->ts;
		if (bursts(senders, t->concurrent) &&
		    all_idle(an, t, begin) && waits_behind(t, s, m->ts))
			set_started(s, m->ts);
	}
}

/* The last moment in [b,e) at which the main thread was woken by a thread of
 * its own that calls the GPU: until then the step was still being launched. */
static uint64_t after_own_threads(const struct pt_trainer *t, uint64_t b,
				  uint64_t e)
{
	const struct pt_thread *th = t->main;
	uint64_t last = b;
	size_t i, j;

	for (i = pt_iv_after(th, b); i < th->iv.n && th->iv.v[i].begin < e; i++) {
		const struct pt_iv *iv = &th->iv.v[i];

		if (iv->wait != PT_WAIT_FUTEX || !iv->valid_wake ||
		    iv->waker_tgid != t->proc->tgid ||
		    (t->pin && iv->waker_tid == t->pin->tid))
			continue;
		/* did the waker launch anything while we slept? */
		for (j = pt_gpu_after(t->proc, iv->begin); j < t->proc->gpu.n; j++) {
			const struct pt_gpu_call *c = &t->proc->gpu.v[j];

			if (c->begin >= iv->end)
				break;
			if (c->tid == iv->waker_tid && pt_call_is_step(c)) {
				last = iv->end;
				break;
			}
		}
	}
	return pt_min64(last, e);
}

static uint64_t cpu_between(const struct pt_thread *th, uint64_t b, uint64_t e)
{
	uint64_t off = 0;
	size_t i;

	for (i = pt_iv_after(th, b); i < th->iv.n && th->iv.v[i].begin < e; i++)
		off += pt_overlap(b, e, th->iv.v[i].begin, th->iv.v[i].end);
	return e - b - pt_min64(off, e - b);
}

/* Bytes that `th` had read by `ts`, as its last switch before told. */
static uint64_t rchar_at(const struct pt_thread *th, uint64_t ts)
{
	size_t i = pt_iv_after(th, ts);

	return i ? th->iv.v[i - 1].rchar : th->t0.rchar;
}

static uint64_t read_between(const struct pt_thread *th, uint64_t b, uint64_t e)
{
	uint64_t before = rchar_at(th, b), after = rchar_at(th, e);

	return after > before ? after - before : 0;
}

/* The moment in [from, limit] at which `th` has run for `ns` since `from`. */
static uint64_t cpu_forward(const struct pt_thread *th, uint64_t from,
			    uint64_t limit, uint64_t ns)
{
	uint64_t pos = from;
	size_t i;

	for (i = pt_iv_after(th, from); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];

		if (iv->begin >= limit || iv->begin >= pos + ns)
			break;
		if (iv->begin > pos)
			ns -= iv->begin - pos;
		pos = pt_max64(pos, iv->end);
	}
	return pt_min64(pos + ns, limit);
}

/* ... in [floor, to] from which on it runs for `ns` until `to`. */
static uint64_t cpu_back(const struct pt_thread *th, uint64_t to, uint64_t floor,
			 uint64_t ns)
{
	uint64_t own = cpu_between(th, floor, to);

	return own <= ns ? floor : cpu_forward(th, floor, to, own - ns);
}

/* Asleep when the capture began, and not for a batch: in the GPU call that
 * began before. Until when; `b` if not. */
static uint64_t after_early_sleep(const struct pt_trainer *t,
				  const struct gap *g, uint64_t b)
{
	const struct pt_thread *th = t->main;
	size_t i = pt_iv_after(th, b);
	const struct pt_iv *iv = i < th->iv.n ? &th->iv.v[i] : NULL;

	if (g->prev || !iv || iv->begin > b || iv->end >= g->end ||
	    iv->wait == PT_WAIT_RUNQ || iv->wait == PT_WAIT_SOCK ||
	    pt_is_batch_wait(t, th, iv))
		return b;
	return iv->end;
}

/* The end of the last file that was written in [b,e). A trainer that loads by
 * itself may write while it loads: only what comes before it reads counts. */
static uint64_t after_writing(const struct pt_trainer *t, uint64_t b, uint64_t e)
{
	const pt_spans *w = &t->writing;
	size_t lo = pt_spans_after(w, b);

	for (; lo < w->n && w->v[lo].begin < e; lo++) {
		if (!t->handoffs &&
		    read_between(t->main, b, w->v[lo].begin) >= PIPED_BYTES)
			break;
		b = pt_min64(w->v[lo].end, e);
	}
	return b;
}

static uint64_t no_sooner_than(const struct pt_trainer *t, const struct gap *g)
{
	uint64_t b = after_own_threads(t, g->begin, g->end);

	if (t->handoffs) {
		b = after_early_sleep(t, g, b);
		b = pt_max64(b, pt_min64(g->started, g->end));
	}
	return after_writing(t, b, g->first_evidence > b ? g->first_evidence :
							   g->end);
}

static uint64_t median_of(double *v, size_t n)
{
	return n ? (uint64_t)pt_median(v, n) : 0;
}

int pt_learn_leads(const struct pt_trainer *t, struct gap_set *s)
{
	double *lead = malloc((s->gaps.n + 1) * sizeof(*lead));
	double *ready = malloc((s->gaps.n + 1) * sizeof(*ready));
	size_t i, nl = 0, nr = 0;
	int err = lead && ready ? 0 : -ENOMEM;

	for (i = 0; i < s->gaps.n && !err; i++) {
		struct gap *g = &s->gaps.v[i];

		if (!g->data)
			continue;
		g->from = no_sooner_than(t, g);
		if (!g->first_evidence) {
			ready[nr++] = (double)cpu_between(t->main, g->from,
							  g->end);
			continue;
		}
		if (g->first_evidence > g->from)
			g->lead = cpu_between(t->main, g->from,
					      g->first_evidence);
		if (!g->cut && !g->started)
			lead[nl++] = (double)g->lead;
	}
	if (!err) {
		s->usual_lead = median_of(lead, nl);
		s->usual_ready = median_of(ready, nr);
	}
	free(lead);
	free(ready);
	return err;
}

/*
 * Was a batch given to its sender shortly before `ts`? Then the trainer has
 * most likely waited for it, though no sleep was seen: a few switches reach no
 * tracepoint, and a sleep that is missing looks like work of its own.
 */
static bool just_sent(const struct pt_trainer *t, uint64_t ts)
{
	size_t w, i;

	for (w = 0; w < t->workers.n; w++) {
		const struct pt_thread *th = t->workers.v[w].feeder;

		for (i = th ? pt_iv_after(th, ts - JUST_SENT_NS) : 0;
		     th && i < th->iv.n && th->iv.v[i].ready <= ts; i++)
			if (th->iv.v[i].wait == PT_WAIT_FUTEX &&
			    th->iv.v[i].valid_wake &&
			    th->iv.v[i].ready + JUST_SENT_NS >= ts &&
			    th->iv.v[i].waker_tid ==
				    t->workers.v[w].main->tid)
				return true;
	}
	return false;
}

/* When a batch was asked for of which something was seen. */
static uint64_t asked_at(const struct pt_trainer *t, const struct gap_set *s,
			 const struct gap *g)
{
	uint64_t usual = s->usual_lead, most = usual + LEAD_EXTRA_NS;

	bool at_once = usual <= LEAD_IN_MAX_NS;

	if (!at_once)
		usual = most = LEAD_IN_NS;
	if (g->started) /* what is more is still the start's */
		return cpu_back(t->main, g->first_evidence, g->from, usual);
	if (g->lead <= most ||
	    read_between(t->main, g->from, g->first_evidence) >= PIPED_BYTES ||
	    (at_once && just_sent(t, g->first_evidence)))
		return g->from;
	return cpu_back(t->main, g->first_evidence, g->from, usual);
}

/* When the loop has the batch: some time behind the refill. Half way is least
 * wrong, but for what a refill takes and no later than it can be. */
static uint64_t obtained_at(const struct pt_trainer *t, const struct gap *g)
{
	uint64_t own = cpu_between(t->main, g->last_mark, g->end);
	uint64_t after = pt_max64(pt_min64(own / 2, LEAD_OUT_NS),
				  LEAD_OUT_MIN_NS);

	return cpu_forward(t->main, g->last_mark, g->end, after);
}

/* The capture ended in this gap with the trainer asleep behind its last refill:
 * it waits on, for a loader that has just been started. */
static bool still_waits(const struct pt_trainer *t, const struct gap *g)
{
	return g->cut && !g->next &&
	       cpu_between(t->main, g->last_mark, g->end) * 2 <
		       g->end - g->last_mark;
}

void pt_bound_wait(const struct pt_trainer *t, const struct gap_set *s,
		   const struct gap *g, struct pt_step *out)
{
	uint64_t b = g->from, e = g->end, own;

	if (t->handoffs) {
		if (g->last_mark > b && g->last_mark >= g->last_evidence &&
		    !still_waits(t, g)) {
			e = obtained_at(t, g);
			out->end_seen = true;
		}
		if (g->first_evidence > b) {
			b = asked_at(t, s, g);
		} else if (!g->first_evidence) {
			own = cpu_between(t->main, b, e);
			if (own > READY_NS &&
			    (s->usual_ready > READY_NS ||
			     !just_sent(t, out->end_seen ? g->last_mark : e)))
				b = cpu_back(t->main, e, b,
					     pt_min64(s->usual_ready, READY_NS));
		}
	}
	out->wait_begin = b;
	out->wait_end = e;
}
