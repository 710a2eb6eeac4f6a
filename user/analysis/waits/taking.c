/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loop's functions that take its batches, as its Python shows: there it takes something out of a
 * queue or a pipe, again and again. Whom it waits for in them is waited for to get a batch, however
 * little comes from there: a word that there may be one, an order, a token.
 */
#include "analysis/waits/taking.h"

/* So many looks found it taking something, and this part of those at any other function: results that
 * come back are taken, too. */
#define TAKING_MIN 3
#define TAKING_PART 0.5

/* The job's own function that is innermost; NULL: none is known. */
static const struct pt_code_line *own_function(const struct pt_model *m, uint32_t stack)
{
	uint32_t ids[PT_STACK_DEPTH];
	size_t i, n = pt_model_unfold(m, stack, ids);

	for (i = 0; i < n; i++) {
		const struct pt_code_line *l = pt_model_line(m, pt_model_stack(m, ids[i])->line);

		if (!l || !l->library)
			return l && !l->native ? l : NULL;
	}
	return NULL;
}

static struct pt_takes *find(struct pt_taking *t, const struct pt_code_line *f)
{
	size_t i;

	for (i = 0; i < t->n; i++)
		if (pt_same_function(t->v[i].function, f))
			return &t->v[i];
	return NULL;
}

void pt_find_taking(const struct pt_loop *loop, const struct pt_thread *th, struct pt_taking *out)
{
	*out = (struct pt_taking){ 0 };
	if (!loop->told)
		return;
	pt_each(const struct pt_code_look, l, &th->looks) {
		const struct pt_code_line *f;
		struct pt_takes *x;

		if (!l->running || !pt_takes_batch(loop->m, l->stack) ||
		    pt_hands_out(loop->m, l->stack))
			continue;
		f = own_function(loop->m, l->stack);
		x = f ? find(out, f) : NULL;
		if (f && !x && out->n < PT_TAKING_MAX) {
			x = &out->v[out->n++];
			*x = (struct pt_takes){ .function = f };
		}
		if (x)
			out->most = pt_max64(out->most, ++x->looks);
	}
}

bool pt_is_taking(const struct pt_model *m, const struct pt_taking *t, uint32_t stack)
{
	const struct pt_code_line *f = t->n ? own_function(m, stack) : NULL;
	size_t i;

	for (i = 0; f && i < t->n; i++)
		if (t->v[i].looks >= TAKING_MIN &&
		    (double)t->v[i].looks >= TAKING_PART * (double)t->most &&
		    pt_same_function(t->v[i].function, f))
			return true;
	return false;
}
