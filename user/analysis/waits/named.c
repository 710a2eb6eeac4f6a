/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Evidence by name: the training thread's stack of Python is inside of the data iterator, or
 * it is above all lines that call the device (loop.c), and a copy to the device follows.
 *
 * What the loop calls last before its uploads, and what only copies there, sends a batch up and
 * makes none.
 *
 * And what the loop has called tells what the thread computes for: what it waits for its batches
 * in, or something else (fetching.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/lines/lines.h"
#include "analysis/waits/host.h"

/* The gap that the look lies in, all of it; *at: where to begin. */
static struct pt_host_gap *gap_of(struct pt_host *h, const struct pt_code_look *l, size_t *at)
{
	struct pt_host_gap *g;

	while (*at < h->gaps.n && h->gaps.v[*at].g.end <= l->begin)
		++*at;
	g = *at < h->gaps.n ? &h->gaps.v[*at] : NULL;
	return g && g->g.begin <= l->begin && g->g.end >= l->end ? g : NULL;
}

/* What the host is at when it is looked at; PT_HOST_NOTHING: it is not known. */
static unsigned what_at(const struct pt_host *h, const struct pt_host_gap *g,
			const struct pt_code_look *l)
{
	size_t i;

	for (i = g->first; i < g->first + g->n; i++) {
		const struct pt_host_piece *x = &h->pieces.v[i];

		if (x->end > l->begin)
			return x->begin <= l->begin ? x->what : PT_HOST_NOTHING;
	}
	return PT_HOST_NOTHING;
}

/* It waits for something that was not seen to go to a device (an iterator over results of
 * another kind), for another rank, or for somebody's request. */
static bool is_for_others(unsigned what)
{
	return what == PT_HOST_PEER || what == PT_HOST_CLIENT || what == PT_HOST_COLLECTIVE;
}

/* It computes, or waits for threads that do. */
static bool is_at_work(unsigned what)
{
	return what == PT_HOST_COMPUTING || what == PT_HOST_QUEUED || what == PT_HOST_HELPED ||
	       what == PT_HOST_READING;
}

/* Does it compute in what a loader calls: in the job's own code (a sampler, a function that
 * puts batches together), or in another part of the library than the one that the job calls
 * (a library's sampler)? */
static bool is_called_back(const struct pt_model *m, uint32_t id)
{
	const struct pt_code_line *l, *first, *entry = NULL;
	bool own = false; /* ... further in */
	struct pt_loop_stack x;
	size_t i;

	if (pt_takes_batch(m, id))
		return false;
	x.n = pt_model_unfold(m, id, x.id);
	first = x.n ? pt_stack_line(m, x.id[0]) : NULL;
	for (i = 0; i < x.n; i++) {
		l = pt_stack_line(m, x.id[i]);
		if (!l)
			return false;
		/* `entry` is what the job's own code called here */
		if (!l->library && entry && (own || strcmp(first->file, entry->file) != 0))
			return true;
		own |= !l->library;
		entry = l->library ? l : NULL;
	}
	return false;
}

/* In the C library. */
static bool copies_bytes(const struct pt_model *m, const struct pt_code_look *l)
{
	const struct pt_code_line *leaf = pt_stack_line(m, l->leaf);

	return leaf && leaf->native && !strncmp(leaf->name, "libc.", 5);
}

/* ... in a call of it that receives from a socket. */
static bool receives(const struct pt_model *m, const struct pt_code_look *l)
{
	uint32_t id = copies_bytes(m, l) ? pt_model_function(m, l) : 0;
	const struct pt_code_line *f = id ? pt_model_line(m, id) : NULL;

	/* which of its names a function is known by, recv or __recv, is the library's */
	return f && f->name && !strncmp(f->name + strspn(f->name, "_"), "recv", 4);
}

/* ... or in Python's own way of calling C. */
static bool copies_or_calls(const struct pt_model *m, const struct pt_code_look *l)
{
	const struct pt_code_line *leaf = pt_stack_line(m, l->leaf);

	return copies_bytes(m, l) || (leaf && leaf->native && !strncmp(leaf->name, "_ctypes.", 8));
}

/* Does it compute in the job's own function, or in a library that this called for more than to
 * copy bytes (the C library's)? Then it makes the batch of what it receives. */
static bool is_own_work(const struct pt_model *m, const struct pt_code_look *l)
{
	const struct pt_code_line *in = pt_stack_line(m, l->stack);

	return in && !in->library && !in->native && !copies_bytes(m, l);
}

/* Nobody copies a batch more slowly than 100 MB/s, its first touch and a call or two aside. */
#define COPY_NS_PER_BYTE 10
#define COPY_BATCH_NS (2 * NS_PER_MS)

/* What goes up, bytes, in so many calls. 0: the size of one is not known, or nothing does. */
static double bytes_up(const struct pt_an *an, const struct pt_proc *p, uint64_t *calls)
{
	double bytes = 0;

	*calls = 0;
	pt_each_call(c, p, an->t0, an->t1) {
		uint64_t up = pt_uploads(c);

		if (up == 1)
			return 0;
		bytes += (double)up;
		*calls += up > 0;
	}
	return bytes;
}

/* Does the consumer take longer over batches that are there than what goes up can be copied in? */
static bool copies_more(const struct pt_an *an, const struct pt_trainer *t)
{
	uint64_t calls;
	double took = 0, bytes = bytes_up(an, t->proc, &calls);

	pt_each(const struct pt_fetch, w, &t->waits)
		took += (double)w->handover_ns;
	return bytes > 0 && took > COPY_BATCH_NS * (double)t->waits.n + COPY_NS_PER_BYTE * bytes;
}

/* All that is seen of it is one line of the job's own, which calls no library but the C library:
 * a loop that spins until something comes looks so. A majority vote in one pass. */
static void vote_spin(const struct pt_model *m, struct pt_host *h, const struct pt_code_look *l)
{
	const struct pt_code_line *in = pt_stack_line(m, l->stack), *leaf = pt_stack_line(m, l->leaf);
	bool bare = in && !in->library &&
		    !(leaf && leaf->native && strncmp(leaf->name, "libc.", 5) != 0);

	h->above++;
	if (bare && (!h->one_votes || pt_same_line(in, h->one_line))) {
		h->one_line = in;
		h->one_votes++;
	} else if (h->one_votes) {
		h->one_votes--;
	}
}

/* So many looks, and of all so many: a thread that was woken is looked at more often than one
 * that goes on, and one that only takes batches has none of them. */
#define COMPUTES_MIN 4
#define COMPUTES_PART 0.4

void pt_find_computing(const struct pt_an *an, struct pt_trainer *t)
{
	const struct pt_thread *th = t->main;
	size_t i, hint = 0, all = 0, back = 0;
	bool more = copies_more(an, t);

	for (i = 0; i < th->looks.n; i++) {
		const struct pt_code_look *l = &th->looks.v[i];

		if (!l->running || !pt_waits_in(t, &hint, l->begin, l->begin + 1))
			continue;
		all++;
		back += is_called_back(an->m, l->stack) || is_own_work(an->m, l) ||
			(more && pt_stack_line(an->m, l->stack) && !receives(an->m, l) &&
			 !pt_takes_batch(an->m, l->stack));
	}
	t->computes_too = back >= COMPUTES_MIN && (double)back >= COMPUTES_PART * (double)all;
	if (!t->computes_too)
		return;
	for (i = 0; i < t->waits.n; i++) {
		t->waits.v[i].own_cpu_ns += t->waits.v[i].handover_ns;
		t->waits.v[i].handover_ns = 0;
	}
}

/* Of what it runs outside of data waits and calls, so much in a call that receives. */
#define RECEIVES_PART 0.1

void pt_find_receiving(const struct pt_an *an, struct pt_trainer *t)
{
	const struct pt_thread *th = t->main;
	size_t i, hint = 0, all = 0, received = 0;

	for (i = 0; i < th->looks.n; i++) {
		const struct pt_code_look *l = &th->looks.v[i];

		if (!l->running || pt_waits_in(t, &hint, l->begin, l->begin + 1) ||
		    pt_inside_call(t->proc, th->tid, l->begin))
			continue;
		all++;
		received += receives(an->m, l);
	}
	t->receives = received >= COMPUTES_MIN && (double)received >= RECEIVES_PART * (double)all;
}

/* Behind the gap a batch goes up before anything is launched, by whichever thread. */
static bool uploads_behind(const struct pt_host *h, const struct pt_host_gap *g)
{
	const struct pt_proc *p = h->a->proc;

	pt_each_call(c, p, g->g.begin, UINT64_MAX) {
		if (pt_uploads(c))
			return true;
		if (c->begin >= g->g.end && (pt_call_is_launch(c) || pt_call_is_sync(c)))
			return false;
	}
	return false;
}

/* What came down from the device goes to somebody who answers, and then something goes up: what is
 * computed in between is for that exchange. */
static bool is_exchange(const struct pt_host *h, const struct pt_host_gap *g)
{
	return g->call && h->a->calls.v[g->call - 1].results && pt_gap_has(h, g, PT_HOST_PEER);
}

/* A loop that sleeps for most of a gap polls: what for is not seen. And where it waits for
 * others for so much of one, what it computes there may be for these. */
#define OTHERS_PART 10

/* May what is computed in the gap be a batch? */
static bool may_load(const struct pt_host *h, const struct pt_host_gap *g)
{
	uint64_t naps = 0, others = 0, ns;
	size_t i;

	for (i = g->first; i < g->first + g->n; i++) {
		const struct pt_host_piece *x = &h->pieces.v[i];

		ns = x->end - x->begin;
		naps += x->what == PT_HOST_SLEEPING ? ns : 0;
		if (!x->for_results)
			others += is_for_others(x->what) || x->what == PT_HOST_CHILD ? ns : 0;
	}
	ns = g->g.end - g->g.begin;
	return 2 * naps <= ns && OTHERS_PART * others <= ns && !is_exchange(h, g);
}

/* So many looks above its calls tell; so much of them, as a vote has it, is one line; and
 * another thread runs so much of the time that it may make what is waited for. */
#define SPIN_LOOKS 4
#define SPIN_PART 0.6
#define SPIN_OTHERS 0.05

bool pt_may_spin(const struct pt_an *an, const struct pt_host *h)
{
	size_t i;

	if (h->above < SPIN_LOOKS || (double)h->one_votes < SPIN_PART * (double)h->above)
		return false;
	for (i = 0; i < an->m->all_threads.n; i++) {
		const struct pt_thread *th = an->m->all_threads.v[i];

		if (th != h->a->lead && !pt_is_driver_thread(th) &&
		    (double)pt_run_ns(an, th) >= SPIN_OTHERS * (double)(an->t1 - an->t0))
			return true;
	}
	return false;
}

static void note(struct pt_host_gap *g, const struct pt_code_look *l, double weight, bool named)
{
	g->looks++;
	g->looked += weight;
	if (!named)
		return;
	g->named += weight;
	g->named_at += weight * (double)(l->begin - g->g.begin) /
			       (double)(g->g.end - g->g.begin);
}

/* ---- what sends batches up -------------------------------------------------------------- */

/* The looks that came last before uploads: half of them in a function that sends batches up, or as
 * many as LAST_ALIKE, the very last ones, at one place, tell. */
#define LAST_LOOKS 16
#define LAST_ALIKE 4
/* Sending a batch up from memory takes no longer: two copies of 1 GB/s, its first touch among them,
 * and a few calls. What takes longer makes something of it, unless all that it does is to copy. */
#define STAGE_NS_PER_BYTE 2
#define STAGE_BATCH_NS (NS_PER_MS / 2)

struct last_looks {
	struct {
		uint64_t ns; /* before the upload */
		const struct pt_told *told;
	} v[LAST_LOOKS]; /* the last one first */
	size_t n;
};

static void add_last(struct last_looks *k, uint64_t ns, const struct pt_told *told)
{
	size_t i = k->n < LAST_LOOKS ? k->n++ : LAST_LOOKS;

	for (; i > 0 && k->v[i - 1].ns > ns; i--)
		if (i < LAST_LOOKS)
			k->v[i] = k->v[i - 1];
	if (i < LAST_LOOKS) {
		k->v[i].ns = ns;
		k->v[i].told = told;
	}
}

/* In the same function that sends up; or the loop calls the same one in the same line. */
static bool is_there(const struct pt_told *x, const struct pt_told *sender)
{
	if (!x->at.line)
		return false;
	return sender->sends ? x->sends && pt_same_function(x->at.line, sender->at.line) :
			       pt_same_loop_place(&x->at, &sender->at);
}

/* NULL: there is none. */
static const struct pt_told *last_of(const struct last_looks *k)
{
	size_t i, j, n;

	for (i = 0; i < k->n; i++) {
		for (n = 0, j = 0; k->v[i].told->sends && j < k->n; j++)
			n += is_there(k->v[j].told, k->v[i].told);
		if (n >= LAST_ALIKE && 2 * n >= k->n)
			return k->v[i].told;
	}
	for (i = 0; i < LAST_ALIKE; i++)
		if (i >= k->n || !k->v[i].told->at.called ||
		    !is_there(k->v[i].told, k->v[0].told))
			return NULL;
	return k->v[0].told;
}

/* What the loop does last before uploads, if that mostly copies bytes: it sends them up. NULL:
 * there is no such. */
static const struct pt_told *find_sender(const struct pt_an *an, struct pt_loop *loop,
					 struct pt_host *h)
{
	const struct pt_thread *th = h->a->lead;
	const struct pt_host_gap *g, *asked = NULL;
	const struct pt_told *x, *sender;
	size_t i, at = 0, all = 0, copies = 0;
	struct last_looks last = { 0 };
	bool up = false;

	for (i = 0; i < th->looks.n; i++) {
		const struct pt_code_look *l = &th->looks.v[i];

		g = gap_of(h, l, &at);
		x = g && l->running ? pt_loop_tell(loop, l->stack) : NULL;
		if (!x)
			continue;
		if (g != asked)
			up = uploads_behind(h, g);
		asked = g;
		if (up)
			add_last(&last, g->g.end - l->begin, x);
	}
	sender = last_of(&last);
	for (i = 0; i < th->looks.n && sender; i++) {
		x = th->looks.v[i].running ? pt_loop_tell(loop, th->looks.v[i].stack) : NULL;
		if (!x || !is_there(x, sender))
			continue;
		all++;
		copies += copies_or_calls(an->m, &th->looks.v[i]);
	}
	return 2 * copies >= all ? sender : NULL;
}

struct named {
	const struct pt_model *m;
	const struct pt_told *sender;
	bool staged; /* see is_staged() */
	const struct pt_host_gap *asked; /* the gap of the last look; uploads_behind(), may_load() */
	bool up, loads;
};

static bool sends_up(const struct named *k, const struct pt_told *x)
{
	return k->sender && is_there(x, k->sender);
}

static int add_look(struct named *k, struct pt_host *h, const struct pt_told *told,
		    const struct pt_code_look *l, double weight, size_t *at)
{
	struct pt_host_gap *g = gap_of(h, l, at);
	struct pt_host_look x = { .begin = l->begin, .gap = *at, .running = l->running };
	unsigned what;
	bool above;

	if (!g || !told)
		return 0;
	x.at = told->at;
	x.takes = told->takes;
	x.gives = told->gives;
	what = what_at(h, g, l);
	x.supplied = what == PT_HOST_SUPPLIED;
	if (k->asked != g) {
		k->asked = g;
		k->up = !g->g.next || uploads_behind(h, g); /* or may yet */
		k->loads = k->up && may_load(h, g);
	}
	x.staged = k->staged && sends_up(k, told);
	x.above = above = told->above && is_at_work(what) && k->loads && !x.staged;
	if (above && !told->named)
		vote_spin(k->m, h, l);
	if (is_for_others(what)) {
		h->others++;
		h->others_above += told->above && k->up;
	}
	note(g, l, weight, (told->named && !is_for_others(what)) || above);
	return pt_vec_push(&h->looks, x) ? -ENOMEM : 0;
}

/* Does what sends batches up take no longer than copying these there takes? It makes none, then.
 * `weight`: of each look. */
static bool is_staged(const struct pt_an *an, const struct named *k, struct pt_loop *loop,
		      const struct pt_thread *th, const double *weight)
{
	double all = 0, took = 0, each = 1, bytes;
	double per_byte = k->sender && k->sender->sends ? COPY_NS_PER_BYTE : STAGE_NS_PER_BYTE;
	uint64_t calls;
	size_t i;

	for (i = 0; i < th->looks.n; i++) {
		const struct pt_told *x = pt_loop_tell(loop, th->looks.v[i].stack);

		all += weight[i];
		took += x && sends_up(k, x) && th->looks.v[i].running ? weight[i] : 0;
	}
	if (!pt_is_sampled(th) && all > 0) /* looks that come evenly */
		each = (double)(an->t1 - an->t0) / all;
	bytes = bytes_up(an, th->proc, &calls);
	return bytes > 0 && took * each <= STAGE_BATCH_NS * (double)calls + per_byte * bytes;
}

int pt_find_named(const struct pt_an *an, struct pt_loop *loop, struct pt_host *h)
{
	const struct pt_thread *th = h->a->lead;
	struct named k = { .m = an->m };
	double *weight;
	size_t i, at = 0;
	int err;

	if (!loop->told)
		return 0;
	err = pt_weigh_looks(an, th, &weight);
	if (!err) {
		k.sender = find_sender(an, loop, h);
		k.staged = is_staged(an, &k, loop, th, weight);
	}
	for (i = 0; !err && i < th->looks.n; i++) {
		const struct pt_code_look *l = &th->looks.v[i];

		err = add_look(&k, h, pt_loop_tell(loop, l->stack), l, weight[i], &at);
	}
	free(weight);
	return err;
}
