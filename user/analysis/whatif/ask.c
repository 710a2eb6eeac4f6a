/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What-if: what would a change win? First the simulation has to reproduce the
 * observed step time with nothing changed; what the trace leaves open is run both
 * ways. Too wide a range is no answer, and says why.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/verdicts/thresholds.h"
#include "analysis/whatif/study.h"
#include "analysis/whatif/whatif.h"

/* A loader's hand-over costs a trainer that loads by itself nothing today. With
 * workers: between these, and a copy of the batch at 1 GB/s on top of the upper
 * one (measured on PyTorch's hand-overs of batches of 0.6 MB that were there:
 * means of 1.1 to 1.6 ms on an idle machine). */
#define HANDOVER_LOW_MS 0.8
#define HANDOVER_MS 1.2
#define HANDOVER_BYTES_MS 1e6
/* ... and the maker a copy into shared memory, and its sender's work. */
#define SEND_LOW_MS 0.4
#define SEND_MS 1.0
/* The host sleeps longer than this for a step's copies: they block. */
#define BLOCKING_MS 0.03
/* The smallest count within this of the fastest is the best: each worker costs
 * memory, and two runs of one job differ by as much. */
#define AS_GOOD 1.05
/* A worker whose quota leaves it more than this of what it wants has some left. */
#define IN_RESERVE 0.5
/* A tail is a few batches: so many at most, and with so much of the time. */
#define TAIL_BATCHES 0.15
#define TAIL_TIME 0.05

/* ---- the changes ------------------------------------------------------------------------ */

static void set_workers(struct pt_wi_study *s, struct pt_wi_run *r, size_t n, int way)
{
	double copy = s->o.batch_bytes / HANDOVER_BYTES_MS;
	size_t i, today = s->o.workers;

	/* one that is slow stays so; who would go is not known */
	for (i = 0; i < n; i++)
		if (n < today)
			s->pool[i] = &s->all;
		else if (i >= today)
			s->pool[i] = s->peers.items.n ? &s->peers : &s->all;
	r->workers = n;
	if (!s->o.own_loading)
		return;
	r->add_cpu = way ? HANDOVER_MS + copy : HANDOVER_LOW_MS;
	r->add_made = way ? SEND_MS + copy : SEND_LOW_MS;
}

static bool is_lock(const struct pt_wi_place *p)
{
	return p->is_lock || p->v.what == PT_WI_SERIAL;
}

void pt_wi_apply(struct pt_wi_study *s, struct pt_wi_run *r,
		 const struct pt_wi_change *c, int way)
{
	size_t i;

	if (c->workers)
		set_workers(s, r, (size_t)c->value, way);
	for (i = 0; i < s->o.workers && c->slow_fixed; i++)
		if (s->o.pools.v[i % s->o.pools.n].slow)
			s->pool[i] = &s->peers;
	for (i = 0; i < s->o.n_places && c->no_locks; i++)
		if (is_lock(&s->o.place[i]))
			r->in_turn[i] = false;
	r->no_locks = c->no_locks;
	r->gone = c->gone;
	r->no_tail = c->no_tail;
	r->no_pause = c->no_pause;
	r->in_order &= !c->any_order;
	r->cores += c->core;
	/* from pinned memory, on a stream of their own: nobody waits for the
	 * copies, but they take turns on the bus */
	r->cut_transfer = c->overlapped ? s->o.transfer : 0;
	if (!c->no_syncs)
		return;
	r->device_queue = r->no_sync = true;
	r->gpu = s->o.gpu[0];
	/* from pageable memory, copies wait for the device as a sync does: it
	 * has its next kernels at once, or not before the host has done its
	 * part of the step */
	r->copies_block = s->o.transfer > BLOCKING_MS;
	r->launch_late = way;
}

/* ---- the questions ------------------------------------------------------------------------ */

static int ask(struct pt_wi_study *s, struct pt_wi_change c)
{
	struct pt_r_whatif *row;
	int err;

	if (s->n_rows == PT_WI_MAX_ROWS)
		return 0;
	row = &s->row[s->n_rows++];
	row->change = c.name;
	row->value = c.value;
	if (c.workers && c.value < (int64_t)s->o.workers && s->o.throttled &&
	    s->all.share > IN_RESERVE) {
		row->step_ms = NAN;
		row->speedup = (struct pt_range){ NAN, NAN, NAN };
		row->note = "the workers have CPU quotas that hardly show today";
		return 0;
	}
	if (c.workers && c.value < (int64_t)s->o.workers && s->o.fed) {
		row->step_ms = NAN;
		row->speedup = (struct pt_range){ NAN, NAN, NAN };
		row->note = "the workers wait for what another process hands them";
		return 0;
	}
	c.ways = c.ways ? c.ways : 1;
	err = pt_wi_ask(s, row, &c);
	pt_wi_todays_pools(s);
	return err;
}

/* One more than the row before, in which the trainer never waited: the same answer. */
static int answer_alike(struct pt_wi_study *s, int64_t workers)
{
	if (s->n_rows == PT_WI_MAX_ROWS)
		return 0;
	s->row[s->n_rows] = s->row[s->n_rows - 1];
	s->row[s->n_rows++].value = workers;
	return 0;
}

static int ask_workers(struct pt_wi_study *s)
{
	static const int64_t counts[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 };
	int64_t today = (int64_t)s->o.workers, last = 0;
	struct pt_wi_change c = { "workers", .workers = true,
				  .ways = s->o.own_loading ? 2 : 1 };
	bool enough = false;
	size_t i;
	int err = 0;

	if (s->o.own_loading && s->an->top->workers.n)
		return pt_report_limit(s->an->r, "whatif",
				       "The gain of more workers cannot be predicted: who "
				       "made which batch was not seen.");
	if (s->o.own_loading && s->all.usual < PT_WI_WORTH * s->o.mean_ms)
		return 0; /* there is nothing that workers could make */
	for (i = 0; i < sizeof(counts) / sizeof(counts[0]) && !err; i++) {
		c.value = today;
		c.may_be_none = false;
		if (today > last && today < counts[i])
			err = ask(s, c);
		c.value = last = counts[i];
		c.may_be_none = s->held && c.value > today;
		if (enough)
			err = err ?: answer_alike(s, c.value);
		else
			err = err ?: ask(s, c);
		enough = c.value > today && !s->waited;
	}
	return err;
}

static double share_of(const struct pt_wi_study *s, enum pt_cause cause)
{
	double sum = 0, all = 0;

	pt_each(const struct pt_wi_phase, p, &s->all.phases) {
		all += p->ms;
		if (!p->cpu && p->place != PT_WI_NOWHERE &&
		    s->o.place[p->place].cause == cause)
			sum += p->ms;
	}
	return all > 0 ? sum / all : 0;
}

static bool has_locks(const struct pt_wi_study *s)
{
	double ms = 0;
	size_t i;

	for (i = 0; i < s->o.n_places; i++)
		ms += is_lock(&s->o.place[i]) ? s->o.place[i].ms : 0;
	return ms > PT_WI_WORTH * s->o.work_ms;
}

static bool has_tail(const struct pt_wi_study *s)
{
	const struct pt_wi_pool *p = &s->peers;
	double all = 0, in_tail = 0, n = 0;
	size_t i;

	for (i = 0; i < p->items.n; i++) {
		all += p->items.v[i].ms;
		if (p->items.v[i].ms > PT_WI_TAIL * p->usual) {
			in_tail += p->items.v[i].ms;
			n++;
		}
	}
	return n <= TAIL_BATCHES * (double)p->items.n && in_tail > TAIL_TIME * all;
}

static bool has_slow(const struct pt_wi_study *s)
{
	size_t i;

	for (i = 0; i < s->o.pools.n; i++)
		if (s->o.pools.v[i].slow)
			return s->peers.items.n > 0;
	return false;
}

static int ask_others(struct pt_wi_study *s)
{
	const struct pt_wi_job *o = &s->o;
	bool tail = has_tail(s), several = o->workers > 1;
	double worth = PT_WI_WORTH * o->mean_ms;
	bool slow = has_slow(s), blocks = o->transfer > BLOCKING_MS;
	size_t i;
	int err = 0;
	struct {
		bool worth;
		struct pt_wi_change c;
	} q[] = {
		{ share_of(s, PT_CAUSE_DISK) > PT_WI_WORTH,
		  { "no_disk_wait", .gone = 1u << PT_CAUSE_DISK } },
		{ share_of(s, PT_CAUSE_NETWORK) > PT_WI_WORTH,
		  { "no_network_wait", .gone = 1u << PT_CAUSE_NETWORK } },
		{ several && has_locks(s), { "no_lock", .no_locks = true } },
		{ slow, { "slow_worker_fixed", .slow_fixed = true } },
		{ tail, { "slow_items_fixed", .no_tail = true } },
		{ several && o->in_order && (slow || tail),
		  { "any_order", .any_order = true } },
		{ !o->throttled && o->cores_had >= 0.5 && o->queued > worth,
		  { "cores", .core = true } },
		{ o->transfer > worth, { "transfers_overlapped", .overlapped = true } },
		{ o->sync_each && o->gpu_known && o->gpu_wait > worth,
		  { "fewer_syncs", .no_syncs = true, .ways = blocks ? 2 : 1 } },
		{ o->pause > worth, { "no_host_pause", .no_pause = true } },
	};

	for (i = 0; i < sizeof(q) / sizeof(q[0]) && !err; i++) {
		/* what is not worth it may not be known either */
		q[i].c.value = q[i].worth && q[i].c.core ?
				       (int64_t)(o->cores_had + 0.5) + 1 : PT_NULL;
		if (q[i].worth)
			err = ask(s, q[i].c);
	}
	return err;
}

/* ---- the answer ----------------------------------------------------------------------------- */

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
	pt_each_of(const struct pt_r_whatif, w, s->row, s->n_rows) {
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

static double won(const struct ranked *x)
{
	return x->head && isfinite(x->w.speedup.value) ? x->w.speedup.value : -INFINITY;
}

PT_ORDER(cmp_ranked, struct ranked,
	 pt_cmp(y->head, x->head) ?: pt_cmp(won(y), won(x)) ?:
	 pt_cmp(x->w.value, y->w.value) ?: strcmp(x->w.change, y->w.change))

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

static int study(struct pt_wi_study *s, const struct pt_io *io)
{
	const struct pt_r_capture *c = &s->an->r->capture;
	int err = pt_wi_observe(s->an, s->an->top, &s->o);

	if (err)
		return err;
	s->unfit = s->o.unfit;
	s->held = io->measured && io->held >= PT_IO_HELD;
	if (s->o.workers > PT_WI_MAX_WORKERS)
		s->unfit = "more workers than the replay is made for";
	if (c->events > 0 && pt_lost_events(s->an) * 100 > c->events)
		s->unfit = "too many events were lost";
	if (s->unfit)
		return 0;
	err = pt_wi_fit(s);
	if (err || s->unfit)
		return err;
	err = ask_workers(s);
	err = err ?: ask_others(s);
	return err ? err : fill(s);
}

int pt_whatif(struct pt_an *an, const struct pt_io *io)
{
	struct pt_wi_study *s;
	int err;

	if (!an->top)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->an = an;
	err = study(s, io);
	if (!err && s->unfit)
		err = pt_report_limit(an->r, "whatif",
				      "The gain of a change cannot be predicted: %s.",
				      s->unfit);
	pt_wi_job_free(&s->o);
	pt_vec_free(&s->all.phases);
	pt_vec_free(&s->all.items);
	pt_vec_free(&s->peers.phases);
	pt_vec_free(&s->peers.items);
	free(s);
	return err;
}

bool pt_speedup_of(const struct pt_an *an, const char *change, int64_t value,
		   struct pt_range *out)
{
	if (value == PT_NULL && !strcmp(change, "workers"))
		value = an->r->best_workers;
	pt_each_of(const struct pt_r_whatif, w, an->r->whatif, an->r->n_whatif) {
		if (strcmp(w->change, change) || w->value != value ||
		    !isfinite(w->speedup.value))
			continue;
		*out = w->speedup;
		return true;
	}
	return false;
}
