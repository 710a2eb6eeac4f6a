/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where in its loop a thread is when it is looked at, by its stack of Python.
 *
 * A loop that trains calls the device and fetches its next batch, both from one function. So
 * a stack that was looked at between two calls is compared with those that were met inside of
 * calls: the innermost function that both have is the loop's. Where that function's
 * instruction fetches an item (for batch in ...), or what it called is a generator or a
 * __next__(), the thread is inside of the iterator, whatever that is and however deep. What
 * else the loop calls (metrics, a logger, a checkpoint) is not.
 *
 * Or it is above all lines from which that function, or one that it called, calls the device:
 * what comes before a turn's first call makes its batch, what comes behind the last one works
 * on results, or writes a log.
 */
#include "analysis/waits/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/waits/gaps.h"

/* Python's own ways of handing over: whoever called them takes what others made, or hands
 * out what others are to take. */
static bool hands_over(const struct pt_code_line *l)
{
	return strstr(l->file, "/multiprocessing/") || strstr(l->file, "/concurrent/futures/") ||
	       strstr(l->file, "/queue.py");
}

static const struct pt_code_line *handing_over(const struct pt_model *m, uint32_t stack)
{
	struct pt_loop_stack x;
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

bool pt_awaits_result(const struct pt_model *m, uint32_t stack)
{
	const struct pt_code_line *l = handing_over(m, stack);

	/* its other files wait for tasks to come */
	return l && strstr(l->file, "/concurrent/futures/_base.py");
}

bool pt_hands_out(const struct pt_model *m, uint32_t stack)
{
	static const char *const names[] = { "put", "join", "send", "send_bytes", "_send",
					     "_send_bytes" };
	const struct pt_code_line *l = handing_over(m, stack);
	size_t i;

	/* join() of a queue waits until all is taken; that of a process does not */
	if (!l || !(strstr(l->file, "queue.py") || strstr(l->file, "queues.py") ||
		    strstr(l->file, "connection.py")))
		return false;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(pt_own_name(l), names[i]))
			return true;
	return false;
}

bool pt_moves_batch(const struct pt_model *m, uint32_t stack)
{
	static const char *const files[] = { "reduction.py", "connection.py", "queues.py" };
	const struct pt_code_line *l = pt_stack_line(m, stack);
	const char *name = l && l->library && hands_over(l) ? strrchr(l->file, '/') : NULL;
	size_t i;

	for (i = 0; name && i < sizeof(files) / sizeof(files[0]); i++)
		if (!strcmp(name + 1, files[i]))
			return true;
	return false;
}

/* The function that is `i` behind the outermost one. */
static const struct pt_code_stack *function(const struct pt_model *m, const struct pt_loop_stack *s,
					    size_t i)
{
	return i < s->n ? pt_model_stack(m, s->id[s->n - 1 - i]) : NULL;
}

static bool have_both(const struct pt_model *m, const struct pt_loop_stack *x,
		      const struct pt_loop_stack *c, size_t i)
{
	const struct pt_code_stack *a = function(m, x, i), *b = function(m, c, i);

	return a && b && pt_same_function(pt_model_line(m, a->line), pt_model_line(m, b->line));
}

/* So many functions they have in common, the outermost first. */
static size_t in_common(const struct pt_model *m, const struct pt_loop_stack *x,
			const struct pt_loop_stack *c)
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

	return l && !strcmp(pt_own_name(l), "<genexpr>");
}

/* Is `x` in the iterator of the innermost of the `n` functions that it has in common with a
 * call? */
static bool in_iterator(const struct pt_model *m, const struct pt_loop_stack *x, size_t n)
{
	const struct pt_code_stack *loop = n ? function(m, x, n - 1) : NULL;
	const struct pt_code_stack *called = function(m, x, n);

	return loop && (loop->flags & PT_PYSTACK_ITER ||
			(called && called->flags & PT_PYSTACK_NEXT &&
			 !is_expression(pt_model_line(m, called->line))));
}

/* How many functions it has in common with any call: the innermost of them is the loop's. */
static size_t loop_depth(const struct pt_loop *k, const size_t *common)
{
	size_t i, n = 0;

	for (i = 0; i < k->n; i++)
		n = pt_max64(n, common[i]);
	return n;
}

static bool is_named(const struct pt_loop *k, const struct pt_loop_stack *x, const size_t *common)
{
	size_t i;

	for (i = 0; i < k->n; i++)
		if (in_iterator(k->m, x, common[i]))
			return true;
	return false;
}

static const struct pt_code_line *line_at(const struct pt_model *m, const struct pt_loop_stack *s,
					  size_t i)
{
	const struct pt_code_stack *f = function(m, s, i);

	return f ? pt_model_line(m, f->line) : NULL;
}

/* Where it is in the loop, which is the innermost function that it has in common with any
 * call; nothing where the loop itself calls the device there. */
static struct pt_loop_place loop_place(const struct pt_loop *k, const struct pt_loop_stack *x,
				       const size_t *common)
{
	struct pt_loop_place at = { 0 };
	size_t i, n = loop_depth(k, common);

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

/* In one line, is what x calls at depth n called before what c calls there: use(fetch())? */
static bool is_called_before(const struct pt_loop *k, const struct pt_loop_stack *x,
			     const struct pt_loop_stack *c, size_t n)
{
	const struct pt_code_stack *a = function(k->m, x, n), *b = function(k->m, c, n);

	return a && b && a->called_at && a->called_at < b->called_at;
}

/* Is it above all lines of its function, the innermost that it has in common with any call,
 * that call the device, or comes first in one of them? */
static bool is_above_calls(const struct pt_loop *k, const struct pt_loop_stack *x,
			   const size_t *common)
{
	const struct pt_code_line *at, *c;
	size_t i, n = loop_depth(k, common);
	bool any = false;

	at = n ? line_at(k->m, x, n - 1) : NULL;
	if (!at || !at->line || at->library)
		return false;
	for (i = 0; i < k->n; i++) {
		c = common[i] == n ? line_at(k->m, &k->calls[i], n - 1) : NULL;
		if (!c)
			continue;
		if (c->line < at->line ||
		    (c->line == at->line && !is_called_before(k, x, &k->calls[i], n)))
			return false;
		any = true;
	}
	return any;
}

/* Is the innermost function that it has in common with any call one from which only batches go up,
 * while the loop calls the device from others, too? */
static bool only_uploads(const struct pt_loop *k, const size_t *common)
{
	size_t i, n = loop_depth(k, common), others = 0;

	for (i = 0; i < k->n; i++) {
		if (common[i] == n && !k->calls[i].uploads)
			return false;
		others += common[i] < n;
	}
	return others;
}

static void add_stack(struct pt_loop *k, uint32_t id, bool uploads)
{
	struct pt_loop_stack *v = k->calls;
	size_t i;

	for (i = 0; i < k->n; i++)
		if (v[i].id[0] == id) {
			v[i].uploads &= uploads;
			return;
		}
	if (k->n < PT_LOOP_STACKS && pt_model_stack(k->m, id)) {
		v[i].n = pt_model_unfold(k->m, id, v[i].id);
		v[i].uploads = uploads;
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

/* The call that a look inside of one was in may have been noted a moment after the look. */
#define NOTED_NS 20000ull

static bool is_upload(const struct pt_thread *th, const struct pt_code_look *l)
{
	const struct pt_gpu_call *c = pt_last_call(th->proc, th->tid, l->end + NOTED_NS);

	return c && pt_uploads(c);
}

/* It runs in the driver's library, or in the runtime's. */
static bool in_driver(const struct pt_model *m, const struct pt_code_look *l)
{
	const struct pt_code_line *leaf = pt_stack_line(m, l->leaf);

	return leaf && leaf->native && !strncmp(leaf->name, "libcuda", 7);
}

/* The stacks that were met inside of calls. A loop that never waits for its device has launches
 * only, whose returns are not watched: there the libraries tell. 0 or -ENOMEM. */
static int find_calls(struct pt_loop *k, const struct pt_thread *th)
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
		bool call = x->inside * BETWEEN_MORE >= x->between && in_call(th, l);

		if (call)
			add_stack(k, l->stack, is_upload(th, l));
	}
	inside = k->n;
	for (i = 0; !inside && i < th->looks.n; i++)
		if (in_driver(k->m, &th->looks.v[i]))
			add_stack(k, th->looks.v[i].stack, is_upload(th, &th->looks.v[i]));
	free(at);
	return 0;
}

const struct pt_told *pt_loop_tell(struct pt_loop *k, uint32_t id)
{
	size_t i, common[PT_LOOP_STACKS]; /* with each call */
	struct pt_loop_stack x;

	if (!k->told || id > k->m->code_stacks.n)
		return NULL;
	if (k->told[id].known)
		return &k->told[id];
	x.n = pt_model_unfold(k->m, id, x.id);
	for (i = 0; i < k->n; i++)
		common[i] = in_common(k->m, &x, &k->calls[i]);
	k->told[id] = (struct pt_told){ .known = true, .named = is_named(k, &x, common),
					.above = is_above_calls(k, &x, common),
					.takes = pt_takes_batch(k->m, id),
					.gives = pt_hands_out(k->m, id),
					.sends = only_uploads(k, common),
					.at = loop_place(k, &x, common) };
	return &k->told[id];
}

/* The thread's next call moves a batch to the device. */
static bool uploads_next(const struct pt_thread *th, uint64_t ts)
{
	const struct pt_proc *p = th->proc;

	pt_each_call(c, p, ts, UINT64_MAX)
		if (c->tid == th->tid && c->begin >= ts && pt_call_is_step(c))
			return pt_uploads(c);
	return false;
}

int pt_loop_learn(const struct pt_an *an, const struct pt_thread *lead, struct pt_loop *out)
{
	int err;

	*out = (struct pt_loop){ .m = an->m };
	if (!lead || !lead->looks.n)
		return 0;
	err = find_calls(out, lead);
	if (err || !out->n)
		return err;
	out->told = calloc(an->m->code_stacks.n + 1, sizeof(*out->told));
	if (!out->told)
		return -ENOMEM;
	pt_each(const struct pt_code_look, l, &lead->looks) {
		const struct pt_told *x = l->running ? pt_loop_tell(out, l->stack) : NULL;

		out->takes_above += x && x->above && x->takes && !x->gives &&
				    uploads_next(lead, l->begin);
	}
	return 0;
}

void pt_loop_free(struct pt_loop *k)
{
	free(k->told);
	k->told = NULL;
}
