/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device that several processes use is busy when any of them has work on it.
 * Which physical device a process' ordinal is, its calls do not tell. So:
 *
 *  certain  a device is idle only while every other traced process that uses a
 *           GPU has nothing on any device either. Ranks of one job are apart:
 *           the collective libraries refuse two ranks on one device;
 *  likely   another process' device of the same ordinal is the same device,
 *           and its work counts, unless both are ranks.
 *
 * Processes that are not traced: the driver counts them (NVML). Where it shows
 * one on a device of ours, idle is not certain. Where it does not answer, any
 * other process of the machine that uses a GPU may be on ours.
 */

#include "analysis/gpu/passes.h"
#include "analysis/health.h"

bool pt_gpu_others(const struct pt_an *an)
{
	bool counted = false;

	pt_each(const struct pt_rec_device, d, &an->m->devices) {
		if (d->hdr.ts < an->t0 || d->hdr.ts >= an->t1 || !d->traced ||
		    d->procs == PT_DEVICE_UNKNOWN)
			continue;
		if (d->procs > d->traced)
			return true;
		counted = true;
	}
	return !counted && an->m->neighbours;
}

static bool uses_gpu(const struct pt_an *an, const struct pt_proc *p)
{
	pt_each_call(c, p, an->t0, an->t1)
		if (pt_call_is_submit(c) || c->late)
			return true;
	return false;
}

/* So much of what is likely, but not certain, may be the other one's. */
#define OPEN_CROWD 3

/* The work of two processes' devices, taken for one. */
static int join(const struct pt_an *an, struct pt_dev *d, const struct pt_dev *o)
{
	uint64_t wall = an->t1 - an->t0, mid, down;
	int err = pt_spans_meet(&d->idle_likely, &o->idle_likely);

	if (err)
		return err;
	down = wall - d->idle_likely_ns - pt_min64(d->busy_lo_ns, wall - d->idle_likely_ns);
	down += wall - o->idle_likely_ns - pt_min64(o->busy_lo_ns, wall - o->idle_likely_ns);
	d->idle_likely_ns = pt_spans_sum(&d->idle_likely);
	mid = wall - d->idle_likely_ns;
	d->busy_lo_ns = mid - pt_min64(mid, down);
	d->compute_ns = d->copy_ns = d->collective_ns = UINT64_MAX;
	return 0;
}

static int meet_all(const struct pt_an *an, struct pt_trainer *t,
		    const struct pt_trainer *other)
{
	int err = 0;

	pt_each_ok(struct pt_dev, d, &t->devs, err) {
		pt_each_ok(const struct pt_dev, o, &other->devs, err) {
			err = pt_spans_meet(&d->idle_hard, &o->idle_hard);
			if (!err && o->ordinal == d->ordinal)
				err = join(an, d, o);
		}
		d->idle_hard_ns = pt_spans_sum(&d->idle_hard);
		d->busy_lo_ns = pt_max64(d->busy_lo_ns, d->busy_hard_ns);
		/* waiting for the other one's work looks like one's own */
		d->busy_lo_ns -= (d->busy_lo_ns - d->busy_hard_ns) / OPEN_CROWD;
		/* on which of its devices the other one is, and how they take
		 * turns, is not known: above the guess all is possible */
		d->busy_hi_ns = an->t1 - an->t0 - d->idle_hard_ns;
	}
	return err;
}

int pt_share_gpu(struct pt_an *an, struct pt_trainer *t)
{
	size_t i, k;
	int err = 0;

	for (i = 0; i < an->m->all_procs.n && !err; i++) {
		struct pt_proc *p = an->m->all_procs.v[i];
		struct pt_trainer own = { .proc = p }, *o = NULL;

		if (p == t->proc || pt_ranks_of_one_job(p, t->proc) ||
		    !uses_gpu(an, p))
			continue;
		for (k = 0; k < an->trainers.n; k++)
			if (an->trainers.v[k].proc == p)
				o = &an->trainers.v[k];
		if (!o) {
			o = &own;
			err = pt_model_gpu(an, o);
		}
		err = err ?: meet_all(an, t, o);
		pt_trainer_free(&own);
	}
	return err;
}
