/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Steps without a marker. The trainer's main thread alternates between GPU
 * calls and gaps of host time between them. In a training loop one kind of
 * gap holds the obtaining of the next batch; "kind" is the pair of calls
 * around it. Hand-offs show which kind it is; where the trainer loads by
 * itself, the kind whose gaps stand out of the launch cadence is it.
 *
 * A step runs from the begin of one obtaining to the begin of the next.
 */
#include <errno.h>
#include <string.h>

#include "analysis/steps.h"

/* A sleep shorter than this is no evidence of waiting for a batch: a lock or
 * a scheduler hiccup (a context switch there and back costs about 3 us). */
#define MIN_BLOCK_NS 20000ull
/* Refills closer than this are one burst: a batch takes longer to receive. */
#define BURST_NS 100000ull

/* FNV-1a over the parts that tell one call site from another. */
static uint64_t mix(uint64_t h, uint64_t v)
{
	int i;

	for (i = 0; i < 8; i++) {
		h ^= (v >> (8 * i)) & 0xff;
		h *= 0x100000001b3ull;
	}
	return h;
}

uint64_t pt_call_site(const struct pt_gpu_call *c)
{
	uint64_t h = mix(0xcbf29ce484222325ull, c->api);

	if (c->cls == PT_API_LAUNCH || c->cls == PT_API_GRAPH_LAUNCH)
		h = mix(h, c->v[0]);
	else if (pt_call_is_copy(c))
		h = mix(h, c->v[2]);
	return h;
}

static int push_gap(struct gap_set *s, uint64_t begin, uint64_t end,
		    uint64_t prev, uint64_t next, bool cut)
{
	struct gap g = { .begin = begin, .end = end, .prev = prev,
			 .next = next, .key = mix(prev, next),
			 .mark_source = -1, .cut = cut };

	return end > begin ? pt_vec_push(&s->gaps, g) : 0;
}

static int build_gaps(struct pt_an *an, struct pt_trainer *t, struct gap_set *s)
{
	uint64_t end = an->t0; /* calls may nest: the latest end counts */
	uint64_t prev = 0, sym;
	size_t i;

	for (i = pt_gpu_after(t->proc, an->t0); i < t->proc->gpu.n; i++) {
		const struct pt_gpu_call *c = &t->proc->gpu.v[i];

		if (c->begin >= an->t1)
			break;
		if (c->tid != t->main->tid || !pt_call_is_step(c))
			continue;
		sym = pt_call_site(c);
		if (push_gap(s, end, c->begin, prev, sym, !prev))
			return -ENOMEM;
		end = pt_max64(end, c->end);
		prev = sym;
	}
	return prev ? push_gap(s, end, an->t1, prev, 0, true) : 0;
}

/* Index of the gap that holds `ts`, or -1. */
long pt_gap_at(const struct gap_set *s, uint64_t ts)
{
	size_t lo = 0, hi = s->gaps.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (s->gaps.v[mid].end <= ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < s->gaps.n && s->gaps.v[lo].begin <= ts ? (long)lo : -1;
}

/* Is it the hand-over of a batch: a socket exchange with a worker? */
static bool is_handover(const struct pt_trainer *t, const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_SOCK && iv->valid_wake &&
	       pt_is_worker(t, iv->waker_tgid, NULL);
}

static struct gap *gap_behind_start(struct gap_set *s, uint64_t ts)
{
	long k = pt_gap_at(s, ts);

	return k >= 0 && ts >= s->gaps.v[k].started ? &s->gaps.v[k] : NULL;
}

static void add_evidence(const struct pt_an *an, const struct pt_trainer *t,
			 struct gap_set *s)
{
	const struct pt_thread *th = t->main;
	size_t i;

	for (i = pt_iv_after(th, an->t0); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];
		bool sleep = pt_is_batch_wait(t, th, iv);
		/* it may have begun before the capture did */
		uint64_t b = pt_max64(iv->begin, an->t0);
		struct gap *g;

		if (b >= an->t1)
			break;
		if (!sleep && !is_handover(t, iv))
			continue;
		g = gap_behind_start(s, b);
		if (!g)
			continue;
		if (sleep && iv->ready >= b + MIN_BLOCK_NS)
			g->blocked += iv->ready - b;
		if (!g->first_evidence)
			g->first_evidence = b;
		g->last_evidence = iv->end;
	}
}

/*
 * A batch that is ready is taken without a sleep, but not unseen: the main
 * thread wakes a thread of the worker, which waits to be asked for its
 * descriptors, or for room in the pipe that the batch comes through.
 */
static bool is_taking(const struct pt_trainer *t, const struct pt_iv *iv)
{
	return (iv->wait == PT_WAIT_SOCK || iv->wait == PT_WAIT_PIPE_OUT) &&
	       iv->valid_wake && iv->waker_tid == t->main->tid;
}

static void add_taking(const struct pt_an *an, const struct pt_trainer *t,
		       struct gap_set *s)
{
	size_t w, j, i;

	for (w = 0; w < t->workers.n; w++) {
		const struct pt_proc *p = t->workers.v[w].proc;

		for (j = 0; j < p->threads.n; j++) {
			const struct pt_thread *th = p->threads.v[j];

			for (i = pt_iv_after(th, an->t0); i < th->iv.n; i++) {
				const struct pt_iv *iv = &th->iv.v[i];
				struct gap *g;

				if (iv->ready >= an->t1)
					break;
				if (!is_taking(t, iv))
					continue;
				g = gap_behind_start(s, iv->ready);
				if (g && (!g->first_evidence ||
					  iv->ready < g->first_evidence))
					g->first_evidence = iv->ready;
			}
		}
	}
}

static void add_marks(struct pt_trainer *t, struct gap_set *s)
{
	size_t i;

	for (i = 0; i < t->marks.n; i++) {
		struct gap *g = gap_behind_start(s, t->marks.v[i].ts);

		if (!g)
			continue;
		g->marks++;
		g->marks_after += g->first_evidence &&
				  t->marks.v[i].ts >= g->first_evidence &&
				  t->marks.v[i].ts - g->last_mark > BURST_NS;
		g->last_mark = t->marks.v[i].ts;
		g->mark_source = (int)t->marks.v[i].source;
	}
}

static struct gap_kind *kind_of(struct gap_set *s, const struct gap *g,
				bool make)
{
	struct gap_kind *k;

	HASH_FIND(hh, s->kinds, &g->key, sizeof(g->key), k);
	if (k || !make)
		return k;
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->key = g->key;
	k->prev = g->prev;
	k->next = g->next;
	HASH_ADD(hh, s->kinds, key, sizeof(k->key), k);
	if (!PT_HASHED(k)) {
		free(k);
		return NULL;
	}
	return k;
}

static int count_kinds(struct gap_set *s)
{
	double *len = malloc((s->gaps.n + 1) * sizeof(*len));
	double cadence;
	size_t i;

	if (!len)
		return -ENOMEM;
	for (i = 0; i < s->gaps.n; i++)
		len[i] = (double)(s->gaps.v[i].end - s->gaps.v[i].begin);
	/* What stands out: five times the usual gap between two launches. */
	cadence = s->gaps.n ? 5 * pt_median(len, s->gaps.n) : 0;
	free(len);
	for (i = 0; i < s->gaps.n; i++) {
		const struct gap *g = &s->gaps.v[i];
		struct gap_kind *k;
		uint64_t ns = g->end - g->begin;

		if (g->cut)
			continue;
		k = kind_of(s, g, true);
		if (!k)
			return -ENOMEM;
		k->n++;
		k->ns += ns;
		k->evident += g->blocked || g->marks;
		if ((double)ns >= cadence)
			k->big_ns += ns;
	}
	return 0;
}

/*
 * The kinds of gap that hold hand-offs. The one where most were seen, if its
 * two call sites differ (else it may be any pause between two equal
 * launches, and then only evident gaps count). And those that lead to the
 * same call from elsewhere, where a hand-off was seen in them too or where
 * they are the exception (a sync, or a loss read back, every N steps).
 */
static struct gap_kind *choose_kinds(struct gap_set *s)
{
	struct gap_kind *best = NULL, *k, *tmp;

	HASH_ITER(hh, s->kinds, k, tmp)
		if (!best || k->evident > best->evident)
			best = k;
	if (!best || best->evident < 2)
		return NULL;
	HASH_ITER(hh, s->kinds, k, tmp) {
		if (k == best)
			k->chosen = k->prev != k->next ||
				    k->evident * 2 >= k->n;
		else if (k->next == best->next && k->prev != k->next)
			k->chosen = k->evident * 2 >= k->n ||
				    k->n * 5 <= best->n;
	}
	return best;
}

/* Mark the gaps in which a batch was obtained; how many. */
static size_t pick_by_handoff(struct gap_set *s)
{
	struct gap_kind *best = choose_kinds(s), *k;
	size_t i, n = 0;

	if (!best)
		return 0;
	for (i = 0; i < s->gaps.n; i++) {
		struct gap *g = &s->gaps.v[i];

		k = g->cut ? NULL : kind_of(s, g, false);
		if (!k)
			g->data = g->blocked || g->marks || g->first_evidence;
		else /* a sleep that its kind hardly ever has is a lock's */
			g->data = k->chosen ||
				  (g->blocked &&
				   (k == best || k->evident * 5 >= k->n));
		n += g->data;
	}
	return n;
}

/* Where the trainer loads by itself: the kind whose gaps take the most time
 * beyond the launch cadence. */
static void pick_by_cadence(struct gap_set *s)
{
	struct gap_kind *best = NULL, *k, *tmp;
	size_t i;

	/* A loop of two calls has no cadence: half of its gaps are the loading. */
	HASH_ITER(hh, s->kinds, k, tmp)
		if (k->n >= 3 && (!best || k->big_ns > best->big_ns ||
				  (k->big_ns == best->big_ns &&
				   k->ns > best->ns)))
			best = k;
	if (!best)
		return;
	/* The same next call from elsewhere (after the sync that comes every
	 * N steps), with gaps of the same order. */
	HASH_ITER(hh, s->kinds, k, tmp)
		k->chosen = k == best ||
			    (k->next == best->next && k->prev != k->next &&
			     k->ns * best->n * 3 >= best->ns * k->n);
	for (i = 0; i < s->gaps.n; i++) {
		struct gap *g = &s->gaps.v[i];

		if (g->cut) {
			g->data = g->prev == best->prev || g->next == best->next;
			continue;
		}
		/* One call site can serve a whole step (the same kernel over
		 * and over): then only the gaps that stand out count. */
		k = kind_of(s, g, false);
		g->data = k && k->chosen &&
			  (best->prev != best->next ||
			   best->big_ns * 10 >= best->ns * 9 ||
			   (g->end - g->begin) * best->n >= best->ns);
	}
}

/* A loop may fetch several micro-batches before it computes: one refill each.
 * At an epoch's begin a loader hands out its whole prefetch before anything
 * can have come: those refills do not count. */
static uint32_t batches_in(const struct gap *g)
{
	uint32_t n = g->first_evidence ? g->marks_after : g->marks;

	return n ? n : 1;
}

static int push_step(struct pt_trainer *t, const struct gap_set *set,
		     const struct gap *g)
{
	struct pt_step s = { .worker = -1, .mark_source = -1,
			     .cause = PT_CAUSE_UNKNOWN };

	pt_bound_wait(t, set, g, &s);
	s.kind = g->key;
	s.blocked_ns = g->blocked;
	if (g->marks == 1)
		s.mark_source = g->mark_source;
	s.begin = s.wait_begin;
	s.partial = g->cut;
	s.cut_end = g->cut && !g->next;
	s.batches = batches_in(g);
	return pt_vec_push(&t->steps, s);
}

int pt_find_steps(struct pt_an *an, struct pt_trainer *t)
{
	struct gap_set s = { 0 };
	struct gap_kind *k, *tmp;
	size_t i, n;
	int err;

	err = build_gaps(an, t, &s);
	if (err || !s.gaps.n)
		goto out;
	pt_find_starts(an, t, &s);
	add_evidence(an, t, &s);
	add_taking(an, t, &s);
	add_marks(t, &s);
	err = count_kinds(&s);
	if (err)
		goto out;
	n = t->handoffs ? pick_by_handoff(&s) : 0;
	if (n < 2)
		pick_by_cadence(&s);
	err = pt_learn_leads(t, &s);
	for (i = 0; i < s.gaps.n && !err; i++)
		if (s.gaps.v[i].data)
			err = push_step(t, &s, &s.gaps.v[i]);
	if (!err)
		err = pt_join_steps(t);
	for (i = 0; i < t->steps.n; i++)
		t->steps.v[i].end = i + 1 < t->steps.n ?
					    t->steps.v[i + 1].begin : an->t1;
	if (t->steps.n)
		t->steps.v[t->steps.n - 1].partial = true;
out:
	HASH_ITER(hh, s.kinds, k, tmp) {
		HASH_DEL(s.kinds, k);
		free(k);
	}
	pt_vec_free(&s.gaps);
	return err;
}
