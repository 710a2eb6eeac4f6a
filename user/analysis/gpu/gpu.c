/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The trainer's devices, one struct pt_dev each, and what the rest of the
 * analysis takes from them: sums that are the mean over the devices where
 * there are several.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "analysis/gpu/passes.h"
#include "analysis/health.h"

static struct pt_dev *dev_of_node(struct pt_trainer *t, uint16_t node)
{
	size_t i;

	for (i = 0; i < t->devs.n; i++)
		if (t->devs.v[i].node == node)
			return &t->devs.v[i];
	return NULL;
}

static void add_counts(struct pt_dev_counts *to, const struct pt_dev_counts *c)
{
	const uint64_t *from = (const uint64_t *)c; /* it has counters alone */
	uint64_t *sum = (uint64_t *)to;
	size_t i;

	for (i = 0; i < sizeof(*c) / sizeof(*sum); i++)
		sum[i] += from[i];
}

/* One more node of a device. Nodes of threads that nobody saw choose may be
 * the same device or not: certain is only what holds either way. */
static int add_node(struct pt_dev *d, struct pt_gnode *n,
		    struct pt_glikely *l, bool first)
{
	int err;

	if (first) {
		d->idle_hard = n->idle;
		d->busy_hard = n->busy;
		memset(&n->idle, 0, sizeof(n->idle));
		memset(&n->busy, 0, sizeof(n->busy));
		d->busy_lo_ns = l->lo_ns;
	} else {
		err = pt_spans_meet(&d->idle_hard, &n->idle);
		err = err ?: pt_spans_meet(&d->busy_hard, &n->busy);
		if (err)
			return err;
		d->busy_lo_ns = pt_min64(d->busy_lo_ns, l->lo_ns);
	}
	d->busy_hi_ns += l->hi_ns;
	d->compute_ns += l->compute_ns;
	d->copy_ns += l->copy_ns;
	d->collective_ns += l->collective_ns;
	/* mostly of what was over by some time, and may have been long before: no guess */
	d->known |= n->known && 2 * l->unseen_ns <= pt_spans_sum(&l->busy);
	/* idle_likely holds the busy spans until finish() */
	return pt_spans_append(&d->idle_likely, &l->busy);
}

/* Where the work of a thread goes that was not seen to choose, while others
 * were: CUDA's first device, else the first that was seen. */
static uint16_t default_node(const struct pt_devices *d)
{
	uint16_t i, at = PT_NODE_NONE;

	for (i = 0; i < d->n; i++) {
		if (d->node[i].same != i || !d->node[i].used ||
		    (d->chosen && d->node[i].kind == PT_NODE_THREAD))
			continue;
		if (at == PT_NODE_NONE || (d->node[i].kind == PT_NODE_ORDINAL &&
					   d->node[i].value < d->node[at].value))
			at = i;
	}
	return at;
}

/* The replays show what open times do, not what the model leaves out: streams
 * that hold each other up, work that differs from step to step. A tenth of what
 * is not certain is left open for that, on each side. */
#define LEFT_OPEN 10
/* ... but no less than the fortieth of the time that such a replay may be off; on
 * random simulated jobs a hundredth made misses of a tenth of those nearly right. */
#define LEFT_OPEN_WALL 40
/* Launches that hold each other up seem to be a device at work: of several
 * threads with a device each, in one runtime, and of several processes on one
 * device. Of random simulated jobs of the first kind a tenth missed 4 of 20. */
#define LEFT_OPEN_CROWD 3
/*
 * With few syncs a guess that lies close above what is certain, far below what
 * is possible, may be of costs that are too small: those of a queue that is never
 * empty would end every wait where it ended, too (see likely.c). Then all
 * above is likely. Both figures were chosen on 654 recorded random jobs, of which
 * they make 7 more hold; docs/gpu-busy.md has a run that came after.
 */
#define FEW_SYNCS 60
#define STEEP 0.35
static uint64_t left_open(uint64_t ns, uint64_t wall, bool crowd)
{
	return pt_min64(ns, pt_max64(ns / (crowd ? LEFT_OPEN_CROWD : LEFT_OPEN),
				     wall / LEFT_OPEN_WALL));
}

static void widen(struct pt_dev *d, uint64_t wall, bool crowd)
{
	uint64_t most = wall - d->idle_hard_ns, mid = wall - d->idle_likely_ns;
	uint64_t lo = pt_min64(d->busy_lo_ns, mid);
	uint64_t hi = pt_max64(d->busy_hi_ns, mid);

	lo = pt_max64(lo, d->busy_hard_ns);
	hi = pt_min64(hi, most);
	/* What others do on it is not known at all. */
	if (d->shared)
		hi = most;
	crowd |= d->shared;
	d->busy_lo_ns = lo - left_open(lo - d->busy_hard_ns, wall, crowd);
	d->busy_hi_ns = hi + left_open(most - hi, wall, crowd);
	if (d->counts.syncs < FEW_SYNCS &&
	    (double)(d->busy_lo_ns - d->busy_hard_ns) <
		    STEEP * (double)(most - d->busy_hi_ns))
		d->busy_hi_ns = most;
}

/* A hypervisor may hold an interrupt back for milliseconds, and then a wait seems
 * to go on: seldom, so that a thousandth of the time allows for it. */
#define HELD_BACK 1000

static int finish(struct pt_an *an, struct pt_dev *d, bool crowd)
{
	uint64_t wall = an->t1 - an->t0;
	pt_spans busy = d->idle_likely, *idle = &d->idle_likely;
	int err;

	memset(idle, 0, sizeof(*idle));
	pt_spans_tidy(&d->idle_hard, an->t0, an->t1);
	d->busy_hard_ns = pt_spans_tidy(&d->busy_hard, an->t0, an->t1);
	d->busy_hard_ns -= pt_min64(d->busy_hard_ns, wall / HELD_BACK);
	/* Where a launch was lost, the host may be seen to wait for a device
	 * that seemed empty: then it was not. */
	err = pt_spans_remove(&d->idle_hard, &d->busy_hard);
	d->shared = pt_gpu_others(an);
	if (d->shared)
		d->idle_hard.n = 0;
	err = err ?: pt_spans_append(&busy, &d->busy_hard);
	pt_spans_tidy(&busy, an->t0, an->t1);
	err = err ?: pt_spans_remove(&busy, &d->idle_hard);
	err = err ?: pt_spans_invert(&busy, an->t0, an->t1, idle);
	pt_vec_free(&busy);
	if (err)
		return err;
	d->idle_hard_ns = pt_spans_sum(&d->idle_hard);
	d->idle_likely_ns = pt_spans_sum(idle);
	widen(d, wall, crowd);
	return 0;
}

static struct pt_dev *new_dev(struct pt_trainer *t, const struct pt_devices *d,
			      uint16_t node)
{
	struct pt_dev x = { .node = node, .ordinal = PT_DEV_NO_ORDINAL,
			    .pageable_share = NAN };

	if (node < PT_NODES_MAX && d->node[node].kind == PT_NODE_ORDINAL)
		x.ordinal = (uint32_t)d->node[node].value;
	return pt_vec_push(&t->devs, x) ? NULL : &t->devs.v[t->devs.n - 1];
}

PT_ORDER(by_ordinal, struct pt_dev, pt_cmp(x->ordinal, y->ordinal) ?: pt_cmp(x->node, y->node))

/* The node that stands for the device of node `n` in the report. Threads that
 * did not choose share one unless it was seen that they cannot. */
static uint16_t stands_for(const struct pt_gqueue *q, uint16_t n,
			   uint64_t *members)
{
	uint16_t i;

	if (q->devices.node[n].kind != PT_NODE_THREAD)
		return n;
	if (q->devices.chosen)
		return default_node(&q->devices);
	for (i = 0; i < n; i++)
		if (members[i] && !(members[i] & q->node[n].apart))
			break;
	members[i] |= 1ull << n;
	return i;
}

static int make_devs(struct pt_gqueue *q, struct pt_glikely *likely)
{
	uint64_t members[PT_NODES_MAX] = { 0 };
	struct pt_trainer *t = q->t;
	uint16_t n;
	size_t i;
	int err = 0;

	for (n = 0; n < q->devices.n && !err; n++) {
		bool open = q->devices.node[n].kind == PT_NODE_THREAD, first;
		struct pt_dev_counts *c = &q->node[n].counts;
		struct pt_dev *d;
		uint16_t at;

		if (q->devices.node[n].same != n || !q->devices.node[n].used)
			continue;
		at = stands_for(q, n, members);
		d = dev_of_node(t, at);
		first = !d;
		if (!d)
			d = new_dev(t, &q->devices, at);
		if (!d)
			return -ENOMEM;
		add_counts(&d->counts, c);
		if (open && q->devices.chosen) { /* likely only */
			err = pt_spans_append(&d->idle_likely, &likely[n].busy);
			d->busy_hi_ns += likely[n].hi_ns;
			continue;
		}
		first |= !d->has_node;
		d->has_node = true;
		err = add_node(d, &q->node[n], &likely[n], first);
	}
	for (i = 0; i < t->devs.n && !err; i++)
		err = finish(q->an, &t->devs.v[i],
			     t->devs.n > 1 && q->devices.threads.n > 1);
	return err;
}

/* Starvation of one device: idle while the trainer waits for data. */
static void starve(struct pt_trainer *t, struct pt_dev *d,
		   const pt_spans *waits, uint64_t wait_ns)
{
	uint64_t lo = pt_spans_overlap(&d->idle_hard, waits);
	uint64_t likely = pt_spans_overlap(&d->idle_likely, waits);
	uint64_t hi = wait_ns - pt_spans_overlap(&d->busy_hard, waits);

	likely = pt_max64(likely, lo);
	/* Never found empty. A host that waits for the device more than for
	 * data is ahead of it: its waiting is hidden. */
	if (!d->known && !d->by_driver)
		likely = pt_max64(hi - pt_min64(hi, d->busy_hard_ns), lo);
	d->starved_lo_ns = lo;
	d->starved_likely_ns = likely;
	t->starved_lo_ns += lo;
	t->starved_likely_ns += likely;
	t->starved_hi_ns += hi;
}

/* The trainer's figures are the mean over its devices: with one that works and
 * one that waits, half of what it has is lost. */
static int sum_up(struct pt_an *an, struct pt_trainer *t)
{
	pt_spans waits = { 0 };
	struct pt_dev_counts all = { 0 };
	uint64_t wait_ns, n = t->devs.n ? t->devs.n : 1;
	double least = NAN, most = NAN, idle = pt_idle_by_driver(an, t, &least, &most);
	int err = pt_wait_spans(an, t, &waits);

	err = err ?: pt_take_driver(an, t, idle, least, most);
	wait_ns = pt_spans_tidy(&waits, an->t0, an->t1);
	pt_each_ok(struct pt_dev, d, &t->devs, err) {
		t->idle_hard_ns += d->idle_hard_ns;
		t->idle_likely_ns += d->idle_likely_ns;
		t->busy_hard_ns += d->busy_hard_ns;
		t->gpu_known |= d->known;
		add_counts(&all, &d->counts);
		starve(t, d, &waits, wait_ns);
	}
	if (!t->devs.n)
		t->starved_likely_ns = t->starved_hi_ns = wait_ns;
	t->idle_hard_ns /= n;
	t->idle_likely_ns /= n;
	t->busy_hard_ns /= n;
	t->starved_lo_ns /= n;
	t->starved_likely_ns /= n;
	t->starved_hi_ns /= n;
	if (isfinite(idle) && n == 1) {
		t->idle_driver_ns = (uint64_t)(least * (double)(an->t1 - an->t0));
		t->busy_driver_ns = (uint64_t)((1 - most) * (double)(an->t1 - an->t0));
	}
	pt_limit_by_driver(an, t, idle, most);
	t->counts = all;
	pt_vec_free(&waits);
	return err;
}

int pt_model_gpu(struct pt_an *an, struct pt_trainer *t)
{
	struct pt_glikely likely[PT_NODES_MAX] = { 0 };
	struct pt_gqueue *q = calloc(1, sizeof(*q));
	size_t i;
	int err;

	if (!q)
		return -ENOMEM;
	q->an = an;
	q->t = t;
	err = pt_gqueue_run(q);
	err = err ?: pt_glikely_run(q, likely);
	err = err ?: make_devs(q, likely);
	err = err ?: pt_exact_gpu(an, t);
	pt_vec_sort(&t->devs, by_ordinal);
	err = err ?: sum_up(an, t);
	for (i = 0; i < PT_NODES_MAX; i++)
		pt_vec_free(&likely[i].busy);
	pt_gqueue_free(q);
	free(q);
	return err;
}

void pt_dev_free(struct pt_dev *d)
{
	pt_vec_free(&d->idle_hard);
	pt_vec_free(&d->busy_hard);
	pt_vec_free(&d->idle_likely);
}
