/* SPDX-License-Identifier: BSD-2-Clause */
/* Batches that take many times as long to make as the others, and how much of the
 * waiting is for them. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"

/* Fewer batches do not tell a few from many. */
#define TAIL_MIN_BATCHES 16

/* How long the batch took that ended this wait; NAN not seen. */
static double made_ms(const struct pt_trainer *t, const struct pt_fetch *w)
{
	const struct pt_worker *k;
	size_t at;

	if (!w->supplied) /* it was made in the wait itself */
		return (double)(w->end - w->begin) / NS_PER_MS;
	if (w->worker < 0 || t->workers.v[w->worker].role == PT_ROLE_HELPER)
		return NAN;
	k = &t->workers.v[w->worker];
	at = pt_times_until(&k->done, w->end);
	/* service_ms[i] is of done[i + 1] */
	return at >= 2 && at - 2 < k->service_ms.n ? k->unsorted_ms.v[at - 2] : NAN;
}

static int usual(const struct pt_trainer *t, pt_doubles *v)
{
	size_t i, k;
	int err = 0;

	for (i = 0; i < t->workers.n && !err; i++)
		for (k = t->workers.v[i].role == PT_ROLE_HELPER ?
				 t->workers.v[i].service_ms.n : 0; k < t->workers.v[i].service_ms.n && !err; k++)
			err = pt_vec_push(v, t->workers.v[i].service_ms.v[k]);
	for (i = 0; i < t->waits.n && !t->workers.n && !err; i++)
		err = pt_vec_push(v, (double)(t->waits.v[i].end -
					      t->waits.v[i].begin) / NS_PER_MS);
	return err;
}

int pt_measure_tail(const struct pt_trainer *t, struct pt_tail *out)
{
	uint64_t by[PT_CAUSE_NR] = { 0 }, slow = 0, all = 0, most = 0;
	pt_doubles v = { 0 }, tail = { 0 };
	double limit;
	size_t i;
	int err = usual(t, &v), c;

	*out = (struct pt_tail){ .usual_ms = NAN, .ms = NAN };
	out->usual_ms = pt_median(v.v, v.n);
	limit = PT_TAIL_FACTOR * out->usual_ms;
	out->all = v.n;
	for (i = 0; i < v.n && !err; i++)
		if (v.v[i] > limit)
			err = pt_vec_push(&tail, v.v[i]);
	if (err || v.n < TAIL_MIN_BATCHES || !tail.n ||
	    (double)tail.n > PT_TAIL_PART * (double)v.n)
		goto out;
	for (i = 0; i < t->waits.n; i++) {
		const struct pt_fetch *w = &t->waits.v[i];
		uint64_t ns = w->end - w->begin;

		all += ns;
		if (!(made_ms(t, w) > limit))
			continue;
		slow += ns;
		by[w->cause] += ns;
		if (!(w->inode || w->peer) || w->on_ns <= most)
			continue;
		most = w->on_ns;
		out->inode = w->inode;
		out->dev = w->dev;
		out->peer = w->peer;
	}
	out->n = tail.n;
	out->ms = pt_median(tail.v, tail.n);
	out->share = all ? (double)slow / (double)all : 0;
	out->cause = PT_CAUSE_UNKNOWN;
	for (c = 0; c < PT_CAUSE_NR; c++)
		if (by[c] > by[out->cause])
			out->cause = (enum pt_cause)c;
out:
	pt_vec_free(&v);
	pt_vec_free(&tail);
	return err;
}
