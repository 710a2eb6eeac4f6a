/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Evidence by name: the training thread's stack of Python is inside of the data iterator.
 *
 * A loop that trains calls the device and fetches its next batch, both from one function. So
 * a stack that was looked at between two calls is compared with those that were met inside of
 * calls: the innermost function that both have is the loop's. Where that function's
 * instruction fetches an item (for batch in ...), or what it called is a generator or a
 * __next__(), the thread is inside of the iterator, whatever that is and however deep. What
 * else the loop calls (metrics, a logger, a checkpoint) is not.
 *
 * Or it is above all lines from which that function, or one that it called, calls the device,
 * and a copy to the device follows: what comes before a turn's first call makes its batch, what
 * comes behind the last one works on results, or writes a log.
 *
 * And what the loop has called tells what the thread computes for: what it waits for its batches
 * in, or something else (fetching.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/lines/lines.h"
#include "analysis/waits/host.h"

#define STACKS_MAX 64 /* different ones inside of calls */

/* The innermost first. */
struct stack {
	uint32_t id[PT_STACK_DEPTH];
	size_t n;
};

struct named {
	const struct pt_model *m;
	struct stack calls[STACKS_MAX]; /* met inside of calls of the device */
	size_t n;
	const struct pt_host_gap *asked; /* the gap of the last look, and may_load() of it */
	bool loads;
};

static const struct pt_code_line *line_of(const struct pt_model *m, uint32_t stack)
{
	return pt_model_line(m, pt_model_stack(m, stack)->line);
}

/* The function that is `i` behind the outermost one. */
static const struct pt_code_stack *function(const struct pt_model *m, const struct stack *s,
					    size_t i)
{
	return i < s->n ? pt_model_stack(m, s->id[s->n - 1 - i]) : NULL;
}

static bool have_both(const struct pt_model *m, const struct stack *x, const struct stack *c,
		      size_t i)
{
	const struct pt_code_stack *a = function(m, x, i), *b = function(m, c, i);

	return a && b && pt_same_function(pt_model_line(m, a->line), pt_model_line(m, b->line));
}

/* So many functions they have in common, the outermost first. */
static size_t in_common(const struct pt_model *m, const struct stack *x, const struct stack *c)
{
	size_t n = 0;

	while (have_both(m, x, c, n))
		n++;
	return n;
}

/* What max(), sum() or join() go through, written where it is needed: no iterator of a loop's,
 * unless that fetches from it. */
static bool is_expression(const struct pt_code_line *l)
{
	const char *dot = l ? strrchr(l->name, '.') : NULL;

	return l && !strcmp(dot ? dot + 1 : l->name, "<genexpr>");
}

/* Is `x` in the iterator of the innermost of the `n` functions that it has in common with a
 * call? */
static bool in_iterator(const struct pt_model *m, const struct stack *x, size_t n)
{
	const struct pt_code_stack *loop = n ? function(m, x, n - 1) : NULL;
	const struct pt_code_stack *called = function(m, x, n);

	return loop && (loop->flags & PT_PYSTACK_ITER ||
			(called && called->flags & PT_PYSTACK_NEXT &&
			 !is_expression(pt_model_line(m, called->line))));
}

static bool is_named(const struct named *k, const struct stack *x, const size_t *common)
{
	size_t i;

	for (i = 0; i < k->n; i++)
		if (in_iterator(k->m, x, common[i]))
			return true;
	return false;
}

static const struct pt_code_line *line_at(const struct pt_model *m, const struct stack *s,
					  size_t i)
{
	const struct pt_code_stack *f = function(m, s, i);

	return f ? pt_model_line(m, f->line) : NULL;
}

/* Where it is in the loop, which is the innermost function that it has in common with any
 * call; nothing where the loop itself calls the device there. */
static struct pt_loop_place loop_place(const struct named *k, const struct stack *x,
				       const size_t *common)
{
	struct pt_loop_place at = { 0 };
	size_t i, n = 0;

	for (i = 0; i < k->n; i++)
		n = pt_max64(n, common[i]);
	if (!n)
		return at;
	at.line = line_at(k->m, x, n - 1);
	at.called = line_at(k->m, x, n);
	for (i = 0; i < k->n && !at.called; i++)
		if (!function(k->m, &k->calls[i], n) &&
		    pt_same_line(at.line, line_at(k->m, &k->calls[i], n - 1)))
			at.line = NULL;
	return at;
}

/* Is it above all lines of its function, the innermost that it has in common with any call,
 * that call the device? */
static bool is_above_calls(const struct named *k, const struct stack *x, const size_t *common)
{
	const struct pt_code_line *at, *c;
	size_t i, n = 0;
	bool any = false;

	for (i = 0; i < k->n; i++)
		n = pt_max64(n, common[i]);
	at = n ? line_at(k->m, x, n - 1) : NULL;
	if (!at || !at->line || at->library)
		return false;
	for (i = 0; i < k->n; i++) {
		c = common[i] == n ? line_at(k->m, &k->calls[i], n - 1) : NULL;
		if (!c)
			continue;
		if (c->line <= at->line)
			return false;
		any = true;
	}
	return any;
}

static void add_call(struct named *k, uint32_t id)
{
	size_t i;

	for (i = 0; i < k->n; i++)
		if (k->calls[i].id[0] == id)
			return;
	if (k->n < STACKS_MAX && pt_model_stack(k->m, id)) {
		k->calls[k->n].n = pt_model_unfold(k->m, id, k->calls[k->n].id);
		k->n++;
	}
}

/* How many looks at a line, as the innermost one, were inside of calls, and between them. */
struct line_looks {
	uint32_t inside, between;
};
/* A look shortly behind a launch may be out of it already: a line at which so many more were
 * between calls makes none. */
#define BETWEEN_MORE 4

static uint32_t innermost(const struct pt_model *m, const struct pt_code_look *l)
{
	const struct pt_code_stack *s = pt_model_stack(m, l->stack);

	return s && s->line <= m->code_lines.n ? s->line : 0;
}

static bool in_call(const struct pt_thread *th, const struct pt_code_look *l)
{
	return pt_inside_call(th->proc, th->tid, l->begin) &&
	       pt_inside_call(th->proc, th->tid, l->end);
}

/* It runs in the driver's library, or in the runtime's. */
static bool in_driver(const struct pt_model *m, const struct pt_code_look *l)
{
	const struct pt_code_line *leaf = line_of(m, l->leaf);

	return leaf && leaf->native && !strncmp(leaf->name, "libcuda", 7);
}

/* The stacks that were met inside of calls. A loop that never waits for its device has launches
 * only, whose returns are not watched: there the libraries tell. 0 or -ENOMEM. */
static int find_calls(struct named *k, const struct pt_thread *th)
{
	struct line_looks *at = calloc(k->m->code_lines.n + 1, sizeof(*at));
	size_t i, inside;

	if (!at)
		return -ENOMEM;
	pt_each(const struct pt_code_look, l, &th->looks)
		(*(in_call(th, l) ? &at[innermost(k->m, l)].inside :
				    &at[innermost(k->m, l)].between))++;
	pt_each(const struct pt_code_look, l, &th->looks) {
		const struct line_looks *x = &at[innermost(k->m, l)];

		if (x->inside * BETWEEN_MORE >= x->between && in_call(th, l))
			add_call(k, l->stack);
	}
	inside = k->n;
	for (i = 0; !inside && i < th->looks.n; i++)
		if (in_driver(k->m, &th->looks.v[i]))
			add_call(k, th->looks.v[i].stack);
	free(at);
	return 0;
}

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

/* Python's own ways of handing over: whoever called them takes what others made, or hands
 * out what others are to take. */
static bool hands_over(const struct pt_code_line *l)
{
	return strstr(l->file, "/multiprocessing/") || strstr(l->file, "/concurrent/futures/") ||
	       strstr(l->file, "/queue.py");
}

static const struct pt_code_line *handing_over(const struct pt_model *m, uint32_t stack)
{
	struct stack x;
	size_t i;

	x.n = pt_model_unfold(m, stack, x.id);
	for (i = 0; i < x.n; i++) {
		const struct pt_code_line *l = pt_model_line(m, pt_model_stack(m, x.id[i])->line);

		if (!l || !l->library)
			return NULL;
		if (hands_over(l))
			return l;
	}
	return NULL;
}

bool pt_takes_batch(const struct pt_model *m, uint32_t stack)
{
	return handing_over(m, stack);
}

bool pt_hands_out(const struct pt_model *m, uint32_t stack)
{
	static const char *const names[] = { "put", "join", "send", "send_bytes", "_send",
					     "_send_bytes" };
	const struct pt_code_line *l = handing_over(m, stack);
	const char *dot = l ? strrchr(l->name, '.') : NULL;
	size_t i;

	/* join() of a queue waits until all is taken; that of a process does not */
	if (!l || !(strstr(l->file, "queue.py") || strstr(l->file, "queues.py") ||
		    strstr(l->file, "connection.py")))
		return false;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(dot ? dot + 1 : l->name, names[i]))
			return true;
	return false;
}

bool pt_moves_batch(const struct pt_model *m, uint32_t stack)
{
	static const char *const files[] = { "reduction.py", "connection.py", "queues.py" };
	const struct pt_code_line *l = line_of(m, stack);
	const char *name = l && l->library && hands_over(l) ? strrchr(l->file, '/') : NULL;
	size_t i;

	for (i = 0; name && i < sizeof(files) / sizeof(files[0]); i++)
		if (!strcmp(name + 1, files[i]))
			return true;
	return false;
}

/* Does it compute in what a loader calls: in the job's own code (a sampler, a function that
 * puts batches together), or in another part of the library than the one that the job calls
 * (a library's sampler)? */
static bool is_called_back(const struct pt_model *m, uint32_t id)
{
	const struct pt_code_line *l, *first, *entry = NULL;
	bool own = false; /* ... further in */
	struct stack x;
	size_t i;

	if (pt_takes_batch(m, id))
		return false;
	x.n = pt_model_unfold(m, id, x.id);
	first = x.n ? line_of(m, x.id[0]) : NULL;
	for (i = 0; i < x.n; i++) {
		l = line_of(m, x.id[i]);
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

/* Does it compute in the job's own function, or in a library that this called for more than to
 * copy bytes (the C library's)? Then it makes the batch of what it receives. */
static bool is_own_work(const struct pt_model *m, const struct pt_code_look *l)
{
	const struct pt_code_line *in = line_of(m, l->stack), *leaf = line_of(m, l->leaf);

	return in && !in->library && !in->native &&
	       !(leaf && leaf->native && !strncmp(leaf->name, "libc.", 5));
}

/* Nobody copies a batch more slowly than 100 MB/s, its first touch and a call or two aside. */
#define COPY_NS_PER_BYTE 10
#define COPY_BATCH_NS (2 * NS_PER_MS)

/* Does the consumer take longer over batches that are there than what goes up can be copied in?
 * Not told where the size of an upload is not known. */
static bool copies_more(const struct pt_an *an, const struct pt_trainer *t)
{
	double took = 0, bytes = 0;

	pt_each(const struct pt_fetch, w, &t->waits)
		took += (double)w->handover_ns;
	pt_each_call(c, t->proc, an->t0, an->t1) {
		uint64_t up = pt_uploads(c);

		if (up == 1)
			return false;
		bytes += (double)up;
	}
	return bytes > 0 && took > COPY_BATCH_NS * (double)t->waits.n + COPY_NS_PER_BYTE * bytes;
}

/* All that is seen of it is one line of the job's own, which calls no library but the C library:
 * a loop that spins until something comes looks so. A majority vote in one pass. */
static void vote_spin(const struct pt_model *m, struct pt_host *h, const struct pt_code_look *l)
{
	const struct pt_code_line *in = line_of(m, l->stack), *leaf = line_of(m, l->leaf);
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
			(more && line_of(an->m, l->stack) && !pt_takes_batch(an->m, l->stack));
	}
	t->computes_too = back >= COMPUTES_MIN && (double)back >= COMPUTES_PART * (double)all;
	if (!t->computes_too)
		return;
	for (i = 0; i < t->waits.n; i++) {
		t->waits.v[i].own_cpu_ns += t->waits.v[i].handover_ns;
		t->waits.v[i].handover_ns = 0;
	}
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
		others += is_for_others(x->what) || x->what == PT_HOST_CHILD ? ns : 0;
	}
	ns = g->g.end - g->g.begin;
	return 2 * naps <= ns && OTHERS_PART * others <= ns && uploads_behind(h, g);
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

/* What a stack tells, asked once. */
struct told {
	bool known, named, above, takes, gives;
	struct pt_loop_place at;
};

static const struct told *tell(const struct named *k, struct told *v, uint32_t id)
{
	size_t i, common[STACKS_MAX]; /* with each call */
	struct stack x;

	if (v[id].known)
		return &v[id];
	x.n = pt_model_unfold(k->m, id, x.id);
	for (i = 0; i < k->n; i++)
		common[i] = in_common(k->m, &x, &k->calls[i]);
	v[id] = (struct told){ .known = true, .named = is_named(k, &x, common),
			       .above = is_above_calls(k, &x, common),
			       .takes = pt_takes_batch(k->m, id),
			       .gives = pt_hands_out(k->m, id),
			       .at = loop_place(k, &x, common) };
	return &v[id];
}

static int add_look(struct named *k, struct pt_host *h, struct told *v,
		    const struct pt_code_look *l, double weight, size_t *at)
{
	struct pt_host_gap *g = gap_of(h, l, at);
	struct pt_host_look x = { .begin = l->begin, .gap = *at, .running = l->running };
	const struct told *told;
	unsigned what;
	bool above;

	if (!g || l->stack > k->m->code_stacks.n)
		return 0;
	told = tell(k, v, l->stack);
	x.at = told->at;
	x.takes = told->takes;
	x.gives = told->gives;
	what = what_at(h, g, l);
	x.supplied = what == PT_HOST_SUPPLIED;
	if (k->asked != g) {
		k->asked = g;
		k->loads = may_load(h, g);
	}
	x.above = above = told->above && is_at_work(what) && k->loads;
	if (above && !told->named)
		vote_spin(k->m, h, l);
	if (is_for_others(what)) {
		h->others++;
		h->others_above += told->above && uploads_behind(h, g);
	}
	note(g, l, weight, (told->named && !is_for_others(what)) || above);
	return pt_vec_push(&h->looks, x) ? -ENOMEM : 0;
}

int pt_find_named(const struct pt_an *an, struct pt_host *h)
{
	const struct pt_thread *th = h->a->lead;
	struct named k = { .m = an->m };
	struct told *v; /* by stack */
	double *weight;
	size_t i, at = 0;
	int err;

	if (!th || !th->looks.n)
		return 0;
	err = find_calls(&k, th);
	if (err || !k.n)
		return err;
	v = calloc(an->m->code_stacks.n + 1, sizeof(*v));
	err = pt_weigh_looks(an, th, &weight);
	if (!v)
		err = -ENOMEM;
	for (i = 0; !err && i < th->looks.n; i++)
		err = add_look(&k, h, v, &th->looks.v[i], weight[i], &at);
	free(weight);
	free(v);
	return err;
}
