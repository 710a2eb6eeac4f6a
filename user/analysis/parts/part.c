/* SPDX-License-Identifier: BSD-2-Clause */
/* A stretch of the model, through all passes, into a part. */
#include "analysis/parts/part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/io/places.h"
#include "analysis/lines/lines.h"
#include "analysis/waits/callers.h"
#include "analysis/waits/look.h"
#include "model/model.h"
#include "analysis/whatif/whatif.h"

/* From this share of a data wait on storage, or faults, may be the answer. */
#define IO_SHARE 0.05

/* ---- the passes, in their order ----------------------------------------------- */

/* Who trains, and their steps. *met: one begins where the part ends. */
static int find_steps(struct pt_an *an, const struct pt_part_ask *ask, bool *met)
{
	size_t i;
	int err = pt_find_trainers(an);

	err = err ?: pt_find_callers(an, &an->callers);
	for (i = 0; i < an->trainers.n && !err; i++)
		err = pt_look_at(an, &an->trainers.v[i]);
	return err ? err : pt_narrow_to_steps(an, ask, met);
}

/* What the steps waited for, and what the device did meanwhile. */
static int explain(struct pt_an *an, struct pt_trainer *t)
{
	int err = pt_charge_waits(an, t, &t->look->actor, t->look->paths);

	pt_shape_steps(t);
	err = err ?: pt_model_gpu(an, t);
	err = err ?: pt_measure_workers(an, t);
	err = err ?: pt_sum_asked(an, t);
	err = err ?: pt_sum_breakdown(an, t);
	err = err ?: pt_split_idle(an, t);
	if (!err) {
		pt_sum_host(an, t);
		pt_find_epochs(an, t);
	}
	pt_mark_calls(t);
	return err ? err : pt_measure_collectives(an, t);
}

/* Its share of the data wait, but for checkpoints in it, is worth a closer look. */
static bool waits_for(const struct pt_an *an, const struct pt_trainer *t,
		      uint64_t ns)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < PT_CAUSE_NR; i++)
		sum += i == PT_CAUSE_CHECKPOINT ? 0 : t->cause_ns[i];
	return ns && (double)ns >= (double)sum * (an->th->root_share < IO_SHARE ?
						  an->th->root_share : IO_SHARE);
}

/* What the judges ask of the records; behind the tables. */
static int measure(struct pt_an *an, struct pt_trainer *t, struct pt_measured *k)
{
	uint64_t faults = t->cause_ns[PT_CAUSE_PAGE_FAULT];
	int err = pt_measure_pool(an, t, &k->pool);

	pt_measure_balance(an, t, &k->balance);
	pt_measure_phases(t, &k->phases);
	err = err ?: pt_slowest_item(an, t, &k->item);
	if (err || !waits_for(an, t, faults + t->cause_ns[PT_CAUSE_DISK]))
		return err;
	err = faults ? pt_measure_faults(an, t, &k->faults) : 0;
	return err ?: pt_measure_io(an, t, &k->io);
}

static struct pt_report *new_rows(const struct pt_an *an)
{
	struct pt_report *r = pt_report_new_in(an->a);

	return r && !pt_fill_capture(an, r) ? r : NULL;
}

/* A trainer's rows. */
static int tabulate(struct pt_an *an, const struct pt_part_ask *ask,
		    struct pt_trainer *t, struct pt_measured *k)
{
	struct pt_report *rows = new_rows(an);
	int err = rows ? 0 : -ENOMEM;

	k->rows = an->r = rows;
	pt_find_hung(an, t, &k->hung); /* marks the worker */
	if (!err && ask->tables)
		err = pt_measure_rank_tables(an, t) ?: pt_measure_lines(an, t);
	else if (!err)
		err = pt_measure_gpu(an, t);
	return err;
}

/* What a change would win, by what was measured. */
static int ask_whatif(struct pt_an *an, struct pt_trainer *t, struct pt_measured *k)
{
	k->asked = an->r = new_rows(an);
	an->top = t;
	return k->asked ? pt_whatif(an, &k->io) : -ENOMEM;
}

/* Of several trainers the report shows one, and which is known here where no other
 * part follows or went before. */
static bool shown(const struct pt_an *an, const struct pt_part_ask *ask,
		  const struct pt_trainer *t)
{
	return ask->before || ask->cut || t == an->top;
}

static int fill(struct pt_an *an, const struct pt_part_ask *ask, struct pt_part *p)
{
	struct pt_trainer *top = an->top;
	struct pt_report *empty = new_rows(an);
	size_t i;
	int err = 0;

	p->t = an->trainers.v;
	p->n = an->trainers.n;
	p->got = pt_arena_calloc(an->a, p->n + 1, sizeof(*p->got));
	if (!p->got || !empty)
		return -ENOMEM;
	an->r = p->r;
	if (ask->tables)
		err = pt_measure_host_tables(an);
	if (ask->tables)
		pt_count_reads(an, &p->reads);
	if (!top)
		pt_find_hung(an, NULL, &p->hung);
	for (i = 0; i < p->n && !err; i++) {
		p->got[i].rows = empty;
		if (!shown(an, ask, &p->t[i]))
			continue;
		err = tabulate(an, ask, &p->t[i], &p->got[i]);
		an->r = p->r;
		err = err ?: measure(an, &p->t[i], &p->got[i]);
		if (!err && ask->whatif)
			err = ask_whatif(an, &p->t[i], &p->got[i]);
		an->top = top;
		an->r = p->r;
	}
	return err;
}

/* Where the part ends and who works in it is known. */
static int make_head(const struct pt_an *an, struct pt_part *p)
{
	struct pt_part_head *h = pt_arena_alloc(an->a, sizeof(*h));
	size_t i, n = 0;

	for (i = 0; i < an->trainers.n; i++)
		n += an->trainers.v[i].workers.n;
	if (h)
		h->workers = pt_arena_calloc(an->a, n + 1, sizeof(*h->workers));
	if (!h || !h->workers)
		return -ENOMEM;
	h->end = an->t1;
	pt_each(const struct pt_trainer, t, &an->trainers) {
		pt_each(const struct pt_worker, w, &t->workers) {
			h->workers[h->n_workers++] = (struct pt_part_worker){
				t->proc, w->proc, w->main };
		}
	}
	p->head = h;
	return 0;
}

/* an->t0, t1: where steps are looked for. */
static int make(struct pt_an *an, const struct pt_part_ask *ask, struct pt_part *p)
{
	const struct pt_model *m = an->m;
	uint64_t begin = an->t0, end = an->t1;
	bool met;
	size_t i;
	int err = find_steps(an, ask, &met);

	/* a long wait, or none at all: look further */
	if (!err && !met && ask->cut && end < m->last_ts) {
		pt_release_trainers(an);
		an->t0 = begin;
		an->t1 = m->last_ts;
		err = find_steps(an, ask, &met);
	}
	err = err ?: make_head(an, p);
	if (!err && ask->known)
		ask->known(ask->ctx, p->head);
	for (i = 0; i < an->trainers.n && !err; i++)
		err = explain(an, &an->trainers.v[i]);
	err = err ?: pt_find_meets(an);
	an->top = pt_top_of(an->trainers.v, an->trainers.n);
	err = err ?: fill(an, ask, p);
	p->t0 = an->t0;
	p->t1 = an->t1;
	p->step0 = an->step0;
	p->window = an->part;
	p->asked = an->asked;
	return err;
}

/* Where the stretch begins and ends, a little more of it is looked at. */
static int set_bounds(struct pt_an *an, const struct pt_part_ask *ask)
{
	const struct pt_model *m = an->m;
	uint64_t from = ask->before ? ask->before->end : pt_exact_begin(m);

	an->t0 = pt_exact_begin(m);
	an->t1 = m->finished ? m->end : m->last_ts;
	if (ask->until) {
		an->t0 = ask->from;
		an->t1 = ask->until;
		an->part = !m->finished;
	}
	if (!ask->before && !ask->cut)
		return pt_set_window(an);
	an->part = true;
	an->t0 = m->begin ? m->begin : m->first_ts;
	if (ask->cut > from)
		an->t1 = pt_min64(an->t1, ask->cut + (ask->cut - from) /
						     PT_PART_MARGIN);
	return 0;
}

int pt_part_make(struct pt_model *m, const struct pt_analysis_opts *o,
		 const struct pt_part_ask *ask, struct pt_arena *a,
		 struct pt_part **out)
{
	struct pt_places places = { 0 };
	struct pt_part *p = pt_arena_alloc(a, sizeof(*p));
	struct pt_an an = { .m = m, .o = o, .a = a, .th = pt_thresholds_of(o),
			    .places = ask->tables ? &places : NULL };
	bool lend = !m->finished && !ask->as_it_is;
	int err = p ? 0 : -ENOMEM;

	*out = p;
	if (!err && !m->finished)
		err = pt_model_settle(m);
	if (err)
		return err;
	an.meets = &p->meets;
	an.r = p->r = pt_report_new_in(a);
	if (!p->r)
		return -ENOMEM;
	if (lend)
		err = pt_model_lend_open(m);
	err = err ?: set_bounds(&an, ask);
	err = err ?: make(&an, ask, p);
	p->t = an.trainers.v;
	p->n = an.trainers.n;
	if (!err && ask->row)
		err = pt_finish_row(m, o, p);
	if (lend)
		pt_model_take_back(m);
	pt_free_places(&places);
	pt_vec_free(&an.callers);
	return err;
}

void pt_part_hold(struct pt_model *m, const struct pt_part *p)
{
	size_t i, k;

	pt_proc_keep(p->hung.proc);
	pt_thread_keep(m, p->hung.th);
	for (i = 0; i < p->n; i++) {
		const struct pt_trainer *t = &p->t[i];

		pt_proc_keep(t->proc);
		pt_thread_keep(m, t->main);
		pt_proc_keep(p->got[i].hung.proc);
		pt_thread_keep(m, p->got[i].hung.th);
		pt_thread_keep(m, p->got[i].item.thread);
		for (k = 0; k < t->relays.n; k++)
			pt_thread_keep(m, t->relays.v[k]);
		for (k = 0; k < t->waits.n; k++)
			pt_thread_keep(m, t->waits.v[k].th);
		for (k = 0; k < t->workers.n; k++) {
			pt_proc_keep(t->workers.v[k].proc);
			pt_thread_keep(m, t->workers.v[k].main);
			pt_thread_keep(m, t->workers.v[k].feeder);
		}
	}
}

const struct pt_part_head *pt_part_head(const struct pt_part *p)
{
	return p->head;
}

uint64_t pt_part_end(const struct pt_part_head *h)
{
	return h->end;
}

/* ---- what a part holds --------------------------------------------------------- */

void pt_part_drop(struct pt_part *p)
{
	size_t i;

	if (!p)
		return;
	for (i = 0; i < p->n; i++)
		pt_trainer_free(&p->t[i]);
	free(p->t);
	p->t = NULL;
	p->n = 0;
	pt_meets_free(&p->meets);
}

static void *keep(struct pt_arena *a, const void *v, size_t n, size_t size,
		  int *err)
{
	void *p = n && !*err ? pt_arena_calloc(a, n, size) : NULL;

	if (n && !p)
		*err = -ENOMEM;
	if (p)
		memcpy(p, v, n * size);
	return p;
}

#define KEEP(a, vec, err)                                                      \
	((vec)->v = keep(a, (vec)->v, (vec)->n, sizeof(*(vec)->v), err),       \
	 (vec)->cap = 0)

static int keep_trainer(struct pt_arena *a, struct pt_trainer *t)
{
	size_t i;
	int err = 0;

	KEEP(a, &t->steps, &err);
	KEEP(a, &t->charges, &err);
	KEEP(a, &t->waits, &err);
	KEEP(a, &t->writing, &err);
	KEEP(a, &t->relays, &err);
	KEEP(a, &t->host_places, &err);
	KEEP(a, &t->quotas, &err);
	KEEP(a, &t->devs, &err);
	KEEP(a, &t->workers, &err);
	for (i = 0; i < t->workers.n && !err; i++) {
		KEEP(a, &t->workers.v[i].done, &err);
		KEEP(a, &t->workers.v[i].rests, &err);
		KEEP(a, &t->workers.v[i].service_ms, &err);
		KEEP(a, &t->workers.v[i].unsorted_ms, &err);
	}
	memset(&t->index, 0, sizeof(t->index));
	t->look = NULL;
	pt_each_ok(struct pt_dev, d, &t->devs, err) {
		memset(&d->idle_hard, 0, sizeof(d->idle_hard));
		memset(&d->busy_hard, 0, sizeof(d->busy_hard));
		memset(&d->idle_likely, 0, sizeof(d->idle_likely));
	}
	return err;
}

int pt_part_keep(struct pt_part *p, struct pt_arena *a)
{
	struct pt_part held = *p;
	size_t i;
	int err = 0;

	p->t = keep(a, p->t, p->n, sizeof(*p->t), &err);
	p->meets.rank = keep(a, p->meets.rank, p->meets.rank ? p->n : 0,
			     sizeof(*p->meets.rank), &err);
	for (i = 0; i < p->n && !err; i++)
		err = keep_trainer(a, &p->t[i]);
	pt_part_drop(&held);
	return err;
}
