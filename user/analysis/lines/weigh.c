/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For how much of a thread's time a look stands. Looks from outside come evenly, so that each
 * is as good as any. Samples in the kernel are of who runs alone, and come more often than the
 * looks at who sleeps: of them one stands for its part of what the thread ran, and a look at a
 * sleep for that sleep.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/lines/lines.h"

struct weigh {
	const struct pt_thread *th;
	double *w;
	size_t at;
	uint64_t ran_ns, slept_ns, seen_ns;
	size_t n_ran;
};

static int on_ran(struct weigh *k, uint64_t b, uint64_t e)
{
	const struct pt_code_look *l = k->th->looks.v;

	k->ran_ns += e - b;
	while (k->at < k->th->looks.n && l[k->at].begin < b)
		k->at++;
	for (; k->at < k->th->looks.n && l[k->at].begin < e; k->at++)
		if (l[k->at].running && l[k->at].end <= e) {
			k->w[k->at] = -1; /* how much each is tells the end */
			k->n_ran++;
		}
	return 0;
}

/* All looks that met the same sleep share it. */
static int on_slept(struct weigh *k, uint64_t b, uint64_t e)
{
	const struct pt_code_look *l = k->th->looks.v;
	size_t first, n = 0, i;

	k->slept_ns += e - b;
	while (k->at < k->th->looks.n && l[k->at].begin < b)
		k->at++;
	for (first = k->at; k->at < k->th->looks.n && l[k->at].begin < e; k->at++)
		n += !l[k->at].running && l[k->at].end <= e;
	if (n)
		k->seen_ns += e - b;
	for (i = first; i < k->at; i++)
		if (!l[i].running && l[i].end <= e)
			k->w[i] = (double)(e - b) / (double)n;
	return 0;
}

static int on_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv, bool queued)
{
	struct weigh *k = ctx;

	return !iv || queued || iv->wait == PT_WAIT_RUNQ ? on_ran(k, b, e) : on_slept(k, b, e);
}

int pt_weigh_looks(const struct pt_an *an, const struct pt_thread *th, double **out)
{
	struct weigh k = { .th = th };
	uint64_t b = pt_max64(an->t0, th->first), e = pt_min64(an->t1, pt_thread_end(an, th));
	bool any = pt_is_sampled(th);
	size_t i;
	int err = 0;

	*out = k.w = calloc(th->looks.n + 1, sizeof(*k.w));
	if (!k.w)
		return -ENOMEM;
	if (any && b < e)
		err = pt_walk(th, b, e, on_piece, &k);
	for (i = 0; i < th->looks.n; i++) {
		if (!any)
			k.w[i] = 1;
		else if (k.w[i] < 0)
			k.w[i] = (double)k.ran_ns / (double)k.n_ran;
		else if (k.seen_ns)
			k.w[i] *= (double)k.slept_ns / (double)k.seen_ns;
	}
	return err;
}
