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
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/waits/host.h"

#define DEPTH 256
#define STACKS_MAX 64 /* different ones inside of calls */

/* From the outermost function to the innermost. */
struct stack {
	const struct pt_code_line *line[DEPTH];
	uint32_t flags[DEPTH];
	size_t n;
};

struct named {
	const struct pt_model *m;
	uint32_t calls[STACKS_MAX]; /* stacks met inside of calls of the device */
	size_t n;
};

static void unfold(const struct pt_model *m, uint32_t id, struct stack *out)
{
	const struct pt_code_stack *s;
	size_t i, n = 0;

	for (s = pt_model_stack(m, id); s && n < DEPTH; s = pt_model_stack(m, s->caller))
		n++;
	out->n = n;
	for (s = pt_model_stack(m, id), i = n; i > 0; s = pt_model_stack(m, s->caller)) {
		out->line[--i] = pt_model_line(m, s->line);
		out->flags[i] = s->flags;
	}
}

static bool same_function(const struct pt_code_line *a, const struct pt_code_line *b)
{
	return a && b && !strcmp(a->name, b->name) && !strcmp(a->file, b->file);
}

/* Is `x` in the iterator of the innermost function that it has in common with `c`? */
static bool in_iterator(const struct stack *x, const struct stack *c)
{
	size_t n = 0;

	while (n < x->n && n < c->n && same_function(x->line[n], c->line[n]))
		n++;
	if (!n)
		return false;
	return x->flags[n - 1] & PT_PYSTACK_ITER ||
	       (n < x->n && x->flags[n] & PT_PYSTACK_NEXT);
}

static bool is_named(const struct named *k, uint32_t id)
{
	struct stack x, c;
	size_t i;

	unfold(k->m, id, &x);
	for (i = 0; i < k->n; i++) {
		unfold(k->m, k->calls[i], &c);
		if (in_iterator(&x, &c))
			return true;
	}
	return false;
}

static void add_call(struct named *k, uint32_t id)
{
	size_t i;

	for (i = 0; i < k->n; i++)
		if (k->calls[i] == id)
			return;
	if (k->n < STACKS_MAX)
		k->calls[k->n++] = id;
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

static void note(struct pt_host_gap *g, const struct pt_code_look *l, bool named)
{
	g->looks++;
	g->named += named;
	if (named)
		g->named_at += (double)(l->begin - g->g.begin) /
			       (double)(g->g.end - g->g.begin);
}

int pt_find_named(const struct pt_an *an, struct pt_host *h)
{
	const struct pt_thread *th = h->a->lead;
	struct named k = { .m = an->m };
	bool *of; /* by stack: it is in the iterator */
	uint8_t *known;
	size_t i, at = 0;

	if (!th || !th->looks.n)
		return 0;
	for (i = 0; i < th->looks.n; i++)
		if (pt_inside_call(th->proc, th->tid, th->looks.v[i].begin))
			add_call(&k, th->looks.v[i].stack);
	if (!k.n)
		return 0;
	of = calloc(an->m->code_stacks.n + 1, sizeof(*of));
	known = calloc(an->m->code_stacks.n + 1, sizeof(*known));
	for (i = 0; of && known && i < th->looks.n; i++) {
		const struct pt_code_look *l = &th->looks.v[i];
		struct pt_host_gap *g = gap_of(h, l, &at);

		if (!g || l->stack > an->m->code_stacks.n)
			continue;
		if (!known[l->stack])
			of[l->stack] = is_named(&k, l->stack);
		known[l->stack] = 1;
		note(g, l, of[l->stack]);
	}
	i = of && known;
	free(of);
	free(known);
	return i ? 0 : -ENOMEM;
}
