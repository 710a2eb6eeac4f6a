/* SPDX-License-Identifier: BSD-2-Clause */
/* One piece of a long capture: look at it, and keep what the whole needs. */
#include "analysis/parts/piece.h"

#include <errno.h>
#include <string.h>

#include "report/lanes.h"
#include "analysis/io/places.h"
#include "analysis/whatif/whatif.h"

/* From this share of a data wait on storage may be the answer. */
#define IO_SHARE 0.05

/* ---- keeping ------------------------------------------------------------------ */

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

static int keep_trainer(const struct pt_an *an, struct pt_trainer *from,
			struct pt_trainer *to)
{
	struct pt_arena *a = an->a;
	size_t i;
	int err = 0;

	*to = *from;
	KEEP(a, &to->steps, &err);
	KEEP(a, &to->charges, &err);
	KEEP(a, &to->waits, &err);
	KEEP(a, &to->writing, &err);
	KEEP(a, &to->relays, &err);
	KEEP(a, &to->host_places, &err);
	KEEP(a, &to->quotas, &err);
	KEEP(a, &to->devs, &err);
	KEEP(a, &to->workers, &err);
	for (i = 0; i < to->workers.n && !err; i++) {
		KEEP(a, &to->workers.v[i].done, &err);
		KEEP(a, &to->workers.v[i].rests, &err);
		KEEP(a, &to->workers.v[i].service_ms, &err);
		KEEP(a, &to->workers.v[i].unsorted_ms, &err);
	}
	memset(&to->index, 0, sizeof(to->index));
	to->look = NULL;
	for (i = 0; i < to->devs.n && !err; i++) {
		struct pt_dev *d = &to->devs.v[i];

		memset(&d->idle_hard, 0, sizeof(d->idle_hard));
		memset(&d->busy_hard, 0, sizeof(d->busy_hard));
		memset(&d->idle_likely, 0, sizeof(d->idle_likely));
	}
	return err;
}

/* ---- looking ------------------------------------------------------------------ */

static int measure_io(struct pt_an *an, struct pt_piece_rank *k)
{
	int err;

	if (k->f.cause[PT_CAUSE_DISK] + k->f.cause[PT_CAUSE_PAGE_FAULT] < IO_SHARE)
		return 0;
	err = pt_measure_io(an, an->top, &k->io);
	k->io.place = NULL; /* it goes with the places */
	k->io_known = !err;
	return err;
}

/* A report of one trainer, as if there were no other. */
static int look_at(struct pt_an *an, struct pt_trainer *t,
		   struct pt_piece_rank *k, bool whatif)
{
	struct pt_report *r = pt_report_new_in(an->a);
	int err = r ? 0 : -ENOMEM;

	an->top = t;
	an->r = r;
	if (!err)
		err = pt_fill_report(an);
	if (!err)
		err = pt_fill_rank_tables(an);
	if (!err && whatif)
		err = pt_whatif(an);
	k->whatif = whatif;
	k->r = r;
	if (!err)
		err = pt_gather_facts(an, &k->f);
	return err ? err : measure_io(an, k);
}

/* The line of `windows` is of the trainer that waits most. */
static int judge_row(struct pt_an *an, struct pt_piece *p, struct pt_trainer *top)
{
	struct pt_piece_rank *k = NULL;
	size_t i;
	int err;

	for (i = 0; i < p->n; i++)
		if (!k || &an->trainers.v[i] == top)
			k = &p->rank[i];
	an->top = top;
	an->r = (struct pt_report *)(k ? k->r : p->r);
	err = k ? pt_judge(an, &k->f) : 0;
	pt_sum_row(an, &p->row);
	an->r->verdicts = NULL; /* only the whole is judged */
	an->r->n_verdicts = 0;
	return err;
}

static int fill(struct pt_an *an, struct pt_piece *p, bool whatif)
{
	struct pt_trainer *top = an->top;
	size_t i;
	int err = 0;

	p->t0 = an->t0;
	p->t1 = an->t1;
	p->n = an->trainers.n;
	p->rank = pt_arena_calloc(an->a, p->n + 1, sizeof(*p->rank));
	if (!p->rank)
		return -ENOMEM;
	an->r = pt_report_new_in(an->a);
	p->r = an->r;
	if (!an->r)
		return -ENOMEM;
	err = pt_fill_host_tables(an);
	for (i = 0; i < p->n && !err; i++)
		err = look_at(an, &an->trainers.v[i], &p->rank[i], whatif);
	if (!err)
		err = judge_row(an, p, top);
	p->meets = *an->meets;
	p->meets.rank = keep(an->a, p->meets.rank, p->meets.rank ? p->n : 0,
			     sizeof(*p->meets.rank), &err);
	for (i = 0; i < p->n && !err; i++)
		err = keep_trainer(an, &an->trainers.v[i], &p->rank[i].t);
	an->top = top;
	return err;
}

/* Where the piece ends and who works in it is known. */
static int make_head(const struct pt_an *an, struct pt_piece *p)
{
	struct pt_piece_head *h = pt_arena_alloc(an->a, sizeof(*h));
	size_t i, k, n = 0;

	for (i = 0; i < an->trainers.n; i++)
		n += an->trainers.v[i].workers.n;
	if (h)
		h->workers = pt_arena_calloc(an->a, n + 1, sizeof(*h->workers));
	if (!h || !h->workers)
		return -ENOMEM;
	h->end = an->t1;
	for (i = 0; i < an->trainers.n; i++) {
		const struct pt_trainer *t = &an->trainers.v[i];

		for (k = 0; k < t->workers.n; k++) {
			const struct pt_worker *w = &t->workers.v[k];

			h->workers[h->n_workers++] = (struct pt_piece_worker){
				t->proc, w->proc, w->main };
		}
	}
	p->head = h;
	return 0;
}

/* The model is settled. Steps are looked for in [begin, end). */
static int make(struct pt_an *an, uint64_t begin, uint64_t end,
		const struct pt_piece_ask *ask, struct pt_piece *p)
{
	const struct pt_model *m = an->m;
	int err;

	an->t0 = begin;
	an->t1 = end;
	an->met = false;
	err = pt_find_all_steps(an);
	/* a long wait, or none at all: look further */
	if (!err && !an->met && an->piece->cut && end < m->last_ts) {
		pt_release_trainers(an);
		an->t0 = begin;
		an->t1 = m->last_ts;
		err = pt_find_all_steps(an);
	}
	if (!err)
		err = make_head(an, p);
	if (!err && ask->known)
		ask->known(ask->ctx, p->head);
	if (!err)
		err = pt_explain_steps(an);
	if (!err)
		err = fill(an, p, ask->whatif);
	if (!err && an->o->lanes && m->finished)
		err = pt_fill_lanes(an, an->o->lanes);
	return err;
}

int pt_piece_make(struct pt_model *m, const struct pt_analysis_opts *o,
		  const struct pt_piece_ask *ask, struct pt_arena *a,
		  struct pt_piece **out)
{
	struct pt_piece_at at = { ask->before ? ask->before->end :
						pt_exact_begin(m),
				  ask->cut, ask->before };
	struct pt_places places = { 0 };
	struct pt_meets meets = { 0 };
	struct pt_an an = { .m = m, .o = o, .a = a, 
			    .meets = &meets, .places = &places, .th = pt_thresholds_of(o),
			    .part = true, .piece = &at };
	struct pt_piece *p = pt_arena_alloc(a, sizeof(*p));
	uint64_t end = m->finished ? m->end : m->last_ts;
	int err = p ? 0 : -ENOMEM;

	if (at.cut > at.from)
		end = pt_min64(end, at.cut + (at.cut - at.from) / PT_PIECE_MARGIN);
	an.r = pt_report_new_in(a);
	if (!an.r)
		err = -ENOMEM;
	if (!err && !m->finished)
		err = pt_model_settle(m);
	if (!err && !m->finished)
		err = pt_model_lend_open(m);
	if (err)
		goto out;
	err = make(&an, m->begin ? m->begin : m->first_ts, end, ask, p);
	if (!m->finished)
		pt_model_take_back(m);
	if (!err)
		*out = p;
out:
	pt_free_places(&places);
	pt_release_trainers(&an);
	return err;
}

const struct pt_piece_head *pt_piece_head(const struct pt_piece *p)
{
	return p->head;
}

uint64_t pt_piece_end(const struct pt_piece_head *h)
{
	return h->end;
}

/* ---- the whole ------------------------------------------------------------------ */

/* The rest of the model is the last piece. */
static int last_piece(struct pt_model *m, const struct pt_analysis_opts *o,
		      struct pt_report *r, struct pt_pieces *all)
{
	const struct pt_piece *before = all->v[all->n - 1];
	struct pt_piece_ask ask = { .before = before->head, .whatif = true };
	struct pt_piece **v = pt_arena_calloc(r->arena, all->n + 1, sizeof(*v));
	int err;

	if (!v)
		return -ENOMEM;
	memcpy(v, all->v, all->n * sizeof(*v));
	all->v = v;
	if (m->end <= before->t1) /* nothing is left */
		return 0;
	err = pt_piece_make(m, o, &ask, r->arena, &v[all->n]);
	all->n += !err;
	return err;
}

static int list_rows(struct pt_report *r, const struct pt_pieces *all)
{
	size_t i;

	r->windows = pt_arena_calloc(r->arena, all->n, sizeof(*r->windows));
	if (!r->windows)
		return -ENOMEM;
	for (i = 0; i < all->n; i++) {
		r->windows[i] = all->v[i]->row;
		r->windows[i].reported = true;
	}
	r->n_windows = all->n;
	return 0;
}

int pt_analyze_pieces(struct pt_model *m, const struct pt_analysis_opts *o,
		      struct pt_piece *const *pieces, size_t n,
		      struct pt_report *r)
{
	struct pt_pieces all = { (struct pt_piece **)pieces, n };
	struct pt_meets meets = { 0 };
	struct pt_an an = { .m = m, .o = o, .r = r, .a = r->arena,
			    .meets = &meets, .th = pt_thresholds_of(o),
			    .merge = &all };
	int err = n ? last_piece(m, o, r, &all) : -EINVAL;

	if (err)
		return err;
	an.t0 = all.v[0]->t0;
	an.t1 = all.v[all.n - 1]->t1;
	err = pt_merge_trainers(&an);
	if (!err)
		err = pt_report_all(&an);
	if (!err)
		err = pt_merge_limits(&an);
	if (!err)
		err = list_rows(r, &all);
	if (!err && o->lanes) {
		struct pt_lanes last = *o->lanes;

		err = pt_join_lanes(&an, &last, o->lanes);
	}
	pt_show_real_ids(r);
	pt_release_trainers(&an);
	return err;
}
