/* SPDX-License-Identifier: BSD-2-Clause */
/* Which single file took long: one visit of one thread to one file. */
#include <errno.h>
#include <math.h>

#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"

/* Away from a file for longer than this, it is another item. */
#define APART_NS (50 * NS_PER_MS)
/* A thread that changes its file less often than so many times does not show
 * by the file where an item ends: then each read is looked at by itself ... */
#define MIN_CHANGES 4
/* ... unless all that it was seen to read lies in so few of its batches: the
 * others come from files that are in memory, and no file holds them all. */
#define RARE_SHARE 0.5

/* Visits with waiting that are kept to be compared, of all threads: 12 MiB. */
#define MAX_VISITS (1u << 18)
/* A read's record is written a little after the wait that it was for. */
#define NEAR_NS NS_PER_MS

struct touch {
	uint64_t begin, end, inode;
	uint32_t dev;
	bool waited;
};
typedef PT_VEC(struct touch) touches;

struct search {
	struct pt_item *out;
	double slow_ms;
	pt_doubles ms;
	pt_spans slow;
	pt_visits waited;
	size_t threads, room; /* room: for more visits of this thread */
};

PT_ORDER(by_begin, struct touch, pt_cmp(x->begin, y->begin))

/* Reads, and blocking in them: where reads are not traced only the latter. */
static int collect(const struct pt_an *an, const struct pt_thread *th,
		   touches *out)
{
	pt_each_iv(iv, th, an->t0, an->t1) {
		struct touch x = { pt_max64(iv->begin, an->t0),
				   pt_min64(iv->ready, an->t1), iv->object,
				   iv->dev, true };

		if (iv->wait == PT_WAIT_DISK && iv->obj_kind == PT_OBJ_FILE &&
		    x.end > x.begin && pt_vec_push(out, x))
			return -ENOMEM;
	}
	pt_each(const struct pt_read, r, &th->reads) {
		/* of several calls the time in them, where the last ended */
		struct touch x = { r->end - pt_min64(r->busy, r->end - r->begin),
				   r->end, r->inode, r->dev, false };

		if (r->obj_kind == PT_OBJ_FILE && x.end > x.begin &&
		    r->end > an->t0 && r->end <= an->t1 && pt_vec_push(out, x))
			return -ENOMEM;
	}
	pt_vec_sort(out, by_begin);
	return 0;
}

static int take_visit(struct search *s, const struct pt_thread *th,
		      const struct touch *x, uint64_t ns)
{
	struct pt_span span = { x->begin, x->end };
	struct pt_visit visit = { x->begin, x->end, ns, x->inode, 0, x->dev };
	double ms = pt_ms(ns);

	if (pt_vec_push(&s->ms, ms))
		return -ENOMEM;
	if (x->waited && s->room) {
		s->room--;
		if (pt_vec_push(&s->waited, visit))
			return -ENOMEM;
	}
	if (ms > s->out->ms) {
		s->out->ms = ms;
		s->out->thread = th;
		s->out->inode = x->inode;
		s->out->dev = x->dev;
	}
	return ms >= s->slow_ms ? pt_vec_push(&s->slow, span) : 0;
}

static bool same_file(const struct touch *x, const struct touch *y)
{
	return x->inode == y->inode && x->dev == y->dev;
}

/* Does the thread show by its files where an item ends? */
static bool shows_items(const touches *v, const pt_times *done)
{
	size_t i, changes = 0, batches = 0, at, last = SIZE_MAX;

	for (i = 0; i < v->n; i++) {
		changes += i && !same_file(&v->v[i], &v->v[i - 1]);
		at = pt_times_until(done, v->v[i].begin);
		batches += at != last;
		last = at;
	}
	return changes >= MIN_CHANGES ||
	       (done->n >= PT_ITEM_VISITS &&
		(double)batches < RARE_SHARE * (double)(done->n + 1));
}

/* What the thread's visits from `first` on returned: each read belongs to the
 * last one that had begun when it ended. */
static void add_bytes(const struct pt_thread *th, pt_visits *v, size_t first)
{
	size_t i, k = first;

	for (i = 0; i < th->reads.n && first < v->n; i++) {
		const struct pt_read *r = &th->reads.v[i];
		struct pt_visit *x;

		while (k + 1 < v->n && v->v[k + 1].begin <= r->end + NEAR_NS)
			k++;
		x = &v->v[k];
		if (r->ret > 0 && r->obj_kind == PT_OBJ_FILE &&
		    r->inode == x->inode && r->dev == x->dev &&
		    x->begin <= r->end + NEAR_NS &&
		    r->begin <= x->end + APART_NS)
			x->bytes += (uint64_t)r->ret;
	}
}

/* `done`: when the thread had made its batches, which no item spans. */
static int visits_of(const struct pt_an *an, const struct pt_thread *th,
		     const pt_times *done, struct search *s)
{
	struct touch cur = { 0 };
	uint64_t ns = 0;
	touches v = { 0 };
	size_t first = s->waited.n;
	int err = collect(an, th, &v);
	bool shown = shows_items(&v, done);

	s->room = MAX_VISITS / (s->threads);

	pt_each_ok(const struct touch, x, &v, err) {
		if (ns && (!same_file(x, &cur) || x->begin > cur.end + APART_NS ||
			   (x->begin >= cur.end &&
			    (!shown || pt_times_until(done, x->begin) !=
					       pt_times_until(done, cur.begin))))) {
			err = take_visit(s, th, &cur, ns);
			ns = 0;
		}
		if (!ns)
			cur = *x;
		cur.waited |= x->waited;
		if (ns && x->end <= cur.end)
			continue;
		ns += x->end - (ns ? pt_max64(x->begin, cur.end) : x->begin);
		cur.end = x->end;
	}
	if (ns && !err)
		err = take_visit(s, th, &cur, ns);
	add_bytes(th, &s->waited, first);
	pt_vec_free(&v);
	return err;
}

/* A trainer that loads by itself has made a batch when its wait ends. */
static int own_visits(const struct pt_an *an, const struct pt_trainer *t,
		      struct search *s)
{
	pt_times done = { 0 };
	size_t i;
	int err = 0;

	for (i = 0; i < t->steps.n && !err; i++)
		err = pt_vec_push(&done, t->steps.v[i].wait_end);
	err = err ?: visits_of(an, t->main, &done, s);
	pt_vec_free(&done);
	return err;
}

static int share_of_waits(const struct pt_an *an, const struct pt_trainer *t,
			  pt_spans *slow, double *share)
{
	pt_spans waits = { 0 };
	int err = pt_wait_spans(an, t, &waits);
	uint64_t all = pt_spans_sum(&waits);

	pt_spans_tidy(slow, 0, UINT64_MAX);
	if (all)
		*share = (double)pt_spans_overlap(&waits, slow) / (double)all;
	pt_vec_free(&waits);
	return err;
}

int pt_slowest_item(struct pt_an *an, struct pt_trainer *t, struct pt_item *out)
{
	struct search s = { .out = out, .slow_ms = an->th->slow_item_ms,
			    .threads = t->workers.n ? t->workers.n : 1 };
	size_t i;
	int err = 0;

	*out = (struct pt_item){ 0 };
	if (!t->handoffs)
		err = own_visits(an, t, &s);
	for (i = 0; i < t->workers.n && !err; i++)
		err = visits_of(an, t->workers.v[i].main,
				&t->workers.v[i].done, &s);
	out->visits = s.ms.n;
	out->median_ms = s.ms.n >= PT_ITEM_VISITS ? pt_median(s.ms.v, s.ms.n) : NAN;
	err = err ?: share_of_waits(an, t, &s.slow, &out->slow_share);
	err = err ?: pt_compare_files(an, t, &s.waited, out);
	pt_vec_free(&s.ms);
	pt_vec_free(&s.slow);
	pt_vec_free(&s.waited);
	return err;
}
