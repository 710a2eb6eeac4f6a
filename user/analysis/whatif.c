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

/* The host sleeps longer than this for a step's copies: they block. */
#define BLOCKING_MS 0.03
/* The same batch took up to so much more CPU time in another run: where quotas
 * are the limit it matters (7.3 to 7.7 ms in five runs of one job). */
#define DEARER 0.06
/* The smallest count within this of the fastest is the best: each worker costs
 * memory, and two runs of one job differ by as much. */
#define AS_GOOD 1.05

/* ---- the questions ----------------------------------------------------------- */

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
	if (s->o.own_loading) {
		double copy = s->o.handed_bytes / PT_WI_HANDOVER_BYTES_MS;

		r.add_cpu = way ? PT_WI_HANDOVER_MS + copy :
				  PT_WI_HANDOVER_LOW_MS;
		r.add_made = way ? PT_WI_SEND_MS + copy : PT_WI_SEND_LOW_MS;
	} else if (way) {
		r.add_made = DEARER * (pt_wi_mean_batch(s).cpu + s->all.aux);
	}
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

/* From pinned memory, on a stream of their own: nobody waits for the copies, but
 * the step that uses a batch begins behind its copy, and they still take the
 * bus one after the other. */
static struct pt_wi_run overlapped(struct pt_wi_study *s, struct pt_wi_run r,
				   int64_t value, int way)
{
	(void)value, (void)way;
	r.cut_transfer = s->o.transfer;
	r.pinned = s->o.workers && !(s->o.pin > 0);
	return r;
}

static struct pt_wi_run no_syncs(struct pt_wi_study *s, struct pt_wi_run r,
				 int64_t value, int way)
{
	(void)value;
	r.device_queue = true;
	r.no_sync = true;
	r.gpu = s->o.gpu[0];
	/* from pageable memory, copies wait for the device as a sync does: it
	 * has its next kernels at once, or not before the host has done its
	 * part of the step */
	r.copies_block = s->o.transfer > BLOCKING_MS;
	r.launch_late = way;
	return r;
}

static int add_row(struct pt_wi_study *s, const char *name, int64_t value,
		   pt_wi_change_fn change, int ways)
{
	struct pt_r_whatif *row;
	int err;

	if (s->n_rows == PT_WI_MAX_ROWS)
		return 0;
	row = &s->row[s->n_rows++];
	row->change = name;
	row->value = value;
	row->note = NULL;
	if (change == more_workers && s->o.quota_hidden &&
	    value < (int64_t)s->o.workers) {
		row->step_ms = NAN;
		row->speedup = (struct pt_range){ NAN, NAN, NAN };
		row->note = "the workers have CPU quotas that hardly show today";
		return 0;
	}
	err = pt_wi_ask(s, row, change, ways);
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
			      s->o.own_loading ||
			      (s->o.quota.of == PT_WI_QUOTA_EACH &&
			       last > today) ? 2 : 1);
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
	if (m.disk > PT_WI_WORTH * (m.cpu + m.runq + m.disk + m.lock + m.other))
		err = add_row(s, "no_disk_wait", PT_NULL, without_disk, 1);
	if (!err && slow && s->peers.b.n)
		err = add_row(s, "slow_worker_fixed", PT_NULL, slow_fixed, 1);
	if (!err && o->transfer > PT_WI_WORTH * o->mean_ms)
		err = add_row(s, "transfers_overlapped", PT_NULL, overlapped, 1);
	if (!err && o->sync_each && o->gpu_known &&
	    gpu_wait > PT_WI_WORTH * o->mean_ms)
		err = add_row(s, "fewer_syncs", PT_NULL, no_syncs,
			      o->transfer > BLOCKING_MS ? 2 : 1);
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
