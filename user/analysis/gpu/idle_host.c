/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device's idle time outside of data waits, by what keeps it waiting: a
 * checkpoint being written, the host at something else behind a sync, the
 * host still launching, the host without a core.
 */

#include <math.h>
#include <stdlib.h>

#include "analysis/gpu/passes.h"
#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"

/* What a device may still have to do behind a stretch in which it kept up with the host, of
 * the stretch. */
#define LEFT_PART 10
/* ... and fewer launches than this. A queue that is full holds some thousand (1,024 as a rule), and
 * then the host launches at the device's pace. */
#define LEFT_LAUNCHES 500
/* A stretch of fewer launches tells nothing of the host's pace. */
#define STRETCH_LAUNCHES 8

int pt_wait_spans(const struct pt_an *an, const struct pt_trainer *t,
		  pt_spans *out)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->waits.n && !err; i++)
		err = pt_spans_add(out, pt_max64(t->waits.v[i].begin, an->t0),
			       pt_min64(t->waits.v[i].end, an->t1));
	return err;
}

static int host_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		      bool queued)
{
	struct pt_trainer *t = ctx;

	(void)iv;
	*(queued ? &t->lack_ns : &t->sync_ns) += e - b;
	return 0;
}

/* Certain idle of a device outside of waits always follows a sync. */
static int split_hard(struct pt_trainer *t, const struct pt_dev *d,
		      const pt_spans *waits)
{
	pt_spans idle = { 0 }, rest = { 0 };
	size_t i;
	int err = pt_spans_subtract(&d->idle_hard, waits, &idle);

	err = err ?: pt_spans_subtract(&idle, &t->writing, &rest);
	for (i = 0; i < rest.n && !err; i++)
		err = pt_walk(t->main, rest.v[i].begin, rest.v[i].end,
			      host_piece, t);
	pt_vec_free(&idle);
	pt_vec_free(&rest);
	return err;
}

/* When the main thread was inside of copies that block. */
static int copy_spans(const struct pt_an *an, const struct pt_trainer *t, pt_spans *out)
{
	const struct pt_proc *p = t->proc;
	int err = 0;

	pt_each_call(c, p, an->t0, an->t1) {
		struct pt_span one = { c->begin, c->end };

		if (c->tid == t->main->tid && c->cls == PT_API_COPY_SYNC && c->end > c->begin)
			err = err ?: pt_vec_push(out, one);
	}
	pt_spans_tidy(out, an->t0, an->t1);
	return err;
}

/* Likely idle between launches of one stretch. */
static int split_likely(struct pt_trainer *t, const struct pt_dev *d,
			const pt_spans *waits, const pt_spans *copies)
{
	pt_spans a = { 0 }, b = { 0 }, c = { 0 };
	size_t i, n = 0;
	int err = pt_spans_subtract(&d->idle_likely, &d->idle_hard, &a);

	err = err ?: pt_spans_subtract(&a, waits, &b);
	for (i = 0; i < b.n; i++)
		if (b.v[i].end - b.v[i].begin <= PT_LAUNCH_GAP_NS)
			b.v[n++] = b.v[i];
	b.n = n;
	err = err ?: pt_spans_subtract(&b, &t->writing, &c);
	err = err ?: pt_spans_remove(&c, copies);
	if (!err)
		t->launch_ns += pt_spans_sum(&c);
	pt_vec_free(&a);
	pt_vec_free(&b);
	pt_vec_free(&c);
	return err;
}

/* Idle time by what the host did meanwhile: the mean over the devices. */
static int split_devices(const struct pt_an *an, struct pt_trainer *t,
			 const pt_spans *waits)
{
	uint64_t n = t->devs.n ? t->devs.n : 1, written = 0;
	bool placed = t->devs.n == 1 && t->devs.v[0].by_driver;
	pt_spans copies = { 0 };
	int err = copy_spans(an, t, &copies);

	t->sync_ns = t->lack_ns = t->launch_ns = 0;
	pt_each_ok(const struct pt_dev, d, &t->devs, err) {
		err = split_hard(t, d, waits);
		err = err ?: split_likely(t, d, waits, &copies);
		written += pt_spans_overlap(&d->idle_likely, &t->writing);
	}
	pt_vec_free(&copies);
	t->sync_ns /= n;
	t->lack_ns /= n;
	t->launch_ns /= n;
	/* unknown: all but what the device certainly worked, of the whole */
	t->checkpoint_idle_ns = t->gpu_known || placed ? written / n :
		pt_min64(pt_spans_sum(&t->writing),
			 pt_min64(t->idle_likely_ns,
				  an->t1 - an->t0 - t->busy_hard_ns));
	return err;
}

/* A stretch behind which the host had to wait. */
struct drained {
	size_t launches;
	double ns, wait_ns; /* from its first launch to the sync; in that */
};

struct stretches {
	uint64_t begin, last; /* launches, since the last pause */
	uint64_t first; /* launch behind the last drain */
	uint64_t ns; /* until the last pause, without pauses */
	size_t launches;
	pt_spans pieces; /* from launch to launch, until the last pause */
	PT_VEC(struct drained) drained;
	pt_spans behind; /* the pieces of those */
	size_t behind_launches;
	pt_spans kept_up; /* pieces in which the device surely kept up with the host */
};

/* The launches up to here are a piece of the stretch. */
static int end_piece(struct stretches *s, uint64_t end)
{
	if (end <= s->begin)
		return 0;
	s->ns += end - s->begin;
	return pt_spans_add(&s->pieces, s->begin, end);
}

/* The stretch is over at `c`, a sync. Where that found next to nothing to wait
 * for, the device had kept up with the host all along: its kernels are shorter
 * than the host's pauses between them. How much shorter cannot be seen. */
static int end_stretch(struct pt_trainer *t, struct stretches *s, const struct pt_gpu_call *c)
{
	bool idles = c->begin - s->last > PT_LAUNCH_GAP_NS;
	size_t n = s->launches, i;
	uint64_t left;
	bool none;
	int err = end_piece(s, idles ? s->last : c->begin);

	left = n ? pt_min64(s->ns / LEFT_PART, s->ns / n * LEFT_LAUNCHES) : 0;
	none = c->end - c->begin < pt_max64(PT_BLOCKED_NS, left);
	if (n >= STRETCH_LAUNCHES && !idles && s->ns / n <= PT_LAUNCH_GAP_NS) {
		*(none ? &t->host_bound_launches : &s->behind_launches) += n;
		for (i = 0; i < s->pieces.n && !err; i++)
			err = pt_vec_push(none ? &s->kept_up : &s->behind, s->pieces.v[i]);
		if (!none && !err)
			err = pt_vec_push(&s->drained, ((struct drained){ n,
				(double)(c->begin - s->first), (double)(c->end - c->begin) }));
	}
	s->pieces.n = 0;
	s->ns = s->launches = 0;
	return err;
}

PT_ORDER(by_launches, struct drained, pt_cmp(x->launches, y->launches))

/* Waits against stretches, both as they differ from those of as many launches. */
static void add_equals(struct pt_products *f, const struct drained *v, size_t n)
{
	double ns = 0, wait = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		ns += v[i].ns / (double)n;
		wait += v[i].wait_ns / (double)n;
	}
	if (n < 2 || ns < wait) /* how fast the host launches hardly matters */
		return;
	for (i = 0; i < n; i++) {
		/* no sync can make up for more than it waits */
		double x = fmin(v[i].ns - ns, wait), y = v[i].wait_ns - wait;

		f->xx += x * x;
		f->xy += x * y;
		f->yy += y * y;
	}
	f->free += (double)(n - 1);
}

/*
 * A device with work in its queue makes up for a host that is late: the sync behind that
 * waits so much less, by a least-squares line of slope -1. Where it waits as long as ever the
 * queue had been empty, and what it waits for are the last kernels alone. Of equal stretches,
 * by the line's slope and twice its standard error.
 */
static bool delays_stay(struct stretches *s)
{
	struct pt_products f = { 0 };
	size_t i, k;
	double slope, error;

	pt_vec_sort(&s->drained, by_launches);
	for (i = 0; i < s->drained.n; i = k) {
		for (k = i; k < s->drained.n &&
		     s->drained.v[k].launches == s->drained.v[i].launches;)
			k++;
		add_equals(&f, s->drained.v + i, k - i);
	}
	if (f.free < PT_DELAYS_MIN || f.xx < f.free * PT_DELAYS_NS * PT_DELAYS_NS)
		return false;
	pt_fit_slope(&f, &slope, &error);
	return slope - 2 * error > -PT_DELAYS_MADE_UP;
}

/* The stretches are much of the time, and the replayed device is at work in most of that. */
static bool seems_at_work(const struct pt_an *an, const struct pt_trainer *t,
			  const struct stretches *s)
{
	uint64_t sum = pt_spans_sum(&s->behind);
	const struct pt_dev *d = t->devs.v;

	return t->devs.n == 1 && d->known && !d->measured && !d->by_driver &&
	       (double)sum >= an->th->host_bound_share * (double)(an->t1 - an->t0) &&
	       2 * pt_spans_overlap(&d->idle_likely, &s->behind) < sum;
}

/* Nothing shows how long the kernels before the last ones take. */
static int take_behind(const struct pt_an *an, struct pt_trainer *t, struct stretches *s)
{
	int err = pt_spans_append(&s->kept_up, &s->behind);

	pt_spans_tidy(&s->kept_up, an->t0, an->t1);
	t->host_bound_launches += s->behind_launches;
	t->gpu_known = t->devs.v[0].known = false;
	return err;
}

static int find_stretches(const struct pt_an *an, const struct pt_proc *p, struct pt_trainer *t,
			  struct stretches *s)
{
	int err = 0;

	pt_each_call(c, p, an->t0, an->t1) {
		bool drains = pt_call_is_sync(c) ||
			      (pt_call_is_copy(c) && c->v[2] == PT_COPY_D2H &&
			       c->ret != INT64_MIN);

		if (err)
			break;
		if (c->late || c->open)
			continue;
		if (pt_call_is_launch(c)) {
			bool paused = s->launches && c->begin - s->last > PT_LAUNCH_GAP_NS;

			if (paused)
				err = end_piece(s, s->last);
			if (!s->launches)
				s->first = c->begin;
			if (!s->launches++ || paused)
				s->begin = c->begin;
			s->last = c->begin;
		} else if (drains && s->launches) {
			err = end_stretch(t, s, c);
		}
	}
	return err;
}

static int find_host_bound(const struct pt_an *an, struct pt_trainer *t,
			   const pt_spans *waits)
{
	struct stretches s = { 0 };
	int err;

	t->host_bound_ns = t->host_bound_launches = 0;
	err = find_stretches(an, t->proc, t, &s);
	if (!err && seems_at_work(an, t, &s) && delays_stay(&s))
		err = take_behind(an, t, &s);
	t->host_bound_ns = pt_spans_sum(&s.kept_up) - pt_spans_overlap(&s.kept_up, waits);
	pt_vec_free(&s.pieces);
	pt_vec_free(&s.drained);
	pt_vec_free(&s.behind);
	pt_vec_free(&s.kept_up);
	return err;
}

/* Idle by the driver, in no gap between calls that is long enough to be one: where the
 * device keeps up with every launch, between those. */
static void add_unplaced(struct pt_trainer *t)
{
	const struct pt_dev *d = t->devs.v;

	if (t->devs.n == 1 && d->by_driver && t->host_bound_ns > t->launch_ns)
		t->launch_ns += pt_min64(d->unplaced_ns,
					 t->host_bound_ns - t->launch_ns);
}

int pt_split_idle(struct pt_an *an, struct pt_trainer *t)
{
	pt_spans waits = { 0 }, out = { 0 };
	int err = pt_wait_spans(an, t, &waits);

	err = err ?: split_devices(an, t, &waits);
	err = err ?: pt_spans_subtract(&t->writing, &waits, &out);
	err = err ?: find_host_bound(an, t, &waits);
	if (err)
		goto out;
	add_unplaced(t);
	t->checkpoint_ns = pt_spans_sum(&out);
	t->checkpoint_wait_ns = pt_spans_sum(&t->writing) - t->checkpoint_ns;
out:
	pt_vec_free(&waits);
	pt_vec_free(&out);
	return err;
}
