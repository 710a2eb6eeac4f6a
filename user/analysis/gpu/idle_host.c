/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device's idle time outside of data waits, by what keeps it waiting: a
 * checkpoint being written, the host at something else behind a sync, the
 * host still launching, the host without a core.
 */

#include "analysis/gpu/passes.h"
#include "analysis/health.h"
#include "analysis/waits/givers.h"
#include "model/syscalls.h"

/* As much written between two records of the trainer's main thread is a
 * checkpoint, not a log line or an index for a worker. */
#define WRITE_BURST (1u << 20)
/* Writing goes on behind a pause no longer than this, if nothing was launched
 * meanwhile: the next piece is serialised, or copied from the device. */
#define WRITE_PAUSE_NS (100 * NS_PER_MS)
/* What a device may still have to do behind a stretch in which it kept up with the host, of
 * the stretch: how long its sync takes does not tell less than PT_SPUN_NS. */
#define LEFT_PART 10
/* A stretch of fewer launches tells nothing of the host's pace. */
#define STRETCH_LAUNCHES 8

/* Append to a sorted list what of it lies behind the last one. */
static int add_span(pt_spans *s, uint64_t b, uint64_t e)
{
	struct pt_span x = { b, e };

	if (s->n && b < s->v[s->n - 1].end)
		x.begin = b = s->v[s->n - 1].end;
	return e > b ? pt_vec_push(s, x) : 0;
}

/* One checkpoint is many writes: what passes between them belongs to it. */
static void join_writing(const struct pt_proc *p, pt_spans *s)
{
	size_t i, n = 0;

	for (i = 0; i < s->n; i++) {
		struct pt_span x = s->v[i];

		if (n && x.begin - s->v[n - 1].end <= WRITE_PAUSE_NS &&
		    !pt_launches_in(p, 0, s->v[n - 1].end, x.begin))
			s->v[n - 1].end = x.end;
		else
			s->v[n++] = x;
	}
	s->n = n;
}

/* So often the loop passes the call behind which it writes, from one time to the next: what
 * it computes there then, and not each time, is for the writing. */
#define WRITE_SELDOM 3

/* The last call that begins before `ts`, where the loop has passed it so often since `from`;
 * NULL. */
static const struct pt_lead_call *seldom_behind(const struct pt_actor *a, uint64_t from,
						 uint64_t ts)
{
	size_t at = pt_bisect(a->calls.n, i, a->calls.v[i].begin < ts), i, n = 0;

	if (!at)
		return NULL;
	for (i = at; i > 0 && a->calls.v[i - 1].begin >= from; i--)
		n += a->calls.v[i - 1].site == a->calls.v[at - 1].site;
	return n >= WRITE_SELDOM ? &a->calls.v[at - 1] : NULL;
}

/* What the thread computes directly before it writes, back to its last GPU call or sleep, is
 * serialised for it: as long as the writing takes, at most. */
static void add_serialising(const struct pt_actor *a, pt_spans *s)
{
	uint64_t before = 0;
	size_t i, k;

	for (i = 0; i < s->n; i++) {
		struct pt_span *x = &s->v[i];
		const struct pt_lead_call *c = seldom_behind(a, before, x->begin);
		uint64_t most = pt_min64(x->end - x->begin, WRITE_PAUSE_NS);
		uint64_t from = x->begin - pt_min64(x->begin, most);

		before = x->end;
		if (!c)
			continue;
		from = pt_max64(from, c->end);
		for (k = pt_iv_after(a->lead, from);
		     k < a->lead->iv.n && a->lead->iv.v[k].begin < x->begin; k++)
			if (a->lead->iv.v[k].wait != PT_WAIT_RUNQ)
				from = pt_max64(from, a->lead->iv.v[k].end);
		x->begin = pt_min64(from, x->begin);
	}
}

/* A checkpoint is renamed when it is whole, and an old one removed. */
static bool finishes_file(const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_DISK &&
	       (iv->syscall == PT_NR_unlink || iv->syscall == PT_NR_unlinkat ||
		iv->syscall == PT_NR_rename);
}

/* The last launch in [b,e), or the first wait for the device behind it, is over; `b` without. */
static uint64_t behind_launches(const struct pt_proc *p, uint64_t b, uint64_t e)
{
	bool waited = true;
	uint64_t from = b;

	pt_each_call(c, p, b, e) {
		if (pt_call_is_launch(c)) {
			from = pt_max64(c->begin, c->end);
			waited = false;
		} else if (!waited && (pt_call_is_sync(c) || pt_call_is_copy(c))) {
			from = pt_max64(from, c->end);
			waited = true;
		}
	}
	return pt_min64(from, e);
}

/* Bytes are counted when their call returns: the thread may have been in it since before
 * it lost its core, maybe more than once. */
static uint64_t write_began(const struct pt_proc *p, const struct pt_thread *th, size_t i)
{
	const struct pt_iv *v = th->iv.v;
	uint64_t end = v[i].begin;

	for (i--; i && v[i].wait == PT_WAIT_RUNQ && !v[i].gap_before &&
		  v[i].wchar == v[i - 1].wchar &&
		  !pt_launches_in(p, 0, v[i - 1].end, end); i--)
		;
	return behind_launches(p, v[i].end, end);
}

/* A sleep that others of the process end, who write meanwhile: shorter ones are not worth it. */
#define WRITTEN_FOR_NS (5 * NS_PER_MS)

struct writers {
	const struct pt_an *an;
	struct pt_paths *paths;
	const struct pt_proc *own;
	uint64_t bytes;
	bool others; /* another process has a part in it */
};

static enum pt_link writer_link(void *ctx, const struct pt_thread *th, const struct pt_iv *iv,
				uint64_t at, const struct pt_thread **who)
{
	const struct writers *k = ctx;

	(void)at;
	return pt_cause_link(k->an, k->paths, th, iv, *who);
}

static int writer_leg(void *ctx, const struct pt_leg *l)
{
	struct writers *k = ctx;

	k->others |= l->th->proc != k->own;
	k->bytes += pt_written_between(l->th, l->begin, l->end);
	return 0;
}

/* Does the loop sleep now and then until other threads of its process have written a file?
 * Those that it waits for before each batch may keep what they have loaded. */
static bool is_written_for(const struct pt_an *an, const struct pt_actor *a,
			   struct pt_paths *paths, const pt_spans *before,
			   const struct pt_iv *iv)
{
	struct writers k = { .an = an, .paths = paths, .own = a->proc };
	struct pt_walk_opts o = { writer_link, writer_leg, &k, &k };
	const struct pt_thread *by = iv->valid_wake ?
		pt_model_thread(an->m, iv->waker_tid) : NULL;
	uint64_t last = before->n ? before->v[before->n - 1].end : 0;

	return by && by->proc == a->proc && iv->ready >= iv->begin + WRITTEN_FOR_NS &&
	       !pt_inside_call(a->proc, a->lead->tid, iv->begin) &&
	       (iv->begin < last + WRITE_PAUSE_NS || seldom_behind(a, last, iv->begin)) &&
	       !pt_walk_back(paths, by, iv->begin, iv->ready, &o) && !k.others &&
	       k.bytes >= WRITE_BURST;
}

/* When the main thread writes a file, into t->writing: asleep in a write or a
 * flush, or many bytes between two records, or until others have written one. Before the
 * steps are sought: what is written before a fetch is none of it. */
int pt_find_writing(const struct pt_an *an, struct pt_trainer *t, const struct pt_actor *a,
		    struct pt_paths *paths)
{
	const struct pt_thread *th = t->main;
	pt_spans *out = &t->writing;
	size_t i;
	int err = 0;

	for (i = pt_iv_after(th, an->t0); i < th->iv.n && !err; i++) {
		const struct pt_iv *iv = &th->iv.v[i], *prev = &th->iv.v[i ? i - 1 : 0];
		uint64_t end = pt_min64(iv->end, an->t1);
		bool blocked = iv->wait == PT_WAIT_DISK_WRITE ||
			       finishes_file(iv);

		if (iv->begin >= an->t1)
			break;
		if (i && !iv->gap_before && prev->end >= an->t0 &&
		    iv->wchar > prev->wchar &&
		    iv->wchar - prev->wchar >= WRITE_BURST)
			err = add_span(out, pt_max64(write_began(t->proc, th, i), an->t0),
				       iv->begin);
		if (!err && (blocked || is_written_for(an, a, paths, out, iv)))
			err = add_span(out, pt_max64(iv->begin, an->t0), end);
	}
	if (!err) {
		join_writing(t->proc, out);
		add_serialising(a, out);
	}
	return err;
}

int pt_wait_spans(const struct pt_an *an, const struct pt_trainer *t,
		  pt_spans *out)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->waits.n && !err; i++)
		err = add_span(out, pt_max64(t->waits.v[i].begin, an->t0),
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

/* Likely idle between launches of one stretch. */
static int split_likely(struct pt_trainer *t, const struct pt_dev *d,
			const pt_spans *waits)
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
	int err = 0;

	t->sync_ns = t->lack_ns = t->launch_ns = 0;
	pt_each_ok(const struct pt_dev, d, &t->devs, err) {
		err = split_hard(t, d, waits);
		err = err ?: split_likely(t, d, waits);
		written += pt_spans_overlap(&d->idle_likely, &t->writing);
	}
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

struct stretch { /* from the first call behind a drain to the next drain */
	uint64_t begin, last; /* first and last launch */
	size_t launches;
};

/* The stretch is over at `c`, a sync. Where that found nothing to wait for,
 * the device had kept up with the host all along: its kernels are shorter
 * than the host's pauses between them. How much shorter cannot be seen. */
static int end_stretch(struct pt_trainer *t, struct stretch *s,
		       const struct pt_gpu_call *c, pt_spans *out)
{
	uint64_t ns = c->begin - s->begin;
	size_t n = s->launches;
	uint64_t most = pt_min64(pt_max64(PT_BLOCKED_NS, ns / LEFT_PART), PT_SPUN_NS);

	s->launches = 0;
	if (n < STRETCH_LAUNCHES || c->end - c->begin >= most ||
	    c->begin - s->last > PT_LAUNCH_GAP_NS || ns / n > PT_LAUNCH_GAP_NS)
		return 0;
	t->host_bound_launches += n;
	return add_span(out, s->begin, c->begin);
}

static int find_host_bound(const struct pt_an *an, struct pt_trainer *t,
			   const pt_spans *waits)
{
	const struct pt_proc *p = t->proc;
	struct stretch s = { 0 };
	pt_spans all = { 0 };
	int err = 0;

	t->host_bound_ns = t->host_bound_launches = 0;
	pt_each_call(c, p, an->t0, an->t1) {
		bool drains = pt_call_is_sync(c) ||
			      (pt_call_is_copy(c) && c->v[2] == PT_COPY_D2H &&
			       c->ret != INT64_MIN);

		if (err)
			break;
		if (c->late || c->open)
			continue;
		if (pt_call_is_launch(c)) {
			if (!s.launches++)
				s.begin = c->begin;
			s.last = c->begin;
		} else if (drains && s.launches) {
			err = end_stretch(t, &s, c, &all);
		}
	}
	t->host_bound_ns = pt_spans_sum(&all) -
			   pt_spans_overlap(&all, waits);
	pt_vec_free(&all);
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
