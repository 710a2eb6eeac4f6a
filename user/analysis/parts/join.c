/* SPDX-License-Identifier: BSD-2-Clause */
/* A part to those before it: trainers, and the order of all; see part.h. */
#include "analysis/parts/join.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/fields.h"

/* ---- texts -------------------------------------------------------------------- */

struct pt_join_text {
	const char *s;
	UT_hash_handle hh;
};

const char *pt_join_known(const struct pt_join *j, const char *s)
{
	struct pt_join_text *t;

	HASH_FIND(hh, j->texts, s, strlen(s), t);
	return t ? t->s : NULL;
}

const char *pt_join_text(struct pt_join *j, const char *s)
{
	const char *known = s ? pt_join_known(j, s) : NULL;
	struct pt_join_text *t;

	if (!s || known)
		return known;
	t = pt_arena_alloc(j->a, sizeof(*t));
	s = pt_arena_strdup(j->a, s);
	if (!t || !s)
		return NULL;
	t->s = s;
	HASH_ADD_KEYPTR(hh, j->texts, s, strlen(s), t);
	return s;
}

void pt_join_own(struct pt_join *j, const struct pt_row *row, void *v)
{
	const struct pt_field *f;
	const char **text;

	for (f = row->fields; f->cls != PT_FIELD_END; f++) {
		text = (const char **)((char *)v + f->off);
		if (f->cls == PT_FIELD_TEXT)
			*text = pt_join_text(j, *text);
		else if (f->cls == PT_FIELD_OBJ || f->cls == PT_FIELD_FLAT)
			pt_join_own(j, f->row(), (char *)v + f->off);
	}
}

/* ---- limits ------------------------------------------------------------------- */

static bool is_said(const struct pt_r_limit *v, size_t n, const char *what)
{
	while (n--)
		if (!strcmp(v[n].what, what))
			return true;
	return false;
}

void pt_join_limits_free(pt_join_limits *v)
{
	pt_each(struct pt_r_limit, l, v) {
		free((void *)(uintptr_t)l->what);
		free((void *)(uintptr_t)l->reason);
	}
	pt_vec_free(v);
}

static int say(pt_join_limits *v, const struct pt_r_limit *l)
{
	struct pt_r_limit x;

	if (is_said(v->v, v->n, l->what))
		return 0;
	x = (struct pt_r_limit){ strdup(l->what), strdup(l->reason) };
	if (x.what && x.reason && !pt_vec_push(v, x))
		return 0;
	free((void *)(uintptr_t)x.what);
	free((void *)(uintptr_t)x.reason);
	return -ENOMEM;
}

int pt_join_limits_add(pt_join_limits *v, const struct pt_report *from)
{
	pt_join_limits all = { 0 };
	size_t i;
	int err = 0;

	for (i = 0; i < from->capture.n_limits && !err; i++)
		err = say(&all, &from->capture.limits[i]);
	for (i = 0; i < v->n && !err; i++)
		err = say(&all, &v->v[i]);
	pt_join_limits_free(v);
	*v = all;
	return err;
}

int pt_join_limits_end(struct pt_report *to, const pt_join_limits *v)
{
	size_t i;
	int err = 0;

	for (i = 0; i < v->n && !err; i++)
		if (!is_said(to->capture.limits, to->capture.n_limits, v->v[i].what))
			err = pt_report_limit(to, v->v[i].what, "%s", v->v[i].reason);
	return err;
}

/* ---- workers ------------------------------------------------------------------ */

static struct pt_worker *worker_of(struct pt_trainer *t, struct pt_proc *proc,
				   const struct pt_thread *th)
{
	struct pt_worker w = { .proc = proc };
	size_t i;

	for (i = t->workers.n; i-- > 0;)
		if (t->workers.v[i].proc == proc &&
		    (proc != t->proc || t->workers.v[i].main == th))
			return &t->workers.v[i];
	return pt_vec_push(&t->workers, w) ? NULL :
					     &t->workers.v[t->workers.n - 1];
}

#define WORKER(X, T)                                                           \
	X(T, FIRST, proc) X(T, OWN, main) X(T, OWN, feeder) X(T, LAST, role)    \
	X(T, OWN, done) X(T, OWN, earlier) X(T, OWN, rests)                     \
	X(T, SUM, delivered) X(T, SUM, charged_ns) X(T, SUM, making_ns)         \
	X(T, SUM, fed_ns) X(T, SUM, starved_ns) X(T, SUM, setup_ns)            \
	X(T, OWN, service_ms) X(T, OWN, unsorted_ms)                            \
	X(T, OWN, median_ms) X(T, OWN, slowdown) X(T, OWN, slow_chance)         \
	X(T, OWN, slot) X(T, OWN, respawn) X(T, LAST, giver)                    \
	X(T, LAST, asked_at) X(T, OWN, slow) X(T, OWN, in_parts) X(T, OWN, unlike) \
	X(T, LAST, hung)
PT_JOIN_LIST(worker, struct pt_worker, WORKER, 6 + 1);

/* Each part has the last batch before it, too. */
static int add_worker(struct pt_worker *to, const struct pt_worker *w)
{
	bool first = !to->main;
	size_t i;
	int err = 0;

	to->main = w->main;
	if (!to->feeder || w->feeder != w->main)
		to->feeder = w->feeder;
	PT_JOIN(worker, to, w, NULL);
	if (first)
		to->earlier = w->earlier;
	for (i = first ? 0 : w->earlier; i < w->done.n && !err; i++)
		err = pt_vec_push(&to->done, w->done.v[i]);
	err = err ?: pt_doubles_append(&to->service_ms, &w->service_ms);
	return err ?: pt_doubles_append(&to->unsorted_ms, &w->unsorted_ms);
}

/* Where the piece's workers are among all: `map`. */
static int add_workers(struct pt_trainer *to, const struct pt_trainer *t,
		       int *map)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->workers.n && !err; i++) {
		struct pt_worker *w = worker_of(to, t->workers.v[i].proc,
						t->workers.v[i].main);

		if (!w)
			return -ENOMEM;
		map[i] = (int)(w - to->workers.v);
		err = add_worker(w, &t->workers.v[i]);
	}
	return err;
}

/* ---- steps -------------------------------------------------------------------- */

static int add_steps(struct pt_trainer *to, const struct pt_trainer *t,
		     const struct pt_part *p, const int *map)
{
	size_t i;

	for (i = 0; i < t->waits.n; i++) {
		struct pt_fetch w = t->waits.v[i];

		if (w.worker >= 0)
			w.worker = map[w.worker];
		if (pt_vec_push(&to->waits, w))
			return -ENOMEM;
	}
	for (i = 0; i < t->steps.n; i++) {
		struct pt_step s = t->steps.v[i];
		struct pt_step *last = to->steps.n ?
			&to->steps.v[to->steps.n - 1] : NULL;

		if (s.worker >= 0)
			s.worker = map[s.worker];
		s.wait0 += to->waits.n - t->waits.n;
		/* a rank out of step with the one that the cut is by */
		if (last && last->end == p->t0 && s.begin >= last->end) {
			last->partial &= !last->clipped;
			last->clipped = false;
			last->end = s.begin;
		}
		if (pt_vec_push(&to->steps, s))
			return -ENOMEM;
	}
	return 0;
}

#define HOST_PLACE(X, T)                                                       \
	X(T, FIRST, prev) X(T, FIRST, next) X(T, SUM, n) X(T, SUM, ns)          \
	X(T, SUM, idle_ns) X(T, SUM, naps)
PT_JOIN_LIST(host_place, struct pt_host_place, HOST_PLACE, 0);

static int add_place(struct pt_trainer *to, const struct pt_host_place *p)
{
	pt_each(struct pt_host_place, x, &to->host_places) {
		if (x->prev != p->prev || x->next != p->next)
			continue;
		PT_JOIN(host_place, x, p, NULL);
		return 0;
	}
	return pt_vec_push(&to->host_places, *p);
}

PT_ORDER(by_time, struct pt_charge, pt_cmp(y->ns, x->ns))

/* Of as many files as a job may have, those that cost most keep their names. */
static void bound_charges(pt_charges *c)
{
	size_t i;

	if (c->n <= 2 * PT_JOIN_CHARGES)
		return;
	pt_join_charges(c);
	if (c->n <= PT_JOIN_CHARGES)
		return;
	qsort(c->v, c->n, sizeof(*c->v), by_time);
	for (i = PT_JOIN_CHARGES / 2; i < c->n; i++) {
		c->v[i].inode = 0;
		c->v[i].dev = c->v[i].peer = 0;
	}
	pt_join_charges(c);
}

static int add_lists(struct pt_trainer *to, const struct pt_trainer *t)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->relays.n && !err; i++)
		if (!pt_is_relay(to, t->relays.v[i]))
			err = pt_vec_push(&to->relays, t->relays.v[i]);
	for (i = 0; i < t->charges.n && !err; i++)
		err = pt_add_charge(&to->charges, &t->charges.v[i]);
	bound_charges(&to->charges);
	err = err ?: pt_spans_append(&to->writing, &t->writing);
	for (i = 0; i < t->host_places.n && !err; i++)
		err = add_place(to, &t->host_places.v[i]);
	for (i = 0; i < t->quotas.n && !err && !to->quotas.n; i++)
		err = pt_vec_push(&to->quotas, t->quotas.v[i]);
	return err;
}

/* ---- devices ------------------------------------------------------------------ */

#define DEV(X, T)                                                              \
	X(T, FIRST, ordinal) X(T, LAST, node) X(T, ANY, has_node)               \
	X(T, OWN, known) X(T, OWN, by_driver) X(T, ALL, measured)               \
	X(T, ANY, shared) X(T, SUM, counts) X(T, OWN, idle_hard)                \
	X(T, OWN, busy_hard) X(T, OWN, idle_likely) X(T, SUM, idle_hard_ns)     \
	X(T, SUM, busy_hard_ns) X(T, SUM, idle_likely_ns) X(T, SUM, unplaced_ns) \
	X(T, SUM, busy_lo_ns) X(T, SUM, busy_hi_ns) X(T, SUM, starved_lo_ns)    \
	X(T, SUM, starved_likely_ns) X(T, SPLIT, compute_ns)                    \
	X(T, SPLIT, copy_ns) X(T, SPLIT, collective_ns) X(T, SUM, covered_ns)   \
	X(T, MAX, act_lost) X(T, OWN, pageable_share)
PT_JOIN_LIST(dev, struct pt_dev, DEV, 5);

static struct pt_dev *dev_of(struct pt_trainer *t, const struct pt_dev *d)
{
	struct pt_dev x = { .ordinal = d->ordinal, .node = d->node,
			    .measured = true, .pageable_share = NAN };
	size_t i;

	for (i = 0; i < t->devs.n; i++)
		if (t->devs.v[i].ordinal == d->ordinal)
			return &t->devs.v[i];
	if (t->devs.n == PT_NODES_MAX || pt_vec_push(&t->devs, x))
		return NULL;
	return &t->devs.v[t->devs.n - 1];
}

static int add_dev(struct pt_join_rank *r, struct pt_trainer *t, struct pt_dev *d,
		   uint64_t ns)
{
	struct pt_dev *to = dev_of(t, d);
	struct pt_seen *s;

	if (!to)
		return -ENOMEM;
	s = &r->dev[to - t->devs.v];
	s->ns += ns;
	s->known_ns += d->known ? ns : 0;
	if (isfinite(d->pageable_share)) {
		s->bytes += d->counts.copy_bytes;
		s->pageable += d->pageable_share * (double)d->counts.copy_bytes;
	}
	/* only the last part has any */
	to->idle_hard = d->idle_hard;
	to->idle_likely = d->idle_likely;
	memset(&d->idle_hard, 0, sizeof(d->idle_hard));
	memset(&d->idle_likely, 0, sizeof(d->idle_likely));
	PT_JOIN(dev, to, d, NULL);
	return 0;
}

/* In parts without it, it had nothing new to do: likely it was idle. */
static void finish_devs(const struct pt_join_rank *r, struct pt_trainer *t,
			uint64_t wall)
{
	size_t i;

	for (i = 0; i < t->devs.n; i++) {
		struct pt_dev *d = &t->devs.v[i];
		const struct pt_seen *s = &r->dev[i];
		uint64_t away = wall - pt_min64(wall, s->ns);

		d->idle_likely_ns += away;
		d->busy_hi_ns += away;
		d->known = s->known_ns * 2 > s->ns;
		if (away)
			d->measured = false;
		if (s->bytes)
			d->pageable_share = s->pageable / (double)s->bytes;
	}
}

/* ---- trainers ------------------------------------------------------------------ */

#define TRAINER(X, T)                                                          \
	X(T, FIRST, proc) X(T, OWN, main) X(T, OWN, relays) X(T, OWN, workers)  \
	X(T, OWN, index) X(T, OWN, steps) X(T, OWN, waits) X(T, OWN, charges)   \
	X(T, OWN, quotas) X(T, OWN, optimizer_steps) X(T, OWN, micro_shape)     \
	X(T, OWN, update_shape) X(T, MAX, concurrent) X(T, ANY, handoffs)       \
	X(T, ANY, thread_loader) X(T, ANY, respawned) X(T, ANY, may_spin)       \
	X(T, ANY, computes_too) X(T, ANY, fd_sharing) X(T, ANY, asks_above) X(T, ANY, receives) \
	X(T, OWN, gpu_known) X(T, OWN, top_cause) X(T, OWN, look)               \
	X(T, OWN, devs)                                                         \
	X(T, SUM, busy_hard_ns) X(T, SUM, cause_ns) X(T, SUM, lock_asked_ns)    \
	X(T, SUM, handover_queue_ns) X(T, SUM, unadopted_ns)                    \
	X(T, SUM, setup_ns) X(T, SUM, n_born)                                   \
	X(T, SUM, starved_lo_ns) X(T, SUM, starved_likely_ns)                   \
	X(T, SUM, starved_hi_ns) X(T, SUM, idle_hard_ns)                        \
	X(T, SUM, idle_likely_ns) X(T, SUM, idle_driver_ns)                     \
	X(T, SUM, busy_driver_ns) X(T, SUM, counts) X(T, SUM, collective_ns)    \
	X(T, SUM, host_ns) X(T, MAX, host_longest) X(T, SUM, taken_beside)      \
	X(T, SUM, plain_lock_ns) X(T, SUM, output_ns)                           \
	X(T, SUM, host_idle_ns) X(T, SUM, host_hidden_ns)                       \
	X(T, OWN, host_places) X(T, SUM, data_wait_ns) X(T, SUM, blocked_ns)    \
	X(T, SUM, own_read_ns) X(T, SUM, own_cpu_ns) X(T, SUM, handover_ns)     \
	X(T, SUM, gpu_wait_ns) X(T, SUM, transfer_ns)                           \
	X(T, SUM, sync_ns) X(T, OWN, writing) X(T, SUM, checkpoint_ns)          \
	X(T, SUM, checkpoint_wait_ns) X(T, SUM, checkpoint_idle_ns)             \
	X(T, SUM, launch_ns) X(T, SUM, lack_ns) X(T, SUM, host_bound_ns)        \
	X(T, SUM, host_bound_launches) X(T, SUM, kernel_ns)              \
	X(T, SUM, naps) X(T, SUM, storage_waits) X(T, SUM, fetching_ns) X(T, SUM, stopped_ns)
PT_JOIN_LIST(trainer, struct pt_trainer, TRAINER, 6);

static void add_facts(struct pt_trainer *to, const struct pt_trainer *t)
{
	/* who calls most, and what a step looks like, by the latest steps */
	if (t->steps.n || !to->main) {
		to->main = t->main;
		to->micro_shape = t->micro_shape;
		to->update_shape = t->update_shape;
	}
	if (t->optimizer_steps == PT_NULL && t->steps.n)
		to->optimizer_steps = PT_NULL;
	else if (to->optimizer_steps != PT_NULL && t->steps.n)
		to->optimizer_steps += t->optimizer_steps;
	PT_JOIN(trainer, to, t, NULL);
}

static int add_stretch(struct pt_join_rank *r, const struct pt_part *p,
		       const struct pt_trainer *t, const struct pt_measured *k)
{
	struct pt_stretch x = { p->t0, p->t1, t->idle_likely_ns, t->starved_likely_ns,
				k->balance, t->gpu_known };

	return pt_vec_push(&r->past, x);
}

static int add_trainer(struct pt_join *j, size_t i, const struct pt_part *p,
		       const struct pt_trainer *t)
{
	struct pt_trainer *to = &j->t.v[i];
	struct pt_join_rank *r = j->rank.v[i];
	const struct pt_measured *k = &p->got[t - p->t];
	uint64_t ns = pt_part_ns(p);
	int err, *map = calloc(t->workers.n + 1, sizeof(*map));

	if (!map)
		return -ENOMEM;
	add_facts(to, t);
	r->self.ns += ns;
	r->self.known_ns += t->gpu_known ? ns : 0;
	err = add_workers(to, t, map);
	err = err ?: add_steps(to, t, p, map);
	err = err ?: add_lists(to, t);
	pt_each_ok(struct pt_dev, d, &t->devs, err) {
		err = add_dev(r, to, d, ns);
	}
	free(map);
	err = err ?: add_stretch(r, p, t, k);
	err = err ?: pt_join_rank_add(j, i, k);
	if (!err)
		pt_join_facts_add(j, i, p, t, k);
	return err;
}

static int end_trainer(struct pt_an *an, const struct pt_join_rank *r,
		       struct pt_trainer *t)
{
	int err = pt_index_workers(t);

	finish_devs(r, t, an->t1 - an->t0);
	t->gpu_known = r->self.known_ns * 2 > r->self.ns;
	t->top_cause = pt_largest_cause(t->cause_ns);
	if (t->steps.n && t->steps.v[t->steps.n - 1].end < an->t1)
		t->steps.v[t->steps.n - 1].end = an->t1;
	pt_each(struct pt_worker, w, &t->workers) {
		w->median_ms = pt_median(w->service_ms.v, w->service_ms.n);
	}
	err = err ?: pt_compare_workers(an, t);
	if (!err)
		pt_find_epochs(an, t);
	return err;
}

/* Where it is among all; a new one where it was in no part before. -ENOMEM */
static int place_of(struct pt_join *j, struct pt_proc *proc, size_t *i)
{
	struct pt_trainer t = { .proc = proc };
	struct pt_measured got = { 0 };
	struct pt_meet_rank *rank;
	struct pt_join_rank *r;

	for (*i = 0; *i < j->t.n; ++*i)
		if (j->t.v[*i].proc == proc)
			return 0;
	rank = realloc(j->all.meets.rank, (*i + 1) * sizeof(*rank));
	if (!rank)
		return -ENOMEM;
	memset(&rank[*i], 0, sizeof(*rank));
	j->all.meets.rank = rank;
	r = calloc(1, sizeof(*r));
	if (!r || pt_vec_push(&j->rank, r)) {
		free(r);
		return -ENOMEM;
	}
	pt_join_facts_begin(r, &got);
	return pt_vec_push(&j->got, got) ?: pt_vec_push(&j->t, t);
}

/* ---- meetings ------------------------------------------------------------------- */

#define MEET_RANK(X, T)                                                        \
	X(T, SUM, last) X(T, SUM, held_ns) X(T, SUM, cost_ns) X(T, SUM, waits_ns) \
	X(T, SUM, part_ns) X(T, DIST, late_ms)
PT_JOIN_LIST(meet_rank, struct pt_meet_rank, MEET_RANK, 0);

#define MEETS(X, T)                                                            \
	X(T, ANY, known) X(T, OWN, why) X(T, ALL, measured) X(T, ALL, sure)     \
	X(T, ANY, several) X(T, SUM, n) X(T, SUM, clear) X(T, OWN, rank)
PT_JOIN_LIST(meets, struct pt_meets, MEETS, 7 + 5);

static int add_meets(struct pt_join *j, const struct pt_part *p)
{
	struct pt_meets *to = &j->all.meets;
	size_t i, at;
	int err = 0;

	if (!p->meets.known) {
		to->why = p->meets.why ? p->meets.why : to->why;
		return 0;
	}
	PT_JOIN(meets, to, &p->meets, NULL);
	for (i = 0; i < p->n && !err; i++) {
		err = place_of(j, p->t[i].proc, &at);
		if (!err)
			PT_JOIN(meet_rank, &to->rank[at], &p->meets.rank[i], NULL);
	}
	return err;
}

/* ---- all of it ------------------------------------------------------------------- */

struct pt_join *pt_join_new(void)
{
	struct pt_join *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->a = pt_arena_new();
	j->all.meets.measured = j->all.meets.sure = true;
	pt_row_null(pt_row_find("working_set"), &j->host.set);
	if (j->a)
		return j;
	free(j);
	return NULL;
}

void pt_join_free(void *join)
{
	struct pt_join *j = join;

	if (!j)
		return;
	pt_each(struct pt_trainer, t, &j->t) {
		pt_trainer_free(t);
	}
	pt_each(struct pt_join_rank *, r, &j->rank) {
		pt_join_rank_free(*r);
	}
	pt_vec_free(&j->t);
	pt_vec_free(&j->got);
	pt_vec_free(&j->rank);
	pt_vec_free(&j->windows);
	pt_meets_free(&j->all.meets);
	pt_join_host_free(&j->host);
	free(j->head.workers);
	HASH_CLEAR(hh, j->texts);
	pt_arena_free(j->a);
	free(j);
}

static int copy_head(struct pt_part_head *to, const struct pt_part_head *h)
{
	struct pt_part_worker *w = calloc(h->n_workers + 1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	if (h->n_workers)
		memcpy(w, h->workers, h->n_workers * sizeof(*w));
	free(to->workers);
	*to = (struct pt_part_head){ h->end, w, h->n_workers };
	return 0;
}

int pt_join_add(struct pt_join *j, struct pt_part *p)
{
	size_t i, at;
	int err = copy_head(&j->head, p->head);

	if (!j->n)
		j->all.t0 = p->t0;
	j->all.t1 = p->t1;
	j->all.hung = p->hung;
	j->all.reads.bound += p->reads.bound;
	j->all.reads.all += p->reads.all;
	/* what hung before, and went on, did not hang */
	pt_each(struct pt_measured, k, &j->got) {
		k->hung = (struct pt_hung){ 0 };
	}
	for (i = 0; i < p->n && !err; i++) {
		err = place_of(j, p->t[i].proc, &at);
		err = err ?: add_trainer(j, at, p, &p->t[i]);
	}
	err = err ?: add_meets(j, p);
	err = err ?: pt_join_host_add(j, p);
	err = err ?: pt_vec_push(&j->windows, p->row);
	j->n++;
	return !err && pt_arena_failed(j->a) ? -ENOMEM : err;
}

const struct pt_part_head *pt_join_head(const struct pt_join *j)
{
	return &j->head;
}

void pt_join_hold(struct pt_model *m, const struct pt_join *j)
{
	struct pt_part all = j->all;

	all.t = j->t.v;
	all.got = j->got.v;
	all.n = j->t.n;
	pt_part_hold(m, &all);
}

const struct pt_stretch *pt_join_past(const struct pt_join *j, size_t trainer,
				      size_t *n)
{
	*n = j->rank.v[trainer]->past.n;
	return j->rank.v[trainer]->past.v;
}

static void put_windows(const struct pt_join *j, struct pt_report *r)
{
	r->windows = j->windows.v;
	r->n_windows = j->windows.n;
	pt_each(struct pt_r_window, w, &j->windows) {
		w->reported = true;
	}
}

int pt_join_end(struct pt_an *an, struct pt_join *j, struct pt_part *to)
{
	struct pt_report *shown = an->r;
	size_t i;
	int err = 0;

	*to = j->all;
	to->t = j->t.v;
	to->got = j->got.v;
	to->n = j->t.n;
	an->t0 = to->t0;
	an->t1 = to->t1;
	if (to->meets.known)
		to->meets.why = NULL;
	to->r = pt_report_new_in(an->a);
	if (!to->r)
		return -ENOMEM;
	for (i = 0; i < to->n && !err; i++)
		err = end_trainer(an, j->rank.v[i], &to->t[i]);
	an->trainers.v = to->t;
	an->trainers.n = to->n;
	an->top = pt_top_of(to->t, to->n);
	for (i = 0; i < to->n && !err; i++) {
		if (&to->t[i] != an->top)
			continue;
		err = pt_join_rank_end(an, j, i, &to->got[i]);
		pt_join_facts_end(an, j->rank.v[i], &to->got[i]);
	}
	an->r = to->r;
	err = err ?: pt_join_host_end(an, j);
	an->r = shown;
	put_windows(j, shown);
	return err;
}
