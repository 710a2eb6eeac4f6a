/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/callers.h"
#include "analysis/waits/host.h"
#include "analysis/waits/look.h"

#include "model/callclass.h"
#include "model/syscalls.h"

/* A consumer that reads a log or a clock's file does not load: a call, and all of
 * a gap where calls are not seen. */
#define READ_MIN 512
#define READ_GAP_MIN 4096

struct finder {
	const struct pt_an *an;
	const struct pt_givers *givers;
	const pt_spans *writing;
	struct pt_host *out;
	struct pt_host_gap *gap;
};

/* ---- what a leg of the host's is ------------------------------------------------ */

static unsigned by_role(enum pt_giver_role role)
{
	switch (role) {
	case PT_GIVER_SUPPLIER:
		return PT_HOST_SUPPLIED;
	case PT_GIVER_RANK:
		return PT_HOST_COLLECTIVE;
	case PT_GIVER_CLIENT:
		return PT_HOST_CLIENT;
	case PT_GIVER_HELPER:
		return PT_HOST_HELPED;
	case PT_GIVER_PEER:
		return PT_HOST_PEER;
	case PT_GIVER_STORE:
		return PT_HOST_READING;
	default:
		return PT_HOST_NOTHING;
	}
}

static unsigned by_kind(const struct finder *k, const struct pt_thread *th,
			const struct pt_iv *iv)
{
	if (pt_waits_for_client(k->an, th, iv))
		return PT_HOST_CLIENT;
	if (pt_sock_feeds_nothing(&k->givers->feed, pt_wait_sock(k->an, iv)))
		return PT_HOST_PEER;
	switch (iv->wait) {
	case PT_WAIT_SLEEP:
		return PT_HOST_SLEEPING;
	case PT_WAIT_DISK:
	case PT_WAIT_FAULT:
		return k->givers->fed ? PT_HOST_OTHER : PT_HOST_READING;
	case PT_WAIT_DISK_WRITE:
		return PT_HOST_WRITING;
	case PT_WAIT_FUTEX:
	case PT_WAIT_SEM:
	case PT_WAIT_FLOCK:
	case PT_WAIT_INODE_LOCK:
		return PT_HOST_LOCK;
	case PT_WAIT_CHILD:
		return PT_HOST_CHILD;
	case PT_WAIT_SOCK:
	case PT_WAIT_POLL:
		if (pt_call_class(iv->syscall) & PT_C_PUT)
			return PT_HOST_PEER;
		return iv->obj_kind == PT_OBJ_SOCK ? PT_HOST_READING :
		       pt_timed_out(iv)		   ? PT_HOST_SLEEPING :
						     PT_HOST_OTHER;
	default:
		return PT_HOST_OTHER;
	}
}

/* What a helper does is done for the consumer, unless it sleeps by a timer (a server's event
 * loop waits for more requests to go with the first), or until somebody asks. */
static unsigned by_helper(const struct finder *k, const struct pt_leg *l)
{
	unsigned w = l->kind == PT_LEG_BLOCKED || (l->kind == PT_LEG_GIVEN && !l->who) ?
			     by_kind(k, l->th, l->iv) : PT_HOST_HELPED;

	return w == PT_HOST_SLEEPING || w == PT_HOST_CLIENT ? w : PT_HOST_HELPED;
}

static unsigned what_of(const struct finder *k, const struct pt_leg *l)
{
	unsigned w = PT_HOST_NOTHING;
	const struct pt_giver *x;

	if (!pt_is_actor(k->out->a, l->th))
		return by_helper(k, l);
	switch (l->kind) {
	case PT_LEG_RUN:
		return PT_HOST_COMPUTING;
	case PT_LEG_QUEUE:
		return PT_HOST_QUEUED;
	case PT_LEG_LOCK:
		return PT_HOST_LOCK;
	case PT_LEG_UNSEEN:
		return PT_HOST_OTHER;
	case PT_LEG_GIVEN:
		/* a call whose return is not watched waits for room in its queue */
		if (l->who && pt_is_driver_thread(l->who))
			return PT_HOST_LAUNCHING;
		x = pt_giver_of(k->givers, l->iv);
		w = by_role(x ? x->role : PT_GIVER_UNKNOWN);
		break;
	case PT_LEG_BLOCKED:
		w = pt_waits_in_vain(k->givers, l->th, l->iv, k->gap->g.end) ? PT_HOST_SLEEPING :
			by_role(pt_role_at(k->givers, l->iv));
		break;
	}
	if (w == PT_HOST_PEER && l->iv->wait == PT_WAIT_CHILD)
		return PT_HOST_CHILD;
	if (w != PT_HOST_NOTHING)
		return w;
	return by_kind(k, l->th, l->iv);
}

static int push(struct finder *k, uint64_t b, uint64_t e, const struct pt_iv *iv,
		unsigned w)
{
	const struct pt_giver *by = w == PT_HOST_PEER && iv ? pt_giver_of(k->givers, iv) : NULL;
	struct pt_host_piece x = { b, e, iv, (uint8_t)w,
				   w == PT_HOST_LOCK && iv &&
				   pt_is_plain_lock(k->givers->paths, k->gap->g.th, iv),
				   by && by->for_results };

	return e > b ? pt_vec_push(&k->out->pieces, x) : 0;
}

/* Calls of another thread of the actor in [b,e): the last of them ends then. */
static uint64_t launching_until(const struct pt_leg *l)
{
	const struct pt_proc *p = l->th->proc;
	uint64_t until = 0;

	pt_each_call(c, p, l->begin, l->end) {
		if (c->tid == l->th->tid && pt_call_is_step(c))
			until = pt_max64(pt_max64(c->end, c->begin + 1), until);
	}
	return pt_min64(until, l->end);
}

/* Legs come latest first. */
static int host_leg(void *ctx, const struct pt_leg *l)
{
	struct finder *k = ctx;
	unsigned w = what_of(k, l);
	uint64_t mid = l->begin;
	int err;

	if (l->th != k->gap->g.th && l->kind == PT_LEG_RUN)
		mid = pt_max64(mid, launching_until(l));
	err = push(k, mid, l->end, l->iv, w);
	return err ? err : push(k, l->begin, mid, NULL, PT_HOST_LAUNCHING);
}

/* ---- a gap -------------------------------------------------------------------- */

static void reverse(struct pt_host *h, size_t first)
{
	struct pt_host_piece *v = h->pieces.v, x;
	size_t a = first, b = h->pieces.n;

	for (; a + 1 < b; a++) {
		x = v[a];
		v[a] = v[--b];
		v[b] = x;
	}
}

/* It waits for the disk to make room for a file, which it then writes: open() of an old one
 * frees its blocks first. */
static bool makes_room(const struct finder *k, const struct pt_host_piece *x)
{
	size_t at = pt_spans_after(k->writing, x->begin);

	return x->what == PT_HOST_READING && x->iv && x->iv->wait == PT_WAIT_DISK &&
	       pt_call_class(x->iv->syscall) & PT_C_FILE && at < k->writing->n &&
	       k->writing->v[at].begin < k->gap->g.end;
}

/* What was written counts as that, whatever the thread did meanwhile. */
static void cut_writing(struct finder *k, size_t first)
{
	struct pt_host *h = k->out;
	size_t i, at, n = h->pieces.n;

	for (i = first; i < n; i++) {
		struct pt_host_piece *x = &h->pieces.v[i];
		const struct pt_span *s;

		if (makes_room(k, x))
			x->what = PT_HOST_WRITING;
		at = pt_spans_after(k->writing, x->begin);
		s = at < k->writing->n ? &k->writing->v[at] : NULL;
		if (!s || s->begin >= x->end || x->what == PT_HOST_SUPPLIED)
			continue;
		/* the most of it decides: pieces are short, or all of it */
		if (2 * pt_overlap(s->begin, s->end, x->begin, x->end) >
		    x->end - x->begin)
			x->what = PT_HOST_WRITING;
	}
}

static void sum_gap(const struct pt_host *h, struct pt_host_gap *g)
{
	size_t i;

	for (i = g->first; i < g->first + g->n; i++) {
		const struct pt_host_piece *x = &h->pieces.v[i];
		bool supplied = x->what == PT_HOST_SUPPLIED;

		if (x->what != PT_HOST_LAUNCHING)
			g->own_ns += x->end - x->begin;
		if (!supplied && x->what != PT_HOST_READING)
			continue;
		*(supplied ? &g->supplied_ns : &g->read_ns) += x->end - x->begin;
		if (!g->begins)
			g->begins = x->begin;
		g->ends = x->end;
	}
}

/* ---- reads that no call shows: by the accounting of the thread's switches -------------- */

/* It was counted at the end of sleep `i`, or at the window's end: what it had read since the
 * one before, and from when to when it ran meanwhile. */
struct counted {
	uint64_t bytes, begin, end;
};

static struct counted counted_at(const struct pt_thread *th, size_t i)
{
	const struct pt_iv *last = i ? &th->iv.v[i - 1] : NULL;
	const struct pt_iv *next = i < th->iv.n ? &th->iv.v[i] : NULL;
	uint64_t before = last ? last->rchar : th->t0.rchar;
	uint64_t after = next ? next->rchar : th->t1.rchar;

	return (struct counted){ after - pt_min64(before, after), last ? last->end : 0,
				 next ? next->begin : UINT64_MAX };
}

/* What was read while it ran once belongs to the gap that has most of that, not to each launch
 * between. */
static void give_bytes(struct pt_host *h)
{
	const struct pt_thread *th = NULL;
	struct pt_host_gap *owner = NULL;
	uint64_t most = 0, ns;
	size_t at = 0, i;

	pt_each(struct pt_host_gap, g, &h->gaps) {
		for (i = pt_iv_after(g->g.th, g->g.begin); i <= g->g.th->iv.n; i++) {
			struct counted x = counted_at(g->g.th, i);

			if (x.begin >= g->g.end)
				break;
			if (th != g->g.th || at != i) {
				owner = NULL;
				most = 0;
			}
			th = g->g.th;
			at = i;
			ns = pt_overlap(x.begin, x.end, g->g.begin, g->g.end);
			if (ns <= most)
				continue;
			if (owner)
				owner->read_bytes -= x.bytes;
			g->read_bytes += x.bytes;
			owner = g;
			most = ns;
		}
	}
}

/* Only where calls are not traced. The door to pages misses files in memory alone: there the
 * accounting is asked only of a consumer that has no other process to supply it, and whose
 * reads the door does not see. */
#define SEEN_PART 20
static void take_read_bytes(const struct finder *k)
{
	const struct pt_model *m = k->an->m;
	bool pages = m->host_known && m->host.read_door == PT_DOOR_PAGES, none;
	struct pt_host *h = k->out;
	size_t seen = 0;

	if (m->host_known && m->host.read_door != PT_DOOR_NONE && !pages)
		return;
	give_bytes(h);
	pt_each(const struct pt_host_gap, g, &h->gaps)
		seen += g->reads > 0;
	none = pages && (h->supplied || m->all_procs.n > 1 || seen * SEEN_PART > h->gaps.n);
	pt_each(struct pt_host_gap, g, &h->gaps)
		if (none || g->supplied_ns || g->read_bytes < READ_GAP_MIN ||
		    (pages && g->reads))
			g->read_bytes = 0;
}

static int take_gap(struct finder *k, size_t call, const struct pt_gap *g)
{
	struct pt_host *h = k->out;
	struct pt_host_gap x = { .g = *g, .call = call, .first = h->pieces.n };
	int err;

	k->gap = &x;
	err = pt_walk_host(k->an, k->givers->paths, h->a, k->givers, g, host_leg, k);
	if (err)
		return err;
	reverse(h, x.first);
	cut_writing(k, x.first);
	x.n = h->pieces.n - x.first;
	sum_gap(h, &x);
	h->supplied |= x.supplied_ns > 0;
	return pt_vec_push(&h->gaps, x);
}

/* The trainer's own reads of files. */
static void take_reads(const struct pt_thread *th, struct pt_host *h)
{
	size_t i, k = 0;

	for (i = 0; i < th->reads.n; i++) {
		const struct pt_read *r = &th->reads.v[i];
		struct pt_host_gap *g;

		if (r->obj_kind != PT_OBJ_FILE || r->ret < READ_MIN)
			continue;
		while (k < h->gaps.n && h->gaps.v[k].g.end <= r->begin)
			k++;
		if (k == h->gaps.n)
			return;
		g = &h->gaps.v[k];
		if (r->begin < g->g.begin)
			continue;
		if (!g->reads)
			g->read_first = r->begin;
		g->reads++;
		g->read_last = pt_max64(g->read_last, r->end);
	}
}

/* ---- what is asked between its reads ---------------------------------------------------- */

/* It brings bytes that are counted like those of files, and may go to a device. */
static bool brings_bytes(const struct finder *k, const struct pt_iv *iv)
{
	return iv->obj_kind == PT_OBJ_PIPE ||
	       (iv->obj_kind == PT_OBJ_SOCK &&
		!pt_sock_feeds_nothing(&k->givers->feed, pt_wait_sock(k->an, iv)));
}

/* A wait for an answer that is no part of a batch. */
static bool is_question(const struct finder *k, const struct pt_host_piece *x)
{
	return x->what == PT_HOST_PEER && x->iv && x->iv->obj_kind == PT_OBJ_SOCK &&
	       !brings_bytes(k, x->iv);
}

/* It read files before `from`, and behind `until`, as its calls show, or its accounting; else it
 * did not do so twice in the gap. */
static bool find_reads(const struct pt_host_gap *g, uint64_t *from, uint64_t *until)
{
	const struct pt_thread *th = g->g.th;
	size_t i;

	*from = g->reads ? g->read_first : UINT64_MAX;
	*until = g->reads ? g->read_last : 0;
	for (i = pt_iv_after(th, g->g.begin); i <= th->iv.n; i++) {
		struct counted x = counted_at(th, i);

		if (x.begin >= g->g.end)
			break;
		if (x.begin < g->g.begin || x.bytes < READ_GAP_MIN)
			continue;
		*from = pt_min64(*from, x.end);
		*until = pt_max64(*until, x.begin);
	}
	return *from < *until;
}

/* Who reads a file, asks somebody, and reads the next one, asks for what it reads: whether what it
 * has of it is still right, or where it lies. So does who asks the same before the first. */
static void take_questions(const struct finder *k, struct pt_host_gap *g)
{
	struct pt_host *h = k->out;
	struct pt_host_piece *x = h->pieces.v + g->first, *end = x + g->n, *y;
	uint64_t from, until;

	for (y = x; y < end; y++)
		if (y->iv && brings_bytes(k, y->iv))
			return;
	if (!find_reads(g, &from, &until))
		return;
	for (; x < end; x++) {
		if (!is_question(k, x) || x->begin < from || x->end > until)
			continue;
		x->what = PT_HOST_READING;
		for (y = h->pieces.v + g->first; y < x; y++)
			if (is_question(k, y) && y->iv->object == x->iv->object)
				y->what = PT_HOST_READING;
	}
	g->own_ns = g->supplied_ns = g->read_ns = g->begins = g->ends = 0;
	sum_gap(h, g);
}

static struct pt_host_gap *gap_at(struct pt_host *h, uint64_t ts)
{
	size_t lo = pt_bisect(h->gaps.n, i, h->gaps.v[i].g.end <= ts);

	return lo < h->gaps.n && h->gaps.v[lo].g.begin <= ts ? &h->gaps.v[lo] :
							       NULL;
}

uint64_t pt_gap_kind_at(struct pt_host *h, uint64_t ts)
{
	const struct pt_host_gap *x = gap_at(h, ts);

	return x && x->g.prev && x->g.next ? pt_gap_kind(&x->g) : 0;
}

/* Refills closer than this are one burst: a batch takes longer to receive. */
#define BURST_NS 100000ull

/* A loader that starts hands every worker work at once. */
#define START_BURST_NS (5 * NS_PER_MS)

static bool bursts(uint64_t senders, size_t concurrent)
{
	size_t n = 0;

	for (; senders; senders &= senders - 1)
		n++;
	return n >= 2 && n >= concurrent;
}

/* ... and all of them had rested until then: else two batches were taken at once. */
static bool all_rested(const struct pt_trainer *t, uint64_t ts)
{
	size_t i, k;

	for (i = 0; i < t->workers.n; i++) {
		const struct pt_thread *th = t->workers.v[i].main;
		const struct pt_iv *iv;

		if (t->workers.v[i].role == PT_ROLE_HELPER || th->first > ts ||
		    (th->exited && th->last <= ts))
			continue;
		k = pt_iv_after(th, ts);
		iv = k < th->iv.n ? &th->iv.v[k] : NULL;
		if (!iv || iv->begin > ts || !iv->valid_wake ||
		    iv->waker_tgid != t->proc->tgid ||
		    iv->ready > ts + START_BURST_NS)
			return false;
	}
	return true;
}

/* A part of the loader was made in a gap; one that may be for something else counts only where the
 * trainer waits for the loader, too. */
static void take_birth(struct pt_host *h, const struct pt_thread *th, bool maybe)
{
	struct pt_host_gap *g = th->parent && th->first ? gap_at(h, th->first) : NULL;

	if (g && (!maybe || g->supplied_ns))
		g->started = pt_max64(g->started, th->first);
}

static void take_births(struct pt_host *h, const struct pt_trainer *t)
{
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		const struct pt_worker *w = &t->workers.v[i];

		if (pt_is_started(t, w))
			take_birth(h, w->main,
				   w->role == PT_ROLE_HELPER || w->proc == t->proc);
	}
	for (i = 0; i < t->relays.n; i++)
		take_birth(h, t->relays.v[i], true);
}

void pt_host_take_asks(struct pt_host *h, const struct pt_trainer *t,
		       const pt_asks *asks)
{
	struct pt_host_gap *g, *last = NULL;
	uint64_t senders = 0, first = 0;
	size_t i;

	take_births(h, t);
	for (i = 0; i < asks->n; i++) {
		const struct pt_ask *x = &asks->v[i];

		g = gap_at(h, x->ts);
		if (!g || x->ts < g->started)
			continue;
		/* threads of one process wake each other for locks, too: that
		 * alone shows nothing */
		if (x->thread && !g->supplied_ns && !g->asked)
			continue;
		if (!g->asked)
			g->asked = x->ts;
		if (!x->item)
			continue;
		g->asks++;
		g->asks_after += g->begins && x->ts >= g->begins &&
				 x->ts > g->told + BURST_NS;
		g->told = x->ts;
		if (g != last) {
			senders = 0;
			first = x->ts;
		}
		last = g;
		if (x->ts - first <= START_BURST_NS)
			senders |= 1ull << (x->source & 63);
		g->burst = bursts(senders, t->concurrent) &&
			   all_rested(t, first);
	}
}

int pt_find_host(const struct pt_an *an, const struct pt_actor *a,
		 const struct pt_givers *givers, const pt_spans *writing,
		 struct pt_host *out)
{
	struct finder k = { .an = an, .givers = givers, .writing = writing,
			    .out = out };
	struct pt_gap g;
	size_t i;
	int err = 0;

	*out = (struct pt_host){ .a = a };
	for (i = 0; i <= a->calls.n && !err; i++)
		if (pt_gap_before(a, i, an->t0, an->t1, &g))
			err = take_gap(&k, i, &g);
	for (i = 0; i < a->threads.n && !err && !givers->fed; i++)
		take_reads(a->threads.v[i], out);
	if (!err && !givers->fed)
		take_read_bytes(&k);
	/* unless it reads too little for its batches, or others bring them */
	if (err || givers->fed || out->supplied ||
	    pt_feeds_too_little(&givers->feed, givers->lead_read))
		return err;
	pt_each(struct pt_host_gap, x, &out->gaps)
		take_questions(&k, x);
	return 0;
}

void pt_host_free(struct pt_host *h)
{
	pt_vec_free(&h->pieces);
	pt_vec_free(&h->gaps);
	pt_vec_free(&h->looks);
}
