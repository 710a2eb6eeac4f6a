/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loop's functions that take its batches, as its Python shows: there it takes something out of a
 * queue or a pipe, again and again, and none of them calls the device. Whom it waits for in them
 * is waited for to get a batch, however little comes from there: a word that there may be one, an
 * order, a token.
 */
#include "analysis/waits/taking.h"

#include "analysis/waits/host.h"

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

static void leave_callers(struct pt_taking *t, const struct pt_model *m, uint32_t stack)
{
	uint32_t ids[PT_STACK_DEPTH];
	size_t i, n = pt_model_unfold(m, stack, ids);

	for (i = 0; i < n; i++) {
		struct pt_takes *x = find(t, pt_model_line(m, pt_model_stack(m, ids[i])->line));

		if (x)
			x->calls = true;
	}
}

void pt_find_taking(const struct pt_model *m, const struct pt_thread *th, struct pt_taking *out)
{
	*out = (struct pt_taking){ 0 };
	if (!th)
		return;
	pt_each(const struct pt_code_look, l, &th->looks) {
		const struct pt_code_line *f;
		struct pt_takes *x;

		if (!l->running || !pt_takes_batch(m, l->stack) || pt_hands_out(m, l->stack))
			continue;
		f = own_function(m, l->stack);
		x = f ? find(out, f) : NULL;
		if (f && !x && out->n < PT_TAKING_MAX) {
			x = &out->v[out->n++];
			x->function = f;
		}
		if (x)
			x->looks++;
	}
	for (size_t i = 0; out->n && i < th->looks.n; i++) {
		const struct pt_code_look *l = &th->looks.v[i];

		if (pt_inside_call(th->proc, th->tid, l->begin) &&
		    pt_inside_call(th->proc, th->tid, l->end))
			leave_callers(out, m, l->stack);
	}
	for (size_t i = 0; i < out->n; i++)
		out->most = pt_max64(out->most, out->v[i].looks);
}

bool pt_is_taking(const struct pt_model *m, const struct pt_taking *t, uint32_t stack)
{
	const struct pt_code_line *f = t->n ? own_function(m, stack) : NULL;
	size_t i;

	for (i = 0; f && i < t->n; i++)
		if (!t->v[i].calls && t->v[i].looks >= TAKING_MIN &&
		    (double)t->v[i].looks >= TAKING_PART * (double)t->most &&
		    pt_same_function(t->v[i].function, f))
			return true;
	return false;
}
