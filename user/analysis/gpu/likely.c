/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The likely busy time: the operations replayed on queues, one per stream,
 * with a cost for each kind of operation (a kernel's function, a graph, a
 * direction of copies). Where the host had to wait in a sync, the end of what
 * it waited for is known, and the costs of that stretch are scaled so that the
 * replay ends there; the costs themselves are the medians of what such
 * stretches come to. They stand where no sync shows an end.
 *
 * What is guessed: that the same function, graph or size takes the same time,
 * and that streams do not hold each other up. The range is from replays with
 * the low and the high end of what is open: how late the host was told of an
 * end, and the spread of the costs.
 */
#include <math.h>
#include <string.h>

#include "analysis/gpu/passes.h"
#include "analysis/gpu/replay.h"

/* How much earlier than the first thread that was woken for it the device
 * was done: an interrupt takes some microseconds to get there. */
static const double late_ns[PT_REPLAY_NR] = {
	[PT_REPLAY_LOW] = 25000, [PT_REPLAY_MID] = 8000, [PT_REPLAY_HIGH] = 0,
};
/* From a call's begin to the device, through the probe and the library. */
static const uint64_t submit_ns[PT_REPLAY_NR] = {
	[PT_REPLAY_LOW] = 10000, [PT_REPLAY_MID] = 3000, [PT_REPLAY_HIGH] = 0,
};
#define ROUNDS 6
/* Costs that move by less of themselves stand. */
#define STANDS 0.005

/* Replays until the costs stand. */
static int fit(struct pt_replay *r, enum pt_replay_mode m, int rounds)
{
	int i, err = 0;

	for (i = 0; i < rounds && !err; i++) {
		r->round++;
		err = pt_replay_pass(r, m, true, late_ns[m], submit_ns[m]);
		err = err ?: pt_replay_learn(r);
		/* in the first round copies may explain ends alone, and move no cost (solve.c) */
		if (r->round > 1 && r->moved < STANDS)
			break;
	}
	return err;
}

static void keep_busy(struct pt_replay *r, struct pt_glikely *out, enum pt_replay_mode m)
{
	const struct pt_an *an = r->q->an;
	size_t n;

	for (n = 0; n < r->q->devices.n; n++) {
		struct pt_replay_dev *d = &r->dev[n];
		uint64_t sum = pt_spans_tidy(&d->busy, an->t0, an->t1);

		if (m == PT_REPLAY_LOW) {
			out[n].lo_ns = sum;
		} else if (m == PT_REPLAY_HIGH) {
			out[n].hi_ns = sum;
		} else {
			out[n].busy = d->busy;
			out[n].unseen_ns = d->unseen_ns;
			memset(&d->busy, 0, sizeof(d->busy));
			out[n].compute_ns = pt_spans_tidy(&d->compute, an->t0, an->t1);
			out[n].copy_ns = pt_spans_tidy(&d->copy, an->t0, an->t1);
			out[n].collective_ns =
				pt_spans_tidy(&d->collective, an->t0, an->t1);
		}
	}
}

/*
 * Costs at which a queue is never empty and costs at which it nearly always is
 * may both end every stretch where it ended: a host that launches slowly looks
 * like a device that works all the time. The first takes a device that is just
 * as fast as the host, the second any faster one: it is the likelier, and what a
 * fit from below comes to. The high end is left at the first.
 */
#define FROM_BELOW 0.1
static void start_low(struct pt_replay *r, enum pt_replay_mode m)
{
	size_t i;

	for (i = 0; i < r->classes.n; i++)
		if (!r->classes.v[i]->fixed)
			r->classes.v[i]->ns[m] *= FROM_BELOW;
}

static int run_mode(struct pt_replay *r, struct pt_glikely *out,
		    enum pt_replay_mode m, int rounds)
{
	int err = fit(r, m, rounds);

	err = err ?: pt_replay_pass(r, m, false, late_ns[m], submit_ns[m]);
	if (!err)
		keep_busy(r, out, m);
	return err;
}

int pt_glikely_run(const struct pt_gqueue *q, struct pt_glikely *out)
{
	struct pt_replay r = { .q = q };
	int err = pt_replay_open(&r);

	err = err ?: fit(&r, PT_REPLAY_MID, ROUNDS);
	err = err ?: run_mode(&r, out, PT_REPLAY_HIGH, 2);
	start_low(&r, PT_REPLAY_MID);
	err = err ?: run_mode(&r, out, PT_REPLAY_MID, ROUNDS);
	start_low(&r, PT_REPLAY_LOW);
	err = err ?: run_mode(&r, out, PT_REPLAY_LOW, ROUNDS);
	pt_replay_close(&r);
	return err;
}
