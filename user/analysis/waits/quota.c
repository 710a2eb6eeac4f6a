/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CPU quotas, by what they do: a group that has used its quota up stands still
 * until the kernel's period timer gives it more, so the long stretches on the
 * run queue of its threads end at one and the same point of the period
 * (kernel/sched/fair.c, CFS bandwidth control).
 */

#include "analysis/internal.h"

/* The kernel's default period, and that of container runtimes. */
#define PERIOD_NS (100 * NS_PER_MS)
#define BIN_NS (2 * NS_PER_MS)
#define BINS (PERIOD_NS / BIN_NS)
/* Shorter queueing is the scheduler's: two slices of others at most. */
#define STRETCH_NS (5 * NS_PER_MS)
/* In so many periods at least, and of the long stretches' time so much. By
 * chance two neighbouring bins of 50 hold a twenty-fifth of it. */
#define PERIODS_MIN 5
#define TIME_SHARE 0.5

struct tally {
	uint64_t ns[BINS];
	uint64_t all;
};

static uint64_t stretch(const struct pt_iv *iv)
{
	uint64_t ns = iv->open ? 0 : iv->end - iv->ready;

	return ns >= STRETCH_NS ? ns : 0;
}

static size_t bin_of(uint64_t ts)
{
	return (size_t)(ts % PERIOD_NS / BIN_NS);
}

static bool in_bins(uint64_t ts, size_t first)
{
	size_t bin = bin_of(ts);

	return bin == first || bin == (first + 1) % BINS;
}

static void add_stretches(const struct pt_an *an, const struct pt_thread *th,
			  struct tally *k)
{
	pt_each_iv(iv, th, an->t0, an->t1) {
		k->ns[bin_of(iv->end)] += stretch(iv);
		k->all += stretch(iv);
	}
}

/* In how many different periods did a stretch of any thread end there? */
static size_t count_periods(const struct pt_an *an, const struct pt_proc *p,
			    size_t first)
{
	uint64_t last = 0;
	size_t best = 0, j;

	for (j = 0; j < p->threads.n; j++) {
		const struct pt_thread *th = p->threads.v[j];
		size_t n = 0;

		pt_each_iv(iv, th, an->t0, an->t1) {
			if (!stretch(iv) || !in_bins(iv->end, first) ||
			    (n && iv->end - last < PERIOD_NS / 2))
				continue;
			last = iv->end;
			n++;
		}
		best = n > best ? n : best;
	}
	return best;
}

int pt_find_quota(const struct pt_an *an, struct pt_trainer *t,
		  const struct pt_proc *p)
{
	struct pt_quota q = { .tgid = p->tgid };
	uint64_t best = 0, ns;
	struct tally k = { 0 };
	size_t i;

	for (i = 0; i < p->threads.n; i++)
		add_stretches(an, p->threads.v[i], &k);
	for (i = 0; i < BINS; i++) { /* the point may lie on a border */
		ns = k.ns[i] + k.ns[(i + 1) % BINS];
		if (ns > best) {
			best = ns;
			q.bin = i;
		}
	}
	if (!best || (double)best < TIME_SHARE * (double)k.all ||
	    count_periods(an, p, q.bin) < PERIODS_MIN)
		return 0;
	return pt_vec_push(&t->quotas, q);
}

enum pt_cause pt_queue_cause(const struct pt_trainer *t,
			     const struct pt_thread *th, const struct pt_iv *iv)
{
	size_t i;

	if (!stretch(iv))
		return PT_CAUSE_RUN_QUEUE;
	for (i = 0; i < t->quotas.n; i++)
		if (t->quotas.v[i].tgid == th->tgid)
			return in_bins(iv->end, t->quotas.v[i].bin) ?
				       PT_CAUSE_THROTTLE : PT_CAUSE_RUN_QUEUE;
	return PT_CAUSE_RUN_QUEUE;
}
