/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/workers/code.h"

#include "analysis/waits/host.h"

/* The functions in which a thread always is, the outermost first. */
struct path {
	size_t n;
	const struct pt_code_line *fn[PT_STACK_DEPTH];
};

static void keep_common(const struct pt_model *m, uint32_t stack, bool first, struct path *out)
{
	uint32_t id[PT_STACK_DEPTH];
	size_t n = pt_model_unfold(m, stack, id), i;

	if (first)
		out->n = n;
	for (i = 0; i < n && i < out->n; i++) {
		const struct pt_code_line *l =
			pt_model_line(m, pt_model_stack(m, id[n - 1 - i])->line);

		if (!l || (!first && !pt_same_function(out->fn[i], l)))
			break;
		out->fn[i] = l;
	}
	out->n = i;
}

static void find_path(const struct pt_model *m, const struct pt_thread *th, struct path *out)
{
	size_t i, stride = th->looks.n / PT_LOOKS_MAX + 1;
	bool first = true;

	out->n = 0;
	for (i = 0; i < th->looks.n; i += stride) {
		keep_common(m, th->looks.v[i].stack, first, out);
		first = false;
	}
}

/* The innermost of the job's own functions in which one always is. */
static const struct pt_code_line *own_function(const struct path *p)
{
	size_t i = p->n;

	while (i-- > 0)
		if (!p->fn[i]->library && !p->fn[i]->native)
			return p->fn[i];
	return NULL;
}

static bool passes(const struct path *p, const struct pt_code_line *fn)
{
	size_t i;

	for (i = 0; i < p->n; i++)
		if (pt_same_function(p->fn[i], fn))
			return true;
	return false;
}

bool pt_run_other_code(const struct pt_model *m, const struct pt_thread *x,
		       const struct pt_thread *y)
{
	const struct pt_code_line *fx, *fy;
	struct path a, b;

	find_path(m, x, &a);
	find_path(m, y, &b);
	fx = own_function(&a);
	fy = own_function(&b);
	return fx && fy && !passes(&b, fx) && !passes(&a, fy);
}

bool pt_run_same_code(const struct pt_model *m, const struct pt_thread *x,
		      const struct pt_thread *y, const struct pt_thread *other)
{
	const struct pt_code_line *fx, *fy;
	struct path a, b, c;

	find_path(m, x, &a);
	find_path(m, y, &b);
	find_path(m, other, &c);
	fx = own_function(&a);
	fy = own_function(&b);
	return (fx && passes(&b, fx) && !passes(&c, fx)) ||
	       (fy && passes(&a, fy) && !passes(&c, fy));
}

/* The outermost of the job's own functions. */
static const struct pt_code_line *begins_in(const struct pt_model *m, uint32_t stack)
{
	uint32_t id[PT_STACK_DEPTH];
	size_t n = pt_model_unfold(m, stack, id);

	while (n--) {
		const struct pt_code_line *l = pt_model_line(m, pt_model_stack(m, id[n])->line);

		if (l && !l->library && !l->native)
			return l;
	}
	return NULL;
}

const struct pt_code_line *pt_started_with(const struct pt_model *m, const struct pt_thread *th)
{
	size_t i, n = 0, all = 0, stride = th->looks.n / PT_LOOKS_MAX + 1;
	const struct pt_code_line *first = NULL;

	for (i = 0; i < th->looks.n; i += stride) {
		const struct pt_code_line *x = begins_in(m, th->looks.v[i].stack);

		first = first ? first : x;
		n += first && pt_same_function(first, x);
		all++;
	}
	return pt_looks_tell(n, all) ? first : NULL;
}
