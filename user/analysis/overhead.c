/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What tracing cost the job: the hooks' time, as counted and priced while it was traced
 * (bpf/records.def, COST), over the job's own. docs/performance.md says it for users.
 *
 *   value  the hooks' time over wall or, where more than one core was busy, over the
 *          target's CPU time; and of the tracer's own CPU time the part for which there
 *          was no idle core
 *   low    the least that the hooks may have cost, without what fell into the time in
 *          which the trainer waited and a core was idle
 *   high   the most, all of it one behind the other, and all that the tracer ran
 *
 * What the host is kept from while the device has work to do is nobody's loss: it runs ahead
 * less far. A job whose steps are all launching loses the lesser of what the hooks took and of
 * what the device was idle (a step takes what the host or what the device takes, whichever is
 * longer); one that launches now and then the part of it that fell into idle time. The value
 * lies in the middle of these, and high is of the former, with the least that the device can
 * have been busy. No more than it was busy at most can have been hidden behind it: low is what
 * is above that. How long short kernels run does not show where each ends before the next is
 * launched, so in a job that does nothing but launch these are far apart.
 */
#include <math.h>
#include <stdio.h>

#include "analysis/internal.h"

/* Less of the cores idle, and what the tracer runs begins to be missed. */
#define CROWDED 0.5

struct cost {
	double run, low, ns, high, tracer;
};

static struct cost cost_of(const struct pt_rec_cost *r)
{
	return (struct cost){ (double)r->run_ns, (double)r->low_ns, (double)r->cost_ns,
			      (double)r->high_ns, (double)r->tracer_ns };
}

static double between(double a, double b, double f)
{
	return a + (b - a) * f;
}

/* As of `ts`: between the two records around it as if it had come evenly. */
static struct cost cost_at(const struct pt_model *m, uint64_t ts)
{
	struct cost a, b;
	size_t i;
	double f;

	for (i = 0; i + 1 < m->costs.n && m->costs.v[i].hdr.ts <= ts; i++)
		;
	b = cost_of(&m->costs.v[i]);
	if (!i || m->costs.v[i].hdr.ts <= ts)
		return b;
	a = cost_of(&m->costs.v[i - 1]);
	f = (double)(ts - m->costs.v[i - 1].hdr.ts) /
	    (double)(m->costs.v[i].hdr.ts - m->costs.v[i - 1].hdr.ts);
	return (struct cost){ between(a.run, b.run, f), between(a.low, b.low, f),
			      between(a.ns, b.ns, f), between(a.high, b.high, f),
			      between(a.tracer, b.tracer, f) };
}

/* The share of the cores, of those that it may use, that the target left idle; NAN unknown. */
static double idle_cores(const struct pt_model *m, double wall, double run)
{
	double cores = pt_cores(m);

	return cores > 0 ? fmax(0, 1 - run / (wall * cores)) : NAN;
}

/* The share of the time in which what the hooks took may have been nobody's loss: the
 * trainer, or where there is none the target, did nothing. */
static double slack(const struct pt_an *an, double wall, double run)
{
	const struct pt_trainer *t = an->top;
	double waits;

	if (!t)
		return fmin(1 - fmin(1, run / wall), idle_cores(an->m, wall, run));
	waits = (double)(t->blocked_ns + t->gpu_wait_ns + t->transfer_ns + t->collective_ns);
	return fmin(fmin(1, waits / wall), idle_cores(an->m, wall, run));
}

/* Of the tracer's own time, what the target lacked: nothing while half of the cores are
 * idle, all of it when none is. */
static double crowding(const struct pt_model *m, double wall, double run)
{
	double idle = idle_cores(m, wall, run);

	return idle < CROWDED ? 1 - idle / CROWDED : 0;
}

/* The share of the time in which the busiest device had work. */
struct busy {
	double least, likely, most;
};

static struct busy busy_device(const struct pt_report *r)
{
	struct busy all = { 0, 0, 0 };
	size_t i;

	for (i = 0; i < r->n_gpu; i++) {
		const struct pt_r_gpu *g = &r->gpu[i];
		double least = isfinite(g->busy_hard[0]) ? g->busy_hard[0] : 0;

		all.least = fmax(all.least, least);
		all.likely = fmax(all.likely,
				  isfinite(g->busy_share) ? g->busy_share : least);
		all.most = fmax(all.most, isfinite(g->busy_hard[1]) ? g->busy_hard[1] : 1);
	}
	return all;
}

static void fill_range(const struct pt_an *an, struct pt_range *o)
{
	double wall = (double)(an->t1 - an->t0), all, took, waits, chance;
	struct cost a = cost_at(an->m, an->t0), b = cost_at(an->m, an->t1);
	double run = b.run - a.run, tracer = b.tracer - a.tracer;
	struct busy busy = busy_device(an->r);

	if (!(wall > 0))
		return;
	all = fmax(wall, run);
	took = (b.ns - a.ns + tracer * crowding(an->m, wall, run)) / all;
	waits = an->top ? fmin(1, (double)an->top->data_wait_ns / wall) : 0;
	/* that what is done outside of data waits finds the device idle */
	chance = waits < 1 ? 1 - fmin(1, busy.likely / (1 - waits)) : 1;
	o->value = (took * chance + fmin(took, 1 - busy.likely)) / 2;
	o->low = fmax(0, (b.low - a.low) / all * (1 - slack(an, wall, run)) - busy.most);
	o->low = fmin(o->low, o->value);
	o->high = fmax(fmin((b.high - a.high + tracer) / wall, 1 - busy.least), o->value);
}

static const struct {
	uint32_t bit;
	const char *name;
} steps[] = {
	{ PT_SAVE_LINES, "lines of Python" },
	{ PT_SAVE_WAITS, "single waits below 20 us" },
	{ PT_SAVE_READS, "single reads of files" },
	{ PT_SAVE_WAKERS, "who ended a wait" },
};

static int limit_budget(struct pt_an *an)
{
	const struct pt_range *told = &an->r->capture.target_overhead;
	const struct pt_model *m = an->m;
	char text[300] = "";
	uint32_t had = 0;
	size_t i, k, n = 0;
	double budget;

	for (i = 0; i < m->costs.n && m->costs.v[i].hdr.ts < an->t1; i++)
		for (k = 0; k < sizeof(steps) / sizeof(steps[0]); k++) {
			const struct pt_rec_cost *r = &m->costs.v[i];

			if (!(r->saved & ~had & steps[k].bit) || n >= sizeof(text))
				continue;
			had |= steps[k].bit;
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s (from %.0f s on)",
					      n ? ", " : "", steps[k].name,
					      pt_sec(r->hdr.ts - pt_min64(an->t0, r->hdr.ts)));
		}
	if (!had)
		return 0;
	budget = (double)m->costs.v[m->costs.n - 1].budget / 1e6;
	return pt_report_limit(an->r, "budget", "To stay within %.2g %% of the job's time "
						"pipetrace did without: %s.%s",
			       100 * budget, text,
			       told->value > budget ?
				       " All in all it took more: GPU calls are never left out." :
				       "");
}

int pt_fill_overhead(struct pt_an *an)
{
	const struct pt_model *m = an->m;

	if (m->costs.n < 2) /* a recording of before */
		return 0;
	if (m->costs.v[m->costs.n - 1].cost_ns == UINT64_MAX)
		return pt_report_limit(an->r, "capture.target_overhead",
				       "What tracing cost the job is not known: reads are seen "
				       "at system calls, and each of the job's pays for that.");
	fill_range(an, &an->r->capture.target_overhead);
	return limit_budget(an);
}
