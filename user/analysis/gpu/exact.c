/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices whose work was measured (PT_REC_ACT): inside the stretch that the
 * records cover, busy is the union of what ran, and idle the rest. Outside of
 * it the device model's bounds stay.
 *
 * The stretch of a device begins where nothing that was submitted before the
 * measuring can still run: streams work in order, so a stream's first record
 * ends its past; or a wait for the whole device does. It ends where a piece of
 * work may have been under way when the measuring ended, which has no record.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "analysis/gpu/passes.h"
#include "analysis/health.h"
#include "model/acts.h"
#include "model/names.h"

/* So much of the window must be covered for a figure to be called measured. */
#define MEASURED_SHARE 0.99
/* So much of it speaks for the rest better than the model does. */
#define SPEAKS_SHARE 0.9
#define STREAMS_MAX 64
/* Measuring begins a moment behind the capture, once the agent is in the job.
 * So much of the capture is given for it, and so much of its length. */
#define BEGIN_NS (2 * NS_PER_S)
#define BEGIN_SHARE 5

struct exact {
	struct pt_an *an;
	const struct pt_proc *p;
	pt_spans whole;	  /* where idle and busy are known */
	pt_spans busy, compute, copy, collective;
	pt_spans doubt; /* another process may have been at work there */
	uint64_t kernels, copy_bytes, pageable_bytes, lost;
};

static void exact_free(struct exact *x)
{
	pt_vec_free(&x->whole);
	pt_vec_free(&x->busy);
	pt_vec_free(&x->compute);
	pt_vec_free(&x->copy);
	pt_vec_free(&x->collective);
	pt_vec_free(&x->doubt);
}

/* ---- the stretch ------------------------------------------------------------ */

/* The first begin in [from,until) of each stream of the device, at the latest;
 * UINT64_MAX when there is no record, or too many streams to tell. */
static uint64_t streams_begun(const struct pt_proc *p, uint16_t device,
			      uint64_t from, uint64_t until)
{
	uint32_t seen[STREAMS_MAX];
	uint64_t last = UINT64_MAX;
	size_t j, n = 0;

	pt_each(const struct pt_act, a, &p->acts) {
		if (a->device != device || a->begin < from || a->begin >= until)
			continue;
		for (j = 0; j < n && seen[j] != a->stream; j++)
			;
		if (j < n)
			continue;
		if (n == STREAMS_MAX)
			return UINT64_MAX;
		seen[n++] = a->stream;
		last = a->begin; /* in order of their begin */
	}
	return last;
}

/* The first end of a wait for the whole device that began in [from,until).
 * With several devices it is not known here whose it was; `t` NULL: nor is
 * their number. */
static uint64_t first_drain(const struct pt_trainer *t, uint64_t from,
			    uint64_t until)
{
	const struct pt_proc *p;

	if (!t || t->devs.n > 1)
		return UINT64_MAX;
	p = t->proc;
	pt_each_call(c, p, from, until) {
		if (c->cls == PT_API_SYNC_DEVICE && !c->open && c->ret == 0)
			return c->end;
	}
	return UINT64_MAX;
}

/* Did the process submit nothing before `ts`, as far back as there was a
 * process? */
static bool nothing_before(const struct pt_an *an, const struct pt_proc *p,
			   uint64_t ts)
{
	return p->born >= an->m->begin && p->born &&
	       (!p->gpu.n || p->gpu.v[0].begin >= ts);
}

/* What the records say of the end of a device's work. */
struct tails {
	uint32_t stream[STREAMS_MAX];
	uint64_t end[STREAMS_MAX]; /* of the last record of each */
	size_t n;
	bool too_many;
	uint64_t longest;    /* piece of work */
	uint64_t graph;	     /* the last one of a graph ended */
	bool any, others;    /* any device's; another one's */
	uint32_t last_call;  /* that has a record, of any device */
};

static void find_tails(const struct pt_proc *p, const struct pt_act_cover *c,
		       uint16_t device, struct tails *t)
{
	size_t s;

	pt_each(const struct pt_act, a, &p->acts) {
		if (a->begin < c->begin || a->begin >= c->end)
			continue;
		if (a->call != PT_ACT_NO_CALL) {
			t->last_call = t->any && t->last_call > a->call ?
					       t->last_call : a->call;
			t->any = true;
		}
		if (a->device != device) {
			t->others = true;
			continue;
		}
		for (s = 0; s < t->n && t->stream[s] != a->stream; s++)
			;
		if (s == STREAMS_MAX) {
			t->too_many = true;
			return;
		}
		if (s == t->n) {
			t->stream[t->n] = a->stream;
			t->end[t->n++] = 0;
		}
		t->end[s] = pt_max64(t->end[s], a->end);
		t->longest = pt_max64(t->longest, a->end - a->begin);
		if (a->flags & PT_ACT_F_GRAPH)
			t->graph = pt_max64(t->graph, a->end);
	}
}

/* The last that the host did was to wait for the whole device, and that is over.
 * Of several devices it is not known here which one it was. */
static bool waited_out(const struct pt_trainer *t, const struct pt_act_cover *c)
{
	size_t k;

	if (!t || t->devs.n > 1)
		return false;
	for (k = t->proc->gpu.n; k-- > 0;) {
		const struct pt_gpu_call *g = &t->proc->gpu.v[k];

		if (g->begin >= c->end)
			continue;
		if (pt_call_is_submit(g))
			return false;
		if (g->cls == PT_API_SYNC_DEVICE && !g->open && g->ret == 0 &&
		    g->end <= c->end)
			return true;
	}
	return false;
}

/*
 * Until when the records tell all of a device: work that was submitted and has no
 * record may have been under way at the end. Numbers of records and calls are laid
 * side by side in their order, so of several streams the newest call lacks a record
 * also where it is an older one's that is missing: then each stream may have been at
 * work since its last record, but for those that have been silent for longer than
 * LONG times the longest piece of work took. A graph has one call for all of its
 * work, so a record of that call does not say that the rest of it is over.
 */
#define LONG 4

static uint64_t told_until(const struct pt_proc *p, const struct pt_trainer *trainer,
			   const struct pt_act_cover *c, uint16_t device)
{
	struct tails t = { 0 };
	uint64_t at = pt_max64(c->end, c->begin);
	size_t i, k;

	find_tails(p, c, device, &t);
	if (t.too_many)
		return c->begin;
	if (t.graph && t.graph + LONG * t.longest >= c->end &&
	    !waited_out(trainer, c))
		at = pt_max64(pt_min64(at, t.graph), c->begin);
	for (k = t.any ? t.last_call + 1 : pt_gpu_after(p, c->begin);
	     k < p->gpu.n && !pt_call_is_submit(&p->gpu.v[k]); k++)
		;
	if (k >= p->gpu.n || p->gpu.v[k].begin >= c->end)
		return at;
	if (t.n + t.others <= 1) /* from here on, or from its turn on */
		return pt_min64(at, pt_max64(p->gpu.v[k].begin,
					     t.n ? t.end[0] : c->begin));
	for (i = 0; i < t.n; i++)
		if (t.end[i] + LONG * t.longest >= c->end)
			at = pt_min64(at, t.end[i]);
	return pt_max64(at, c->begin);
}

static int find_stretches(struct exact *x, const struct pt_trainer *t,
			  uint16_t device)
{
	const struct pt_an *an = x->an;
	int err = 0;

	pt_each_ok(const struct pt_act_cover, c, &x->p->covers, err) {
		struct pt_span s = { c->begin, 0 };

		if (c->end <= an->t0 || c->begin >= an->t1)
			continue;
		s.end = told_until(x->p, t, c, device);
		if (!nothing_before(an, x->p, c->begin))
			s.begin = pt_min64(streams_begun(x->p, device, c->begin,
							 c->end),
					   first_drain(t, c->begin, c->end));
		x->lost = pt_max64(x->lost, c->lost);
		s.begin = pt_max64(s.begin, an->t0);
		s.end = pt_min64(s.end, an->t1);
		/* where records were lost busy is a lower bound */
		if (s.begin < s.end && c->whole && !c->lost)
			err = pt_vec_push(&x->whole, s);
	}
	return err;
}

static int join(pt_spans *a, const pt_spans *b, const struct pt_an *an)
{
	int err = pt_spans_append(a, b);

	pt_spans_tidy(a, an->t0, an->t1);
	return err;
}

/* ---- what ran ---------------------------------------------------------------- */

static int add_act(struct exact *x, const struct pt_act *a)
{
	struct pt_span s = { a->begin, a->end };
	pt_spans *of = &x->compute;

	if (a->what == PT_ACT_COPY)
		of = &x->copy;
	else if (a->what == PT_ACT_KERNEL &&
		 pt_name_is_collective(pt_act_name(x->an->m, x->p, a->name)))
		of = &x->collective;
	if (a->begin >= x->an->t0 && a->begin < x->an->t1) {
		x->kernels += a->what == PT_ACT_KERNEL;
		if (a->what == PT_ACT_COPY) {
			x->copy_bytes += a->bytes;
			if (a->flags & PT_ACT_F_PAGEABLE)
				x->pageable_bytes += a->bytes;
		}
	}
	return pt_vec_push(of, s) || pt_vec_push(&x->busy, s) ? -ENOMEM : 0;
}

static int gather(struct exact *x, uint16_t device)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->p->acts.n && !err; i++)
		if (x->p->acts.v[i].device == device)
			err = add_act(x, &x->p->acts.v[i]);
	pt_spans_tidy(&x->busy, x->an->t0, x->an->t1);
	pt_spans_tidy(&x->compute, x->an->t0, x->an->t1);
	pt_spans_tidy(&x->copy, x->an->t0, x->an->t1);
	pt_spans_tidy(&x->collective, x->an->t0, x->an->t1);
	return err;
}

/* ---- other processes ------------------------------------------------------------ */

/*
 * Two traced processes that call a device by the same number may share it, or
 * each see another one. A device that changes between processes runs the
 * kernels of one at a time (without MPS): kernels that ran at once were on two
 * devices; kernels that never did, though by chance they would have for so
 * long, on one. In between nothing is known.
 */
#define CHANCE_NS (10 * NS_PER_MS)
#define CHANCE_SHARE 20 /* of the overlap by chance */

static int other_spans(const struct pt_an *an, const struct pt_proc *q,
		       uint16_t device, pt_spans *busy, pt_spans *kernels)
{
	int err = 0;

	pt_each_ok(const struct pt_act, a, &q->acts, err) {
		struct pt_span s = { a->begin, a->end };

		if (a->device != device)
			continue;
		err = pt_vec_push(busy, s);
		if (!err && a->what == PT_ACT_KERNEL)
			err = pt_vec_push(kernels, s);
	}
	pt_spans_tidy(busy, an->t0, an->t1);
	pt_spans_tidy(kernels, an->t0, an->t1);
	return err;
}

/* Where the other one has no record of all that it did there. */
static int untold(struct pt_an *an, const struct pt_proc *q, uint16_t device,
		  pt_spans *out)
{
	struct exact y = { .an = an, .p = q };
	int err = find_stretches(&y, NULL, device);

	pt_spans_tidy(&y.whole, an->t0, an->t1);
	err = err ?: pt_spans_invert(&y.whole, an->t0, an->t1, out);
	exact_free(&y);
	return err;
}

static int consider(struct exact *x, const struct pt_proc *q, uint16_t device)
{
	struct pt_an *an = x->an;
	pt_spans busy = { 0 }, kernels = { 0 }, gap = { 0 };
	double wall = (double)(an->t1 - an->t0), chance;
	uint64_t both;
	int err = other_spans(an, q, device, &busy, &kernels);

	if (err || !busy.n)
		goto out;
	both = pt_spans_overlap(&x->compute, &kernels);
	chance = (double)pt_spans_sum(&x->compute) *
		 (double)pt_spans_sum(&kernels) / wall;
	if (chance > CHANCE_NS && (double)both > chance / CHANCE_SHARE)
		goto out; /* on another device */
	err = untold(an, q, device, &gap);
	err = err ?: join(&x->doubt, &busy, an);
	err = err ?: join(&x->doubt, &gap, an);
	if (!err && chance > CHANCE_NS) /* on this one */
		err = join(&x->busy, &busy, an);
out:
	pt_vec_free(&busy);
	pt_vec_free(&kernels);
	pt_vec_free(&gap);
	return err;
}

static int consider_others(struct exact *x, uint16_t device)
{
	const struct pt_model *m = x->an->m;
	size_t i;
	int err = 0;

	for (i = 0; i < m->all_procs.n && !err; i++) {
		const struct pt_proc *q = m->all_procs.v[i];

		/* NCCL refuses two ranks of a job on one device */
		if (q != x->p && q->acts.n && !pt_ranks_of_one_job(q, x->p))
			err = consider(x, q, device);
	}
	return err;
}

/* ---- into the device ------------------------------------------------------------ */

/* Inside `in` the list becomes what `is` is there; outside it stays. */
static int replace_in(pt_spans *list, const pt_spans *in, const pt_spans *is,
		      const struct pt_an *an)
{
	pt_spans piece = { 0 };
	int err = join(&piece, is, an);

	err = err ?: pt_spans_meet(&piece, in);
	err = err ?: pt_spans_remove(list, in);
	err = err ?: join(list, &piece, an);
	pt_vec_free(&piece);
	return err;
}

/* Likely bounds: what was measured, and beside it the model's, in proportion. */
static void bound_likely(struct exact *x, struct pt_dev *d)
{
	uint64_t wall = x->an->t1 - x->an->t0;
	uint64_t in = pt_spans_sum(&x->whole), out = wall - in;
	uint64_t busy = pt_spans_overlap(&x->busy, &x->whole);
	double rest = wall ? (double)out / (double)wall : 0;
	uint64_t guess = wall - d->idle_likely_ns;
	uint64_t lo = busy + (uint64_t)((double)d->busy_lo_ns * rest);
	uint64_t hi = busy + (uint64_t)((double)d->busy_hi_ns * rest);

	d->busy_lo_ns = pt_max64(pt_min64(lo, guess), d->busy_hard_ns);
	d->busy_hi_ns = pt_min64(pt_max64(hi, guess), wall - d->idle_hard_ns);
}

/* Outside of what was measured as inside, within the bounds. */
static void guess_rest(const struct exact *x, struct pt_dev *d)
{
	uint64_t wall = x->an->t1 - x->an->t0;
	uint64_t busy = pt_spans_overlap(&x->busy, &x->whole);
	double share = (double)busy / (double)d->covered_ns;
	uint64_t idle = wall - (uint64_t)(share * (double)wall);

	d->idle_likely_ns = pt_min64(pt_max64(idle, d->idle_hard_ns),
				     wall - d->busy_hard_ns);
	d->busy_lo_ns = d->busy_hard_ns;
	d->busy_hi_ns = wall - d->idle_hard_ns;
}

/* What was measured, and of the rest as much as the model says (`modelled`, of all), or as
 * much as of what was measured. */
static uint64_t of_all(const struct exact *x, const struct pt_dev *d, bool by_model,
		       const pt_spans *measured, uint64_t modelled)
{
	double wall = (double)(x->an->t1 - x->an->t0), covered = (double)d->covered_ns;
	double got = (double)pt_spans_overlap(measured, &x->whole);

	return (uint64_t)(by_model ? got + (double)modelled * (1 - covered / wall) :
				     got * wall / covered);
}

static void replace_sums(const struct exact *x, struct pt_dev *d)
{
	bool by_model = d->compute_ns != UINT64_MAX;

	d->compute_ns = of_all(x, d, by_model, &x->compute, d->compute_ns);
	d->copy_ns = of_all(x, d, by_model, &x->copy, d->copy_ns);
	d->collective_ns = of_all(x, d, by_model, &x->collective, d->collective_ns);
}

static int into_dev(struct exact *x, struct pt_dev *d)
{
	struct pt_an *an = x->an;
	uint64_t wall = an->t1 - an->t0;
	pt_spans idle = { 0 };
	int err = pt_spans_invert(&x->busy, an->t0, an->t1, &idle);

	if (!err && !d->shared)
		err = replace_in(&d->idle_hard, &x->whole, &idle, an);
	err = err ?: pt_spans_remove(&d->idle_hard, &x->doubt);
	err = err ?: replace_in(&d->idle_likely, &x->whole, &idle, an);
	err = err ?: replace_in(&d->busy_hard, &x->whole, &x->busy, an);
	/* records that came are true wherever they lie */
	err = err ?: join(&d->busy_hard, &x->busy, an);
	err = err ?: pt_spans_remove(&d->idle_hard, &x->busy);
	err = err ?: pt_spans_remove(&d->idle_likely, &x->busy);
	pt_vec_free(&idle);
	if (err)
		return err;
	d->covered_ns = pt_spans_sum(&x->whole);
	d->act_lost = x->lost;
	d->idle_hard_ns = pt_spans_sum(&d->idle_hard);
	d->busy_hard_ns = pt_spans_sum(&d->busy_hard);
	d->idle_likely_ns = pt_spans_sum(&d->idle_likely);
	bound_likely(x, d);
	if (!x->whole.n)
		return 0;
	d->measured = !d->shared &&
		      (double)d->covered_ns >= MEASURED_SHARE * (double)wall;
	/* of the rest the model knows nothing: most of the window speaks for it,
	 * a smaller part does not */
	if (!d->known && d->covered_ns < wall / 2)
		return 0;
	if (!d->known || (double)d->covered_ns >= SPEAKS_SHARE * (double)wall) {
		guess_rest(x, d);
		d->compute_ns = UINT64_MAX;
	}
	d->known = true;
	replace_sums(x, d);
	d->pageable_share = x->copy_bytes ? (double)x->pageable_bytes /
						    (double)x->copy_bytes :
					    NAN;
	/* graphs that were made before the trace began show their kernels here */
	if (d->measured && d->counts.graphs_unknown) {
		d->counts.graphs_unknown = 0;
		d->counts.graph_kernels = x->kernels > d->counts.kernels ?
						  x->kernels - d->counts.kernels :
						  0;
	}
	return 0;
}

/* The device that the records number so. One that never chose a device, alone,
 * is the one that is seen. */
static struct pt_dev *dev_of(struct pt_trainer *t, uint16_t ordinal)
{
	size_t i;

	for (i = 0; i < t->devs.n; i++)
		if (t->devs.v[i].ordinal == ordinal)
			return &t->devs.v[i];
	if (t->devs.n == 1 && t->devs.v[0].ordinal == PT_DEV_NO_ORDINAL) {
		t->devs.v[0].ordinal = ordinal;
		return &t->devs.v[0];
	}
	return NULL;
}

/* A device that no call was seen to choose: all of it may be anything. */
static struct pt_dev *new_dev(const struct pt_an *an, struct pt_trainer *t,
			      uint16_t ordinal)
{
	struct pt_dev d = { .ordinal = ordinal, .busy_hi_ns = an->t1 - an->t0,
			    .pageable_share = NAN };

	return pt_vec_push(&t->devs, d) ? NULL : &t->devs.v[t->devs.n - 1];
}

uint64_t pt_exact_begin(const struct pt_model *m)
{
	uint64_t most = (m->end - m->begin) / BEGIN_SHARE, at = m->begin;
	size_t i;

	most = m->begin + pt_min64(most, BEGIN_NS);
	for (i = 0; m->end > m->begin && i < m->all_procs.n; i++) {
		const struct pt_proc *p = m->all_procs.v[i];

		if (p->covers.n && p->covers.v[0].begin <= most)
			at = pt_max64(at, p->covers.v[0].begin);
	}
	return at;
}

int pt_exact_gpu(struct pt_an *an, struct pt_trainer *t)
{
	bool have[PT_ACT_DEVICES] = { false };
	size_t i;
	int err = 0;

	for (i = 0; i < t->proc->acts.n; i++)
		have[t->proc->acts.v[i].device] = true;
	for (i = 0; i < PT_ACT_DEVICES && !err; i++) {
		struct exact x = { .an = an, .p = t->proc };
		struct pt_dev *d;

		if (!have[i])
			continue;
		d = dev_of(t, (uint16_t)i);
		if (!d)
			d = new_dev(an, t, (uint16_t)i);
		if (!d)
			return -ENOMEM;
		err = find_stretches(&x, t, (uint16_t)i);
		err = err ?: gather(&x, (uint16_t)i);
		err = err ?: consider_others(&x, (uint16_t)i);
		err = err ?: into_dev(&x, d);
		exact_free(&x);
	}
	return err;
}
