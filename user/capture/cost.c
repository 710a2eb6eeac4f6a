/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/cost.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "capture/selftest.h"
#include "capture/session.h"

/* A step is taken where so much of the budget is used. */
#define NEARLY 0.8
/* The target keeps all cores busy: then it lacks what the tracer runs, too. */
#define BUSY 0.9

/* ns of one time. */
struct price {
	double low, ns, high;
};

/*
 * How the kernel comes to a program and back, measured with empty programs: a tracepoint
 * 50 to 53, fentry and fexit less, a kprobe up to ten times as much (int3, or through
 * ftrace). Of a block request all programs, most of which run in interrupts.
 */
static const struct price tracepoint = { 25, 50, 90 };
static const struct price trampoline = { 10, 30, 60 };
static const struct price kprobe = { 60, 150, 600 };
static const struct price block = { 250, 600, 1800 };
/* Where few programs were timed: 60 to 350, as they are in most jobs. */
static const struct price untimed = { 50, 180, 500 };
/* A return probe against one on the entry: measured 0.5 to 0.8 */
static const struct price of_return = { 0.4, 0.7, 1.1 };
/* A stepped instruction against an emulated one, where it was not timed */
static const struct price of_step = { 2.5, 10, 18 };

#define FEW_TIMED 8
#define SOME_TIMED 200

static struct price times(struct price a, struct price b)
{
	return (struct price){ a.low * b.low, a.ns * b.ns, a.high * b.high };
}

/* Some calls in a row, as the self-test makes them, are not a job's: its caches are. */
static const struct price of_test = { 0.8, 1, 1.3 };

static struct price emulated(const struct pt_selftest *t)
{
	return times((struct price){ t->emulated.low, t->emulated.ns, t->emulated.high },
		     of_test);
}

static struct price stepped(const struct pt_selftest *t)
{
	if (!isfinite(t->stepped.ns))
		return times(emulated(t), of_step);
	return times((struct price){ t->stepped.low, t->stepped.ns, t->stepped.high }, of_test);
}

static struct price by_door(unsigned door)
{
	return door == PT_DOOR_FEXIT ? trampoline : door == PT_DOOR_KPROBE ? kprobe : tracepoint;
}

/* Coming to the program and back. */
static struct price way(const struct pt_capture *c, unsigned kind)
{
	bool multi = pt_selftest(true)->works;
	const struct pt_selftest *t = pt_selftest(multi);
	struct price p, q;

	switch (kind) {
	case PT_HIT_ENTER:
		return emulated(t);
	case PT_HIT_STEPPED: /* is counted as an entry, too */
		p = stepped(t);
		q = emulated(t);
		return (struct price){ p.low - q.low, p.ns - q.ns, p.high - q.high };
	case PT_HIT_NVTX:
		p = emulated(t);
		q = stepped(t);
		return (struct price){ p.low, (p.ns + q.ns) / 2, q.high };
	case PT_HIT_RETURN:
		return times(emulated(t), of_return);
	case PT_HIT_READ:
	case PT_HIT_WRITE:
		return by_door(c->read_door);
	case PT_HIT_FAULT:
		return c->fault_door == PT_FAULT_DOOR_KPROBE ? kprobe : tracepoint;
	case PT_HIT_BLOCK:
		return block;
	}
	return tracepoint;
}

/* The program itself: as it was timed since the last time, or, where that was seldom, so far
 * (a step of the budget makes it shorter). */
static struct price run_of(struct pt_capture *c, unsigned kind)
{
	const struct pt_hits *h = &c->skel->bss->pt_hits;
	struct pt_cost *k = &c->cost;
	uint64_t n = h->timed[kind] - k->timed[kind], ns = h->timed_ns[kind] - k->timed_ns[kind];
	double mean, off;

	if (kind == PT_HIT_STEPPED || kind == PT_HIT_BLOCK)
		return (struct price){ 0, 0, 0 };
	k->timed[kind] += n;
	k->timed_ns[kind] += ns;
	if (n < FEW_TIMED) {
		n = k->timed[kind];
		ns = k->timed_ns[kind];
	}
	if (n < FEW_TIMED)
		return untimed;
	mean = (double)ns / (double)n;
	off = n < SOME_TIMED ? 0.5 : 0.25;
	return (struct price){ mean * (1 - off), mean, mean * (1 + off) };
}

/* Samples of Python: what the program took is measured, and the interrupt before it was. */
static void add_samples(struct pt_capture *c)
{
	struct pt_cost *k = &c->cost;
	double ns;
	struct pt_py_counts now;
	unsigned hz;

	pt_capture_py_counts(c, &now, &hz);
	ns = (double)(now.ns - k->py.ns);
	k->low += ns / 2;
	k->ns += ns;
	k->high += ns * 2;
	k->py = now;
}

static uint64_t tracer_ns(const struct pt_cost *k)
{
	struct rusage u;

	if (getrusage(RUSAGE_SELF, &u))
		return k->tracer_ns;
	return k->elsewhere_ns +
	       ((uint64_t)u.ru_utime.tv_sec + (uint64_t)u.ru_stime.tv_sec) * 1000000000u +
	       ((uint64_t)u.ru_utime.tv_usec + (uint64_t)u.ru_stime.tv_usec) * 1000u;
}

static void queue(struct pt_capture *c, const struct pt_cost *k)
{
	struct pt_rec_cost r;

	pt_rec_begin(&r, sizeof(r), PT_REC_COST, k->at, (uint32_t)c->trainer);
	memcpy(r.hits, k->hits, sizeof(r.hits));
	r.run_ns = k->run_ns;
	r.cost_ns = k->unknown ? ~UINT64_C(0) : (uint64_t)k->ns;
	r.low_ns = (uint64_t)k->low;
	r.high_ns = (uint64_t)k->high;
	r.tracer_ns = k->tracer_ns;
	r.budget = (uint32_t)(k->budget * 1e6);
	r.saved = k->saved;
	pt_queue_record(c, &r, sizeof(r));
}

/* Each loses less than the next: lines of Python, single short waits, single reads (their
 * bytes are in the threads' totals), and who ended a wait. */
static void save(struct pt_capture *c, double share)
{
	struct pt_cost *k = &c->cost;

	if (!k->budget || share < NEARLY * k->budget || k->saved & PT_SAVE_WAKERS)
		return;
	k->saved = k->saved * 2 + 1;
	c->skel->bss->pt_saved = k->saved;
}

void pt_cost_tick(struct pt_capture *c)
{
	const struct pt_hits *h = &c->skel->bss->pt_hits;
	struct pt_cost *k = &c->cost, was = *k;
	double wall, run;
	unsigned i;

	for (i = 0; i < PT_HIT_NR; i++) {
		uint64_t all = h->gone[i] + h->live[i];
		double n = all > k->hits[i] ? (double)(all - k->hits[i]) : 0;
		struct price w, p;

		if (!(n > 0))
			continue;
		w = way(c, i);
		p = run_of(c, i);
		k->low += n * (w.low + p.low);
		k->ns += n * (w.ns + p.ns);
		k->high += n * (w.high + p.high);
		k->hits[i] = all;
	}
	add_samples(c);
	if (h->gone_run_ns + h->live_run_ns > k->run_ns)
		k->run_ns = h->gone_run_ns + h->live_run_ns;
	k->tracer_ns = tracer_ns(k);
	k->at = pt_now_ns();
	if (was.at && k->at > was.at) {
		wall = (double)(k->at - was.at);
		run = (double)(k->run_ns - was.run_ns);
		save(c, (k->ns - was.ns +
			 (run > BUSY * wall * c->cores ? (double)(k->tracer_ns - was.tracer_ns) : 0)) /
				fmax(wall, run));
	}
	queue(c, k);
}
