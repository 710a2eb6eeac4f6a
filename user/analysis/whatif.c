/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What-if: what would a change win? First the replay has to reproduce the
 * observed step time with nothing changed; what the trace leaves open (does
 * the disk serve more readers at once, who else uses the cores) is replayed
 * both ways; and the samples are drawn again and again in blocks. The range
 * spans all of it. Too wide a range is no answer, and says why.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/whatif.h"
#include "analysis/whatif_ask.h"

/* What the best replay leaves out: cache effects, memory, and that no two runs
 * are the same (pairs of equal runs differed by 1 to 9 %, measured). */
#define MARGIN 0.04
/* DESIGN: a wider range is reported as "cannot tell". */
#define WIDEST 1.25
/* Sleep in the hand-over above this share of a step matters. */
#define HANDOVER 0.10
#define HANDOVERS 3
/* The smallest count within this of the best is the best (issue: 2 %). */
#define AS_GOOD 1.02

/* ---- asking ----------------------------------------------------------------- */

/* A trainer that sleeps while it takes a batch waits for the worker's answer;
 * a worker with more or less to do may answer sooner. Replayed both ways where
 * it matters. */
static bool handover_matters(const struct pt_wi_study *s)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < s->o.steps.n; i++)
		sum += s->o.steps.v[i].handover;
	return sum > HANDOVER * s->o.mean_ms * (double)s->o.steps.n;
}

static const char *why_wide(const struct pt_wi_study *s, const double *mid)
{
	size_t i;

	for (i = 1; i < s->n_variants; i++) {
		double a = mid[0], b = mid[i];

		if (fmax(a, b) / fmin(a, b) < 1 + (WIDEST - 1) / 2)
			continue;
		return s->v[i].disk_shared != s->v[0].disk_shared ?
			"it depends on whether the storage serves more readers at the same speed each" :
		       s->v[i].others != s->v[0].others ?
			"it depends on who else uses the cores" :
			"the device's own speed is not known: the job never waits for it";
	}
	if (handover_matters(s) || s->o.answers > 0)
		return "it depends on how soon workers with more time hand a batch over";
	return "the batches vary too much for so short a trace";
}

/* Makes one change to a run; `way` tells apart what it may cost. */
typedef struct pt_wi_run (*change_fn)(struct pt_wi_study *, struct pt_wi_run,
				      int64_t value, int way);

/*
 * How a hand-over may go once workers have more, or less, to do: as today;
 * without the sleep in it; or with each answer held up by a worker that is at
 * its next batch, and answers when that lets go of the interpreter.
 * False when there is nothing to it.
 */
static bool handover(const struct pt_wi_study *s, int how, double step,
		     struct pt_wi_run *r)
{
	const struct pt_wi_pool *p = s->peers.b.n ? &s->peers : &s->all;
	double cpu = 0;
	size_t i;

	switch (how) {
	case 0:
		return true;
	case 1:
		r->no_handover = true;
		return handover_matters(s);
	default:
		for (i = 0; i < p->b.n; i++)
			cpu += p->b.v[i].cpu / (double)p->b.n;
		if (r->workers) /* the share of time that it computes */
			r->add_sleep = s->o.answers * s->o.hold *
				       fmin(1, cpu / (step * (double)r->workers));
		return r->add_sleep > 0;
	}
}

/* Fill a row from the replay of `change` in every variant, with every seed. */
static int ask(struct pt_wi_study *s, struct pt_r_whatif *row,
	       change_fn change, int ways)
{
	double low = INFINITY, high = 0, mid[PT_WI_MAX_VARIANTS] = { 0 }, sum = 0;
	double step = NAN; /* with the hand-over as today */
	bool same = row->value == (int64_t)s->o.workers;
	size_t i, k;
	int way, how, n, err = 0;

	row->step_ms = NAN;
	row->speedup = (struct pt_range){ NAN, NAN, NAN };
	for (i = 0; i < s->n_variants; i++) {
		const struct pt_wi_variant *v = &s->v[i];
		double wide = 1 + fmax(MARGIN, fabs(v->miss));

		for (k = n = 0; k < PT_WI_SEEDS * HANDOVERS; k++)
			for (way = 0; way < ways; way++) {
				struct pt_wi_run r = pt_wi_base_run(
					s, v, k / HANDOVERS + 1);
				double ms, x;

				how = same ? 0 : k % HANDOVERS;
				r = change(s, r, row->value, way);
				if (!handover(s, how, step, &r))
					continue;
				ms = pt_wi_replay(&r, &err);
				if (err)
					return err;
				if (!how)
					step = ms;
				x = v->base / ms;
				if (!isfinite(x))
					goto unknown;
				mid[i] += x;
				n++;
				low = fmin(low, x / wide);
				high = fmax(high, x * wide);
			}
		mid[i] /= n;
		sum += log(mid[i]);
	}
	if (!s->n_variants)
		goto unknown;
	if (high > WIDEST * low) {
		row->note = why_wide(s, mid);
		return 0;
	}
	row->speedup.value = exp(sum / (double)s->n_variants);
	row->speedup.low = low;
	row->speedup.high = high;
	row->step_ms = s->o.mean_ms / row->speedup.value;
	return 0;
unknown:
	row->note = s->unfit ? s->unfit : "the replay came to no end";
	return 0;
}

static struct pt_wi_run more_workers(struct pt_wi_study *s, struct pt_wi_run r,
				     int64_t n, int way)
{
	size_t i, today = s->o.workers;

	/* one that is slow stays so; who would go is not known */
	for (i = 0; i < (size_t)n; i++)
		if ((size_t)n < today)
			s->pool[i] = &s->all;
		else if (i >= today)
			s->pool[i] = s->peers.b.n ? &s->peers : &s->all;
	r.workers = (size_t)n;
	if (s->o.own_loading)
		r.add_cpu = way ? PT_WI_HANDOVER_MS +
				  s->o.handed_bytes / PT_WI_HANDOVER_BYTES_MS :
				  PT_WI_HANDOVER_LOW_MS;
	return r;
}

static struct pt_wi_run without_disk(struct pt_wi_study *s, struct pt_wi_run r,
				     int64_t value, int way)
{
	(void)s, (void)value, (void)way;
	r.no_disk = true;
	return r;
}

static struct pt_wi_run slow_fixed(struct pt_wi_study *s, struct pt_wi_run r,
				   int64_t value, int way)
{
	size_t i;

	(void)value, (void)way;
	for (i = 0; i < s->o.workers; i++)
		if (s->o.pools.v[i % s->o.pools.n].slow)
			s->pool[i] = &s->peers;
	return r;
}

/* Copies that nothing waits for still take the bus: between all of their time
 * won and, where the device was the limit, less; the queue model decides. */
static struct pt_wi_run overlapped(struct pt_wi_study *s, struct pt_wi_run r,
				   int64_t value, int way)
{
	(void)value, (void)way;
	r.cut_transfer = s->o.transfer;
	return r;
}

static struct pt_wi_run no_syncs(struct pt_wi_study *s, struct pt_wi_run r,
				 int64_t value, int way)
{
	(void)value, (void)way;
	r.device_queue = true;
	r.no_sync = true;
	r.gpu = s->o.gpu[0];
	return r;
}

static int add_row(struct pt_wi_study *s, const char *name, int64_t value,
		   change_fn change, int ways)
{
	struct pt_r_whatif *row;
	int err;

	if (s->n_rows == PT_WI_MAX_ROWS)
		return 0;
	row = &s->row[s->n_rows++];
	row->change = name;
	row->value = value;
	row->note = NULL;
	err = ask(s, row, change, ways);
	pt_wi_todays_pools(s);
	return err;
}

static int ask_workers(struct pt_wi_study *s)
{
	static const int64_t counts[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 };
	int64_t today = (int64_t)s->o.workers, last = 0;
	size_t i;
	int err = 0;

	for (i = 0; i < sizeof(counts) / sizeof(counts[0]) && !err; i++) {
		if (today > last && today < counts[i])
			err = add_row(s, "workers", today, more_workers, 1);
		if (err)
			break;
		last = counts[i];
		err = add_row(s, "workers", last, more_workers,
			      s->o.own_loading ? 2 : 1);
	}
	return err;
}

static int ask_others(struct pt_wi_study *s)
{
	const struct pt_wi_obs *o = &s->o;
	struct pt_wi_batch m = pt_wi_mean_batch(s);
	double gpu_wait = 0;
	bool slow = false;
	size_t i;
	int err = 0;

	for (i = 0; i < o->pools.n; i++)
		slow |= o->pools.v[i].slow;
	for (i = 0; i < o->steps.n; i++)
		gpu_wait += o->steps.v[i].gpu_wait / (double)o->steps.n;
	if (m.disk > PT_WI_WORTH * (m.cpu + m.runq + m.disk + m.other))
		err = add_row(s, "no_disk_wait", PT_NULL, without_disk, 1);
	if (!err && slow && s->peers.b.n)
		err = add_row(s, "slow_worker_fixed", PT_NULL, slow_fixed, 1);
	if (!err && o->transfer > PT_WI_WORTH * o->mean_ms)
		err = add_row(s, "transfers_overlapped", PT_NULL, overlapped, 1);
	if (!err && o->sync_each && o->gpu_known &&
	    gpu_wait > PT_WI_WORTH * o->mean_ms)
		err = add_row(s, "fewer_syncs", PT_NULL, no_syncs, 1);
	return err;
}

/* ---- the answer ------------------------------------------------------------- */

static bool is_workers(const struct pt_r_whatif *w)
{
	return !strcmp(w->change, "workers");
}

/* The smallest count that is as good as the best one; nothing where the best
 * may lie beyond what can be told. */
static int64_t best_count(const struct pt_wi_study *s)
{
	double most = 0;
	int64_t best = PT_NULL;
	size_t i;

	for (i = 0; i < s->n_rows; i++)
		if (is_workers(&s->row[i]))
			most = fmax(most, s->row[i].speedup.value);
	for (i = 0; i < s->n_rows; i++) {
		const struct pt_r_whatif *w = &s->row[i];

		if (!is_workers(w) || !isfinite(w->speedup.value))
			continue;
		if (best != PT_NULL)
			return best; /* one beyond it is no better */
		if (w->speedup.value * AS_GOOD >= most)
			best = w->value;
	}
	return PT_NULL;
}

/* Heads first (the best count, and every other change) by what they win, then
 * the other counts in order. */
struct ranked {
	struct pt_r_whatif w;
	bool head;
};

static int cmp_ranked(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;
	double u = x->w.speedup.value, v = y->w.speedup.value;

	if (x->head != y->head)
		return x->head ? -1 : 1;
	if (x->head && isfinite(u) != isfinite(v))
		return isfinite(u) ? -1 : 1;
	if (x->head && isfinite(u) && u != v)
		return u > v ? -1 : 1;
	if (x->w.value != y->w.value)
		return x->w.value < y->w.value ? -1 : 1;
	return strcmp(x->w.change, y->w.change);
}

static int fill(struct pt_wi_study *s)
{
	struct pt_report *r = s->an->r;
	struct pt_r_whatif *out = pt_arena_calloc(r->arena, s->n_rows + 1,
						  sizeof(*out));
	struct ranked k[PT_WI_MAX_ROWS];
	size_t i;

	if (!out)
		return -ENOMEM;
	r->best_workers = best_count(s);
	for (i = 0; i < s->n_rows; i++) {
		k[i].w = s->row[i];
		k[i].head = !is_workers(&s->row[i]) ||
			    s->row[i].value == r->best_workers;
	}
	if (s->n_rows)
		qsort(k, s->n_rows, sizeof(k[0]), cmp_ranked);
	for (i = 0; i < s->n_rows; i++)
		out[i] = k[i].w;
	r->whatif = out;
	r->n_whatif = s->n_rows;
	return 0;
}

static int study(struct pt_wi_study *s)
{
	const struct pt_r_capture *c = &s->an->r->capture;
	int err = pt_wi_observe(s->an, s->an->top, &s->o);

	if (err)
		return err;
	s->unfit = s->o.unfit;
	if (s->o.workers > PT_WI_MAX_WORKERS)
		s->unfit = "more workers than the replay is made for";
	if (c->events > 0 && c->lost_total * 100 > c->events)
		s->unfit = "too many events were lost";
	if (s->unfit)
		return 0;
	err = pt_wi_make_pools(s);
	if (!err)
		err = pt_wi_find_variants(s);
	if (err || s->unfit)
		return err;
	err = pt_wi_replay_bases(s);
	if (!err)
		err = ask_workers(s);
	if (!err)
		err = ask_others(s);
	return err ? err : fill(s);
}

int pt_whatif(struct pt_an *an)
{
	struct pt_wi_study *s;
	int err;

	if (!an->top)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->an = an;
	err = study(s);
	if (!err && s->unfit)
		err = pt_report_limit(an->r, "whatif",
				      "What a change would win cannot be told: %s.",
				      s->unfit);
	pt_wi_obs_free(&s->o);
	pt_vec_free(&s->all.b);
	pt_vec_free(&s->peers.b);
	free(s);
	return err;
}

bool pt_speedup_of(const struct pt_an *an, const char *change, int64_t value,
		   struct pt_range *out)
{
	size_t i;

	if (value == PT_NULL && !strcmp(change, "workers"))
		value = an->r->best_workers;
	for (i = 0; i < an->r->n_whatif; i++) {
		const struct pt_r_whatif *w = &an->r->whatif[i];

		if (strcmp(w->change, change) || w->value != value ||
		    !isfinite(w->speedup.value))
			continue;
		*out = w->speedup;
		return true;
	}
	return false;
}
